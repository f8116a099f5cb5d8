"""Cross-encoders of transformers in parts: body, last layers and head, with the vectors that GRanker smooths."""

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphrerank.checks import UserError, check_choice, check_counts
from graphrerank.extras import optional
from graphrerank.files import atomic_folder, hash_model
from graphrerank.graphs import DTYPES

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}
HEADS = {  # class of transformers -> its layers before and after the activation, and its norm between them
    "BertForSequenceClassification": ("bert.pooler.dense", "classifier"),
    "RobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "XLMRobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "ModernBertForSequenceClassification": ("head.dense", "classifier", "head.norm"),
}
MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "modernbert")  # of transformers, one for each of `HEADS`
MIN_LENGTH_RATIO = 0.75  # of a batch's shortest to its longest pair; padding costs as much time as text
CHUNK_PAIRS = 32  # pairs whose activations are held at once
FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt", ".model"}  # weights, settings and vocabularies
UNUSED_SETTINGS = ("architectures", "id2label", "label2id", "transformers_version", "dtype", "problem_type")


class ClassificationHead(nn.Module):
    r"""Score pair vectors as the classification heads of BERT, RoBERTa, XLM-R and ModernBERT do.

    .. math:: s = w^\top \mathrm{norm}(f(W h + b)) + c

    with the activation ``f`` = tanh and no norm (``norm_eps=None``) in BERT, where :math:`W` is called the pooler, and
    RoBERTa. In inference these heads are the same map; ModernBERT's has no :math:`b`, which is 0 here. Scriptable.
    """

    def __init__(self, hidden_size: int, *, activation: str = "tanh", norm_eps: float | None = None) -> None:
        super().__init__()
        check_counts(hidden_size=hidden_size)
        check_choice(ACTIVATIONS, activation=activation)
        self.hidden_size = hidden_size
        self.activation = activation
        self.norm_eps = norm_eps
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.activate = ACTIVATIONS[activation]()
        self.norm = nn.Identity() if norm_eps is None else nn.LayerNorm(hidden_size, eps=norm_eps)
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., hidden_size]``: ``[...]`` logits."""
        scores: Tensor = self.out(self.norm(self.activate(self.dense(vectors)))).squeeze(-1)
        return scores


class EncoderLayers(nn.Module):
    """Map the states of all tokens to one vector per pair, as the whole cross-encoder does.

    In training, activations are recomputed in the backward pass: memory grows with the states, not with the layers.
    """

    def __init__(self, config: Mapping[str, Any], num_layers: int) -> None:
        super().__init__()
        from transformers import AutoConfig, AutoModel  # heavy: only when it is used

        model_type, all_layers = config.get("model_type"), config.get("num_hidden_layers", 0)
        if model_type not in MODEL_TYPES:
            raise UserError(f"`train_last_layers` needs an encoder of one of {MODEL_TYPES}, got {model_type!r}")
        if not isinstance(num_layers, int) or not 1 <= num_layers <= all_layers:
            raise UserError(f"`train_last_layers` must lie in [1, {all_layers}] for this encoder, got {num_layers}")
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
            raise UserError(f"the encoder's settings do not fit {model_type!r}: {error}") from error
        self.body.embeddings = _NoEmbeddings()
        if hasattr(self.body, "pooler"):
            self.body.pooler = None  # part of the head
        if model_type == "modernbert" and num_layers < all_layers:  # only the encoder's very first layer has no norm
            modern = self.body.config
            self.body.layers[0].attn_norm = nn.LayerNorm(modern.hidden_size, eps=modern.norm_eps, bias=modern.norm_bias)

    def paired(self, body: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
        """Pair these layers, and the final norm if there is one, with those of a whole encoder."""
        yield _layers_of(self.body), _layers_of(body)[-self.num_layers :]
        if hasattr(body, "final_norm"):
            yield self.body.get_submodule("final_norm"), body.get_submodule("final_norm")

    def forward(self, token_states: Tensor, token_ptr: Tensor) -> Tensor:
        """Encode ``N`` pairs, in batches of similar length, as ``[N, h]``; ``token_ptr`` bounds each pair's states."""
        order: list[int] = []
        vectors: list[Tensor] = [token_states.new_zeros(0, token_states.shape[1])]
        lengths = token_ptr.diff()
        for pairs in _batches_by_length(lengths.tolist(), CHUNK_PAIRS):
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
        return _pool(states, mask, self.config)


class _NoEmbeddings(nn.Module):
    """Passes states on in place of embeddings."""

    def forward(self, *, inputs_embeds: Tensor, **_: Any) -> Tensor:
        return inputs_embeds


def _pool(states: Tensor, mask: Tensor, config: Mapping[str, Any]) -> Tensor:
    """Pool states ``[B, T, h]`` by the first token, or by the mean over tokens, where ``mask`` is 1: ``[B, h]``."""
    if config.get("classifier_pooling") != "mean":
        return states[:, 0]
    weight = mask.unsqueeze(-1)
    return (states * weight).sum(1) / weight.sum(1)


