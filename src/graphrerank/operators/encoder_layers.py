"""The last layers of a cross-encoder's body as a module of their own, so that they can be trained without the rest."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "modernbert")  # of transformers; one for each head of cross_encoder.py
LEAST_FILL = 0.75  # a batch's shortest pair relative to its longest; padding costs as much time as text
CHUNK_PAIRS = 32  # pairs whose activations are held at once
UNUSED_SETTINGS = ("architectures", "id2label", "label2id", "transformers_version", "dtype", "problem_type")


class EncoderLayers(nn.Module):
    """Go on from the states of all tokens, and give one vector per pair as the whole cross-encoder does.

    Layers keep the dropout of their configuration in training. Activations are not kept for the backward pass but
    computed again, ``CHUNK_PAIRS`` pairs at a time: memory grows with the states, not with the layers.

    Args:
        config: Settings of the whole encoder, as :func:`layer_settings` gives them.
        num_layers: Layers at its end, from 1 to all of them; embeddings are never among them.

    Raises:
        ValueError: If the encoder's type is none of :data:`MODEL_TYPES`, its settings do not fit, or it has fewer
            layers.
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
        cut = self.config | {"num_hidden_layers": num_layers, "vocab_size": (config.get("pad_token_id") or 0) + 1}
        cut |= {name: None for name in cut if name.endswith("_token_id") and name != "pad_token_id"}  # no words here
        if "layer_types" in cut:
            cut["layer_types"] = cut["layer_types"][-num_layers:]
        try:  # settings may be a stranger's: they choose no code
            settings = AutoConfig.for_model(**cut)
            self.body = AutoModel.from_config(
                settings, trust_remote_code=False, attn_implementation="sdpa", dtype=torch.float32
            )
        except Exception as error:  # what transformers raises for odd settings is almost anything
            raise ValueError(f"the encoder's settings do not fit {model_type!r}: {error}") from error
        self.body.embeddings = _NoEmbeddings()
        if hasattr(self.body, "pooler"):
            self.body.pooler = None  # of the head
        if (
            model_type == "modernbert" and num_layers < all_layers
        ):  # only an encoder's very first layer has no norm here
            own = self.body.config
            self.body.layers[0].attn_norm = nn.LayerNorm(own.hidden_size, eps=own.norm_eps, bias=own.norm_bias)

    def start_from(self, body: nn.Module) -> None:
        """Copy the weights of a whole encoder's last layers."""
        for ours, theirs in zip(last_parts(self.body, self.num_layers), last_parts(body, self.num_layers), strict=True):
            ours.load_state_dict(theirs.state_dict())

    def copy_to(self, body: nn.Module) -> None:
        """Put the weights in the place of a whole encoder's last layers."""
        for ours, theirs in zip(last_parts(self.body, self.num_layers), last_parts(body, self.num_layers), strict=True):
            theirs.load_state_dict(ours.state_dict())

    def forward(self, token_states: Tensor, token_ptr: Tensor) -> Tensor:
        """Read ``N`` pairs, those of like length together.

        Args:
            token_states: ``[T, h]`` the tokens of all pairs after the layers before these.
            token_ptr: ``[N + 1]`` int64; pair ``n`` owns the tokens ``token_ptr[n]:token_ptr[n + 1]``.

        Returns:
            ``[N, h]``, what the encoder's head reads.
        """
        order: list[int] = []
        parts: list[Tensor] = [token_states.new_zeros(0, token_states.shape[1])]
        lengths = token_ptr.diff()
        for pairs in like_lengths(lengths.tolist(), CHUNK_PAIRS):
            chunk = torch.tensor(pairs, device=token_ptr.device)
            slot = torch.arange(int(lengths[chunk].max()), device=token_ptr.device)
            mask = slot < lengths[chunk].unsqueeze(1)  # [pairs, longest]
            states = token_states[torch.where(mask, token_ptr[chunk].unsqueeze(1) + slot, 0)]
            if torch.is_grad_enabled():
                parts.append(checkpoint(self._read, states, mask, use_reentrant=False))
            else:
                parts.append(self._read(states, mask))
            order += pairs
        place = torch.tensor(order, dtype=torch.int64, device=token_ptr.device).argsort()
        return torch.cat(parts)[place]

    def _read(self, states: Tensor, mask: Tensor) -> Tensor:
        states = self.body(inputs_embeds=states, attention_mask=mask.long()).last_hidden_state
        return pool(states, mask, mean=self.config.get("classifier_pooling") == "mean")


class _NoEmbeddings(nn.Module):
    """States in the place of embeddings."""

    def forward(self, *, inputs_embeds: Tensor, **_: Any) -> Tensor:
        return inputs_embeds


def pool(states: Tensor, mask: Tensor, *, mean: bool) -> Tensor:
    """Take the vector of each pair from the states of its tokens: the first token's, or their mean.

    Args:
        states: ``[B, T, h]``.
        mask: ``[B, T]``, not 0 where there is a token.
        mean: Whether the head reads the mean.

    Returns:
        ``[B, h]``.
    """
    if not mean:
        return states[:, 0]
    weight = mask.unsqueeze(-1)
    return (states * weight).sum(1) / weight.sum(1)


def layer_settings(config: Any) -> dict[str, Any]:
    """Return the settings of a configuration of transformers that decide its layers, as plain JSON can hold them."""
    settings: dict[str, Any] = config.to_diff_dict()
    return {name: s for name, s in settings.items() if name not in UNUSED_SETTINGS and not name.startswith("_")}


def layers_of(body: nn.Module) -> nn.ModuleList:
    """Return the layers of an encoder of :data:`MODEL_TYPES`, first to last."""
    layers = body.get_submodule("layers" if hasattr(body, "layers") else "encoder.layer")
    assert isinstance(layers, nn.ModuleList)
    return layers


def last_parts(body: nn.Module, num_layers: int) -> list[nn.Module]:
    """Return the modules at an encoder's end: its last layers, and the norm behind them where there is one."""
    layers = layers_of(body)
    parts: list[nn.Module] = [layers[len(layers) - num_layers :]]
    return [*parts, body.get_submodule("final_norm")] if hasattr(body, "final_norm") else parts


def like_lengths(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Cut pairs into batches that need little padding, the longest pairs first.

    Example:
        >>> list(like_lengths([10, 90, 100, 95, 9], 2))
        [[2, 3], [1], [0, 4]]
    """
    batch: list[int] = []
    for pair in sorted(range(len(lengths)), key=lambda pair: -lengths[pair]):
        if batch and (len(batch) == batch_size or lengths[pair] < LEAST_FILL * lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch
