"""Evaluation stage that answers the questions of any retrieval system: pack, write, score, judge and compare."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.evaluation.systems import RankedDataset, StageResult
from graphrerank.evaluation.tables import Cell, Table, number_cell, row_name, rows_table
from graphrerank.language_models.reply import OUTCOMES, Reply
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import without_nan, write_json_lines
from graphrerank_papers.answers.judges import (
    CorrectnessJudge,
    PairwiseJudge,
    Verdicts,
    WinRate,
    parse_decision,
    win_rates,
    wins_table,
)
from graphrerank_papers.answers.packing import Context, Packing, candidate_texts
from graphrerank_papers.answers.price import Price
from graphrerank_papers.answers.scoring import EM, F1, JUDGED_MEASURE, SCORED, question_kinds, score_answers
from graphrerank_papers.answers.writers import RecordedModel, Writer, total_tokens

#: Correct answers to each question, as in :func:`score_answers`.
Right = Sequence[Sequence[str] | None]


@dataclass
class AnswerCounts:
    """Counts over the questions of one system. A cached reply counts as a request.

    Attributes:
        writer: Name of the writer, which is a prompt or a reader.
        questions: Number of questions.
        context_tokens: Mean number of tokens of a context, according to the tokenizer of the packing.
        outcomes: Number of questions per outcome (:data:`OUTCOMES`).
        abstained: Number of answers that are blank, or that state that the passages contain no answer.
        repeated: Number of requests beyond the first of each question.
        models: Number of questions per model name. Several names mean that the endpoint changed its model during the
            run.
        input_tokens: Number of input tokens of all questions. None if the endpoint does not count tokens.
        output_tokens: Number of output tokens of all questions. None if the endpoint does not count tokens.
        usd: Cost of all questions in US dollars. None without a price, or if the endpoint does not count tokens.
        verdicts: Number of verdicts of the correctness judge.
        verdicts_unusable: Number of verdicts without a decision.
        judge_usd: Cost of the verdicts in US dollars. None without a price, or without counts of tokens.
        problems: Number of rejected and failed questions per error message.
    """

    writer: str
    questions: int
    context_tokens: float
    outcomes: Mapping[str, int]
    abstained: int
    repeated: int
    models: Mapping[str, int]
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None
    verdicts: int = 0
    verdicts_unusable: int = 0
    judge_usd: float | None = None
    problems: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, writer: str, replies: Sequence[Reply], contexts: Sequence[Context], price: Price | None = None
    ) -> "AnswerCounts":
        """Count the replies to questions.

        Args:
            writer: Name of the writer.
            replies: Reply to each question.
            contexts: Context of each question.
            price: Price of the writer's model. None does not count money.

        Returns:
            Counts without verdicts.
        """
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
        )

    def notes(self, system: str) -> list[str]:
        """Return warnings about missing answers, unusable verdicts, and a model that changed its name.

        Args:
            system: Name of the system.
        """
        notes = []
        if lost := [f"{n} {name}" for name, n in self.outcomes.items() if name != OUTCOMES[0] and n]:
            problem = "".join(
                f"; most frequent problem ({count:,}): {text}" for text, count in [*self.problems.items()][:1]
            )
            notes.append(f"{', '.join(lost)} of {self.questions:,}{problem}")
        if self.verdicts_unusable:
            notes.append(f"{self.verdicts_unusable:,} of {self.verdicts:,} verdicts unusable and scored as wrong")
        if len(self.models) > 1:
            notes.append(f"the endpoint answered under several model names: {', '.join(self.models)}")
        return [f"answers of {system}: {note}" for note in notes]


@dataclass(frozen=True, eq=False)
class SystemAnswers:
    """Answers of one system to ``Q`` questions.

    Attributes:
        replies: Reply of the writer to each question.
        contexts: Context of each question.
        values: Scores ``[Q]`` float64 for each measure of answers. NaN if the question is ignored by the measure.
        counts: Counts over the questions.
        verdicts: Reply of the correctness judge on each question, or None for a question that needed no verdict. Empty
            without a judge.
    """

    replies: Sequence[Reply]
    contexts: Sequence[Context]
    values: Mapping[str, Tensor]
    counts: AnswerCounts
    verdicts: Sequence[Reply | None] = ()

    @property
    def said(self) -> list[str | None]:
        """Answer to each question. A blank answer abstains, and None is a missing answer."""
        return [reply.said for reply in self.replies]


@dataclass(frozen=True, eq=False)
class AnswerStage:
    """Answer the questions of several systems from the passages that each of them ranked.

    This is a :class:`~graphrerank.evaluation.systems.Stage` of the evaluation. It adds measures of the answers, their
    costs, and the win rates of the last system's answers.

    Attributes:
        packing: Packing of the ranked passages into contexts.
        writer: Writer of the answers.
        price: Price of the writer's model. If None, no money is counted.
        judge: Judge of the correctness of answers. If None, no model judges it.
        judge_price: Price of the judge's model. If None, no money is counted.
        comparison: Judge that compares the last system's answers with those of each other system. If None, answers are
            not compared.
        comparison_price: Price of the model that compares. If None, no money is counted.
    """

    packing: Packing
    writer: Writer
    _: KW_ONLY
    price: Price | None = None
    judge: CorrectnessJudge | None = None
    judge_price: Price | None = None
    comparison: PairwiseJudge | None = None
    comparison_price: Price | None = None

    def __post_init__(self) -> None:
        """Check the prices."""
        for name in ("price", "judge_price", "comparison_price"):
            if not isinstance(price := getattr(self, name), Price | None):
                raise UserError(f"`{name}` must have `input` and `output` in USD per million tokens, got {price!r}")

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures of :attr:`SystemAnswers.values`."""
        return SCORED if self.judge is None else (*SCORED, JUDGED_MEASURE)

    @property
    def tested(self) -> tuple[str, ...]:
        """Names of the measures that are tested for significance by default."""
        return (F1, EM) if self.judge is None else (F1, EM, JUDGED_MEASURE)

    def __call__(self, ranked: RankedDataset, *, run_dir: Path | None = None, seed: int = 0) -> StageResult:
        """Answer the queries of a data set from each system's ranking.

        Args:
            ranked: Data set with the rankings of its systems.
            run_dir: Run folder. If not None, the answers are written to ``answers/<dataset>.jsonl`` in it and, if
                answers are compared, the verdicts to ``answers/<dataset>_comparisons.jsonl``.
            seed: Random seed of the bootstrap and of the tests.

        Returns:
            Measures, groups of questions, notes and tables for the report.

        Raises:
            UserError: If answers are to be compared and there is only one system, or if the data set has no correct
                answers and answers are not compared.
        """
        dataset, rows = ranked.dataset, ranked.queries.tolist()
        ids, questions = [dataset.query_ids[row] for row in rows], [dataset.query_texts[row] for row in rows]
        right = [dataset.answers.get(query_id) for query_id in ids]
        if self.comparison is not None and len(ranked.systems) < 2:
            raise UserError(f"`answers.comparison` needs at least two systems, got only {ranked.systems[0].name!r}")
        if all(answers is None for answers in right) and self.comparison is None:
            raise UserError(
                f"`answers` needs `answer` in the metadata of queries, but data set {dataset.name!r} has none"
            )
        nodes = {system.name: system.ranking.nodes.tolist() for system in ranked.systems}
        contexts = {name: self.packing.pack(candidate_texts(dataset.graph.texts, rows)) for name, rows in nodes.items()}
        answers = self.answer(questions, contexts, right)
        *others, primary = answers
        verdicts, notes, rates = dict[str, Verdicts](), list[str](), list[WinRate]()
        if self.comparison is not None:
            recorded = self.comparison.model.recorded if isinstance(self.comparison.model, RecordedModel) else []
            before = len(recorded)
            for other in others:
                verdicts[other] = self.comparison.compare(questions, answers[primary].said, answers[other].said)
                rates += win_rates(verdicts[other], system=primary, baseline=other, seed=seed)
            notes += _comparison_notes(recorded[before:], self.comparison_price)
        if run_dir is not None:
            folder = run_dir / "answers"
            write_json_lines(folder / f"{dataset.name}.jsonl", _answer_lines(ids, right, answers))
            if verdicts:
                lines = _verdict_lines(ids, primary, verdicts)
                write_json_lines(folder / f"{dataset.name}_comparisons.jsonl", lines)
        counts = {name: part.counts for name, part in answers.items()}
        num_relevant = (dataset.split(ranked.split).gains(ranked.queries) > 0).sum(1).tolist()
        return StageResult(
            measures={name: part.values for name, part in answers.items()},
            groups={"kind": question_kinds(num_relevant, answers[primary].values)},
            notes=[*notes, *(note for name, part in counts.items() for note in part.notes(name))],
            tables=[answers_table(counts), *([wins_table(rates)] if rates else [])],
            extra={"win_rates": [without_nan(asdict(rate)) for rate in rates]} if rates else {},
            system_extra={name: {"answers": asdict(part)} for name, part in counts.items()},
        )

    def answer(
        self, questions: Sequence[str], contexts: Mapping[str, Sequence[Context]], right: Right
    ) -> dict[str, SystemAnswers]:
        """Answer questions from each system's packed contexts. Equal contexts are answered once.

        Args:
            questions: ``Q`` questions.
            contexts: Context of each question, for each system.
            right: Correct answers to each question, as in :func:`score_answers`.

        Returns:
            Answers of each system.
        """
        written = self.writer.write([*questions] * len(contexts), [c for row in contexts.values() for c in row])
        answers = {}
        for number, (name, packed) in enumerate(contexts.items()):
            replies = written[number * len(questions) : (number + 1) * len(questions)]
            said = [reply.said for reply in replies]
            values = score_answers(said, [context.text for context in packed], right)
            counts = AnswerCounts.of(self.writer.name, replies, packed, self.price)
            verdicts: Sequence[Reply | None] = ()
            if self.judge is not None:
                values[JUDGED_MEASURE], verdicts = self.judge.judge(questions, said, right)
                judged = [verdict for verdict in verdicts if verdict is not None]
                counts.verdicts = len(judged)
                counts.judge_usd = None if self.judge_price is None else self.judge_price.of(judged)
                counts.verdicts_unusable = sum(parse_decision(verdict.text) is None for verdict in judged)
            answers[name] = SystemAnswers(replies, packed, values, counts, verdicts)
        return answers