@dataclass(eq=False)
class CrossEncoder:
    """A sequence classifier with one logit, loaded at its first use.

    The vector of a pair is the input of the classifier's head: the state of the first token (for ModernBERT possibly
    the mean over the tokens), before BERT's pooler. ``head(encode(...))`` equals the model's logits.
    """

    model: str | Path  # a local folder, or a model id of the Hugging Face hub
    _: KW_ONLY
    max_length: int = 512  # tokens of a pair; of a longer pair the longer text is truncated
    batch_size: int = 32  # pairs per forward pass at most; pairs of similar length share one
    device: str | torch.device | None = None  # None for CUDA if there is one
    revision: str | None = None  # commit of a hub model
    dtype: str = "float32"  # of the body, or `bfloat16` or `float16`; the head and all returned vectors are float32

    def __post_init__(self) -> None:
        check_choice(DTYPES, dtype=self.dtype)
        check_counts(max_length=self.max_length, batch_size=self.batch_size)
        self.model = str(self.model)
        self._device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def hidden_size(self) -> int:
        """Width of a vector."""
        return self._loaded.head.hidden_size

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights and settings that determine vectors and scores; of id and revision for a hub model."""
        weights = hash_model(str(self.model), self.revision, FINGERPRINTED)
        dtype = () if self.dtype == "float32" else (self.dtype,)
        return hashlib.sha256(repr(("cross-encoder", weights, self.max_length, *dtype)).encode()).hexdigest()

    @property
    def classification_head(self) -> ClassificationHead:
        """The model's head on its device, in evaluation mode; copy it before training."""
        return self._loaded.head

    @property
    def layer_settings(self) -> dict[str, Any]:
        """Settings that determine the layers of the model's body, plain JSON: :class:`EncoderLayers` has them."""
        settings: dict[str, Any] = self._loaded.body.config.to_diff_dict()  # type: ignore[operator, union-attr]
        return {name: s for name, s in settings.items() if name not in UNUSED_SETTINGS and not name.startswith("_")}

    def last_layers(self, num_layers: int) -> EncoderLayers:
        """Copy the body's last layers, at least one, for training, as float32 on the CPU."""
        layers = EncoderLayers(self.layer_settings, num_layers)
        for copied, original in layers.paired(self._loaded.body):
            copied.load_state_dict(original.state_dict())
        return layers

    @torch.no_grad()
    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Encode ``M`` pairs of a query and a passage: ``[M, hidden_size]`` float32, on the CPU."""
        vectors, config = torch.empty(len(passages), self.hidden_size), vars(self._loaded.body.config)
        for pairs, states, mask in self._states(self._loaded.body, query_texts, passages):
            vectors[pairs] = _pool(states, mask, config).cpu()
        return vectors

    @torch.no_grad()
    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., hidden_size]``: logits ``[...]``, on the vectors' device."""
        logits: Tensor = self._loaded.head(vectors.to(self._device))
        return logits.to(vectors.device)

    @torch.no_grad()
    def encode_states(
        self, query_texts: Sequence[str], passages: Sequence[str], *, without_last: int
    ) -> tuple[Tensor, Tensor]:
        """Encode ``M`` pairs for ``last_layers(without_last)``, as of :class:`~graphrerank.graphs.PairEncoder`."""
        token_states: list[Tensor] = [torch.zeros(0, self.hidden_size)] * len(passages)
        body = _without_last(self._loaded.body, without_last)
        for pairs, states, mask in self._states(body, query_texts, passages):
            for pair, pair_states, is_token in zip(pairs, states.cpu(), mask.bool().cpu(), strict=True):
                token_states[pair] = pair_states[is_token]
        ptr = torch.tensor([0, *map(len, token_states)]).cumsum(0)
        return torch.cat([torch.zeros(0, self.hidden_size), *token_states]), ptr

    def save_trained(self, folder: Path, layers: EncoderLayers, head: ClassificationHead) -> None:
        """Write this model with trained layers and head as a transformers folder of float32, replacing an old one."""
        tokenizer, model = self._from_pretrained()
        model = model.float()
        for trained, original in layers.paired(model.base_model):
            original.load_state_dict(trained.state_dict())
        with torch.no_grad():
            for ours, theirs in _head_parts(model, head):
                theirs.weight.copy_(ours.weight)
                if theirs.bias is not None:
                    theirs.bias.copy_(ours.bias)
                elif ours.bias.any():
                    raise UserError(f"`head` must have no bias where {self.model} has none, got one")
        with atomic_folder(folder) as temporary:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)

    def _states(
        self, body: nn.Module, query_texts: Sequence[str], passages: Sequence[str]
    ) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Yield pairs of similar length: their indices, ``states [B, T, h]`` and ``mask [B, T]``."""
        if len(query_texts) != len(passages):
            raise UserError(f"`passages` must be as many as `query_texts` ({len(query_texts)}), got {len(passages)}")
        lengths = [len(query) + len(passage) for query, passage in zip(query_texts, passages, strict=True)]
        for pairs in _batches_by_length(lengths, self.batch_size):
            tokens = self._loaded.tokenizer(
                [query_texts[pair] for pair in pairs],
                [passages[pair] for pair in pairs],
                padding=True,
                truncation="longest_first",
                max_length=self.max_length,
                return_tensors="pt",
            ).to(self._device)
            yield pairs, body(**tokens).last_hidden_state.float(), tokens["attention_mask"]

    @cached_property
    def _loaded(self) -> "_Loaded":
        tokenizer, model = self._from_pretrained()
        head = _classification_head(model, str(self.model))
        config, positions = model.config, int(model.config.max_position_embeddings)
        if "roberta" in config.model_type:  # positions begin after that of the padding token
            positions -= config.pad_token_id + 1
        limit = min(int(tokenizer.model_max_length), positions)
        if self.max_length > limit:
            raise UserError(f"`max_length` must be at most the {limit} tokens of {self.model}, got {self.max_length}")
        body = model.base_model.to(self._device, getattr(torch, self.dtype)).eval()
        return _Loaded(tokenizer, body, head.to(self._device))

    def _from_pretrained(self) -> tuple[Any, Any]:
        library = optional("transformers", "a cross-encoder")  # heavy: only when it is used
        source: dict[str, Any] = {"revision": self.revision, "trust_remote_code": False}
        try:
            tokenizer = library.AutoTokenizer.from_pretrained(self.model, **source)
            classifier = library.AutoModelForSequenceClassification
            model, info = classifier.from_pretrained(self.model, output_loading_info=True, **source)
        except (OSError, ValueError) as error:
            raise UserError(
                f"cross-encoder `model` must be a local folder or a reachable hub id of a sequence classifier, "
                f"got {self.model!r}: {error}"
            ) from error
        if info["missing_keys"]:
            raise UserError(f"{self.model}: needs a trained classifier, found no {sorted(info['missing_keys'])}")
        return tokenizer, model


class _Loaded(NamedTuple):
    tokenizer: Any
    body: nn.Module
    head: ClassificationHead


def _layers_of(body: nn.Module) -> nn.ModuleList:
    """Return the layers of an encoder of :data:`MODEL_TYPES`, first to last."""
    layers = body.get_submodule("layers" if hasattr(body, "layers") else "encoder.layer")
    assert isinstance(layers, nn.ModuleList)
    return layers


def _batches_by_length(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Group pairs into batches that need little padding, the longest pairs first."""
    batch: list[int] = []
    for pair in sorted(range(len(lengths)), key=lambda pair: -lengths[pair]):
        if batch and (len(batch) == batch_size or lengths[pair] < MIN_LENGTH_RATIO * lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch


def _classification_head(model: nn.Module, source: str) -> ClassificationHead:
    """Copy the head of a sequence classifier of transformers, float32, in evaluation mode."""
    kind, config = type(model).__name__, getattr(model, "config", None)
    if kind not in HEADS or config is None:
        raise UserError(f"{source}: the classification head must be that of one of {sorted(HEADS)}, got {kind}")
    if config.num_labels != 1:
        raise UserError(f"{source}: the classifier must have one logit, got {config.num_labels}")
    modern = kind.startswith("ModernBert")
    head = ClassificationHead(
        config.hidden_size,
        activation=config.classifier_activation if modern else "tanh",
        norm_eps=config.norm_eps if modern else None,
    )
    with torch.no_grad():
        for ours, theirs in _head_parts(model, head):
            ours.weight.copy_(theirs.weight)
            ours.bias.zero_() if theirs.bias is None else ours.bias.copy_(theirs.bias)
    return head.eval()


def _head_parts(model: nn.Module, head: ClassificationHead) -> Iterator[tuple[Any, Any]]:
    """Pair the layers of a head with those of a classifier."""
    for ours, theirs in zip(("dense", "out", "norm"), HEADS[type(model).__name__], strict=False):
        yield head.get_submodule(ours), model.get_submodule(theirs)


def _without_last(body: nn.Module, num_layers: int) -> nn.Module:
    """Return a body that ends before the last layers and shares the others."""
    cut, layers = _shallow(body), _layers_of(body)
    first = layers[: len(layers) - num_layers]
    if hasattr(body, "layers"):  # ModernBERT; its norm belongs to the last layers
        cut.layers, cut.final_norm = first, nn.Identity()
    else:
        cut.encoder = _shallow(body.get_submodule("encoder"))
        cut.encoder.layer = first
    return cut


def _shallow(module: nn.Module) -> Any:
    copied: Any = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied
