"""What the answers of a system took, and what became of its questions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from graphrerank.answers.packing import Context
from graphrerank.language_models import OUTCOMES, Reply


@dataclass(frozen=True)
class Price:
    """Prices of a model in USD per million tokens."""

    input: float
    output: float

    def of(self, replies: Sequence[Reply]) -> float | None:
        """Return what replies cost in USD; None if the endpoint counted no tokens of one that it answered."""
        counts = [(reply.input_tokens, reply.output_tokens) for reply in replies if reply.text or reply.model]
        if any(count is None for pair in counts for count in pair):
            return None
        return sum(self.input * (read or 0) + self.output * (written or 0) for read, written in counts) / 1e6


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

    @classmethod
    def of(
        cls, writer: str, replies: Sequence[Reply], contexts: Sequence[Context], price: Price | None, **rest: Any
    ) -> "AnswerCounts":
        """Count replies to ``Q`` questions from a context each."""
        outcomes, models = Counter(reply.outcome for reply in replies), Counter(reply.model for reply in replies)
        return cls(
            writer=writer,
            questions=len(replies),
            context_tokens=sum(context.num_tokens for context in contexts) / max(1, len(contexts)),
            outcomes={name: outcomes[name] for name in OUTCOMES},
            abstained=sum(not reply.text.strip() and reply.outcome in OUTCOMES[:2] for reply in replies),
            repeated=sum(reply.attempts - 1 for reply in replies),
            models={name: models[name] for name in sorted(models) if name},
            input_tokens=_total([reply.input_tokens for reply in replies if reply.model]),
            output_tokens=_total([reply.output_tokens for reply in replies if reply.model]),
            usd=None if price is None else price.of(replies),
            **rest,
        )

    def to_json(self) -> dict[str, Any]:
        """Return this record for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "AnswerCounts":
        """Read the output of :meth:`to_json`."""
        return cls(**{entry.name: content[entry.name] for entry in fields(cls)})


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
