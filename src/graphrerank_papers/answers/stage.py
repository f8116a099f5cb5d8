"""The stage behind any retrieval system: pack, write, score, judge and compare."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from graphrerank.evaluation.systems import RankedDataset, StageResult
from graphrerank.files import write_json_lines
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import AnswerCounts, Price, answers_table
from graphrerank_papers.answers.answer_judge import PairwiseJudge, Verdicts, win_rates, wins_table
from graphrerank_papers.answers.correctness_judge import CorrectnessJudge, parse_decision
from graphrerank_papers.answers.packing import Context, Packing, passages_of
from graphrerank_papers.answers.prompted_writer import Writer
from graphrerank_papers.answers.replies import RecordedModel
from graphrerank_papers.answers.scoring import EM, F1, JUDGED, SCORED, question_kinds, score_answers

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
    """Answers the questions of several systems from the passages that each of them ranked.

    A :class:`~graphrerank.evaluation.systems.Stage` of evaluation: called with the rankings of a data set, it adds
    measures of the answers, their costs, and win rates of the last system's answers.
    """

    packing: Packing
    writer: Writer
    _: KW_ONLY
    price: Price | None = None  # of the writer's model; None: no money is counted
    judge: CorrectnessJudge | None = None  # judges whether answers are right; None: no model does
    judge_price: Price | None = None  # of the judge's model
    comparison: PairwiseJudge | None = None  # prefers one of two systems' answers; None: no model does
    comparison_price: Price | None = None  # of the comparison's model
    measures: tuple[str, ...] = field(init=False)  # names of the measures of `SystemAnswers.values`
    tested: tuple[str, ...] = field(init=False)  # those of them that are tested by default

    def __post_init__(self) -> None:
        for name in ("price", "judge_price", "comparison_price"):
            if not isinstance(price := getattr(self, name), Price | None):
                raise ValueError(f"`{name}` must have `input` and `output`, USD per million tokens, got {price!r}")
        judged = () if self.judge is None else (JUDGED,)
        object.__setattr__(self, "measures", (*SCORED, *judged))
        object.__setattr__(self, "tested", (F1, EM, *judged))

    def __call__(self, ranked: RankedDataset, *, run_dir: Path | None = None, seed: int = 0) -> StageResult:
        """Answer the queries of a data set from each system's ranking.

        ``run_dir/answers/<dataset>.jsonl`` has a line for each system and query, and if answers are compared,
        ``<dataset>_comparisons.jsonl`` one for each other system, criterion and query.

        Raises:
            ValueError: If the data set has no right answers and answers are not compared, or one system is compared.
        """
        dataset, rows = ranked.dataset, ranked.queries.tolist()
        ids, questions = [dataset.query_ids[row] for row in rows], [dataset.query_texts[row] for row in rows]
        right = [dataset.answers.get(query_id) for query_id in ids]
        if self.comparison is not None and len(ranked.systems) < 2:
            raise ValueError(f"`answers` that are compared need two systems, got {ranked.systems[0].name!r} alone")
        if all(answers is None for answers in right) and self.comparison is None:
            raise ValueError(
                f"`answers` needs an `answer` in the metadata of queries, found none in data set {dataset.name!r}"
            )
        passages = {
            system.name: passages_of(dataset.graph.texts, system.ranking.nodes.tolist()) for system in ranked.systems
        }
        answers = self.answer(questions, passages, right)
        *others, primary = answers
        verdicts: dict[str, Verdicts] = {}
        notes: list[str] = []
        if self.comparison is not None:
            model = self.comparison.model
            recorded = model.recorded if isinstance(model, RecordedModel) else []
            before = len(recorded)
            for other in others:
                verdicts[other] = self.comparison.compare(questions, answers[primary].said, answers[other].said)
            notes += _comparison_notes(recorded[before:], self.comparison_price)
        if run_dir is not None:
            path = run_dir / "answers" / f"{dataset.name}.jsonl"
            write_json_lines(path, _answer_lines(ids, right, answers))
            if verdicts:
                lines = _verdict_lines(ids, primary, verdicts)
                write_json_lines(path.with_name(f"{path.stem}_comparisons.jsonl"), lines)
        rates = [
            rate
            for other, found in verdicts.items()
            for rate in win_rates(found, system=primary, baseline=other, seed=seed)
        ]
        counts = {name: part.counts for name, part in answers.items()}
        num_relevant = (dataset.split(ranked.split).gains(ranked.queries) > 0).sum(1).tolist()
        return StageResult(
            measures={name: part.values for name, part in answers.items()},
            groups={"kind": question_kinds(num_relevant, answers[primary].values)},
            notes=[*notes, *(note for name, part in counts.items() for note in part.notes(name))],
            tables=[answers_table(counts), *([wins_table(rates)] if rates else [])],
            extra={"win_rates": [rate.to_json() for rate in rates]} if rates else {},
            system_extra={name: {"answers": part.to_json()} for name, part in counts.items()},
        )

    def answer(
        self, questions: Sequence[str], ranked: Mapping[str, Sequence[Sequence[str]]], right: Right
    ) -> dict[str, SystemAnswers]:
        """Answer ``Q`` questions from the passages that each system ranked for them, best first.

        Equal contexts of several systems are answered from once.
        """
        return self.answer_from(questions, {name: self.packing.pack(texts) for name, texts in ranked.items()}, right)

    def answer_from(
        self, questions: Sequence[str], contexts: Mapping[str, Sequence[Context]], right: Right
    ) -> dict[str, SystemAnswers]:
        """Answer ``Q`` questions from each system's packed contexts."""
        size = len(questions)
        replies = self.writer.write([*questions] * len(contexts), [c for row in contexts.values() for c in row])
        return {
            name: self._system(questions, replies[number * size : (number + 1) * size], packed, right)
            for number, (name, packed) in enumerate(contexts.items())
        }

    def _system(
        self, questions: Sequence[str], replies: Sequence[Reply], contexts: Sequence[Context], right: Right
    ) -> SystemAnswers:
        said = [reply.said for reply in replies]
        values = score_answers(said, [context.text for context in contexts], right)
        verdicts: Sequence[Reply | None] = ()
        judged: dict[str, Any] = {}
        if self.judge is not None:
            values[JUDGED], verdicts = self.judge.judge(questions, said, right)
            found = [verdict for verdict in verdicts if verdict is not None]
            judged = {
                "verdicts": len(found),
                "verdicts_unusable": sum(parse_decision(verdict.text) is None for verdict in found),
                "judge_usd": None if self.judge_price is None else self.judge_price.of(found),
            }
        counts = AnswerCounts.of(self.writer.name, replies, contexts, self.price, **judged)
        return SystemAnswers(replies, contexts, values, counts, verdicts)


