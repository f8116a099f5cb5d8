"""The stage behind any retrieval system: pack, write, score, and judge."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from torch import Tensor

from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import AnswerCounts, Price
from graphrerank_papers.answers.answer_judge import PairwiseJudge
from graphrerank_papers.answers.correctness_judge import CorrectnessJudge, parse_decision
from graphrerank_papers.answers.packing import Context, Packing
from graphrerank_papers.answers.prompted_writer import Writer
from graphrerank_papers.answers.scoring import JUDGED, SCORED, score_answers

Right = Sequence[Sequence[str] | None]  # of each question, as in `score_answers`


@dataclass(frozen=True, eq=False)
class SystemAnswers:
    """The answers of one system to ``Q`` questions."""

    replies: Sequence[Reply]  # `Q`, as the writer gave them
    contexts: Sequence[Context]  # `Q`, that they were written from
    values: Mapping[str, Tensor]  # `[Q]` float64 of each measure of answers; NaN = the question does not count
    counts: AnswerCounts
    verdicts: Sequence[Reply | None] = ()  # `Q` verdicts of the judge in its words; empty without a judge

    @property
    def said(self) -> list[str | None]:
        """The answers; a blank one abstains, None is missing."""
        return [reply.said for reply in self.replies]


@dataclass(frozen=True, eq=False)
class AnswerStage:
    """Answers the questions of several systems from the passages that each of them ranked."""

    packing: Packing
    writer: Writer
    _: KW_ONLY
    price: Price | None = None  # of the writer's model; None: no money is counted
    judge: CorrectnessJudge | None = None  # judges whether answers are right; None: no model does
    judge_price: Price | None = None  # of the judge's model
    comparison: PairwiseJudge | None = None  # prefers one of two systems' answers; None: no model does
    comparison_price: Price | None = None  # of the comparison's model
    measures: tuple[str, ...] = field(init=False)  # names of the measures of `SystemAnswers.values`

    def __post_init__(self) -> None:
        for name in ("price", "judge_price", "comparison_price"):
            if not isinstance(price := getattr(self, name), Price | None):
                raise ValueError(f"`{name}` must have `input` and `output`, USD per million tokens, got {price!r}")
        object.__setattr__(self, "measures", SCORED if self.judge is None else (*SCORED, JUDGED))

    def answer(
        self, questions: Sequence[str], ranked: Mapping[str, Sequence[Sequence[str]]], right: Right
    ) -> dict[str, SystemAnswers]:
        """Answer ``Q`` questions from the passages that each system ranked for them, best first.

        What several systems give to read alike is asked once.
        """
        contexts = {name: self.packing.pack(texts) for name, texts in ranked.items()}
        return self.answer_from(questions, contexts, right)

    def answer_from(
        self, questions: Sequence[str], contexts: Mapping[str, Sequence[Context]], right: Right
    ) -> dict[str, SystemAnswers]:
        """Answer ``Q`` questions from each system's contexts, packed already."""
        size = len(questions)
        replies = self.writer.write([*questions] * len(contexts), [c for row in contexts.values() for c in row])
        answers = {}
        for number, (name, packed) in enumerate(contexts.items()):
            own = replies[number * size : (number + 1) * size]
            answers[name] = self._system(questions, own, packed, right)
        return answers

    def _system(
        self, questions: Sequence[str], replies: Sequence[Reply], contexts: Sequence[Context], right: Right
    ) -> SystemAnswers:
        said = [reply.said for reply in replies]
        values = score_answers(said, [context.text for context in contexts], right)
        if self.judge is None:
            counts = AnswerCounts.of(self.writer.name, replies, contexts, self.price)
            return SystemAnswers(replies, contexts, values, counts)
        values[JUDGED], verdicts = self.judge.judge(questions, said, right)
        asked = [verdict for verdict in verdicts if verdict is not None]
        counts = AnswerCounts.of(
            self.writer.name,
            replies,
            contexts,
            self.price,
            verdicts=len(asked),
            verdicts_unusable=sum(parse_decision(verdict.text) is None for verdict in asked),
            judge_usd=None if self.judge_price is None else self.judge_price.of(asked),
        )
        return SystemAnswers(replies, contexts, values, counts, verdicts)
