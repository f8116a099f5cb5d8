"""Scores of how much queries need the graph: by a trained complexity adapter, or by questions like them.

Up to the score ``low`` a query takes the dense path, from ``high`` on the graph path. :class:`PrototypeScorer` and
:class:`TextClassifierScorer` read the ``disagreements.jsonl`` of a training of the adapter: a line of JSON for each
question that exactly one path answers, with its ``text``, the path that is ``right`` (``dense`` or ``graph``) and, if
given, its ``part`` (``training`` or ``validation``).
"""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.caching import cached_tensors
from graphrerank.checks import UserError, check_counts, check_positive
from graphrerank.data.encoder import Encoder
from graphrerank.data.readers.records import bad_line, read_jsonl
from graphrerank.files import hash_files, hash_json, hash_model
from graphrerank.models.checkpoint import Checkpoint, load_primary
from graphrerank.pipelines.router import DENSE, GRAPH, ROUTES
from graphrerank_papers.ea_graphrag.complexity_adapter import AdapterManifest
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, SyntaxFeatures

TRAINING, VALIDATION = "training", "validation"  # parts of the questions
BATCH_TEXTS = 64  # scored at once
MAX_LENGTH = 64  # tokens of a question; longer ones are cut
KINDS = {".safetensors", ".bin", ".json", ".txt", ".model"}  # files that determine a model's outputs


class AdapterScorer:
    """Scores how much queries need the graph, with a checkpoint of ``python train.py experiment=complexity_adapter``.

    Source: "EA-GraphRAG", 2026, Algorithm 1, lines 1 and 2.

    ``checkpoint`` is a run folder, a ``.ckpt`` file, artifact folder, or a loaded one; ``low`` and ``high`` are its
    thresholds by default. ``stanza_folder`` is that of Stanza's model, if it was trained with ``syntax: stanza``.
    ``cache`` is a folder that keeps the syntax of queries; nothing is kept when None.
    """

    def __init__(
        self,
        *,
        checkpoint: str | Path | Checkpoint,
        low: float | None = None,
        high: float | None = None,
        stanza_folder: str | Path | None = None,
        cache: str | Path | None = None,
    ) -> None:
        loaded = checkpoint if isinstance(checkpoint, Checkpoint) else load_primary(checkpoint)
        manifest = loaded.manifest
        if not isinstance(manifest, AdapterManifest):
            raise UserError(
                f"{loaded.path}: needed a complexity adapter (train.py experiment=complexity_adapter), found a "
                f"{manifest.model.name}"
            )
        if (trained_on := manifest.syntax.feature_names) != FEATURES:
            raise UserError(
                f"{loaded.path}: was trained on {len(trained_on)} features of syntax, which are not the "
                f"{len(FEATURES)} of this version; train it again"
            )
        self.low = manifest.thresholds.low if low is None else low
        self.high = manifest.thresholds.high if high is None else high
        _check_thresholds(self.low, self.high)
        self.syntax = SyntaxFeatures(manifest.syntax.name, stanza_folder=stanza_folder, cache=cache)
        self._path, self._trained_with = loaded.path, manifest.syntax.fingerprint
        self._model = loaded.model.eval()

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries: s(q), ``[B]`` in [0, 1], on the CPU.

        Warns if the features come from other versions of libraries or models than in training.
        """
        if self.syntax.fingerprint != self._trained_with:
            warnings.warn(
                f"{self._path}: was trained on syntax by {self._trained_with}, this is {self.syntax.fingerprint}",
                stacklevel=2,
            )
        scores: Tensor = self._model(self.syntax.extract(texts))
        return scores


@dataclass(eq=False)
class PrototypeScorer:
    r"""Score how much queries need the graph by the most similar questions of each path.

    .. math:: s(q) = \sigma\bigl((\bar c_{\mathrm{graph}}(q) - \bar c_{\mathrm{dense}}(q)) / t\bigr)

    with :math:`\bar c` the mean cosine of the query with the ``num_nearest`` nearest training questions of a path, and
    :math:`t` the ``temperature``.
    """

    questions: str | Path
    _: KW_ONLY
    encoder: Encoder
    low: float = 0.4
    high: float = 0.6
    num_nearest: int = 5
    temperature: float = 0.05

    def __post_init__(self) -> None:
        _check_thresholds(self.low, self.high)
        check_counts(num_nearest=self.num_nearest)
        check_positive(temperature=self.temperature)
        texts, self._labels = read_questions(Path(self.questions), TRAINING)
        self._prototypes = self.encoder.encode(texts)

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries: s(q), ``[B]`` in [0, 1], on the CPU; 0.5 for a query without a vector."""
        if not texts:
            return torch.zeros(0)
        cosines = self.encoder.encode(texts) @ self._prototypes.T
        near = []
        for path in (DENSE, GRAPH):
            of_path = cosines[:, self._labels == path]
            near.append(of_path.topk(min(self.num_nearest, of_path.shape[1]), dim=1).values.mean(1))
        return torch.sigmoid((near[1] - near[0]) / self.temperature)