def _comparison_notes(replies: Sequence[Reply], price: Price | None) -> list[str]:
    """Describe the cost of a comparison whose model was recorded."""
    if not replies:
        return []
    counts = AnswerCounts.of("comparison", replies, [], price)
    tokens = (
        "tokens not counted"
        if counts.input_tokens is None or counts.output_tokens is None
        else f"{counts.input_tokens:,} tokens read, {counts.output_tokens:,} written"
    )
    usd = "" if counts.usd is None else f", {counts.usd:.4f} USD"
    failed = sum(not reply.has_come for reply in replies)
    return [f"comparison of answers: {len(replies):,} requests, {failed:,} of them failed or rejected; {tokens}{usd}"]


def _answer_lines(ids: Sequence[str], right: Right, answers: Mapping[str, SystemAnswers]) -> Iterator[dict[str, Any]]:
    for name, part in answers.items():
        scores = {measure: column.tolist() for measure, column in part.values.items()}
        for row, (query_id, reply) in enumerate(zip(ids, part.replies, strict=True)):
            verdict = part.verdicts[row] if part.verdicts else None
            yield {
                "system": name,
                "query_id": query_id,
                "answer": reply.text,
                "outcome": reply.outcome,
                **({"problem": reply.problem} if reply.problem else {}),
                "right": right[row],
                **{measure: column[row] for measure, column in scores.items()},
                **({} if verdict is None else {"verdict": verdict.text}),
            }


def _verdict_lines(ids: Sequence[str], primary: str, verdicts: Mapping[str, Verdicts]) -> Iterator[dict[str, Any]]:
    """Describe each verdict: 1 if the last system's answer is better, 0.5 for a tie, 0 if the other's is."""
    for other, found in verdicts.items():
        columns = {
            "score": found.scores.tolist(),
            "shown_first": ((1 + found.forward) / 2).tolist(),
            "shown_second": ((1 + found.backward) / 2).tolist(),
        }
        for number, criterion in enumerate(found.criteria):
            for row, query_id in enumerate(ids):
                scores = {name: column[number][row] for name, column in columns.items()}
                yield {"system": primary, "against": other, "criterion": criterion, "query_id": query_id, **scores}
