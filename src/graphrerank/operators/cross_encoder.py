"""Cross-encoders of transformers, divided into body and head, so that GRanker can smooth the vectors between them."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphrerank.core import DTYPES, PairEncoder
from graphrerank.installation.extras import optional
from graphrerank.operators.encoder_layers import (
    EncoderLayers,
    batches_by_length,
    layer_settings,
    pool_states,
    without_last_layers,
)
from graphrerank.utils.checks import UserError, check_choice, check_counts
from graphrerank.utils.files import atomic_folder, hash_model

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}
#: Names of the layers before and after the activation, and of the norm between them, by class of transformers.
CLASSIFIER_LAYERS = {
    "BertForSequenceClassification": ("bert.pooler.dense", "classifier"),
    "RobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "XLMRobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "ModernBertForSequenceClassification": ("head.dense", "classifier", "head.norm"),
}
#: Suffixes of the model files that the fingerprint covers: weights, settings and vocabularies.
FINGERPRINTED = {".safetensors", ".bin", ".json", ".txt", ".model"}


class ClassificationHead(nn.Module):
    r"""Classification head of BERT, RoBERTa, XLM-R and ModernBERT with one logit. It can be scripted.

    .. math:: s = w^\top \mathrm{norm}(f(W h + b)) + c

    BERT and RoBERTa use the activation :math:`f = \tanh` and no norm. BERT calls :math:`W` the pooler. ModernBERT has
    no bias :math:`b`, which is 0 here. In inference, the heads of these models compute the same function.

    Args:
        hidden_size: Width of a pair vector.
        activation: Name of the activation :math:`f`, one of ``tanh``, ``gelu``, ``relu`` and ``silu``.
        norm_eps: Epsilon of the layer norm. If None, there is no norm.

    Example:
        >>> ClassificationHead(8)(torch.zeros(3, 8)).shape
        torch.Size([3])
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
        """Score pair vectors.

        Args:
            vectors: Pair vectors ``[..., hidden_size]``.

        Returns:
            Logits ``[...]``.
        """
        scores: Tensor = self.out(self.norm(self.activate(self.dense(vectors)))).squeeze(-1)
        return scores


