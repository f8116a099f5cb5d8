"""GRanker with a trainable head.

Training starts at the frozen GRanker, with the cross-encoder's own head and the smoothing of the paper. The input is
the vectors of (query, passage) pairs, which are computed once and cached on disk.
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
    r"""Score retrieved nodes from the pair vectors of a cross-encoder and the edges among the nodes.

    .. math:: S = \mathrm{head}((1 - \alpha) H + \alpha P H)

    with :math:`P H` of :func:`~graphrerank.operators.granker.neighbour_context`.

    Source: FastInsight, Algorithm 2 (GRanker). *Differences from the paper:* the head is trained with dropout, and
    :math:`\alpha` may be a learned scalar. The paper uses the frozen head of the encoder and a constant.

    Args:
        hidden_size: Width of a pair vector. Must equal that of the cross-encoder.
        activation: Activation of the cross-encoder's head. See
            :class:`~graphrerank.operators.cross_encoder.ClassificationHead`.
        norm_eps: Epsilon of the layer norm in the cross-encoder's head. If None, there is no norm.
        smoothing: Weight :math:`\alpha` of the neighbours, in [0, 1]. With ``learn_smoothing``, its initial value.
        learn_smoothing: Whether :math:`\alpha` is learned, as the sigmoid of a parameter.
        dropout: Probability of dropping a smoothed activation in training, in [0, 1].

    Raises:
        UserError: If a number is out of range.

    Example:
        >>> model = GRankerHead(hidden_size=8)
        >>> model(torch.zeros(3, 8), torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 2, 0])).shape
        torch.Size([3])
    """

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
        check_share(smoothing=smoothing, dropout=dropout)
        if learn_smoothing and not 0 < smoothing < 1:
            raise UserError(f"`smoothing` must be above 0 and below 1 if it is learned, got {smoothing}")
        self.dropout = dropout
        self.smoothing = smoothing
        logit = math.log(smoothing / (1 - smoothing)) if learn_smoothing else 0.0
        self.smoothing_logit = nn.Parameter(torch.tensor(logit)) if learn_smoothing else None
        self.head = ClassificationHead(hidden_size, activation=activation, norm_eps=norm_eps)

    def start_from(self, encoder: CrossEncoder) -> None:
        """Copy the weights of a cross-encoder's head.

        Args:
            encoder: Cross-encoder whose head has the same shape.
        """
        self.head.load_state_dict(encoder.classification_head.state_dict())

    def feature_names(self, score_names: Sequence[str]) -> list[str]:
        """Return the names of a candidate's features. Scores of the retriever are not among them.

        Args:
            score_names: Names of the scores of the retriever, which are ignored.
        """
        return ["pair_vector", "degree"]

    def forward(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score every node.

        Args:
            pair_vectors: Pair vectors of the cross-encoder, ``[N, hidden_size]``.
            edge_index: Unique edges among the nodes, ``[2, E]``.
            degree: Number of neighbours of each node in the whole corpus graph, ``[N]``.

        Returns:
            Logits ``[N]``.
        """
        logit = self.smoothing_logit
        if logit is None:
            smoothed = smooth_vectors(pair_vectors, edge_index, degree, self.smoothing)
        else:
            smoothed = torch.lerp(pair_vectors, neighbour_context(pair_vectors, edge_index, degree), logit.sigmoid())
        scores: Tensor = self.head(F.dropout(smoothed, self.dropout, self.training))
        return scores


def head_arguments(encoder: CrossEncoder) -> dict[str, Any]:
    """Return the arguments of a :class:`GRankerHead` that depend on its cross-encoder.

    Args:
        encoder: Cross-encoder whose pair vectors the head will score.
    """
    head = encoder.classification_head
    return {"hidden_size": head.hidden_size, "activation": head.activation, "norm_eps": head.norm_eps}


def frozen_grankers(encoder: CrossEncoder) -> dict[str, nn.Module]:
    """Build the frozen baselines of a trained head: the cross-encoder alone, and GRanker with the cross-encoder's head.

    Args:
        encoder: Cross-encoder whose head the baselines use.

    Returns:
        Models by name, ``cross_encoder`` and ``granker``.
    """
    models: dict[str, nn.Module] = {}
    for name, smoothing in (("cross_encoder", 0.0), ("granker", 0.2)):
        model = models[name] = GRankerHead(**head_arguments(encoder), smoothing=smoothing)
        model.start_from(encoder)
    return models


@dataclass(frozen=True)
class TrainedHead:
    """Trained head that replaces the head of a cross-encoder.

    Attributes:
        model: Model in evaluation mode, which also smooths the vectors.
        encoder_fingerprint: Fingerprint of the cross-encoder on whose pair vectors the model was trained.
    """

    model: GRankerHead
    encoder_fingerprint: str

    def score(self, pair_vectors: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score every node.

        Args:
            pair_vectors: Pair vectors of the cross-encoder, ``[N, hidden_size]``.
            edge_index: Unique edges among the nodes, ``[2, E]``.
            degree: Number of neighbours of each node in the whole corpus graph, ``[N]``.

        Returns:
            Logits ``[N]``.
        """
        scores: Tensor = self.model.to(pair_vectors.device)(pair_vectors, edge_index, degree)
        return scores


def load_trained_head(checkpoint: str) -> TrainedHead:
    """Load a trained head from a checkpoint.

    Args:
        checkpoint: Path or name of the checkpoint. Of a run with several models, the primary model is loaded.

    Returns:
        Trained head.

    Raises:
        UserError: If there is no such checkpoint, or if its model is not a :class:`GRankerHead`.
    """
    loaded = load_primary(checkpoint)
    pair_encoder = loaded.reranker.pair_encoder if isinstance(loaded.model, GRankerHead) else None
    if not isinstance(loaded.model, GRankerHead) or pair_encoder is None:
        name = type(loaded.model).__name__
        raise UserError(
            f"{loaded.path} must contain a GRankerHead, got a {name}. Train one with graphrerank train "
            "experiment=granker_head"
        )
    return TrainedHead(loaded.model, pair_encoder.fingerprint)
