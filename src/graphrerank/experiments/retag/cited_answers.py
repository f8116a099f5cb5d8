"""Counts of a system's answers: how many there are, what they cite, what was read for them."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphrerank.evaluation.tables import markdown_table
from graphrerank.language_models import CitedAnswer


@dataclass(frozen=True)
class AnswerCounts:
    """The answers of one system."""

    system: str
    questions: int  # that were asked
    answered: int  # of them, those whose answer is not empty
    citations: float  # mean number of summaries that an answer cites, over those that are not empty; NaN where all are
    tokens_read: float  # mean tokens of the summaries that were shown for a question; NaN without questions
    parts: int  # parts of the summaries that were read, over all questions
    skipped: int  # of them, those from which the model gave no usable answer


def count_answers(system: str, answers: Sequence[CitedAnswer]) -> AnswerCounts:
    """Count a system's answers, their citations, and what was read for them."""
    written = [answer for answer in answers if answer.text]
    parts = [helpfulness for answer in answers for helpfulness in answer.helpfulness]
    return AnswerCounts(
        system,
        len(answers),
        len(written),
        _mean([len(answer.citations) for answer in written]),
        _mean([answer.tokens_read for answer in answers]),
        len(parts),
        sum(helpfulness is None for helpfulness in parts),
    )


def answers_table(counts: Sequence[AnswerCounts]) -> str:
    """Write the counts of some systems as a table in Markdown."""
    header = ["system", "questions", "answered", "summaries cited", "tokens read", "parts read", "of them unusable"]
    rows = [
        [
            count.system,
            f"{count.questions:,}",
            f"{count.answered:,}",
            f"{count.citations:.1f}" if count.answered else "",
            f"{count.tokens_read:,.0f}",
            f"{count.parts:,}",
            f"{count.skipped:,}",
        ]
        for count in counts
    ]
    return markdown_table(header, rows)


def _mean(numbers: Sequence[int]) -> float:
    return sum(numbers) / len(numbers) if numbers else float("nan")
