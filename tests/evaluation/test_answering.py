import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank.answers import AnswerStage, Packing, PromptedWriter
from graphrerank.data import Qrels, RetrievalDataset
from graphrerank.evaluation import RankedDataset, RankedSystem, StudyPlan, build_study
from graphrerank.evaluation.answer_tables import answer_notes, answers_table, wins_table
from graphrerank.evaluation.answering import answer_queries, write_answers
from graphrerank.evaluation.study import DatasetStudy, SystemStudy
from graphrerank.graphs import CorpusGraph, Ranking
from graphrerank.language_models import PairwiseJudge, Prompt
from tests.answers.test_prompted_writer import Scripted

TEXTS = ["Metz fell.", "Nancy stood.", "Nothing."]


def ranked(answers: dict[str, list[str]]) -> RankedDataset:
    graph = CorpusGraph.from_edges(list("abc"), TEXTS, torch.tensor([[0, 1]]))
    qrels = Qrels(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]), torch.ones(4))
    dataset = RetrievalDataset(
        "toy", graph, ["x", "y", "z"], ["fell?", "stood?", "what?"], {"t": qrels}, answers=answers
    )
    first = Ranking(torch.tensor([[0], [1], [2]]), torch.ones(3, 1))
    second = Ranking(torch.tensor([[1], [1], [-1]]), torch.ones(3, 1))
    systems = [RankedSystem("one", "run", "1", first), RankedSystem("two", "run", "2", second)]
    return RankedDataset(dataset, "t", torch.arange(3), systems)


def stage() -> AnswerStage:
    said = {"Metz fell. fell?": "Metz", "Nancy stood. stood?": "Nancy", "Nothing. what?": "", "Nancy stood. fell?": "N"}
    return AnswerStage(
        Packing(9), PromptedWriter(Scripted({**said, " what?": "x"}), Prompt("p", "{context} {question}"))
    )


RIGHT: dict[str, list[str]] = {"x": ["Metz"], "y": ["Nancy"], "z": []}


def test_answers_stand_beside_retrieval(tmp_path: Path) -> None:
    answered = answer_queries(stage(), ranked(RIGHT))
    plan = StudyPlan(("R@1", "EM", "F1", "Contain-Match", "Context-Coverage"), resamples=100)
    study = build_study(answered, plan)
    assert plan.tested == ("F1", "EM")
    assert [system.means["EM"] for system in study.systems.values()] == [1.0, pytest.approx(1 / 3)]
    assert [test.measure for test in study.tests] == ["F1", "EM"]
    kinds = {(entry.group, entry.num_queries): entry.means for entry in study.breakdowns if entry.by == "kind"}
    assert {key: means["two"] for key, means in kinds.items() if key[0] != "x"} == {
        ("multi-hop", 1): 0.0,
        ("single-hop", 1): 1.0,
        ("unanswerable", 1): pytest.approx(float("nan"), nan_ok=True),  # of Context-Coverage, the last measure
    }
    table = answers_table(study)
    assert [row[0].text for row in table.rows] == ["one", "two"]
    assert answer_notes(study) == []
    one = study.systems["one"]
    again = SystemStudy.from_json("one", json.loads(json.dumps(one.to_json())))
    assert again.answers == one.answers
    write_answers(tmp_path / "toy.jsonl", answered)
    lines = [json.loads(line) for line in (tmp_path / "toy.jsonl").read_text().splitlines()]
    assert [(line["system"], line["query_id"], line["answer"]) for line in lines] == [
        ("one", "x", "Metz"), ("one", "y", "Nancy"), ("one", "z", ""),
        ("two", "x", "N"), ("two", "y", "Nancy"), ("two", "z", "x"),
    ]  # fmt: skip
    assert lines[0]["right"] == ["Metz"]


def test_a_data_set_without_answers() -> None:
    with pytest.raises(ValueError, match="found none in data set 'toy'"):
        answer_queries(stage(), ranked({}))


def test_measures_of_answers_without_answers() -> None:
    with pytest.raises(ValueError, match=r"\['EM'\] are of answers, which only answers=... writes"):
        build_study(ranked(RIGHT), StudyPlan(("R@1", "EM"), resamples=100))


class Judge:
    """A chat model that prefers the longer answer, and a tie of equally long ones."""

    fingerprint = "judge"

    def ask(self, questions, *, system, read):  # type: ignore[no-untyped-def]
        winners = []
        for text in questions:
            first, second = text.split("Answer 1: ")[1].split("\n\nAnswer 2: ")
            winners.append(0 if len(first) == len(second) else 1 if len(first) > len(second) else 2)
        return [read(json.dumps({"reason": "longer", "winner": winner})) for winner in winners]


def test_the_last_systems_answers_are_compared() -> None:
    compared = replace(stage(), comparison=PairwiseJudge(Judge(), criteria={"length": "Which is longer?"}))
    study = build_study(answer_queries(compared, ranked(RIGHT)), StudyPlan(("R@1", "F1"), resamples=100))
    (rate,) = study.win_rates  # "N" against "Metz", equal answers, "x" against none
    assert (rate.system, rate.baseline, rate.criterion) == ("two", "one", "length")
    assert (rate.wins, rate.ties, rate.losses, rate.rate, rate.agreement) == (1, 1, 1, 0.5, 1.0)
    assert [row[0].text for row in wins_table(study).rows] == ["one"]
    again = DatasetStudy.from_json("toy", json.loads(json.dumps(study.to_json())))
    assert again.win_rates[0].wins == 1
