"""GRanker with a head that is trained through the graph smoothing.

It starts as the frozen GRanker, with the encoder's own head and the paper's smoothing, and reads vectors of (query,
passage) pairs, which are computed once and cached on disk.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.core import Reranker
from graphrerank.core.model_inputs import PAIRS
from graphrerank.models.checkpoint import load_primary
from graphrerank.operators.cross_encoder import ClassificationHead, CrossEncoder
from graphrerank.operators.granker import neighbour_context, smooth_vectors
from graphrerank.utils.checks import UserError, check_share


class GRankerHead(Reranker):
    r"""Score retrieved nodes from a cross-encoder's vectors and the edges among them.

    .. math:: S = \mathrm{head}((1 - \alpha) H + \alpha P H)

    Source: FastInsight, Algorithm 2 (GRanker). Where we differ: the head is trained (the paper's is the encoder's own,
    frozen), with dropout, and :math:`\alpha` may be a learned scalar.

    ``hidden_size``, ``activation`` and ``norm_eps`` are those of the encoder's ``ClassificationHead``.
    """

    inputs = PAIRS

    def __init__(
        self,
        *,
        hidden_size: int = 384,
        activation: str = "tanh",
        norm_eps: float | None = None,
        smoothing: float = 0.2,  # share of the neighbours in [0, 1]; the starting point where it is learned
        learn_smoothing: bool = False,  # as the sigmoid of a parameter
        dropout: float = 0.0,  # probability of dropping a smoothed activation in training, in [0, 1)
    ) -> None:
        super().__init__()
        check_share(smoothing=smoothing, dropout=dropout)
        if learn_smoothing and not 0 < smoothing < 1:
            raise UserError(f"`smoothing` must lie between 0 and 1 where it is learned, got {smoothing}")
        self.dropout = dropout
        self.smoothing = smoothing
        logit = math.log(smoothing / (1 - smoothing)) if learn_smoothing else 0.0
        self.smoothing_logit = nn.Parameter(torch.tensor(logit)) if learn_smoothing else None
        self.head = ClassificationHead(hidden_size, activation=activation, norm_eps=norm_eps)

    def start_from(self, encoder: CrossEncoder) -> None:
        """Copy the weights of a cross-encoder's head."""
        self.head.load_state_dict(encoder.classification_head.state_dict())

    def feature_names(self, score_names: Sequence[str]) -> list[str]:
        """Name the features of a candidate; the retriever's scores are not among them."""
        return ["pair_vector", "degree"]

    def forward(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score every node, ``[N]`` logits, by vectors ``[N, hidden_size]``, as of :func:`neighbour_context`."""
        logit = self.smoothing_logit
        if logit is None:
            smoothed = smooth_vectors(pair_vectors, edge_index, degree, self.smoothing)
        else:
            smoothed = torch.lerp(pair_vectors, neighbour_context(pair_vectors, edge_index, degree), logit.sigmoid())
        scores: Tensor = self.head(F.dropout(smoothed, self.dropout, self.training))
        return scores


def head_arguments(encoder: CrossEncoder) -> dict[str, Any]:
    """Return the arguments of a :class:`GRankerHead` that its cross-encoder decides."""
    head = encoder.classification_head
    return {"hidden_size": head.hidden_size, "activation": head.activation, "norm_eps": head.norm_eps}


def frozen_grankers(encoder: CrossEncoder) -> dict[str, nn.Module]:
    """Build the baselines of a trained head: the cross-encoder, and GRanker with its head."""
    models: dict[str, nn.Module] = {}
    for name, smoothing in (("cross_encoder", 0.0), ("granker", 0.2)):
        model = models[name] = GRankerHead(**head_arguments(encoder), smoothing=smoothing)
        model.start_from(encoder)
    return models


@dataclass(frozen=True)
class TrainedHead:
    """Scores retrieved nodes in place of a cross-encoder's head."""

    model: GRankerHead  # in evaluation mode; it smooths inside itself
    encoder_fingerprint: str  # of the cross-encoder whose vectors it was trained on

    def score(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score nodes as ``GRankerHead.forward``: logits ``[N]``."""
        scores: Tensor = self.model.to(pair_vectors.device)(pair_vectors, edge_index, degree)
        return scores


def load_trained_head(checkpoint: str) -> TrainedHead:
    """Load a head from a checkpoint, of a run with several models the primary one."""
    loaded = load_primary(checkpoint)
    pair_encoder = loaded.reranker.pair_encoder if isinstance(loaded.model, GRankerHead) else None
    if not isinstance(loaded.model, GRankerHead) or pair_encoder is None:
        found = type(loaded.model).__name__
        raise UserError(f"{loaded.path}: needed a head of GRanker (train.py experiment=granker_head), found a {found}")
    return TrainedHead(loaded.model, pair_encoder.fingerprint)
