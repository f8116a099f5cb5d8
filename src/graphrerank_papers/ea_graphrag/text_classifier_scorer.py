"""Score queries by a fine-tuned text classifier."""

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.operators.cross_encoder import FINGERPRINTED
from graphrerank.utils.caching import cached_tensors
from graphrerank.utils.checks import check_counts, check_positive
from graphrerank.utils.files import hash_files, hash_json, hash_model
from graphrerank_papers.ea_graphrag.routing_questions import QUESTION_PARTS, read_routing_questions

#: Number of texts that are scored at once.
BATCH_TEXTS = 64
#: Maximum number of tokens of a question. Longer questions are truncated.
MAX_LENGTH = 64


@dataclass(eq=False)
class TextClassifierScorer:
    r"""Score how much queries need graph retrieval by a classifier of their texts.

    .. math:: s(q) = \sigma(w^\top h_{\mathrm{CLS}}(q) + b)

    All weights of the encoder are trained by binary cross-entropy, with AdamW and a learning rate that decreases
    linearly to 0. The epoch with the lowest loss on the validation questions is used, or the last one if there are
    none. The classifier is trained when the first query is scored, which takes a minute or two on a CPU core, and its
    weights are cached. This is a baseline of EA-GraphRAG's router, not a part of the paper.

    Attributes:
        questions: File of questions, see :func:`read_routing_questions`.
        model: Folder of an encoder of transformers.
        cache: Folder in which the trained weights are stored.
        low: Maximum score of queries that take the dense path.
        high: Minimum score of queries that take the graph path.
        max_epochs: Number of epochs.
        learning_rate: Learning rate of the first step.
        batch_size: Number of questions in a training batch.
        seed: Random seed of the weights of the new head, of dropout and of the order of the questions.
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
        """Read the questions."""
        check_counts(max_epochs=self.max_epochs, batch_size=self.batch_size)
        check_positive(learning_rate=self.learning_rate)
        self._training, self._validation = (read_routing_questions(self.questions, part) for part in QUESTION_PARTS)

    @property
    def fingerprint(self) -> str:
        """Hash that changes whenever the trained weights would change. It names the cache file."""
        settings = [self.max_epochs, self.learning_rate, self.batch_size, MAX_LENGTH, self.seed]
        encoder = hash_model(str(self.model), None, FINGERPRINTED)
        return hash_json([hash_files([Path(self.questions)]), encoder, settings])

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries, after training the classifier unless its weights are cached.

        Args:
            texts: Texts of ``B`` queries.

        Returns:
            Scores s(q) ``[B]`` in [0, 1], on the CPU.
        """
        return torch.sigmoid(self._logits(self._classifier, texts)) if texts else torch.zeros(0)

    @cached_property
    def _classifier(self) -> nn.Module:
        """Classifier with trained weights, read from the cache or trained."""
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
        """Train a classifier and return the weights of the best epoch."""
        texts, labels = self._training
        num_steps = self.max_epochs * -(-len(texts) // self.batch_size)
        optimizer = torch.optim.AdamW(classifier.parameters(), lr=self.learning_rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / num_steps)
        best_weights, lowest_loss = {}, float("inf")
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
            if not self._validation.texts or validation_loss < lowest_loss:
                best_weights, lowest_loss = copy.deepcopy(classifier.state_dict()), validation_loss
        return best_weights

    @torch.no_grad()
    def _validation_loss(self, classifier: nn.Module) -> float:
        """Return the mean loss on the validation questions, or 0 if there are none."""
        texts, labels = self._validation
        return float(F.binary_cross_entropy_with_logits(self._logits(classifier, texts), labels)) if texts else 0.0

    def _logits(self, classifier: nn.Module, texts: Sequence[str]) -> Tensor:
        """Return the logits ``[n]`` of texts."""
        logits = []
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = list(texts[start : start + BATCH_TEXTS])
            tokens = self._tokenizer(batch, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
            logits.append(classifier(**tokens).logits[:, 0])
        return torch.cat(logits)
