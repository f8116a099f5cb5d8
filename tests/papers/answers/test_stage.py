import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.systems import RankedDataset, RankedSystem
from graphrerank.language_models.prompt import Prompt
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.judges import CorrectnessJudge, PairwiseJudge
from graphrerank_papers.answers.packing import Context, Packing
from graphrerank_papers.answers.price import Price
from graphrerank_papers.answers.stage import AnswerCounts, AnswerStage, answers_table
from graphrerank_papers.answers.writers import PromptedWriter, RecordedModel
from tests.support.language_models import ScriptedReplies

PROMPT = Prompt("p", "{context} {question}")
JUDGE = Prompt("judge", "{query}{generated_answer}{ground_truth_answer}")
TEXTS = ["Metz fell.", "Nancy stood.", "Nothing."]


def ranked(answers: dict[str, list[str]]) -> RankedDataset:
    graph = CorpusGraph.from_edges(list("abc"), TEXTS, torch.tensor([[0, 1]]))
    qrels = Qrels(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]), torch.ones(4))
    dataset = Dataset("toy", graph, ["x", "y", "z"], ["fell?", "stood?", "what?"], {"t": qrels}, answers=answers)
    first = Ranking(torch.tensor([[0], [1], [2]]), torch.ones(3, 1))
    second = Ranking(torch.tensor([[1], [1], [-1]]), torch.ones(3, 1))
    systems = [RankedSystem("one", "run", "1", first), RankedSystem("two", "run", "2", second)]
    return RankedDataset(dataset, "t", torch.arange(3), systems)


def plain_stage() -> AnswerStage:
    said = {"Metz fell. fell?": "Metz", "Nancy stood. stood?": "Nancy", "Nothing. what?": "", "Nancy stood. fell?": "N"}
    return AnswerStage(Packing(9), PromptedWriter(ScriptedReplies({**said, " what?": "x"}), PROMPT))


RIGHT: dict[str, list[str]] = {"x": ["Metz"], "y": ["Nancy"], "z": []}


LOST = {
    "?failed": Reply("", "failed", attempts=3, problem="status 500"),
    "?rejected": Reply("", "rejected", problem="status 400: 'too long'"),
    "?refused": Reply("", "refused", "m", 1, 1),
    "?thought": Reply("", "cut", "m", 1, 1),  # about nothing but the answer, until the limit of tokens
}


def test_a_lost_answer_is_no_abstention() -> None:
    questions = [*(key.removeprefix("?") for key in LOST), "abstains"]
    judge = CorrectnessJudge(ScriptedReplies({}), JUDGE)
    writer = PromptedWriter(ScriptedReplies({**LOST, "?abstains": " "}), Prompt("short", "{context}?{question}"))
    judged = AnswerStage(Packing(3), writer, price=Price(1.0, 1.0), judge=judge)
    (answers,) = judged.answer(questions, {"one": [Context((), 0)] * 5}, [[]] * 5).values()  # none has an answer
    assert answers.said == [None, None, None, None, ""]
    for measure in ("EM", "F1", "Contain-Match", "Judged"):
        assert answers.values[measure].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert answers.counts.abstained == 1
    assert answers.counts.problems == {"status 500": 1, "status 400: 'too long'": 1}
    assert answers.counts.notes("one")[0].endswith(" of 5; most frequent problem (1): status 500")
    (answers,) = judged.answer(questions, {"one": [Context((), 0)] * 5}, [["Metz"]] * 5).values()
    assert answers.values["EM"].tolist() == answers.values["Judged"].tolist() == [0.0] * 5


