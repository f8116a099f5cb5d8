"""Contexts under test: Coverage of the answers, tokens and time, and a language model's answers."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

import torch
from torch import Tensor

from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.graphs import Queries
from graphrerank_papers.answers.answer_counts import AnswerCounts
from graphrerank_papers.answers.measures import coverage
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.stage import AnswerStage
from graphrerank_papers.ket.report import KETReport
from graphrerank_papers.ket.retrieval import Contexts

BATCH = 16  # questions retrieved at once
CONTEXT_MEASURES = ("Coverage", "EM", "F1")


@dataclass(frozen=True)
class Questions:
    """Questions with their right answers."""

    queries: Queries  # `Q` questions with their vectors
    answers: Sequence[Sequence[str]]  # `Q` lists of one right answer or more

    def first(self, count: int | None) -> "Questions":
        """Take the first ones; all when None."""
        return self if count is None else Questions(self.queries.block(0, count), self.answers[:count])


@dataclass(frozen=True)
class ContextResult:
    """The result of one way to make contexts."""

    values: Mapping[str, Tensor]  # `[Q]` float64 by measure: `Coverage`, and where a model answered `EM` and `F1`
    milliseconds: float  # median per question, retrieved in batches of `BATCH`, without encoding it
    context_tokens: float  # mean tokens of a context
    settings: Mapping[str, Any] = field(default_factory=dict)  # what sets it apart, by name, as it stands in tables
    index_seconds: float = 0.0  # what building, or reading, its index took
    report: KETReport | None = None  # what its index holds and cost
    answers: AnswerCounts | None = None  # what the answers took, where they were written

    def mean(self, measure: str) -> float:
        """Return the mean of a measure in percent."""
        return 100 * float(self.values[measure].mean())

    def interval(self, measure: str) -> tuple[float, float]:
        """Return the 95% bootstrap interval of a measure's mean over questions, as fractions."""
        low, high = bootstrap_interval(self.values[measure]).tolist()
        return low, high

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        report = self.report
        costs: dict[str, Any] = {} if report is None else {
            "index_seconds": self.index_seconds,
            "chunks": report.sub_chunks,
            "entities": report.entities,
            "relations": report.relations,
            "keywords": report.keywords,
            "encoder_tokens": report.sent.encoder,
            "model_tokens": report.sent.model_input + report.sent.model_output,
            "core_tokens": report.core_tokens,
        }  # fmt: skip
        if self.answers is not None:
            costs["answers"] = self.answers.to_json()
        return {
            **self.settings,
            **{measure: float(values.mean()) for measure, values in self.values.items()},
            "interval": {measure: list(self.interval(measure)) for measure in self.values},
            "questions": len(self.values["Coverage"]),
            "ms_per_question": self.milliseconds,
            "context_tokens": self.context_tokens,
            **costs,
        }


def judge_contexts(
    retrieve: Callable[[Queries], Contexts],
    questions: Questions,
    *,
    answers: AnswerStage | None = None,
    **described: Any,
) -> ContextResult:
    """Retrieve contexts for ``Q`` questions, look for the answers in them, and let a stage answer from them.

    ``described`` goes into the result.
    """
    retrieve(questions.queries.block(0, BATCH))  # warm
    texts: list[str] = []
    packed: list[Context] = []
    milliseconds: list[float] = []
    for start in range(0, len(questions.queries), BATCH):
        block = questions.queries.block(start, start + BATCH)
        begin = time.perf_counter()
        contexts = retrieve(block)
        milliseconds.append(1000 * (time.perf_counter() - begin) / len(block))
        texts += contexts.texts
        packed += starmap(Context, zip(contexts.passages, contexts.num_tokens.tolist(), strict=True))
    mean_tokens = statistics.mean(context.num_tokens for context in packed)
    values = {"Coverage": _measured(coverage, texts, questions.answers)}
    if answers is not None:
        (said,) = answers.answer_from(questions.queries.texts, {"": packed}, questions.answers).values()
        values |= {name: said.values[name] for name in CONTEXT_MEASURES[1:]}
        described["answers"] = said.counts
    return ContextResult(values, statistics.median(milliseconds), mean_tokens, **described)


def _measured(
    measure: Callable[[str, Sequence[str]], float], texts: Sequence[str], answers: Sequence[Sequence[str]]
) -> Tensor:
    return torch.tensor([measure(*pair) for pair in zip(texts, answers, strict=True)], dtype=torch.float64)
