"""What the answers of a system cost, and the outcomes of its questions."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from graphrerank.evaluation.tables import Cell, Columns, Table, build_table, number_cell, system_cell
from graphrerank.language_models.reply import OUTCOMES, Reply
from graphrerank_papers.answers.packing import Context


@dataclass(frozen=True)
class Price:
    """Prices of a model in USD per million tokens; None for both if no money is counted.

    Raises:
        ValueError: If one of both is missing, or is not a finite number of at least 0.
    """

    input: float | None = None
    output: float | None = None

    def __post_init__(self) -> None:
        for name, usd in asdict(self).items():
            is_number = isinstance(usd, int | float) and not isinstance(usd, bool) and 0 <= usd < math.inf
            if usd is not None and not is_number:
                raise ValueError(f"`price.{name}` must be USD per million tokens, 0 or more, got {usd!r}")
        if (self.input is None) != (self.output is None):
            raise ValueError(f"`price` must have both `input` and `output` or neither, got {self}")

    def of(self, replies: Sequence[Reply]) -> float | None:
        """Return the cost of replies in USD; None if the endpoint counted no tokens of one, or without a price."""
        read, written = (total_tokens(replies, name) for name in ("input_tokens", "output_tokens"))
        if self.input is None or self.output is None or read is None or written is None:
            return None
        return (self.input * read + self.output * written) / 1e6


@dataclass(frozen=True)
class AnswerCounts:
    """Counts over the questions of one system; a cached reply counts as a request."""

    writer: str  # name of the writer: a prompt or a reader
    questions: int
    context_tokens: float  # mean tokens of a context, by the tokenizer of the packing
    outcomes: Mapping[str, int]  # questions by outcome (`OUTCOMES`)
    abstained: int  # blank answers, and those that say that the passages do not hold one
    repeated: int  # requests beyond the first of each question
    models: Mapping[str, int]  # questions by the model's name; several names: it changed meanwhile
    input_tokens: int | None = None  # of all questions; None if the endpoint does not count
    output_tokens: int | None = None
    usd: float | None = None  # of all questions; None without a price, or without counts
    verdicts: int = 0  # number of verdicts of the judge of right answers
    verdicts_unusable: int = 0  # of them, those without a decision
    judge_usd: float | None = None  # of these verdicts
    problems: Mapping[str, int] = field(default_factory=dict)  # rejected and failed questions by error message

    @classmethod
    def of(
        cls, writer: str, replies: Sequence[Reply], contexts: Sequence[Context], price: Price | None, **rest: Any
    ) -> "AnswerCounts":
        """Count replies to ``Q`` questions from a context each."""
        outcomes, models = Counter(reply.outcome for reply in replies), Counter(reply.model for reply in replies)
        problems = Counter(reply.problem for reply in replies if reply.problem)
        return cls(
            writer=writer,
            questions=len(replies),
            context_tokens=sum(context.num_tokens for context in contexts) / max(1, len(contexts)),
            outcomes={name: outcomes[name] for name in OUTCOMES},
            abstained=sum(reply.said is not None and not reply.said.strip() for reply in replies),
            repeated=sum(reply.attempts - 1 for reply in replies),
            models={name: models[name] for name in sorted(models) if name},
            input_tokens=total_tokens(replies, "input_tokens"),
            output_tokens=total_tokens(replies, "output_tokens"),
            usd=None if price is None else price.of(replies),
            problems=dict(problems.most_common()),
            **rest,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def notes(self, system: str) -> list[str]:
        """List warnings about a system's answers: questions without one and why, and models that changed."""
        notes = []
        if lost := [f"{n} {name}" for name, n in self.outcomes.items() if name != OUTCOMES[0] and n]:
            notes.append(f"answers of {system}: {', '.join(lost)} of {self.questions:,}")
            if self.problems:
                problem, number = max(self.problems.items(), key=lambda entry: entry[1])
                notes[-1] += f"; {number:,} times: {problem}"
        if self.verdicts_unusable:
            notes.append(
                f"answers of {system}: {self.verdicts_unusable:,} of {self.verdicts:,} verdicts unusable, which count "
                "as wrong"
            )
        if len(self.models) > 1:
            notes.append(f"answers of {system}: the model changed its name, {', '.join(self.models)}")
        return notes


def total_tokens(replies: Sequence[Reply], name: str) -> int | None:
    """Add up ``input_tokens`` or ``output_tokens`` of the replies that came; None if there is none, or one lacks it."""
    counts = [getattr(reply, name) for reply in replies if reply.has_come]
    return None if not counts or None in counts else sum(counts)


def answers_table(counts: Mapping[str, AnswerCounts]) -> Table:
    """Lay out the counts of each system, a row each."""

    def number(name: str, form: str = ",.0f") -> Callable[[tuple[str, AnswerCounts]], Cell]:
        return lambda row: number_cell(getattr(row[1], name), form)

    def outcome(name: str) -> Callable[[tuple[str, AnswerCounts]], Cell]:
        return lambda row: number_cell(row[1].outcomes[name], ",.0f")

    columns: Columns[tuple[str, AnswerCounts]] = {
        "system": lambda row: system_cell(row[0]),
        "written by": lambda row: Cell(row[1].writer),
        "model": lambda row: Cell(", ".join(f"{name} ({n})" for name, n in row[1].models.items()) or "-"),
        "tokens of a context": number("context_tokens"),
        "tokens read": number("input_tokens"),
        "tokens written": number("output_tokens"),
        "USD": number("usd", ".4f"),
        **{name: outcome(name) for name in OUTCOMES},
        "abstained": number("abstained"),
        "repeated": number("repeated"),
    }
    caption = (
        "Answers from the packed contexts. Tokens read and written and USD are of all questions, as if this system "
        "were the only one, without rejected and failed requests. Model: the names under which it answered. Cut: by "
        "the limit of tokens. Refused: by the model or a filter. Rejected: a request at fault, such as one that is too "
        "long. Failed: no usable answer in all attempts. Unusable: not in the form of the prompt. These four are "
        "missing, and right nowhere. Abstained: blank, or a statement of not knowing. Repeated: requests beyond the "
        "first of a question."
    )
    if any(row.verdicts for row in counts.values()):
        columns = {
            **columns,
            "verdicts": number("verdicts"),
            "unusable verdicts": number("verdicts_unusable"),
            "USD of verdicts": number("judge_usd", ".4f"),
        }
        caption += " Verdicts: of the model that judges answers; an unusable one counts as wrong."
    return build_table("answers", caption, list(counts.items()), columns, text_columns=3)
