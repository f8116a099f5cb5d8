"""Routers that learn from questions instead of their syntax: nearest prototypes, and a fine-tuned text classifier.

They take the place of a complexity adapter in "EA-GraphRAG", 2026, Algorithm 1, line 2. Their file of questions is
``disagreements.jsonl``, which ``train.py experiment=complexity_adapter`` writes: a line of JSON for each question that
exactly one path answers, with its ``text``, the path that is ``right`` (``dense`` or ``graph``) and, if given, its
``part`` (``training`` or ``validation``).
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.checks import check_counts, check_positive
from graphrerank.data.encoder import Encoder
from graphrerank.files import check_writable, hash_files, hash_json, hash_model, load_tensors, save_tensors
from graphrerank.graphs.routes import DENSE, GRAPH, ROUTES

TRAINING, VALIDATION = "training", "validation"  # parts of the questions
BATCH_TEXTS = 64  # scored at once
MAX_LENGTH = 64  # tokens of a question; longer ones are cut
KINDS = {".safetensors", ".bin", ".json", ".txt", ".model"}  # files that determine a model's outputs


class PrototypeScorer:
    r"""Score how much queries need the graph by the most similar questions of each path.

    .. math:: s(q) = \sigma\bigl((\bar c_{\mathrm{graph}}(q) - \bar c_{\mathrm{dense}}(q)) / t\bigr)

    with :math:`\bar c` the mean cosine of the query with the ``num_nearest`` nearest training questions of a path.

    Up to the score ``low`` a query takes the dense path, from ``high`` on the graph path; ``temperature`` is :math:`t`.

    Raises:
        ValueError: If a setting is out of range, the file has another form, or a path has no prototype.
    """

    def __init__(
        self,
        questions: str | Path,
        *,
        encoder: Encoder,
        low: float = 0.4,
        high: float = 0.6,
        num_nearest: int = 5,
        temperature: float = 0.05,
    ) -> None:
        _check_thresholds(low, high)
        check_counts(num_nearest=num_nearest)
        check_positive(temperature=temperature)
        self.low, self.high = low, high
        self.num_nearest, self.temperature = num_nearest, temperature
        self._encoder = encoder
        self._prototypes = [encoder.encode(texts) for texts in read_questions(Path(questions), TRAINING)]

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries: s(q), ``[B]`` in [0, 1], on the CPU; 0.5 for a query without a vector."""
        if not texts:
            return torch.zeros(0)
        vectors = self._encoder.encode(texts)
        near = []
        for prototypes in self._prototypes:
            count = min(self.num_nearest, len(prototypes))
            near.append(torch.topk(vectors @ prototypes.T, count, dim=1).values.mean(1))
        return torch.sigmoid((near[GRAPH] - near[DENSE]) / self.temperature)