@dataclass(eq=False)
class TextClassifierScorer:
    r"""Score how much queries need the graph by a classifier of their texts.

    .. math:: s(q) = \sigma(w^\top h_{\mathrm{CLS}}(q) + b)

    All weights of the encoder are trained by binary cross-entropy, with AdamW and a rate that falls linearly; the epoch
    with the lowest loss on the validation questions is kept, or the last where there are none. Training happens at the
    first use, in a minute or two on a CPU core; the weights are cached.

    ``model`` is the folder of an encoder of transformers, ``cache`` a folder of trained weights. ``seed`` decides the
    head's weights, dropout, and the order of the questions.
    """

    questions: str | Path
    _: KW_ONLY
    model: str | Path
    cache: str | Path
    low: float = 0.4
    high: float = 0.6
    max_epochs: int = 4
    learning_rate: float = 5e-5
    batch_size: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        _check_thresholds(self.low, self.high)
        check_counts(max_epochs=self.max_epochs, batch_size=self.batch_size)
        check_positive(learning_rate=self.learning_rate)
        self._training, self._validation = (read_questions(Path(self.questions), p) for p in (TRAINING, VALIDATION))

    @property
    def fingerprint(self) -> str:
        """Changes whenever the trained weights would."""
        settings = [self.max_epochs, self.learning_rate, self.batch_size, MAX_LENGTH, self.seed]
        return hash_json([hash_files([Path(self.questions)]), hash_model(str(self.model), None, KINDS), settings])

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries: s(q), ``[B]`` in [0, 1], on the CPU."""
        return torch.sigmoid(self._logits(self._trained, texts)) if texts else torch.zeros(0)

    @cached_property
    def _trained(self) -> nn.Module:
        """Read the trained classifier from the cache, or train it."""
        file = Path(self.cache) / "text_classifiers" / f"{self.fingerprint}.safetensors"
        with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng():
            from transformers import AutoModelForSequenceClassification  # heavy: only when it is used

            torch.manual_seed(self.seed)
            classifier: nn.Module = AutoModelForSequenceClassification.from_pretrained(
                self.model, num_labels=1, dtype=torch.float32, trust_remote_code=False
            )
            weights = cached_tensors(file, tuple(classifier.state_dict()), lambda: self._train(classifier))
        classifier.load_state_dict(weights)
        return classifier.eval()

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.model, trust_remote_code=False)

    def _train(self, classifier: nn.Module) -> dict[str, Tensor]:
        """Return the weights of the best epoch."""
        texts, labels = self._training
        steps = self.max_epochs * -(-len(texts) // self.batch_size)
        optimizer = torch.optim.AdamW(classifier.parameters(), lr=self.learning_rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        best, best_loss = {}, float("inf")
        torch.manual_seed(self.seed)
        for _ in range(self.max_epochs):
            classifier.train()
            for rows in torch.randperm(len(texts)).split(self.batch_size):  # type: ignore[no-untyped-call]
                logits = self._logits(classifier, [texts[row] for row in rows.tolist()])
                loss = F.binary_cross_entropy_with_logits(logits, labels[rows])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(classifier.parameters(), 1.0)
                optimizer.step()
                schedule.step()
            validation_loss = self._validation_loss(classifier.eval())
            if not self._validation[0] or validation_loss < best_loss:
                best, best_loss = copy.deepcopy(classifier.state_dict()), validation_loss
        return best

    @torch.no_grad()
    def _validation_loss(self, classifier: nn.Module) -> float:
        texts, labels = self._validation
        return float(F.binary_cross_entropy_with_logits(self._logits(classifier, texts), labels)) if texts else 0.0

    def _logits(self, classifier: nn.Module, texts: Sequence[str]) -> Tensor:
        logits = []
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = list(texts[start : start + BATCH_TEXTS])
            tokens = self._tokenizer(batch, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
            logits.append(classifier(**tokens).logits[:, 0])
        return torch.cat(logits)


def read_questions(path: Path, part: str) -> tuple[list[str], Tensor]:
    """Read a part of the questions: ``n`` texts, and ``[n]`` float32 labels, 1 for the graph's, the last ones."""
    texts: list[list[str]] = [[], []]
    for number, record in read_jsonl(path):
        text, right = record.get("text"), record.get("right")
        if not isinstance(text, str) or right not in ROUTES[:2]:
            needed = f"an object with `text`, and `right` of {list(ROUTES[:2])}"
            raise bad_line(path, number, needed=needed, found=record)
        if record.get("part", TRAINING) == part:
            texts[ROUTES.index(right)].append(text)
    if part == TRAINING and not all(texts):
        raise UserError(f"{path}: needed training questions of both paths, found {list(map(len, texts))}")
    labels = [float(label) for label, of_path in enumerate(texts) for _ in of_path]
    return [text for of_path in texts for text in of_path], torch.tensor(labels)


def _check_thresholds(low: float, high: float) -> None:
    if not low < high:
        raise UserError(f"`low` must be below `high`, got {low} and {high}")