def answers_table(counts: Mapping[str, AnswerCounts]) -> Table:
    """Return the table of answer counts, with one row per system.

    Args:
        counts: Counts of each system.
    """
    is_judged = any(row.verdicts for row in counts.values())
    is_priced = any(row.usd is not None for row in counts.values())
    is_judge_priced = any(row.judge_usd is not None for row in counts.values())
    rows = []
    for system, row in counts.items():
        models = ", ".join(f"{name} ({n})" for name, n in row.models.items())
        cells = {"system": Cell(row_name(system)), "written by": Cell(row.writer), "model": Cell(models or "-")}
        numbers = {"tokens of a context": row.context_tokens, "tokens read": row.input_tokens}
        numbers |= {"tokens written": row.output_tokens}
        numbers |= {"USD": row.usd} if is_priced else {}
        numbers |= row.outcomes
        numbers |= {"abstained": row.abstained, "repeated": row.repeated}
        if is_judged:
            numbers |= {"verdicts": row.verdicts, "unusable verdicts": row.verdicts_unusable}
            numbers |= {"USD of verdicts": row.judge_usd} if is_judge_priced else {}
        for header, number in numbers.items():
            cells[header] = number_cell(number, ".4f" if header.startswith("USD") else ",.0f")
        rows.append(cells)
    caption = (
        "Answers from the packed contexts. Tokens read and written: totals over all questions without rejected and "
        "failed requests, counted as if no other system had sent the same requests. Model: names under which the "
        "endpoint answered. Cut: truncated at the token limit. Refused: by the model or a filter. Rejected: an invalid "
        "request, such as one that is too long. Failed: no usable answer in all attempts. Unusable: not in the form "
        "that the prompt requires. Refused, rejected, failed and unusable answers are missing and score 0. Abstained: "
        "blank, or a statement of not knowing. Repeated: requests beyond the first of each question."
    )
    if is_priced:
        caption += " USD: the price of these tokens."
    if is_judged:
        caption += " Verdicts: of the model that judges correctness. Answers with unusable verdicts are wrong."
    return rows_table("answers", caption, rows, text_columns=3)


