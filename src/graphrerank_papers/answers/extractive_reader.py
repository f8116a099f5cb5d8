"""Answers without a language model: the span of the context that a small trained model prefers."""

import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.files import hash_files, load_tensors
from graphrerank.language_models.reply import Reply
from graphrerank.metrics.coverage import normalize_answer
from graphrerank_papers.answers.answer_spans import Span, answer_spans
from graphrerank_papers.answers.packing import Context

WEIGHTS = Path(__file__).parent / "extractive_reader.safetensors"  # by benchmarks/train_reader.py
NUM_WEIGHTS = 1 << 15
NAME = "extractive_reader"


class ExtractiveReader:
    """Chooses a span of the packed passages, or yes or no.

    Each span has named features: its form, its position, the words around it and those of the question. A name is
    hashed to one of ``NUM_WEIGHTS`` weights. A span's probability is the softmax of its features' sum over all spans of
    a context; those of one text add up, and the likeliest text is the answer. It knows a question's last step alone and
    abstains only if a context has no span: a floor and a smoke test; docs/papers/answers.md has its measures.

    Args:
        weights: A file with ``weights``, ``[NUM_WEIGHTS]``; None for the one that ships.
    """

    name = NAME

    def __init__(self, weights: str | Path | None = None) -> None:
        self.path = WEIGHTS if weights is None else Path(weights)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        return hash_files([self.path])

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer ``Q`` questions from a context each; equal ones are read once."""
        known: dict[tuple[str, tuple[str, ...]], str] = {}
        replies = []
        for question, context in zip(questions, contexts, strict=True):
            key = (question, context.passages)
            if key not in known:
                known[key] = best_text(answer_spans(question, context.passages), self._weights)
            replies.append(Reply(known[key], "answered", NAME, 0, 0))
        return replies

    @cached_property
    def _weights(self) -> Tensor:
        weights = load_tensors(self.path, ("weights",))["weights"].float()
        if weights.shape != (NUM_WEIGHTS,):
            raise ValueError(f"{self.path}: needed `weights` of {NUM_WEIGHTS} numbers, got {list(weights.shape)}")
        return weights


def feature_rows(spans: Sequence[Span]) -> tuple[Tensor, Tensor]:
    """Hash the features of ``n`` spans: ``[F]`` int64 weights, and ``[n]`` int64 where each span's begin."""
    hashed = [[zlib.crc32(name.encode("utf-8", "surrogatepass")) % NUM_WEIGHTS for name in s.features] for s in spans]
    starts = torch.tensor([0, *(len(row) for row in hashed)], dtype=torch.int64).cumsum(0)[:-1]
    return torch.tensor([index for row in hashed for index in row], dtype=torch.int64), starts


def best_text(spans: Sequence[Span], weights: Tensor) -> str:
    """Return the likeliest text, in the form in which it is likeliest; empty without a span."""
    if not spans:
        return ""
    scores = torch.nn.functional.embedding_bag(*_swap(feature_rows(spans), weights), mode="sum").flatten()
    shares: dict[str, float] = {}
    best: dict[str, tuple[float, str]] = {}
    for span, share in zip(spans, torch.softmax(scores, 0).tolist(), strict=True):
        key = normalize_answer(span.text)
        shares[key] = shares.get(key, 0.0) + share
        best[key] = max(best.get(key, (-1.0, "")), (share, span.text))
    return best[max(shares, key=lambda key: shares[key])][1]


def _swap(rows: tuple[Tensor, Tensor], weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return rows[0], weights.unsqueeze(1), rows[1]