def test_answers_add_measures_kinds_counts_and_files(tmp_path: Path) -> None:
    result = plain_stage()(ranked(RIGHT), run_dir=tmp_path)
    assert [values["EM"].tolist() for values in result.measures.values()] == [[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]
    assert set(result.measures["one"]) == set(plain_stage().measures)
    assert result.system_extra["two"]["answers"]["context_tokens"] == pytest.approx(4 / 3)
    assert plain_stage().tested == ("F1", "EM")
    assert {name: inside.tolist() for name, inside in result.groups["kind"].items()} == {
        "multi-hop": [True, False, False], "single-hop": [False, True, False], "unanswerable": [False, False, True],
    }  # fmt: skip
    (table,) = result.tables
    assert [row[0].text for row in table.rows] == ["one", "two"]
    assert (list(result.notes), result.extra) == ([], {})
    assert result.system_extra["two"]["answers"]["questions"] == 3
    lines = read_lines(tmp_path / "answers" / "toy.jsonl")
    assert [(line["system"], line["query_id"], line["answer"]) for line in lines] == [
        ("one", "x", "Metz"), ("one", "y", "Nancy"), ("one", "z", ""),
        ("two", "x", "N"), ("two", "y", "Nancy"), ("two", "z", "x"),
    ]  # fmt: skip
    assert lines[0]["right"] == ["Metz"]


def longer(system: str, question: str) -> dict[str, Any]:
    """Prefer the longer answer, and a tie of equally long ones."""
    first, second = map(len, question.split("Answer 1: ")[1].split("\n\nAnswer 2: "))
    return {"reason": "longer", "winner": 0 if first == second else 1 if first > second else 2}


def test_the_last_systems_answers_are_compared_and_what_it_costs(tmp_path: Path) -> None:
    failed = Reply("", "failed", attempts=2, problem="down")

    def reply(text: str) -> Reply:
        return failed if "Answer 1: N\n" in text else Reply(json.dumps(longer("", text)), "answered", "m", 10, 2)

    judge = PairwiseJudge(RecordedModel(ScriptedReplies(reply)), criteria={"length": "Which is longer?"}, tries=1)
    compared = replace(plain_stage(), comparison=judge, comparison_price=Price(1.0, 1.0))
    took = "comparison of answers: 2 requests, 1 of them failed or rejected; 10 tokens read, 2 written, 0.0000 USD"
    result = compared(ranked(RIGHT), run_dir=tmp_path)
    assert list(result.notes) == [took]
    (rate,) = result.extra["win_rates"]  # "N" against "Metz", equal answers, "x" against none
    assert (rate["system"], rate["baseline"], rate["criterion"]) == ("two", "one", "length")
    assert (rate["wins"], rate["ties"], rate["losses"], rate["rate"], rate["agreement"]) == (1, 1, 0, 0.75, 1.0)
    assert result.tables[1].title == "win rates"
    with pytest.raises(ValueError, match=r"`answers\.comparison` needs at least two systems, got only 'one'"):
        compared(one_system())
    with pytest.raises(ValueError, match="data set 'toy' has none"):
        plain_stage()(ranked({}))
    lines = read_lines(tmp_path / "answers" / "toy_comparisons.jsonl")
    assert [(line["query_id"], line["score"], line["shown_first"], line["shown_second"]) for line in lines] == [
        ("x", None, None, 0.0), ("y", 0.5, 0.5, 0.5), ("z", 1.0, 1.0, 1.0),
    ]  # fmt: skip


def test_unusable_verdicts_of_the_judge_are_counted() -> None:
    judge = CorrectnessJudge(
        ScriptedReplies({"fell?MetzMetz": "who knows", "stood?NancyNancy": "Decision: yes"}), JUDGE
    )
    result = replace(plain_stage(), judge=judge)(one_system())
    assert result.measures["one"]["Judged"].tolist() == [0.0, 1.0, 1.0]
    assert list(result.notes) == ["answers of one: 1 of 2 verdicts unusable and scored as wrong"]
    (table,) = result.tables
    shown = dict(zip(table.header, (cell.text for cell in table.rows[0]), strict=True))
    assert (shown["unusable"], shown["verdicts"], shown["unusable verdicts"]) == ("0", "2", "1")


def one_system() -> RankedDataset:
    every = ranked(RIGHT)
    return replace(every, systems=every.systems[:1])


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


REPLIES = [
    Reply("Metz", "answered", "m-1", 1000, 10),
    Reply("", "answered", "m-2", 2000, 20, attempts=3),
    Reply("Me", "cut", "m-1", 3000, 30),
    Reply("", "failed", attempts=6, problem="status 500"),
]
CONTEXTS = [Context(("a",), 10), Context(("a",), 20), Context(("a",), 30), Context((), 0)]


def test_counts() -> None:
    counts = AnswerCounts.of("w", REPLIES, CONTEXTS)
    assert counts.outcomes == {"answered": 2, "cut": 1, "refused": 0, "rejected": 0, "failed": 1, "unusable": 0}
    assert (counts.questions, counts.abstained, counts.repeated, counts.context_tokens) == (4, 1, 7, 15.0)
    assert (counts.input_tokens, counts.output_tokens) == (6000, 60)
    assert counts.models == {"m-1": 2, "m-2": 1}
    assert counts.notes("x") == [
        "answers of x: 1 cut, 1 failed of 4; most frequent problem (1): status 500",
        "answers of x: the endpoint answered under several model names: m-1, m-2",
    ]  # fmt: skip
    uncounted = AnswerCounts.of("w", [Reply("Metz", "answered", "m")], CONTEXTS[:1], Price(1.0, 1.0))
    assert (uncounted.usd, uncounted.input_tokens) == (None, None)


def test_money_is_in_the_table_only_with_a_price() -> None:
    priced = AnswerCounts.of("w", REPLIES, CONTEXTS, Price(0.5, 2.0))
    priced.verdicts, priced.judge_usd = 1, 0.25
    assert priced.usd == pytest.approx((6000 * 0.5 + 60 * 2.0) / 1e6)
    table = repr(answers_table({"x": priced}))
    assert "USD" in table
    assert "0.0031" in table
    assert "0.2500" in table
    assert "USD" not in repr(answers_table({"x": AnswerCounts.of("w", REPLIES, CONTEXTS)}))


@pytest.mark.parametrize("name", ["price", "judge_price", "comparison_price"])
def test_the_stage_takes_prices_of_both_kinds_of_tokens(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"`{name}` must have `input` and `output` in USD per million tokens, got 0.5"
    ):
        replace(plain_stage(), **{name: 0.5})
