"""Last layers of a cross-encoder, so that they can be trained while the layers before them stay frozen."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphrerank.utils.checks import UserError

#: Types of encoders in transformers whose layers can be divided.
MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "modernbert")
#: Smallest allowed ratio of the shortest to the longest pair of a batch, because padding takes as much time as text.
MIN_LENGTH_RATIO = 0.75
#: Number of pairs whose activations are in memory at once.
CHUNK_PAIRS = 32
#: Settings of an encoder that do not affect its layers.
UNUSED_SETTINGS = ("architectures", "id2label", "label2id", "transformers_version", "dtype", "problem_type")


class EncoderLayers(nn.Module):
    """Last layers of an encoder, which map the states of all tokens to one vector per pair.

    In training, activations are computed again in the backward pass, so that memory grows with the number of states and
    not with the number of layers.

    Args:
        settings: Settings of the whole encoder (:func:`layer_settings`).
        num_layers: Number of last layers, at least 1.

    Raises:
        UserError: If the encoder has another type, fewer layers, or invalid settings.
    """

    def __init__(self, settings: Mapping[str, Any], num_layers: int) -> None:
        super().__init__()
        from transformers import AutoConfig, AutoModel  # heavy: only when it is used

        model_type, all_layers = settings.get("model_type"), settings.get("num_hidden_layers", 0)
        if model_type not in MODEL_TYPES:
            raise UserError(f"`train_last_layers` needs an encoder of a type in {MODEL_TYPES}, got {model_type!r}")
        if not isinstance(num_layers, int) or not 1 <= num_layers <= all_layers:
            raise UserError(f"`train_last_layers` must be in [1, {all_layers}] for this encoder, got {num_layers}")
        self.settings = dict(settings)
        self.num_layers = num_layers
        last = self.settings | {"num_hidden_layers": num_layers}
        last["vocab_size"] = (settings.get("pad_token_id") or 0) + 1  # the embeddings are not used
        last |= {name: None for name in last if name.endswith("_token_id") and name != "pad_token_id"}
        if "layer_types" in last:
            last["layer_types"] = last["layer_types"][-num_layers:]
        try:  # The settings may be untrusted. They cannot select code.
            config = AutoConfig.for_model(**last)
            self.body = AutoModel.from_config(
                config, trust_remote_code=False, attn_implementation="sdpa", dtype=torch.float32
            )
        except Exception as error:  # transformers raises almost any exception for invalid settings
            raise UserError(f"the encoder's settings do not fit {model_type!r}: {error}") from error
        self.body.embeddings = _NoEmbeddings()
        if hasattr(self.body, "pooler"):
            self.body.pooler = None  # a part of the head
        if model_type == "modernbert" and num_layers < all_layers:  # only the first layer of the encoder has no norm
            modern = self.body.config
            self.body.layers[0].attn_norm = nn.LayerNorm(modern.hidden_size, eps=modern.norm_eps, bias=modern.norm_bias)

    def corresponding(self, body: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
        """Pair the modules of these layers with those of a whole encoder.

        Args:
            body: Body of an encoder with the same settings.

        Yields:
            Module of these layers, and the module of the encoder with weights of the same names and shapes.
        """
        yield layers_of(self.body), layers_of(body)[-self.num_layers :]
        if hasattr(body, "final_norm"):
            yield self.body.get_submodule("final_norm"), body.get_submodule("final_norm")

    def forward(self, token_states: Tensor, token_ptr: Tensor) -> Tensor:
        """Encode pairs, in batches of similar length.

        Args:
            token_states: States of all tokens ``[T, h]`` after the layers before these.
            token_ptr: Boundaries of the pairs ``[N + 1]`` int64. The tokens of pair ``n`` are
                ``token_ptr[n]:token_ptr[n + 1]``.

        Returns:
            Vectors ``[N, h]``.
        """
        order: list[int] = []
        vectors: list[Tensor] = [token_states.new_zeros(0, token_states.shape[1])]
        lengths = token_ptr.diff()
        for pairs in batches_by_length(lengths.tolist(), CHUNK_PAIRS):
            chunk = torch.tensor(pairs, device=token_ptr.device)
            position = torch.arange(int(lengths[chunk].max()), device=token_ptr.device)
            mask = position < lengths[chunk].unsqueeze(1)  # [pairs, longest]
            states = token_states[torch.where(mask, token_ptr[chunk].unsqueeze(1) + position, 0)]
            if torch.is_grad_enabled():
                vectors.append(checkpoint(self._encode, states, mask, use_reentrant=False))
            else:
                vectors.append(self._encode(states, mask))
            order += pairs
        rows = torch.tensor(order, dtype=torch.int64, device=token_ptr.device).argsort()
        return torch.cat(vectors)[rows]

    def _encode(self, states: Tensor, mask: Tensor) -> Tensor:
        states = self.body(inputs_embeds=states, attention_mask=mask.long()).last_hidden_state
        return pool_states(states, mask, self.settings)


class _NoEmbeddings(nn.Module):
    """Return states instead of embedding tokens."""

    def forward(self, *, inputs_embeds: Tensor, **_: Any) -> Tensor:
        return inputs_embeds


def layer_settings(body: Any) -> dict[str, Any]:
    """Return the settings that determine the layers of an encoder, as plain JSON.

    Args:
        body: Body of an encoder of transformers.
    """
    settings: dict[str, Any] = body.config.to_diff_dict()
    return {name: s for name, s in settings.items() if name not in UNUSED_SETTINGS and not name.startswith("_")}


def layers_of(body: nn.Module) -> nn.ModuleList:
    """Return the layers of an encoder, first to last.

    Args:
        body: Body of an encoder of a type in :data:`MODEL_TYPES`.
    """
    layers = body.get_submodule("layers" if hasattr(body, "layers") else "encoder.layer")
    assert isinstance(layers, nn.ModuleList)
    return layers


def without_last_layers(body: nn.Module, num_layers: int) -> nn.Module:
    """Return an encoder that ends before its last layers. It shares all other modules with the whole encoder.

    Args:
        body: Body of an encoder of a type in :data:`MODEL_TYPES`.
        num_layers: Number of layers to remove.
    """
    shorter, layers = _shallow_copy(body), layers_of(body)
    first = layers[: len(layers) - num_layers]
    if hasattr(body, "layers"):  # the final norm of ModernBERT belongs to the last layers
        shorter.layers, shorter.final_norm = first, nn.Identity()
    else:
        shorter.encoder = _shallow_copy(body.get_submodule("encoder"))
        shorter.encoder.layer = first
    return shorter


def _shallow_copy(module: nn.Module) -> Any:
    copied: Any = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied


def pool_states(states: Tensor, mask: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """Pool the states of the tokens of each pair to the input of the classification head.

    Args:
        states: States ``[B, T, h]``.
        mask: Mask ``[B, T]``, 1 for tokens and 0 for padding.
        settings: Settings of the encoder. ``classifier_pooling: mean`` pools by the mean.

    Returns:
        State of the first token, or mean over the tokens, ``[B, h]``.
    """
    if settings.get("classifier_pooling") != "mean":
        return states[:, 0]
    weight = mask.unsqueeze(-1)
    return (states * weight).sum(1) / weight.sum(1)


def batches_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Group pairs into batches that need little padding, longest pairs first.

    Args:
        lengths: Length of each pair.
        batch_size: Maximum number of pairs per batch.

    Yields:
        Indices of the pairs of a batch.
    """
    batch: list[int] = []
    for pair in sorted(range(len(lengths)), key=lambda pair: -lengths[pair]):
        if batch and (len(batch) == batch_size or lengths[pair] < MIN_LENGTH_RATIO * lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch
