"""A router by a fine-tuned text classifier: an encoder learns from the questions that exactly one path got right."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphrerank.checks import check_counts, check_positive
from graphrerank.files import check_writable, hash_files, hash_json, hash_model, load_tensors, save_tensors
from graphrerank.graphs.routes import GRAPH
from graphrerank_papers.ea_graphrag.prototype_scorer import TRAINING, VALIDATION, read_questions

BATCH_TEXTS = 64  # scored at once
KINDS = {".safetensors", ".bin", ".json", ".txt", ".model"}  # files that determine what a model gives


class TextClassifierScorer:
    r"""Score how much queries need the graph by a classifier of their texts, in place of a complexity adapter.

    .. math:: s(q) = \sigma(w^\top h_{\mathrm{CLS}}(q) + b)

    All weights of the encoder are trained by binary cross-entropy, with AdamW and a rate that falls linearly. Of the
    epochs, the one with the lowest loss on the questions for validation is kept, or the last where there are none.

    Source: a semantic scorer beside the adapter of "EA-GraphRAG", 2026; the training is ours. The
    questions are those of ``disagreements.jsonl`` (``PrototypeScorer``).

    It is trained at its first use: a few hundred questions by a small encoder take a minute or two on a CPU core. Its
    weights lie in the cache, under a hash of the questions, the model and the settings.

    Args:
        questions: As of ``PrototypeScorer``; those for validation choose the epoch.
        model: Folder of an encoder of transformers.
        cache: Folder that keeps trained weights.
        low: Up to this score a query takes the dense path.
        high: From this score on it takes the graph path.
        max_epochs: Passes over the questions.
        learning_rate: At the beginning; it falls to 0.
        batch_size: Questions of a step.
        max_length: Tokens of a question; longer ones are cut.
        seed: Of the head's weights, of dropout, and of the order of the questions.

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
        max_length: int = 64,
        seed: int = 0,
    ) -> None:
        if not low < high:
            raise ValueError(f"`low` must be below `high`, got {low} and {high}")
        check_counts(max_epochs=max_epochs, batch_size=batch_size, max_length=max_length)
        check_positive(learning_rate=learning_rate)
        self.low, self.high = low, high
        self._questions, self._model, self._cache = Path(questions), str(model), Path(cache)
        self.max_epochs, self.learning_rate, self.batch_size = max_epochs, learning_rate, batch_size
        self.max_length, self.seed = max_length, seed
        self._training = read_questions(self._questions, TRAINING)
        self._validation = read_questions(self._questions, VALIDATION)

    @property
    def fingerprint(self) -> str:
        """Changes whenever the trained weights would."""
        settings = (self.max_epochs, self.learning_rate, self.batch_size, self.max_length, self.seed)
        return hash_json([hash_files([self._questions]), hash_model(self._model, None, KINDS), list(settings)])

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries: s(q), ``[B]`` in [0, 1], on the CPU."""
        scores = [
            torch.sigmoid(self._logits(self._trained, texts[start : start + BATCH_TEXTS]))
            for start in range(0, len(texts), BATCH_TEXTS)
        ]
        return torch.cat([torch.zeros(0), *scores])

    @cached_property
    def _trained(self) -> nn.Module:
        """Read the trained classifier from the cache, or train it."""
        file = self._cache / "text_classifiers" / f"{self.fingerprint}.safetensors"
        with torch.inference_mode(False):  # which whoever asks for scores may be in
            classifier = self._untrained()
            if not file.is_file():
                check_writable(file.parent)
                save_tensors(file, self._train(classifier))
        classifier.load_state_dict(load_tensors(file, tuple(classifier.state_dict())))
        return classifier.eval()

    def _untrained(self) -> nn.Module:
        from transformers import AutoModelForSequenceClassification  # heavy: only when it is used

        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            classifier: nn.Module = AutoModelForSequenceClassification.from_pretrained(
                self._model, num_labels=1, dtype=torch.float32, trust_remote_code=False
            )
        return classifier

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
        with torch.random.fork_rng(), torch.enable_grad():
            torch.manual_seed(self.seed)
            for _ in range(self.max_epochs):
                classifier.train()
                for rows in torch.randperm(len(texts)).split(self.batch_size):  # type: ignore[no-untyped-call]
                    logits = self._logits(classifier, [texts[row] for row in rows.tolist()])
                    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels[rows])
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
        logits = torch.cat(
            [
                self._logits(classifier.eval(), texts[start : start + BATCH_TEXTS])
                for start in range(0, len(texts), BATCH_TEXTS)
            ]
        )
        return float(nn.functional.binary_cross_entropy_with_logits(logits, labels))

    def _logits(self, classifier: nn.Module, texts: Sequence[str]) -> Tensor:
        batch = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
        )
        logits: Tensor = classifier(**batch).logits
        return logits[:, 0]


def _labelled(questions: Sequence[Sequence[str]]) -> tuple[list[str], Tensor]:
    """Join the questions of both paths: ``n`` texts, and ``[n]`` float32 labels, 1 for those of the graph."""
    texts = [text for own in questions for text in own]
    labels = [float(path == GRAPH) for path, own in enumerate(questions) for _ in own]
    return texts, torch.tensor(labels)
