import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank.data.dataset import Qrels, RetrievalDataset
from graphrerank.evaluation.build_study import build_study
from graphrerank.evaluation.ranked_system import RankedDataset, RankedSystem
from graphrerank.evaluation.study import DatasetStudy, SystemStudy
from graphrerank.evaluation.study_plan import StudyPlan
from graphrerank.evaluation.study_report import print_study
from graphrerank.graphs import CorpusGraph, Ranking
from graphrerank.language_models.prompt import Prompt
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import Price
from graphrerank_papers.answers.answer_judge import PairwiseJudge
from graphrerank_papers.answers.answer_tables import answer_notes, answers_table, wins_table
from graphrerank_papers.answers.answering import answer_queries, write_answers
from graphrerank_papers.answers.correctness_judge import CorrectnessJudge
from graphrerank_papers.answers.packing import Packing
from graphrerank_papers.answers.prompted_writer import PromptedWriter
from graphrerank_papers.answers.recorded_model import RecordedModel
from graphrerank_papers.answers.stage import AnswerStage
from tests.papers.answers.test_prompted_writer import Scripted

PROMPT = Prompt("p", "{context} {question}")
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
    return AnswerStage(Packing(9), PromptedWriter(Scripted({**said, " what?": "x"}), PROMPT))


RIGHT: dict[str, list[str]] = {"x": ["Metz"], "y": ["Nancy"], "z": []}


def test_answers_stand_beside_retrieval(tmp_path: Path) -> None:
    answered = answer_queries(stage(), ranked(RIGHT))
    plan = StudyPlan(("R@1", "EM", "F1", "Contain-Match", "Context-Coverage"), resamples=100)
    study = build_study(answered, plan)
    assert plan.tested == ("F1", "EM")
    assert [system.means["EM"] for system in study.systems.values()] == [1.0, pytest.approx(1 / 3)]
    assert [test.measure for test in study.tests] == ["F1", "EM"]
    kinds = {(entry.group, entry.num_queries): entry.means for entry in study.breakdowns if entry.by == "kind"}
    assert {key: means["two"] for key, means in kinds.items()} == {  # unanswerable: Context-Coverage has none
        ("multi-hop", 1): 0.0,
        ("single-hop", 1): 1.0,
        ("unanswerable", 1): 0.0,
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
    with pytest.raises(ValueError, match=r"\['EM'\] are of a stage after ranking that was not run"):
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


class Replying(Judge):
    """The same as a replying model, of which one question fails."""

    def replies(self, questions, *, system):  # type: ignore[no-untyped-def]
        for index, text in enumerate(questions):
            (content,) = self.ask([text], system=system, read=str)
            failed = Reply("", "failed", attempts=2, problem="down")
            yield index, failed if "Answer 1: N\n" in text else Reply(content, "answered", "m", 10, 2)


def test_what_a_comparison_takes_is_told_and_its_verdicts_are_written(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    judge = PairwiseJudge(RecordedModel(Replying()), criteria={"length": "Which is longer?"}, tries=1)
    compared = replace(stage(), comparison=judge, comparison_price=Price(1.0, 1.0))
    answered = answer_queries(compared, ranked(RIGHT))
    took = "comparison of answers: 2 requests, 1 of them failed or rejected; 10 tokens read, 2 written, 0.0000 USD"
    assert list(answered.notes) == [took]
    write_answers(tmp_path / "toy.jsonl", answered)
    lines = [json.loads(line) for line in (tmp_path / "toy_comparisons.jsonl").read_text().splitlines()]
    assert [(line["query_id"], line["score"], line["shown_first"], line["shown_second"]) for line in lines] == [
        ("x", None, None, 0.0),
        ("y", 0.5, 0.5, 0.5),
        ("z", 1.0, 1.0, 1.0),
    ]
    print_study(build_study(answered, StudyPlan(("R@1", "F1"), resamples=100)), ties="own")
    assert "answers of two against those of the others" in capsys.readouterr().out


def test_one_system_cannot_be_compared() -> None:
    compared = replace(stage(), comparison=PairwiseJudge(Judge()))
    with pytest.raises(ValueError, match="`answers` that are compared need two systems, got 'one' alone"):
        answer_queries(compared, one_system())


class Failing(Scripted):
    """Fails at all but one question."""

    def replies(self, questions, *, system):  # type: ignore[no-untyped-def]
        for index, question in enumerate(questions):
            down = Reply("", "failed", attempts=3, problem="status 500")
            yield index, Reply("Metz", "answered", "m") if "fell?" in question else down


def test_why_answers_failed_is_told(tmp_path: Path) -> None:
    answered = answer_queries(replace(stage(), writer=PromptedWriter(Failing({}), PROMPT)), ranked(RIGHT))
    study = build_study(answered, StudyPlan(("R@1", "F1"), resamples=100))
    assert answer_notes(study)[0] == "answers of one: 2 failed of 3; 2 times: status 500"
    write_answers(tmp_path / "toy.jsonl", answered)
    lines = [json.loads(line) for line in (tmp_path / "toy.jsonl").read_text().splitlines()]
    assert [line.get("problem") for line in lines[:3]] == [None, "status 500", "status 500"]


def test_verdicts_that_fail_are_told() -> None:
    prompt = Prompt("judge", "{query}{generated_answer}{ground_truth_answer}")
    judge = CorrectnessJudge(Scripted({"fell?MetzMetz": "who knows", "stood?NancyNancy": "Decision: yes"}), prompt)
    study = build_study(answer_queries(replace(stage(), judge=judge), one_system()), StudyPlan(("R@1",), resamples=100))
    assert answer_notes(study) == ["answers of one: 1 of 2 verdicts unusable, which count as wrong"]
    table = answers_table(study)
    shown = dict(zip(table.header, (cell.text for cell in table.rows[0]), strict=True))
    assert (shown["unusable"], shown["verdicts"], shown["unusable verdicts"]) == ("0", "2", "1")


def one_system() -> RankedDataset:
    every = ranked(RIGHT)
    return replace(every, systems=every.systems[:1])
