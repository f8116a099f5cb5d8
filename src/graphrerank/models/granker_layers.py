"""GRanker whose cross-encoder is trained in its last layers.

Training starts at the frozen GRanker. The model contains only the trained layers. A batch contains the states of all
tokens after the frozen layers, which take some hundred times the memory of pair vectors and are computed again in each
epoch: use few candidates and small batches.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from graphrerank.core import ModelInputs, Reranker
from graphrerank.core.model_inputs import PAIRS, token_states
from graphrerank.models.granker import GRankerHead, head_arguments
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.encoder_layers import EncoderLayers


class GRankerLayers(Reranker):
    r"""Score retrieved nodes with trained last layers of a cross-encoder and the edges among the nodes.

    The pair vectors of :class:`~graphrerank.models.granker.GRankerHead` are computed by the trained layers:
    :math:`H = \mathrm{layers}(\mathrm{states})`.

    Args:
        train_last_layers: Number of last layers of the cross-encoder, at least 1.
        encoder: Settings of the cross-encoder
            (:attr:`~graphrerank.operators.cross_encoder.CrossEncoder.layer_settings`).
        arguments: Arguments of the head.

    Raises:
        UserError: If the layers do not fit the cross-encoder.
    """

    def __init__(self, *, train_last_layers: int, encoder: Mapping[str, Any], **arguments: Any) -> None:
        super().__init__()
        self.inputs = self.inputs_of(train_last_layers=train_last_layers)
        self.layers = EncoderLayers(encoder, train_last_layers)
        self.granker = GRankerHead(**arguments)
        if encoder["model_type"] == "modernbert":  # a bias that the cross-encoder does not have stays 0
            head = self.granker.head
            head.dense.bias.requires_grad_(bool(encoder.get("classifier_bias")))
            head.norm.bias.requires_grad_(bool(encoder.get("norm_bias")))

    @classmethod
    def inputs_of(cls, *, train_last_layers: int, **_: Any) -> ModelInputs:  # type: ignore[override]  # it is required
        """Return the inputs of a model before it is built.

        Args:
            train_last_layers: Number of last layers.
        """
        return token_states(train_last_layers)

    def start_from(self, encoder: CrossEncoder) -> None:
        """Copy the weights of a cross-encoder's last layers and head.

        Args:
            encoder: Cross-encoder with the settings of the model.
        """
        self.layers.load_state_dict(encoder.last_layers(self.layers.num_layers).state_dict())
        self.granker.start_from(encoder)

    def feature_names(self, score_names: Sequence[str]) -> list[str]:
        """Return the names of a candidate's features. Scores of the retriever are not among them.

        Args:
            score_names: Names of the scores of the retriever, which are ignored.
        """
        return ["token_states", "degree"]

    def forward(self, token_states: Tensor, token_ptr: Tensor, edge_index: Tensor, degree: Tensor) -> Tensor:
        """Score every node.

        Args:
            token_states: States of the tokens of all pairs after the frozen layers, ``[T, hidden_size]``.
            token_ptr: Boundaries of the pairs, ``[N + 1]``.
            edge_index: Unique edges among the nodes, ``[2, E]``.
            degree: Number of neighbours of each node in the whole corpus graph, ``[N]``.

        Returns:
            Logits ``[N]``.
        """
        scores: Tensor = self.granker(self.layers(token_states, token_ptr), edge_index, degree)
        return scores


def trainable_granker(
    *, train_last_layers: int = 0, encoder: Mapping[str, Any] | None = None, **arguments: Any
) -> GRankerHead | GRankerLayers:
    """Build a trainable GRanker.

    Args:
        train_last_layers: Number of last layers of the cross-encoder to train with the head. 0 trains the head alone.
        encoder: Settings of the cross-encoder. Ignored if ``train_last_layers`` is 0.
        arguments: Arguments of :class:`~graphrerank.models.granker.GRankerHead`.

    Returns:
        :class:`~graphrerank.models.granker.GRankerHead`, or :class:`GRankerLayers` with trained layers.
    """
    if train_last_layers == 0:
        return GRankerHead(**arguments)
    return GRankerLayers(train_last_layers=train_last_layers, encoder=encoder or {}, **arguments)


def _inputs_of(*, train_last_layers: int = 0, **_: Any) -> ModelInputs:
    return token_states(train_last_layers) if train_last_layers else PAIRS


trainable_granker.inputs_of = _inputs_of  # type: ignore[attr-defined]


def granker_arguments(settings: Mapping[str, Any], encoder: CrossEncoder) -> dict[str, Any]:
    """Complete the arguments of :func:`trainable_granker` with those that depend on the cross-encoder.

    Args:
        settings: Configured arguments.
        encoder: Cross-encoder that the training starts from.

    Returns:
        Arguments of the model, which its checkpoint contains. ``train_last_layers: 0`` is omitted.
    """
    arguments = {**settings, **head_arguments(encoder)}
    if arguments.pop("train_last_layers", 0):
        arguments |= {"train_last_layers": settings["train_last_layers"], "encoder": encoder.layer_settings}
    return arguments
