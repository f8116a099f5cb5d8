"""GRanker with its head and the last layers of its cross-encoder, trained together through the graph smoothing.

Notable about it:

- It holds the trained layers only; the layers before are frozen, and run when a batch is made, not here.
- A batch carries the states of all tokens, some hundred times as much as the vectors that the head alone reads, so
  that nothing of it is kept on disk: take few candidates and small batches.
- It starts as the frozen GRanker, and once trained it is a new cross-encoder with a :class:`GRankerHead`.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from graphrerank.graphs.model_inputs import PAIRS, ModelInputs, token_states
from graphrerank.models.granker_head import GRankerHead, head_arguments
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.encoder_layers import EncoderLayers


class GRankerLayers(nn.Module):
    r"""Score retrieved nodes from the states of a cross-encoder's tokens and the edges among the nodes.

    .. math:: S = \mathrm{head}((1 - \alpha) H + \alpha P H), \qquad H = \mathrm{layers}(\mathrm{states})

    Source: FastInsight, Algorithm 2 (GRanker). Where we differ: head and last layers are trained.

    Args:
        train_last_layers: Number of trained layers, from 1 to all of the encoder's.
        encoder: Settings of the encoder (:attr:`CrossEncoder.layer_settings`).
        arguments: Of the head, as in :class:`GRankerHead`.

    Raises:
        ValueError: If an argument is out of range, or the encoder's type is not known.
    """

    features = "pairs"

    def __init__(self, *, train_last_layers: int, encoder: Mapping[str, Any], **arguments: Any) -> None:
        super().__init__()
        self.inputs = self.inputs_of(train_last_layers=train_last_layers)
        self.layers = EncoderLayers(encoder, train_last_layers)
        self.granker = GRankerHead(**arguments)
        if encoder["model_type"] == "modernbert":  # a bias that the encoder has no place for stays 0
            head = self.granker.head
            head.dense.bias.requires_grad_(bool(encoder.get("classifier_bias")))
            head.norm.bias.requires_grad_(bool(encoder.get("norm_bias")))

    @classmethod
    def from_encoder(cls, encoder: CrossEncoder, train_last_layers: int, **arguments: Any) -> "GRankerLayers":
        """Build a model that starts from a cross-encoder's layers and head.

        Args:
            encoder: The cross-encoder; its weights are copied.
            train_last_layers: Number of trained layers.
            arguments: Further arguments of the head.
        """
        arguments |= head_arguments(encoder.classification_head)
        model = cls(train_last_layers=train_last_layers, encoder=encoder.layer_settings, **arguments)
        model.start_from(encoder)
        return model

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
        """Score every retrieved node, ``[N]`` logits; a packed batch of graphs is one call.

        ``token_states`` ``[T, hidden_size]`` are the frozen layers' of all tokens of all pairs; node ``n`` with its
        query owns the tokens ``token_ptr[n]:token_ptr[n + 1]``. Edges and degrees are those of :class:`GRankerHead`.
        """
        scores: Tensor = self.granker(self.layers(token_states, token_ptr), edge_index, degree)
        return scores


def trainable_granker(
    *, train_last_layers: int = 0, encoder: Mapping[str, Any] | None = None, **arguments: Any
) -> GRankerHead | GRankerLayers:
    """Make the model that ``train_last_layers`` asks for: the head alone, or with layers.

    Args:
        train_last_layers: Layers to train with the head; 0: the encoder is frozen, and its vectors are kept on disk.
        encoder: As in :class:`GRankerLayers`; not looked at where no layer is trained.
        arguments: Of the head, as in :class:`GRankerHead`.

    Raises:
        ValueError: If an argument is out of range, or layers are to be trained and there is no ``encoder``.
    """
    if train_last_layers == 0:
        return GRankerHead(**arguments)
    if encoder is None:
        raise ValueError(f"`encoder` must be given where `train_last_layers` is {train_last_layers}, got none")
    return GRankerLayers(train_last_layers=train_last_layers, encoder=encoder, **arguments)


def _trainable_inputs(*, train_last_layers: int = 0, **_: Any) -> ModelInputs:
    return token_states(train_last_layers) if train_last_layers else PAIRS


trainable_granker.inputs_of = _trainable_inputs  # type: ignore[attr-defined]


def measured_arguments(settings: Mapping[str, Any], encoder: CrossEncoder) -> dict[str, Any]:
    """Return the arguments of a model of pairs: those that were set, and those that follow from the cross-encoder.

    Args:
        settings: Arguments of :func:`trainable_granker`.
        encoder: The cross-encoder that the model starts from.
    """
    arguments = {**settings, **head_arguments(encoder.classification_head)}
    if arguments.pop("train_last_layers", 0):
        arguments |= {"train_last_layers": settings["train_last_layers"], "encoder": encoder.layer_settings}
    return arguments


def frozen_grankers(encoder: CrossEncoder, inputs: ModelInputs) -> dict[str, nn.Module]:
    """Build the baselines of a trained model of pairs: the cross-encoder, and GRanker with the encoder's head.

    Args:
        encoder: The cross-encoder.
        inputs: Of the trained model; the baselines have the same.
    """
    smoothing = {"cross_encoder": 0.0, "granker": 0.2}
    if inputs.last_layers:
        layers = inputs.last_layers
        return {name: GRankerLayers.from_encoder(encoder, layers, smoothing=s) for name, s in smoothing.items()}
    head = encoder.classification_head
    return {name: GRankerHead.from_head(head, smoothing=s) for name, s in smoothing.items()}