@dataclass(eq=False)
class CrossEncoder(PairEncoder):
    """Sequence classifier of transformers with one logit, loaded when it is first used.

    The vector of a pair is the input of the classification head: the state of the first token, before the pooler of
    BERT. ModernBERT may use the mean over the tokens instead. ``head(encode(...))`` equals the logits of the model.

    Attributes:
        model: Local folder of the model, or its id on the Hugging Face hub.
        max_length: Maximum number of tokens of a pair. In a longer pair, the longer text is truncated first.
        batch_size: Maximum number of pairs per forward pass. Pairs of similar length are batched together.
        device: Device of the model. If None, CUDA is used if it is available.
        revision: Commit of a hub model. If None, the latest commit is used.
        dtype: Data type of the body, one of ``float32``, ``bfloat16`` and ``float16``. The head and all returned
            vectors are float32.

    Example:
        .. code-block:: python

            encoder = CrossEncoder("cross-encoder/ms-marco-MiniLM-L6-v2")
            logits = encoder.head(encoder.encode(["who wrote Emma?"], ["Emma is a novel by Jane Austen."]))
    """

    model: str | Path
    _: KW_ONLY
    max_length: int = 512
    batch_size: int = 32
    device: str | torch.device | None = None
    revision: str | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_choice(DTYPES, dtype=self.dtype)
        check_counts(max_length=self.max_length, batch_size=self.batch_size)
        self.model = str(self.model)
        self._device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def name(self) -> str:
        """Folder or hub id of the model."""
        return str(self.model)

    @property
    def hidden_size(self) -> int:
        """Width of a pair vector."""
        return self._loaded.head.hidden_size

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that determines vectors and scores: model, maximum length and data type.

        The model is represented by the hash of its files, or by the id and revision of a hub model.
        """
        weights = hash_model(str(self.model), self.revision, FINGERPRINTED)
        dtype = () if self.dtype == "float32" else (self.dtype,)
        return hashlib.sha256(repr(("cross-encoder", weights, self.max_length, *dtype)).encode()).hexdigest()

    @property
    def classification_head(self) -> ClassificationHead:
        """Head of the model on its device, in evaluation mode. Copy it before training it."""
        return self._loaded.head

    @property
    def layer_settings(self) -> dict[str, Any]:
        """Settings that determine the layers of the body, as plain JSON, for :class:`EncoderLayers`."""
        return layer_settings(self._loaded.body)

    def last_layers(self, num_layers: int) -> EncoderLayers:
        """Copy the last layers of the body for training, in float32 on the CPU.

        Args:
            num_layers: Number of layers, at least 1.

        Returns:
            Layers with the weights of the model.

        Raises:
            UserError: If the model has fewer layers or another type.
        """
        layers = EncoderLayers(self.layer_settings, num_layers)
        for copied, original in layers.corresponding(self._loaded.body):
            copied.load_state_dict(original.state_dict())
        return layers

    @torch.no_grad()
    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Encode pairs of a query and a passage.

        Args:
            query_texts: Queries of ``M`` pairs.
            passages: Passages of the pairs.

        Returns:
            Pair vectors ``[M, hidden_size]``, float32, on the CPU.

        Raises:
            UserError: If the numbers of queries and passages differ, or if the model cannot be loaded.
        """
        config, order = vars(self._loaded.body.config), list[int]()
        vectors = [torch.empty(0, self.hidden_size, device=self._device)]
        for pairs, states, mask in self._states(self._loaded.body, query_texts, passages):
            vectors.append(pool_states(states, mask, config))
            order += pairs
        return torch.cat(vectors).cpu()[torch.tensor(order, dtype=torch.int64).argsort()]

    @torch.no_grad()
    def head(self, vectors: Tensor) -> Tensor:
        """Score pair vectors with the head of the model.

        Args:
            vectors: Pair vectors ``[..., hidden_size]``.

        Returns:
            Logits ``[...]``, on the device of the vectors.
        """
        logits: Tensor = self._loaded.head(vectors.to(self._device))
        return logits.to(vectors.device)

    @torch.no_grad()
    def encode_states(
        self, query_texts: Sequence[str], passages: Sequence[str], *, without_last: int
    ) -> tuple[Tensor, Tensor]:
        """Encode pairs by all layers except the last ones, which :meth:`last_layers` copies.

        Args:
            query_texts: Queries of ``M`` pairs.
            passages: Passages of the pairs.
            without_last: Number of last layers that are omitted.

        Returns:
            States of all tokens without padding ``[T, hidden_size]`` float32, and the boundaries of the pairs
            ``[M + 1]`` int64, both on the CPU.

        Raises:
            UserError: If the numbers of queries and passages differ, or if the model cannot be loaded.
        """
        token_states: list[Tensor] = [torch.zeros(0, self.hidden_size)] * len(passages)
        body = without_last_layers(self._loaded.body, without_last)
        for pairs, states, mask in self._states(body, query_texts, passages):
            for pair, pair_states, is_token in zip(pairs, states.cpu(), mask.bool().cpu(), strict=True):
                token_states[pair] = pair_states[is_token]
        ptr = torch.tensor([0, *map(len, token_states)]).cumsum(0)
        return torch.cat([torch.zeros(0, self.hidden_size), *token_states]), ptr

    def save_trained(self, folder: Path, layers: EncoderLayers, head: ClassificationHead) -> None:
        """Write this model with trained layers and a trained head, as a folder of transformers in float32.

        Args:
            folder: Folder to write. An older folder is replaced.
            layers: Trained layers.
            head: Trained head.

        Raises:
            UserError: If the head has a bias where the model has none.
        """
        tokenizer, model = self._from_pretrained()
        model = model.float()
        for trained, original in layers.corresponding(model.base_model):
            original.load_state_dict(trained.state_dict())
        with torch.no_grad():
            for ours, theirs in _head_modules(model, head):
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
        """Yield batches of pairs of similar length: their indices, ``states [B, T, h]`` and ``mask [B, T]``."""
        if len(query_texts) != len(passages):
            raise UserError(f"`passages` must have one entry per query, {len(query_texts)}, got {len(passages)}")
        lengths = [len(query) + len(passage) for query, passage in zip(query_texts, passages, strict=True)]
        for pairs in batches_by_length(lengths, self.batch_size):
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
        if "roberta" in config.model_type:  # RoBERTa numbers positions from pad_token_id + 1
            positions -= config.pad_token_id + 1
        limit = min(int(tokenizer.model_max_length), positions)
        if self.max_length > limit:
            raise UserError(f"`max_length` must be at most {limit}, the limit of {self.model}, got {self.max_length}")
        body = model.base_model.to(self._device, getattr(torch, self.dtype)).eval()
        return _Loaded(tokenizer, body, head.to(self._device))

    def _from_pretrained(self) -> tuple[Any, Any]:
        """Load the tokenizer and the classifier of transformers."""
        library = optional("transformers", "a cross-encoder")  # heavy import, so only when it is needed
        library.utils.logging.disable_progress_bar()
        source: dict[str, Any] = {"revision": self.revision, "trust_remote_code": False}
        try:
            tokenizer = library.AutoTokenizer.from_pretrained(self.model, **source)
            classifier = library.AutoModelForSequenceClassification
            model, info = classifier.from_pretrained(self.model, output_loading_info=True, **source)
        except (OSError, ValueError) as error:
            raise UserError(
                f"cross-encoder `model` must be a local folder or a reachable hub id of a sequence classifier, got "
                f"{self.model!r}. Without access to the hub, download the model elsewhere (hf download ID --local-dir "
                f"DIR) and set pair_encoder.model=DIR: {error}"
            ) from error
        if info["missing_keys"]:
            raise UserError(
                f"{self.model} must have a trained classification head, but lacks {sorted(info['missing_keys'])}"
            )
        return tokenizer, model


class _Loaded(NamedTuple):
    tokenizer: Any
    body: nn.Module
    head: ClassificationHead


def _classification_head(model: nn.Module, source: str) -> ClassificationHead:
    """Copy the head of a sequence classifier of transformers, in float32 and evaluation mode."""
    kind, config = type(model).__name__, getattr(model, "config", None)
    if kind not in CLASSIFIER_LAYERS or config is None:
        raise UserError(f"{source}: the class of the model must be one of {sorted(CLASSIFIER_LAYERS)}, got {kind}")
    if config.num_labels != 1:
        raise UserError(f"{source}: the classifier must have one logit, got {config.num_labels}")
    modern = kind.startswith("ModernBert")
    head = ClassificationHead(
        config.hidden_size,
        activation=config.classifier_activation if modern else "tanh",
        norm_eps=config.norm_eps if modern else None,
    )
    with torch.no_grad():
        for ours, theirs in _head_modules(model, head):
            ours.weight.copy_(theirs.weight)
            ours.bias.zero_() if theirs.bias is None else ours.bias.copy_(theirs.bias)
    return head.eval()


def _head_modules(model: nn.Module, head: ClassificationHead) -> Iterator[tuple[Any, Any]]:
    """Pair the modules of a head with those of a classifier of transformers."""
    for name, original_name in zip(("dense", "out", "norm"), CLASSIFIER_LAYERS[type(model).__name__], strict=False):
        yield head.get_submodule(name), model.get_submodule(original_name)
