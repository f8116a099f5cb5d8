"""The last layers of a cross-encoder's body as a separate module, trainable without the rest."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "modernbert")  # of transformers; one for each head of cross_encoder.py
MIN_LENGTH_RATIO = 0.75  # of a batch's shortest to its longest pair; padding costs as much time as text
CHUNK_PAIRS = 32  # pairs whose activations are held at once
UNUSED_SETTINGS = ("architectures", "id2label", "label2id", "transformers_version", "dtype", "problem_type")


class EncoderLayers(nn.Module):
    """Map the states of all tokens to one vector per pair, as the whole cross-encoder does.

    In training, layers keep the dropout of their configuration. Activations are recomputed in the backward pass,
    ``CHUNK_PAIRS`` pairs at a time: memory grows with the states, not with the layers.
    """

    def __init__(self, config: Mapping[str, Any], num_layers: int) -> None:
        super().__init__()
        from transformers import AutoConfig, AutoModel  # heavy: only when it is used

        model_type, all_layers = config.get("model_type"), config.get("num_hidden_layers", 0)
        if model_type not in MODEL_TYPES:
            raise ValueError(f"`train_last_layers` needs an encoder of one of {MODEL_TYPES}, got {model_type!r}")
        if not isinstance(num_layers, int) or not 1 <= num_layers <= all_layers:
            raise ValueError(f"`train_last_layers` must lie in [1, {all_layers}] for this encoder, got {num_layers}")
        self.config = dict(config)
        self.num_layers = num_layers
        last = self.config | {"num_hidden_layers": num_layers, "vocab_size": (config.get("pad_token_id") or 0) + 1}
        last |= {name: None for name in last if name.endswith("_token_id") and name != "pad_token_id"}  # no vocabulary
        if "layer_types" in last:
            last["layer_types"] = last["layer_types"][-num_layers:]
        try:  # settings may be untrusted: they select no code
            settings = AutoConfig.for_model(**last)
            self.body = AutoModel.from_config(
                settings, trust_remote_code=False, attn_implementation="sdpa", dtype=torch.float32
            )
        except Exception as error:  # transformers raises almost anything for invalid settings
            raise ValueError(f"the encoder's settings do not fit {model_type!r}: {error}") from error
        self.body.embeddings = _NoEmbeddings()
        if hasattr(self.body, "pooler"):
            self.body.pooler = None  # part of the head
        if model_type == "modernbert" and num_layers < all_layers:  # only the encoder's very first layer has no norm
            modern = self.body.config
            self.body.layers[0].attn_norm = nn.LayerNorm(modern.hidden_size, eps=modern.norm_eps, bias=modern.norm_bias)

    def start_from(self, body: nn.Module) -> None:
        """Copy the weights of a whole encoder's last layers."""
        for ours, theirs in zip(last_parts(self.body, self.num_layers), last_parts(body, self.num_layers), strict=True):
            ours.load_state_dict(theirs.state_dict())

    def copy_to(self, body: nn.Module) -> None:
        """Overwrite the weights of a whole encoder's last layers."""
        for ours, theirs in zip(last_parts(self.body, self.num_layers), last_parts(body, self.num_layers), strict=True):
            theirs.load_state_dict(ours.state_dict())

    def forward(self, token_states: Tensor, token_ptr: Tensor) -> Tensor:
        """Encode ``N`` pairs, in batches of similar length, as ``[N, h]``; ``token_ptr`` bounds each pair's states."""
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
        return pool(states, mask, mean=self.config.get("classifier_pooling") == "mean")


class _NoEmbeddings(nn.Module):
    """Passes states on in place of embeddings."""

    def forward(self, *, inputs_embeds: Tensor, **_: Any) -> Tensor:
        return inputs_embeds


def pool(states: Tensor, mask: Tensor, *, mean: bool) -> Tensor:
    """Return the vector ``[B, h]`` of each pair: the state of its first token, or the mean over its tokens.

    ``states`` are ``[B, T, h]``, ``mask`` is ``[B, T]``, not 0 for tokens.
    """
    if not mean:
        return states[:, 0]
    weight = mask.unsqueeze(-1)
    return (states * weight).sum(1) / weight.sum(1)


def layer_settings(config: Any) -> dict[str, Any]:
    """Return the settings of a transformers configuration that determine its layers, as plain JSON."""
    settings: dict[str, Any] = config.to_diff_dict()
    return {name: s for name, s in settings.items() if name not in UNUSED_SETTINGS and not name.startswith("_")}


def layers_of(body: nn.Module) -> nn.ModuleList:
    """Return the layers of an encoder of :data:`MODEL_TYPES`, first to last."""
    layers = body.get_submodule("layers" if hasattr(body, "layers") else "encoder.layer")
    assert isinstance(layers, nn.ModuleList)
    return layers


def last_parts(body: nn.Module, num_layers: int) -> list[nn.Module]:
    """Return the last modules of an encoder: its last layers, and the final norm if there is one."""
    layers = layers_of(body)
    modules: list[nn.Module] = [layers[len(layers) - num_layers :]]
    return [*modules, body.get_submodule("final_norm")] if hasattr(body, "final_norm") else modules


def batches_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Group pairs into batches that need little padding, the longest pairs first.

    Example:
        >>> list(batches_by_length([10, 90, 100, 95, 9], 2))
        [[2, 3], [1], [0, 4]]
    """
    batch: list[int] = []
    for pair in sorted(range(len(lengths)), key=lambda pair: -lengths[pair]):
        if batch and (len(batch) == batch_size or lengths[pair] < MIN_LENGTH_RATIO * lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch
