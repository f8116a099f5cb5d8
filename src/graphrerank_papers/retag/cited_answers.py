"""Counts of a system's answers: how many there are, what they cite, what was read for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphrerank.evaluation.tables import markdown_table
from graphrerank_papers.answers.answer_counts import AnswerCounts
from graphrerank_papers.answers.map_reduce_writer import CitedReply
from graphrerank_papers.answers.stage import SystemAnswers


@dataclass(frozen=True)
class CitedAnswers:
    """The answers of one system."""

    system: str
    answered: int  # questions whose answer is not empty
    citations: float  # mean number of summaries that an answer cites, over those that cite; NaN where none does
    parts: int  # parts of the summaries that were read, over all questions; 0 of a writer that reads no parts
    skipped: int  # of them, those from which the model gave no usable answer
    counts: AnswerCounts  # of the stage

    def to_json(self) -> dict[str, Any]:
        """Return its entry of ``metrics.json``."""
        citations = None if self.citations != self.citations else self.citations
        return {**vars(self), "citations": citations, "counts": self.counts.to_json()}


def count_answers(system: str, answers: SystemAnswers) -> CitedAnswers:
    """Count a system's answers, their citations, and what was read for them."""
    cited = [reply for reply in answers.replies if isinstance(reply, CitedReply)]
    numbers = [len(reply.citations) for reply in cited if reply.text]
    parts = [helpfulness for reply in cited for helpfulness in reply.helpfulness]
    return CitedAnswers(
        system,
        sum(bool(text) for text in answers.said),
        sum(numbers) / len(numbers) if numbers else float("nan"),
        len(parts),
        sum(helpfulness is None for helpfulness in parts),
        answers.counts,
    )


def answers_table(answers: Sequence[CitedAnswers]) -> str:
    """Write the counts of some systems as a table in Markdown."""
    header = ["system", "questions", "answered", "summaries cited", "tokens to read", "parts read", "of them unusable"]
    header += ["model tokens read", "written", "USD", "failed", "unusable"]
    rows = [
        [
            entry.system,
            f"{entry.counts.questions:,}",
            f"{entry.answered:,}",
            "" if entry.citations != entry.citations else f"{entry.citations:.1f}",
            f"{entry.counts.context_tokens:,.0f}",
            f"{entry.parts:,}",
            f"{entry.skipped:,}",
            _number(entry.counts.input_tokens, ",d"),
            _number(entry.counts.output_tokens, ",d"),
            _number(entry.counts.usd, ".4f"),
            f"{entry.counts.outcomes['failed'] + entry.counts.outcomes['rejected']:,}",
            f"{entry.counts.outcomes['unusable'] + entry.counts.outcomes['refused']:,}",
        ]
        for entry in answers
    ]
    return markdown_table(header, rows)


def _number(count: float | None, form: str) -> str:
    return "-" if count is None else format(count, form)
