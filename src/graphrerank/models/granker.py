"""GRanker with a head, or with the last layers of its cross-encoder too, trained through the graph smoothing.

Notable about it:

- It starts as the frozen GRanker: the layers and head of the encoder, and the paper's smoothing.
- With the head alone, it reads vectors of (query, passage) pairs, which are computed once and cached on disk.
- With layers, it holds the trained ones only. A batch carries the states of all tokens, some hundred times as much as
  the vectors: take few candidates and small batches.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.checks import UserError, check_share
from graphrerank.graphs.model_inputs import PAIRS, ModelInputs, token_states
from graphrerank.models.checkpoint import load_primary
from graphrerank.operators.cross_encoder import ClassificationHead, CrossEncoder, EncoderLayers
from graphrerank.operators.granker import neighbour_context, smooth_vectors


class GRankerHead(nn.Module):
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


class GRankerLayers(nn.Module):
    """:class:`GRankerHead` of the encoder's vectors of trained last layers, ``H = layers(states)``.

    ``encoder`` are settings of the encoder (:attr:`CrossEncoder.layer_settings`), ``arguments`` those of the head.
    """

    def __init__(self, *, train_last_layers: int, encoder: Mapping[str, Any], **arguments: Any) -> None:
        super().__init__()
        self.inputs = self.inputs_of(train_last_layers=train_last_layers)
        self.layers = EncoderLayers(encoder, train_last_layers)
        self.granker = GRankerHead(**arguments)
        if encoder["model_type"] == "modernbert":  # a bias that the encoder lacks stays 0
            head = self.granker.head
            head.dense.bias.requires_grad_(bool(encoder.get("classifier_bias")))
            head.norm.bias.requires_grad_(bool(encoder.get("norm_bias")))

    @staticmethod
    def inputs_of(*, train_last_layers: int, **_: Any) -> ModelInputs:
        """Return the inputs of a model with these arguments."""
        return token_states(train_last_layers)

    def start_from(self, encoder: CrossEncoder) -> None:
        """Copy the weights of a cross-encoder's last layers and head."""
        self.layers.load_state_dict(encoder.last_layers(self.layers.num_layers).state_dict())
        self.granker.start_from(encoder)

    def feature_names(self, score_names: list[str]) -> list[str]:
        """Name the features of a candidate; the retriever's scores are not among them."""
        return ["token_states", "degree"]

    def forward(self, token_states: Tensor, token_ptr: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score every node, ``[N]`` logits.

        ``token_states`` ``[T, hidden_size]`` are the frozen layers' of all tokens; those of node ``n`` with its query
        are ``token_ptr[n]:token_ptr[n + 1]``.
        """
        scores: Tensor = self.granker(self.layers(token_states, token_ptr), edge_index, degree)
        return scores


def trainable_granker(
    *, train_last_layers: int = 0, encoder: Mapping[str, Any] | None = None, **arguments: Any
) -> GRankerHead | GRankerLayers:
    """Build a model with ``train_last_layers`` trained layers of an ``encoder``, or with 0 the head alone."""
    if train_last_layers == 0:
        return GRankerHead(**arguments)
    return GRankerLayers(train_last_layers=train_last_layers, encoder=encoder or {}, **arguments)


trainable_granker.inputs_of = (  # type: ignore[attr-defined]
    lambda *, train_last_layers=0, **_: token_states(train_last_layers) if train_last_layers else PAIRS
)


def measured_arguments(settings: Mapping[str, Any], encoder: CrossEncoder) -> dict[str, Any]:
    """Complete arguments of :func:`trainable_granker` for the cross-encoder that it starts from."""
    head = encoder.classification_head
    of_head = {"hidden_size": head.hidden_size, "activation": head.activation, "norm_eps": head.norm_eps}
    arguments = {**settings, **of_head}
    if arguments.pop("train_last_layers", 0):
        arguments |= {"train_last_layers": settings["train_last_layers"], "encoder": encoder.layer_settings}
    return arguments


def granker_of(encoder: CrossEncoder, **settings: Any) -> GRankerHead | GRankerLayers:
    """Build a model of :func:`trainable_granker` with a cross-encoder's weights."""
    model = trainable_granker(**measured_arguments(settings, encoder))
    model.start_from(encoder)
    return model


def frozen_grankers(encoder: CrossEncoder, inputs: ModelInputs) -> dict[str, nn.Module]:
    """Build the baselines of a trained model of pairs, with its inputs: the cross-encoder, and GRanker of its head."""
    smoothing = {"cross_encoder": 0.0, "granker": 0.2}
    layers = inputs.last_layers
    return {name: granker_of(encoder, train_last_layers=layers, smoothing=s) for name, s in smoothing.items()}


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
