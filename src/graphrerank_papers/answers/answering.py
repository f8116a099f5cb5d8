"""Answers to the queries of a data set from what its systems ranked, and the file that keeps them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphrerank.data.dataset import RetrievalDataset
from graphrerank.evaluation.ranked_system import RankedDataset
from graphrerank.files import write_json_lines
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import AnswerCounts, Price
from graphrerank_papers.answers.answer_judge import PairwiseJudge
from graphrerank_papers.answers.packing import passages_of
from graphrerank_papers.answers.recorded_model import RecordedModel
from graphrerank_papers.answers.stage import AnswerStage


def answer_queries(stage: AnswerStage, ranked: RankedDataset) -> RankedDataset:
    """Let a stage answer the queries from each system's ranking, and compare the last system's answers with others.

    Raises:
        ValueError: If the data set has a right answer to none of them, and answers are not compared either.
    """
    dataset, queries = ranked.dataset, ranked.queries.tolist()
    right = right_answers_of(dataset, queries)
    if stage.comparison is not None and len(ranked.systems) < 2:
        raise ValueError(f"`answers` that are compared need two systems, got {ranked.systems[0].name!r} alone")
    if all(answers is None for answers in right) and stage.comparison is None:
        raise ValueError(
            f"`answers` needs an `answer` in the metadata of queries, found none in data set {dataset.name!r}"
        )
    passages = {
        system.name: passages_of(dataset.graph.texts, system.ranking.nodes.tolist()) for system in ranked.systems
    }
    answers = stage.answer([dataset.query_texts[query] for query in queries], passages, right)
    *others, primary = answers
    verdicts, notes = {}, list(ranked.notes)
    if stage.comparison is not None:
        asked = [dataset.query_texts[query] for query in queries]
        before = {id(reply) for reply in _recorded(stage.comparison)}
        for other in others:
            verdicts[other] = stage.comparison.compare(asked, answers[primary].said, answers[other].said)
        asked_for = [reply for reply in _recorded(stage.comparison) if id(reply) not in before]
        notes += _took(asked_for, stage.comparison_price)
    systems = [replace(system, answers=answers[system.name]) for system in ranked.systems]
    return replace(ranked, systems=systems, verdicts=verdicts, notes=notes)


def _recorded(judge: PairwiseJudge) -> list[Reply]:
    return judge.model.replies_to() if isinstance(judge.model, RecordedModel) else []


def _took(replies: Sequence[Reply], price: Price | None) -> list[str]:
    """Say what a comparison took, where its model was recorded."""
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


def right_answers_of(dataset: RetrievalDataset, queries: Sequence[int]) -> list[Sequence[str] | None]:
    """Return the right answers of each query; empty if the data set says there is none, None if it says nothing."""
    return [dataset.answers.get(dataset.query_ids[query]) for query in queries]


def write_answers(path: Path, ranked: RankedDataset) -> None:
    """Write a line of JSON for each system and query: the answer, its outcome, the right ones and its scores.

    Where answers were compared, ``<name>_comparisons.jsonl`` beside it has a line for each other system, criterion and
    query.
    """
    right = right_answers_of(ranked.dataset, ranked.queries.tolist())
    lines = []
    for system in ranked.systems:
        if (answers := system.answers) is None:
            continue
        scores = {name: row.tolist() for name, row in answers.values.items()}
        for row, query in enumerate(ranked.queries.tolist()):
            verdict = answers.verdicts[row] if answers.verdicts else None
            lines.append(
                {
                    "system": system.name,
                    "query_id": ranked.dataset.query_ids[query],
                    "answer": answers.replies[row].text,
                    "outcome": answers.replies[row].outcome,
                    **({"problem": problem} if (problem := answers.replies[row].problem) else {}),
                    "right": right[row],
                    **{name: column[row] for name, column in scores.items()},
                    **({} if verdict is None else {"verdict": verdict.text}),
                }
            )
    write_json_lines(path, lines)
    if ranked.verdicts:
        write_json_lines(path.with_name(f"{path.stem}_comparisons.jsonl"), _comparisons(ranked))


def _comparisons(ranked: RankedDataset) -> Iterator[dict[str, Any]]:
    """Describe each verdict: 1 if the last system's answer is better, 0.5 for a tie, 0 if the other's is."""
    ids = [ranked.dataset.query_ids[query] for query in ranked.queries.tolist()]
    for other, verdicts in ranked.verdicts.items():
        columns = {
            "score": verdicts.scores,
            "shown_first": (1 + verdicts.forward) / 2,
            "shown_second": (1 + verdicts.backward) / 2,
        }
        for number, criterion in enumerate(verdicts.criteria):
            values = {name: column[number].tolist() for name, column in columns.items()}
            for row, query_id in enumerate(ids):
                yield {
                    "system": ranked.systems[-1].name,
                    "against": other,
                    "criterion": criterion,
                    "query_id": query_id,
                    **{name: column[row] for name, column in values.items()},
                }
