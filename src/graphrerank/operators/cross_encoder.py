"""Cross-encoders of transformers, body and head apart: the model search of the taxonomy, and what GRanker smooths."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphrerank.files import hash_files
from graphrerank.operators.classification_head import ClassificationHead

HEADS = {  # class of transformers -> its layers before and after the activation
    "BertForSequenceClassification": ("bert.pooler.dense", "classifier"),
    "RobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "XLMRobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "ModernBertForSequenceClassification": ("head.dense", "classifier"),
}
FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt", ".model"}  # weights, settings and vocabularies
DTYPES = ("float32", "bfloat16", "float16")
LEAST_FILL = 0.75  # a batch's shortest pair relative to its longest; padding costs as much time as text


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
        folder = Path(self.model)
        if folder.is_dir():
            weights = hash_files(sorted(file for file in folder.rglob("*") if file.suffix in FINGERPRINTED))
        else:
            weights = f"{self.model}@{self.revision}"
        numbers = () if self.dtype == "float32" else (self.dtype,)
        return hashlib.sha256(repr(("cross-encoder", weights, self.max_length, *numbers)).encode()).hexdigest()

    @property
    def classification_head(self) -> ClassificationHead:
        """The model's head, on its device, in evaluation mode; copy it to train it."""
        return self._loaded.head

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
        loaded = self._loaded
        vectors = torch.empty(len(passages), loaded.head.hidden_size)
        lengths = [len(query) + len(passage) for query, passage in zip(query_texts, passages, strict=True)]
        for pairs in _like_lengths(lengths, self.batch_size):
            tokens = loaded.tokenizer(
                [query_texts[pair] for pair in pairs],
                [passages[pair] for pair in pairs],
                padding=True,
                truncation="longest_first",
                max_length=self.max_length,
                return_tensors="pt",
            ).to(self.device)
            states = loaded.body(**tokens).last_hidden_state.float()
            if loaded.mean_pooling:
                weight = tokens["attention_mask"].unsqueeze(-1)
                vectors[pairs] = ((states * weight).sum(1) / weight.sum(1)).cpu()
            else:
                vectors[pairs] = states[:, 0].cpu()
        return vectors

    @torch.no_grad()
    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., hidden_size]``: logits ``[...]``, on the vectors' device."""
        logits: Tensor = self._loaded.head(vectors.to(self.device))
        return logits.to(vectors.device)

    @cached_property
    def _loaded(self) -> "_Loaded":
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
        head = classification_head(model, source=self.model)
        limit = min(int(tokenizer.model_max_length), _num_positions(model.config))
        if self.max_length > limit:
            raise ValueError(f"`max_length` must be at most the {limit} tokens of {self.model}, got {self.max_length}")
        mean_pooling = getattr(model.config, "classifier_pooling", "cls") == "mean"
        body = model.base_model.to(self.device, getattr(torch, self.dtype)).eval()
        return _Loaded(tokenizer, body, head.to(self.device), mean_pooling)


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
    dense, out = (model.get_submodule(name) for name in HEADS[kind])
    head = ClassificationHead(
        config.hidden_size,
        activation=config.classifier_activation if modern else "tanh",
        norm_eps=config.norm_eps if modern else None,
    )
    parts: list[tuple[nn.Module, nn.Module]] = [(head.dense, dense), (head.out, out)]
    if modern:
        parts.append((head.norm, model.get_submodule("head.norm")))
    with torch.no_grad():
        for ours, theirs in parts:
            assert isinstance(ours, nn.Linear | nn.LayerNorm)
            assert isinstance(theirs, nn.Linear | nn.LayerNorm)
            ours.weight.copy_(theirs.weight)
            ours.bias.zero_() if theirs.bias is None else ours.bias.copy_(theirs.bias)
    return head.eval()


def _like_lengths(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Cut pairs, ``lengths`` in characters, into batches that need little padding, the longest pairs first.

    Example:
        >>> list(_like_lengths([10, 90, 100, 95, 9], 2))
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


def _num_positions(config: Any) -> int:
    """Tokens that a model has positions for; RoBERTa's begin after that of its padding token."""
    first = config.pad_token_id + 1 if "roberta" in config.model_type else 0
    return int(config.max_position_embeddings) - first
