"""What a state encoder is: the frozen part of a cross-encoder whose last layers are trained."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class StateEncoder(Protocol):
    """A cross-encoder without its last layers: it gives the states of all tokens, which these go on from."""

    def encode_states(self, query_texts: Sequence[str], passages: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Read ``M`` pairs.

        Returns:
            ``token_states [T, h]`` float32, the tokens of all pairs one after the other without padding, and
            ``token_ptr [M + 1]`` int64: pair ``m`` owns the tokens ``token_ptr[m]:token_ptr[m + 1]``.
        """
