"""What the answers of a system took, and what became of its questions."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from graphrerank.language_models.reply import OUTCOMES, Reply
from graphrerank_papers.answers.packing import Context


@dataclass(frozen=True)
class Price:
    """Prices of a model in USD per million tokens; None for both where no money is counted.

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
        """Return what replies cost in USD; None if the endpoint counted no tokens of one, or without a price."""
        read = _total([reply.input_tokens for reply in replies if reply.has_come])
        written = _total([reply.output_tokens for reply in replies if reply.has_come])
        if self.input is None or self.output is None or read is None or written is None:
            return None
        return (self.input * read + self.output * written) / 1e6


@dataclass(frozen=True)
class AnswerCounts:
    """Counts over the questions of one system; what came from the cache counts as when it was asked."""

    writer: str  # name of what wrote the answers: a prompt or a reader
    questions: int
    context_tokens: float  # mean tokens of a context, by the tokenizer of the packing
    outcomes: Mapping[str, int]  # questions by outcome (`OUTCOMES`)
    abstained: int  # answers that are blank, or say that the passages do not hold it
    repeated: int  # requests beyond the first of each question
    # questions by the name under which the model answered; several names mean that it changed meanwhile
    models: Mapping[str, int]
    input_tokens: int | None = None  # of all questions; None where the endpoint does not count
    output_tokens: int | None = None
    usd: float | None = None  # of all questions; None without a price, or without counts
    verdicts: int = 0  # asked of the judge of right answers
    verdicts_unusable: int = 0  # of them, those without a decision
    judge_usd: float | None = None  # of these verdicts
    # questions by what became of their requests that were rejected or failed, in the endpoint's words
    problems: Mapping[str, int] = field(default_factory=dict)

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
            input_tokens=_total([reply.input_tokens for reply in replies if reply.has_come]),
            output_tokens=_total([reply.output_tokens for reply in replies if reply.has_come]),
            usd=None if price is None else price.of(replies),
            problems=dict(problems.most_common()),
            **rest,
        )

    def to_json(self) -> dict[str, Any]:
        """Return this record for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "AnswerCounts":
        """Read the output of :meth:`to_json`, also of versions that knew less."""
        return cls(**{entry.name: content[entry.name] for entry in fields(cls) if entry.name in content})


def _total(counts: Sequence[int | None]) -> int | None:
    """Add up, if there is something and all of it was counted."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
