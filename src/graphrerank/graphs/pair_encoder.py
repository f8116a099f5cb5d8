"""Protocols of a cross-encoder whose encoding and scoring are separate calls, and of another head for it."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

DTYPES = ("float32", "bfloat16", "float16")  # in which a frozen transformer may compute


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

    def encode_states(
        self, query_texts: Sequence[str], passages: Sequence[str], *, without_last: int
    ) -> tuple[Tensor, Tensor]:
        """Encode ``M`` pairs by all layers but the last ones, for a model that replaces these.

        Returns ``token_states [T, h]`` float32 without padding, and ``token_ptr [M + 1]`` int64: pair ``m`` owns the
        tokens ``token_ptr[m]:token_ptr[m + 1]``.
        """

    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., h]``: logits ``[...]``."""


class GraphHead(Protocol):
    """A head that replaces a pair encoder's, and also reads the edges among a query's nodes."""

    @property
    def encoder_fingerprint(self) -> str:
        """Fingerprint of the pair encoder whose vectors it reads."""

    def score(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score ``N`` nodes: logits ``[N]``; ``degree [N]`` counts neighbours in the whole corpus graph."""