def _comparison_notes(replies: Sequence[Reply], price: Price | None) -> list[str]:
    """Describe the cost of a comparison whose model recorded its replies."""
    if not replies:
        return []
    failed = sum(not reply.has_come for reply in replies)
    read, written = (total_tokens(replies, name) for name in ("input_tokens", "output_tokens"))
    cost = "unknown tokens" if read is None or written is None else f"{read:,} tokens read, {written:,} written"
    if price is not None and (usd := price.of(replies)) is not None:
        cost += f", {usd:.4f} USD"
    return [f"comparison of answers: {len(replies):,} requests, {failed:,} of them failed or rejected; {cost}"]


def _answer_lines(ids: Sequence[str], right: Right, answers: Mapping[str, SystemAnswers]) -> Iterator[dict[str, Any]]:
    for name, part in answers.items():
        for row, (query_id, reply) in enumerate(zip(ids, part.replies, strict=True)):
            verdict = part.verdicts[row] if part.verdicts else None
            line: dict[str, Any] = {"system": name, "query_id": query_id, "answer": reply.text}
            line |= {"outcome": reply.outcome} | ({"problem": reply.problem} if reply.problem else {})
            line |= {"right": right[row]} | {measure: float(scores[row]) for measure, scores in part.values.items()}
            yield line | ({} if verdict is None else {"verdict": verdict.text})


def _verdict_lines(ids: Sequence[str], primary: str, verdicts: Mapping[str, Verdicts]) -> Iterator[dict[str, Any]]:
    """Yield the verdicts as records, with 1 for a win of the last system, 0.5 for a tie and 0 for a loss."""
    for other, found in verdicts.items():
        scores = torch.stack([found.scores, (1 + found.forward) / 2, (1 + found.backward) / 2], dim=2).tolist()
        for criterion, of_criterion in zip(found.criteria, scores, strict=True):
            for query_id, each in zip(ids, of_criterion, strict=True):
                line = {"system": primary, "against": other, "criterion": criterion, "query_id": query_id}
                yield line | dict(zip(("score", "shown_first", "shown_second"), each, strict=True))
