"""What a pair encoder is: a cross-encoder whose reading and scoring can be called apart."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class PairEncoder(Protocol):
    """A cross-encoder in two parts: a body that reads (query, passage) pairs, and a head that scores what it read."""

    @property
    def hidden_size(self) -> int:
        """Width ``h`` of a vector."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever vectors or scores would."""

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Read ``M`` pairs: ``[M, h]`` float32, one [CLS] vector before the classification head per pair."""

    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., h]``: logits ``[...]``."""