class TextClassifierScorer:
    r"""Score how much queries need the graph by a classifier of their texts.

    .. math:: s(q) = \sigma(w^\top h_{\mathrm{CLS}}(q) + b)

    All weights of the encoder are trained by binary cross-entropy, with AdamW and a rate that falls linearly; the epoch
    with the lowest loss on the validation questions is kept, or the last where there are none. This happens at the
    first use, a minute or two on a CPU core; the weights are cached by a hash of questions, model and settings.

    ``model`` is the folder of an encoder of transformers, ``cache`` a folder of trained weights; ``low`` and ``high``
    as of :class:`PrototypeScorer`. ``seed`` decides the head's weights, dropout, and the order of the questions.

    Raises:
        ValueError: If a setting is out of range, the file has another form, or a path has no question for training.
    """

    def __init__(
        self,
        questions: str | Path,
        *,
        model: str | Path,
        cache: str | Path,
        low: float = 0.4,
        high: float = 0.6,
        max_epochs: int = 4,
        learning_rate: float = 5e-5,
        batch_size: int = 16,
        seed: int = 0,
    ) -> None:
        _check_thresholds(low, high)
        check_counts(max_epochs=max_epochs, batch_size=batch_size)
        check_positive(learning_rate=learning_rate)
        self.low, self.high = low, high
        self._questions, self._model, self._cache = Path(questions), str(model), Path(cache)
        self.max_epochs, self.learning_rate, self.batch_size, self.seed = max_epochs, learning_rate, batch_size, seed
        self._training = read_questions(self._questions, TRAINING)
        self._validation = read_questions(self._questions, VALIDATION)

    @property
    def fingerprint(self) -> str:
        """Changes whenever the trained weights would."""
        settings = [self.max_epochs, self.learning_rate, self.batch_size, MAX_LENGTH, self.seed]
        return hash_json([hash_files([self._questions]), hash_model(self._model, None, KINDS), settings])

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries: s(q), ``[B]`` in [0, 1], on the CPU."""
        return torch.sigmoid(self._logits(self._trained, texts)) if texts else torch.zeros(0)

    @cached_property
    def _trained(self) -> nn.Module:
        """Read the trained classifier from the cache, or train it."""
        file = self._cache / "text_classifiers" / f"{self.fingerprint}.safetensors"
        with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng():
            from transformers import AutoModelForSequenceClassification  # heavy: only when it is used

            torch.manual_seed(self.seed)
            classifier: nn.Module = AutoModelForSequenceClassification.from_pretrained(
                self._model, num_labels=1, dtype=torch.float32, trust_remote_code=False
            )
            if not file.is_file():
                check_writable(file.parent)
                save_tensors(file, self._train(classifier))
        classifier.load_state_dict(load_tensors(file, tuple(classifier.state_dict())))
        return classifier.eval()

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._model, trust_remote_code=False)

    def _train(self, classifier: nn.Module) -> dict[str, Tensor]:
        """Return the weights of the best epoch."""
        texts, labels = _labelled(self._training)
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
            if (held := self._validation_loss(classifier)) < best_loss or not any(self._validation):
                best = {name: entry.detach().clone() for name, entry in classifier.state_dict().items()}
                best_loss = held
        return best

    @torch.no_grad()
    def _validation_loss(self, classifier: nn.Module) -> float:
        texts, labels = _labelled(self._validation)
        if not texts:
            return float("inf")
        return float(F.binary_cross_entropy_with_logits(self._logits(classifier.eval(), texts), labels))

    def _logits(self, classifier: nn.Module, texts: Sequence[str]) -> Tensor:
        logits = []
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = self._tokenizer(
                list(texts[start : start + BATCH_TEXTS]),
                padding=True,
                truncation=True,
                max_length=MAX_LENGTH,
                return_tensors="pt",
            )
            logits.append(classifier(**batch).logits[:, 0])
        return torch.cat(logits)


def read_questions(path: Path, part: str) -> list[list[str]]:
    """Read a part of the questions: the texts of those that the dense path gets right, and of the graph path's.

    Of :data:`TRAINING`, neither may be empty.
    """
    texts: list[list[str]] = [[], []]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"{path}: needed a file of questions ({error})") from error
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            text, path_number = str(entry["text"]), ROUTES[:2].index(entry["right"])
            of_part = entry.get("part", TRAINING)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path}:{number}: needed an object with `text`, and `right` of {list(ROUTES[:2])}, got {line[:80]!r}"
            ) from error
        if of_part == part:
            texts[path_number].append(text)
    for name, found in zip(ROUTES, texts, strict=False):
        if not found and part == TRAINING:
            raise ValueError(f"{path}: needed a question for training that the path {name!r} gets right, got none")
    return texts


def _labelled(questions: Sequence[Sequence[str]]) -> tuple[list[str], Tensor]:
    """Join the questions of both paths: ``n`` texts, and ``[n]`` float32 labels, 1 for those of the graph."""
    texts = [text for of_path in questions for text in of_path]
    labels = [float(path == GRAPH) for path, of_path in enumerate(questions) for _ in of_path]
    return texts, torch.tensor(labels)


def _check_thresholds(low: float, high: float) -> None:
    if not low < high:
        raise ValueError(f"`low` must be below `high`, got {low} and {high}")
