"""Answers to the queries of a data set from what its systems ranked, and the file that keeps them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graphrerank.answers import AnswerStage, passages_of
from graphrerank.data import RetrievalDataset
from graphrerank.evaluation.ranked_system import RankedDataset
from graphrerank.files import write_text


def answer_queries(stage: AnswerStage, ranked: RankedDataset) -> RankedDataset:
    """Let a stage answer the queries from each system's ranking, and compare the last system's answers with others.

    Raises:
        ValueError: If the data set has a right answer to none of them, and answers are not compared either.
    """
    dataset, queries = ranked.dataset, ranked.queries.tolist()
    right = right_answers_of(dataset, queries)
    if all(answers is None for answers in right) and stage.comparison is None:
        raise ValueError(
            f"`answers` needs an `answer` in the metadata of queries, found none in data set {dataset.name!r}"
        )
    passages = {
        system.name: passages_of(dataset.graph.texts, system.ranking.nodes.tolist()) for system in ranked.systems
    }
    answers = stage.answer([dataset.query_texts[query] for query in queries], passages, right)
    *others, primary = answers
    verdicts = {}
    if stage.comparison is not None:
        asked = [dataset.query_texts[query] for query in queries]
        for other in others:
            verdicts[other] = stage.comparison.compare(asked, answers[primary].texts, answers[other].texts)
    systems = [replace(system, answers=answers[system.name]) for system in ranked.systems]
    return replace(ranked, systems=systems, verdicts=verdicts)


def right_answers_of(dataset: RetrievalDataset, queries: Sequence[int]) -> list[Sequence[str] | None]:
    """Return the right answers of each query; empty if the data set says there is none, None if it says nothing."""
    return [dataset.answers.get(dataset.query_ids[query]) for query in queries]


def write_answers(path: Path, ranked: RankedDataset) -> None:
    """Write a line of JSON for each system and query: the answer, its outcome, the right ones and its scores."""
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
                    "right": right[row],
                    **{name: None if column[row] != column[row] else column[row] for name, column in scores.items()},
                    **({} if verdict is None else {"verdict": verdict.text}),
                }
            )
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
