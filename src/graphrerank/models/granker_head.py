"""GRanker with a head that is trained through the graph smoothing.

Notable about it:

- The encoder stays frozen: the model reads vectors of (query, passage) pairs, computed once and cached on disk.
- It starts as the frozen GRanker: the encoder's own head, and the paper's smoothing.
- Plain tensors in and out: the module scripts, and smooths inside itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.graphs.model_inputs import PAIRS, ModelInputs
from graphrerank.models.checkpoint import load_primary
from graphrerank.operators.classification_head import ClassificationHead
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.granker import neighbour_context


class GRankerHead(nn.Module):
    r"""Score retrieved nodes from a cross-encoder's vectors and the edges among them.

    .. math:: S = \mathrm{head}((1 - \alpha) H + \alpha P H)

    Source: FastInsight, Algorithm 2 (GRanker). Where we differ: the head is trained (the paper's is the encoder's own,
    frozen), with dropout, and :math:`\alpha` may be a learned scalar.

    Args:
        hidden_size: Width of a vector.
        activation: The head's, as in :class:`~graphrerank.operators.classification_head.ClassificationHead`.
        norm_eps: The head's, as there.
        smoothing: Share :math:`\alpha` of the neighbours in [0, 1]; the starting point where it is learned.
        learn_smoothing: Whether :math:`\alpha` is trained, as the sigmoid of a parameter.
        dropout: Probability of dropping a smoothed activation in training, in [0, 1).

    Raises:
        ValueError: If an argument is out of range, or ``smoothing`` is to be learned and 0 or 1, where it cannot move.
    """

    features = "pairs"
    inputs = PAIRS

    def __init__(
        self,
        *,
        hidden_size: int = 384,
        activation: str = "tanh",
        norm_eps: float | None = None,
        smoothing: float = 0.2,
        learn_smoothing: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= smoothing <= 1:
            raise ValueError(f"`smoothing` must lie in [0, 1], got {smoothing}")
        if learn_smoothing and not 0 < smoothing < 1:
            raise ValueError(f"`smoothing` must lie between 0 and 1 where it is learned, got {smoothing}")
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must lie in [0, 1), got {dropout}")
        self.dropout = dropout
        self.smoothing = smoothing
        logit = math.log(smoothing / (1 - smoothing)) if learn_smoothing else 0.0
        self.smoothing_logit = nn.Parameter(torch.tensor(logit)) if learn_smoothing else None
        self.head = ClassificationHead(hidden_size, activation=activation, norm_eps=norm_eps)

    @classmethod
    def from_head(cls, head: ClassificationHead, **arguments: Any) -> "GRankerHead":
        """Build a model that starts from a cross-encoder's head.

        Args:
            head: ``CrossEncoder.classification_head``; its weights are copied.
            arguments: Further arguments of the model; :func:`head_arguments` has those of the head.
        """
        model = cls(**head_arguments(head), **arguments)
        model.head.load_state_dict(head.state_dict())
        return model

    @staticmethod
    def inputs_of(**_: Any) -> ModelInputs:
        """Return the inputs of a model with these arguments."""
        return PAIRS

    def start_from(self, encoder: CrossEncoder) -> None:
        """Copy the weights of a cross-encoder's head."""
        self.head.load_state_dict(encoder.classification_head.state_dict())

    def feature_names(self, score_names: Sequence[str]) -> list[str]:
        """Name the features of a candidate; the retriever's scores are not among them."""
        return ["pair_vector", "degree"]

    def forward(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score every retrieved node; a packed batch of graphs is one call.

        Args:
            pair_vectors: ``[N, hidden_size]``, the inputs of the encoder's head: its [CLS] vectors.
            edge_index: ``[2, E]`` the corpus edges among the retrieved nodes, in any order, each once.
            degree: ``[N]`` neighbours of each node in the whole corpus graph.

        Returns:
            ``[N]`` logits.
        """
        context = neighbour_context(pair_vectors, edge_index, degree)
        logit = self.smoothing_logit
        if logit is None:
            smoothed = torch.lerp(pair_vectors, context, self.smoothing)
        else:
            smoothed = torch.lerp(pair_vectors, context, logit.sigmoid())
        scores: Tensor = self.head(F.dropout(smoothed, self.dropout, self.training))
        return scores


def head_arguments(head: ClassificationHead) -> dict[str, Any]:
    """Return the arguments of :class:`GRankerHead` that describe a head."""
    return {"hidden_size": head.hidden_size, "activation": head.activation, "norm_eps": head.norm_eps}


@dataclass(frozen=True)
class TrainedHead:
    """Scores retrieved nodes instead of a cross-encoder's own head.

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
    """Load a head from a checkpoint, of a run with several models the primary one.

    Raises:
        ValueError: If there is no such checkpoint, or its model is no GRanker head.
    """
    loaded = load_primary(checkpoint)
    pair_encoder = loaded.reranker.pair_encoder if isinstance(loaded.model, GRankerHead) else None
    if not isinstance(loaded.model, GRankerHead) or pair_encoder is None:
        found = type(loaded.model).__name__
        raise ValueError(f"{loaded.path}: needed a head of GRanker (train.py experiment=granker_head), found a {found}")
    return TrainedHead(loaded.model, pair_encoder.fingerprint)
