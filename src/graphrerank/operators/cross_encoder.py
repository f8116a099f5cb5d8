"""Cross-encoders of transformers, body and head apart: the model search of the taxonomy, and what GRanker smooths."""

import copy
import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphrerank.files import atomic_folder, hash_model
from graphrerank.graphs import DTYPES
from graphrerank.operators.classification_head import ClassificationHead
from graphrerank.operators.encoder_layers import EncoderLayers, layer_settings, layers_of, like_lengths, pool

HEADS = {  # class of transformers -> its layers before and after the activation
    "BertForSequenceClassification": ("bert.pooler.dense", "classifier"),
    "RobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "XLMRobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "ModernBertForSequenceClassification": ("head.dense", "classifier"),
}
FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt", ".model"}  # weights, settings and vocabularies


class CrossEncoder:
    """A sequence classifier with one logit, loaded when something is first read or scored.

    Its vector of a pair is what its head reads: the state of the first token (ModernBERT: or the mean over the tokens,
    as its configuration says), before BERT's pooler. ``head(encode(...))`` equals the model's own logits.

    Args:
        model: A local folder, or a model id of the Hugging Face hub.
        max_length: Most tokens of a pair; the longer text of a longer pair is cut.
        batch_size: Most pairs per forward pass; pairs of like length share one.
        device: Torch device; CUDA where there is one when None.
        revision: Commit of a hub model.
        dtype: Numbers of the model's body: ``float32``, or ``bfloat16`` or ``float16`` where the machine computes
            faster in these. The head, and all vectors given out, are float32.

    Raises:
        ValueError: If ``max_length`` or ``batch_size`` is not positive, or ``dtype`` is unknown. When it loads: if the
            model is not found, has a head that is none of :data:`HEADS`, more than one logit or no trained head, or
            reads fewer tokens.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        max_length: int = 512,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        revision: str | None = None,
        dtype: str = "float32",
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"`dtype` must be one of {DTYPES}, got {dtype!r}")
        if min(max_length, batch_size) < 1:
            raise ValueError(
                f"`max_length` and `batch_size` must be positive integers, got {max_length} and {batch_size}"
            )
        self.model = str(model)
        self.max_length = max_length
        self.batch_size = batch_size
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.revision = revision
        self.dtype = dtype

    @property
    def hidden_size(self) -> int:
        """Width of a vector."""
        return self._loaded.head.hidden_size

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights and settings that decide vectors and scores; of id and revision for a hub model."""
        weights = hash_model(self.model, self.revision, FINGERPRINTED)
        numbers = () if self.dtype == "float32" else (self.dtype,)
        return hashlib.sha256(repr(("cross-encoder", weights, self.max_length, *numbers)).encode()).hexdigest()

    @property
    def classification_head(self) -> ClassificationHead:
        """The model's head, on its device, in evaluation mode; copy it to train it."""
        return self._loaded.head

    @property
    def layer_settings(self) -> dict[str, Any]:
        """Settings of the model's body, from which :class:`EncoderLayers` can be built."""
        return layer_settings(self._loaded.body.config)

    def last_layers(self, num_layers: int) -> EncoderLayers:
        """Copy the body's last layers, to train them: float32, on the CPU.

        Raises:
            ValueError: If ``num_layers`` is not from 1 to the number of layers.
        """
        layers = EncoderLayers(self.layer_settings, num_layers)
        layers.start_from(self._loaded.body)
        return layers

    @torch.no_grad()
    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Read ``M`` pairs, those of like length together.

        Args:
            query_texts: ``M`` queries; an empty one is read as such.
            passages: ``M`` passages.

        Returns:
            ``[M, hidden_size]`` float32, on the CPU, in the order of the pairs.

        Raises:
            ValueError: If the lengths differ, or the model cannot be loaded.
        """
        if len(query_texts) != len(passages):
            raise ValueError(f"`passages` must be as many as `query_texts` ({len(query_texts)}), got {len(passages)}")
        vectors = torch.empty(len(passages), self.hidden_size)
        for pairs, states, mask in self._read(self._loaded.body, query_texts, passages):
            vectors[pairs] = pool(states, mask, mean=self._loaded.mean_pooling).cpu()
        return vectors

    @torch.no_grad()
    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., hidden_size]``: logits ``[...]``, on the vectors' device."""
        logits: Tensor = self._loaded.head(vectors.to(self.device))
        return logits.to(vectors.device)

    @torch.no_grad()
    def encode_states(
        self, query_texts: Sequence[str], passages: Sequence[str], *, without_last: int
    ) -> tuple[Tensor, Tensor]:
        """Read ``M`` pairs with all layers but the last ones.

        Args:
            query_texts: ``M`` queries.
            passages: ``M`` passages.
            without_last: Layers to leave out; all of them leaves the embeddings.

        Returns:
            ``token_states [T, hidden_size]`` float32, on the CPU, the tokens of all pairs one after the other, and
            ``token_ptr [M + 1]``; ``last_layers(without_last)`` makes of them what :meth:`encode` gives.

        Raises:
            ValueError: If the lengths differ, or the model cannot be loaded.
        """
        if len(query_texts) != len(passages):
            raise ValueError(f"`passages` must be as many as `query_texts` ({len(query_texts)}), got {len(passages)}")
        found: list[Tensor] = [torch.zeros(0, self.hidden_size)] * len(passages)
        for pairs, states, mask in self._read(_without_last(self._loaded.body, without_last), query_texts, passages):
            for pair, own, kept in zip(pairs, states.cpu(), mask.bool().cpu(), strict=True):
                found[pair] = own[kept]
        ptr = torch.tensor([0, *map(len, found)]).cumsum(0)
        return torch.cat([torch.zeros(0, self.hidden_size), *found]), ptr

    def save_trained(self, folder: Path, layers: EncoderLayers, head: ClassificationHead) -> None:
        """Write a complete folder of transformers: this model with other last layers and another head, as float32.

        Args:
            folder: Where it goes; an older one is replaced.
            layers: What :meth:`last_layers` gave, trained.
            head: A head like :attr:`classification_head`; biases that the model's own lacks must be 0.

        Raises:
            ValueError: If the model cannot be loaded, or has no place for a bias of ``head``.
        """
        tokenizer, model = self._from_pretrained()
        model = model.float()
        layers.copy_to(model.base_model)
        with torch.no_grad():
            for ours, theirs in _head_parts(model, head):
                theirs.weight.copy_(ours.weight)
                if theirs.bias is not None:
                    theirs.bias.copy_(ours.bias)
                elif ours.bias.any():
                    raise ValueError(f"`head` must have no bias where {self.model} has none, got one")
        with atomic_folder(folder) as temporary:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)

    def _read(
        self, body: nn.Module, query_texts: Sequence[str], passages: Sequence[str]
    ) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Read pairs of like length together; give their numbers, ``states [B, T, h]`` and ``mask [B, T]``."""
        lengths = [len(query) + len(passage) for query, passage in zip(query_texts, passages, strict=True)]
        for pairs in like_lengths(lengths, self.batch_size):
            tokens = self._loaded.tokenizer(
                [query_texts[pair] for pair in pairs],
                [passages[pair] for pair in pairs],
                padding=True,
                truncation="longest_first",
                max_length=self.max_length,
                return_tensors="pt",
            ).to(self.device)
            yield pairs, body(**tokens).last_hidden_state.float(), tokens["attention_mask"]

    @cached_property
    def _loaded(self) -> "_Loaded":
        tokenizer, model = self._from_pretrained()
        head = classification_head(model, source=self.model)
        limit = min(int(tokenizer.model_max_length), _num_positions(model.config))
        if self.max_length > limit:
            raise ValueError(f"`max_length` must be at most the {limit} tokens of {self.model}, got {self.max_length}")
        mean_pooling = getattr(model.config, "classifier_pooling", "cls") == "mean"
        body = model.base_model.to(self.device, getattr(torch, self.dtype)).eval()
        return _Loaded(tokenizer, body, head.to(self.device), mean_pooling)

    def _from_pretrained(self) -> tuple[Any, Any]:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer  # heavy: only when it is used

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.model, revision=self.revision)
            model, found = AutoModelForSequenceClassification.from_pretrained(
                self.model, revision=self.revision, output_loading_info=True
            )
        except (OSError, ValueError) as error:
            raise ValueError(
                f"cross-encoder `model` must be a local folder or a reachable hub id of a sequence classifier, "
                f"got {self.model!r}: {error}"
            ) from error
        if found["missing_keys"]:
            raise ValueError(f"{self.model}: needed a trained classifier, found no {sorted(found['missing_keys'])}")
        return tokenizer, model


class _Loaded(NamedTuple):
    tokenizer: Any
    body: nn.Module
    head: ClassificationHead
    mean_pooling: bool


def classification_head(model: nn.Module, *, source: str = "`model`") -> ClassificationHead:
    """Copy the head of a sequence classifier of transformers.

    Args:
        model: The classifier.
        source: What it is called in errors.

    Returns:
        The head, float32, in evaluation mode.

    Raises:
        ValueError: If its class is none of :data:`HEADS`, or it has more than one logit.
    """
    kind, config = type(model).__name__, getattr(model, "config", None)
    if kind not in HEADS or config is None:
        raise ValueError(f"{source}: the classification head must be that of one of {sorted(HEADS)}, got {kind}")
    if config.num_labels != 1:
        raise ValueError(f"{source}: needed a classifier with one logit, got {config.num_labels}")
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
    """Pair the layers of a head with those of the classifier that they stand for."""
    kind = type(model).__name__
    dense, out = HEADS[kind]
    yield head.dense, model.get_submodule(dense)
    yield head.out, model.get_submodule(out)
    if kind.startswith("ModernBert"):
        yield head.norm, model.get_submodule("head.norm")


def _without_last(body: nn.Module, num_layers: int) -> nn.Module:
    """Give a body that ends before its last layers and shares the others; nothing is copied."""
    cut, layers = _shallow(body), layers_of(body)
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


def _num_positions(config: Any) -> int:
    """Tokens that a model has positions for; RoBERTa's begin after that of its padding token."""
    first = config.pad_token_id + 1 if "roberta" in config.model_type else 0
    return int(config.max_position_embeddings) - first
