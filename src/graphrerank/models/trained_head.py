"""A trained head of GRanker for pipelines: it knows whose vectors it reads."""

from dataclasses import dataclass

from torch import Tensor

from graphrerank.models.checkpoint import load_primary
from graphrerank.models.granker_head import GRankerHead


@dataclass(frozen=True)
class TrainedHead:
    """Scores retrieved nodes in the place of a cross-encoder's own head.

    Attributes:
        model: The head, in evaluation mode; it smooths inside itself.
        encoder_fingerprint: Of the cross-encoder whose vectors it was trained on.
    """

    model: GRankerHead
    encoder_fingerprint: str

    def score(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score nodes as ``GRankerHead.forward``: logits ``[N]``."""
        scores: Tensor = self.model.to(pair_vectors.device)(pair_vectors, edge_index, degree)
        return scores


def load_trained_head(checkpoint: str) -> TrainedHead:
    """Load a head from a run folder, a ``.ckpt`` or an exported artifact; of a run with several the primary one.

    Raises:
        ValueError: If there is no such checkpoint, or its model is no GRanker head.
    """
    loaded = load_primary(checkpoint)
    pair_encoder = loaded.reranker.pair_encoder if isinstance(loaded.model, GRankerHead) else None
    if not isinstance(loaded.model, GRankerHead) or pair_encoder is None:
        found = type(loaded.model).__name__
        raise ValueError(f"{loaded.path}: needed a head of GRanker (train.py model=granker_head), found a {found}")
    return TrainedHead(loaded.model, pair_encoder.fingerprint)
