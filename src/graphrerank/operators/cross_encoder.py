"""Cross-encoders of transformers in two parts, body and head, with the vectors between them, which GRanker smooths."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphrerank.core import DTYPES, PairEncoder
from graphrerank.installation.extras import optional
from graphrerank.utils.checks import UserError, check_choice, check_counts
from graphrerank.utils.files import hash_model

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}
HEADS = {  # class of transformers -> its layers before and after the activation, and its norm between them
    "BertForSequenceClassification": ("bert.pooler.dense", "classifier"),
    "RobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "XLMRobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "ModernBertForSequenceClassification": ("head.dense", "classifier", "head.norm"),
}
MIN_LENGTH_RATIO = 0.75  # of a batch's shortest to its longest pair; padding costs as much time as text
FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt", ".model"}  # weights, settings and vocabularies


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


def _pool(states: Tensor, mask: Tensor, config: Mapping[str, Any]) -> Tensor:
    """Pool states ``[B, T, h]`` by the first token, or by the mean over tokens, where ``mask`` is 1: ``[B, h]``."""
    if config.get("classifier_pooling") != "mean":
        return states[:, 0]
    weight = mask.unsqueeze(-1)
    return (states * weight).sum(1) / weight.sum(1)


@dataclass(eq=False)
class CrossEncoder(PairEncoder):
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
    def name(self) -> str:
        """The model's folder or id."""
        return str(self.model)

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

    @torch.no_grad()
    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Encode ``M`` pairs of a query and a passage: ``[M, hidden_size]`` float32, on the CPU."""
        config, order = vars(self._loaded.body.config), list[int]()
        vectors = [torch.empty(0, self.hidden_size, device=self._device)]
        for pairs, states, mask in self._states(query_texts, passages):
            vectors.append(_pool(states, mask, config))
            order += pairs
        return torch.cat(vectors).cpu()[torch.tensor(order, dtype=torch.int64).argsort()]

    @torch.no_grad()
    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors ``[..., hidden_size]``: logits ``[...]``, on the vectors' device."""
        logits: Tensor = self._loaded.head(vectors.to(self._device))
        return logits.to(vectors.device)

    def _states(
        self, query_texts: Sequence[str], passages: Sequence[str]
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
            yield pairs, self._loaded.body(**tokens).last_hidden_state.float(), tokens["attention_mask"]

    @cached_property
    def _loaded(self) -> "_Loaded":
        library = optional("transformers", "a cross-encoder")  # heavy: only when it is used
        library.utils.logging.disable_progress_bar()
        source: dict[str, Any] = {"revision": self.revision, "trust_remote_code": False}
        try:
            tokenizer = library.AutoTokenizer.from_pretrained(self.model, **source)
            classifier = library.AutoModelForSequenceClassification
            model, info = classifier.from_pretrained(self.model, output_loading_info=True, **source)
        except (OSError, ValueError) as error:
            raise UserError(
                f"cross-encoder `model` must be a local folder or a reachable hub id of a sequence classifier, "
                f"got {self.model!r}; without the hub, download it elsewhere (hf download ID --local-dir DIR) and name "
                f"its folder, pair_encoder.model=DIR: {error}"
            ) from error
        if info["missing_keys"]:
            raise UserError(f"{self.model}: needs a trained classifier, found no {sorted(info['missing_keys'])}")
        head = _classification_head(model, str(self.model))
        config, positions = model.config, int(model.config.max_position_embeddings)
        if "roberta" in config.model_type:  # positions begin after that of the padding token
            positions -= config.pad_token_id + 1
        limit = min(int(tokenizer.model_max_length), positions)
        if self.max_length > limit:
            raise UserError(f"`max_length` must be at most the {limit} tokens of {self.model}, got {self.max_length}")
        body = model.base_model.to(self._device, getattr(torch, self.dtype)).eval()
        return _Loaded(tokenizer, body, head.to(self._device))


class _Loaded(NamedTuple):
    tokenizer: Any
    body: nn.Module
    head: ClassificationHead


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
        for name, its_name in zip(("dense", "out", "norm"), HEADS[kind], strict=False):
            ours: Any = head.get_submodule(name)
            theirs: Any = model.get_submodule(its_name)
            ours.weight.copy_(theirs.weight)
            ours.bias.zero_() if theirs.bias is None else ours.bias.copy_(theirs.bias)
    return head.eval()
