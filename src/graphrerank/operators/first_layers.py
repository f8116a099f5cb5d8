"""The frozen part of a cross-encoder whose last layers are trained."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from graphrerank.operators.cross_encoder import CrossEncoder


@dataclass(frozen=True)
class FirstLayers:
    """A cross-encoder without its last layers; a ``StateEncoder``.

    Attributes:
        encoder: The cross-encoder.
        without_last: Number of layers that are left out.
    """

    encoder: CrossEncoder
    without_last: int

    def encode_states(self, query_texts: Sequence[str], passages: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Encode pairs as :meth:`CrossEncoder.encode_states`."""
        return self.encoder.encode_states(query_texts, passages, without_last=self.without_last)
