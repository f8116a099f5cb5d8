import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphrerank.language_models.prompt import Prompt
from graphrerank_papers.answers.judges import (
    CRITERIA,
    CorrectnessJudge,
    PairwiseJudge,
    Verdicts,
    parse_winner,
    win_rates,
    wins_table,
)
from tests.support.language_models import ScriptedReplies

ONE = {"length": "Which is longer?"}


def test_right_answers() -> None:
    model = ScriptedReplies({"a|Metz|Metz or Nancy": "Explanation: x\nDecision: yes", "b|Paris|Metz": "who knows"})
    prompt = Prompt("p", "{query}|{generated_answer}|{ground_truth_answer}")
    scores, verdicts = CorrectnessJudge(model, prompt).judge(
        ["a", "b", "c", "d", "e", "f", "g", "h"],
        ["Metz", "Paris", " ", "x", "", "x", None, None],
        [["Metz", "Nancy"], ["Metz"], ["Metz"], [], [], None, ["Metz"], []],
    )
    assert scores.nan_to_num(-1.0).tolist() == [1.0, 0.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0]
    assert [verdict is None for verdict in verdicts] == [False, False, *[True] * 6]
    assert len(model.asked) == 2


def pair(question: str) -> tuple[str, str]:
    found = re.search(r"Answer 1: (.*)\n\nAnswer 2: (.*)$", question, re.DOTALL)
    return found[1], found[2]


def longest(system: str, question: str) -> Any:
    one, other = map(len, pair(question))
    return {"reason": "length", "winner": 0 if one == other else 1 if one > other else 2}


def test_both_orders_are_asked(scripted_model: Callable[..., Any]) -> None:
    model = scripted_model(longest)
    verdicts = PairwiseJudge(model, criteria=ONE).compare(["q", "r", "s"], ["aaa", "b", "cc"], ["a", "bbb", "dd"])
    assert sorted(pair(question) for _, question in model.asked) == sorted(
        [("aaa", "a"), ("a", "aaa"), ("b", "bbb"), ("bbb", "b"), ("cc", "dd"), ("dd", "cc")]
    )
    assert verdicts.scores.tolist() == [[1.0, 0.0, 0.5]]
    assert verdicts.agreement.tolist() == [1.0]
    swapped = PairwiseJudge(model, criteria=ONE).compare(["q", "r", "s"], ["a", "bbb", "dd"], ["aaa", "b", "cc"])
    assert swapped.scores.tolist() == [[0.0, 1.0, 0.5]]


@pytest.mark.parametrize(
    ("winners", "score"),
    [((1, 2), 1.0), ((1, 0), 1.0), ((0, 2), 1.0), ((0, 0), 0.5), ((1, 1), 0.5), ((2, 2), 0.5), ((2, 0), 0.0),
     ((0, 1), 0.0)],
)  # fmt: skip
def test_the_tie_rule(winners: tuple[int, int], score: float, scripted_model: Callable[..., Any]) -> None:
    def reply(system: str, question: str) -> Any:
        return {"reason": "", "winner": winners[0 if pair(question)[0] == "ours" else 1]}

    verdicts = PairwiseJudge(scripted_model(reply)).compare(["q"], ["ours"], ["theirs"])
    assert verdicts.criteria == tuple(CRITERIA)
    assert verdicts.scores.tolist() == [[score]] * 4
    assert verdicts.agreement.tolist() == [float(winners in {(1, 2), (0, 0), (2, 1)})] * 4


def test_equal_empty_and_missing_answers_are_not_asked_about(scripted_model: Callable[..., Any]) -> None:
    model = scripted_model(longest)
    first, second = ["a", "", "b", " ", "a", None, None], ["a ", "c", " ", "", None, "", None]
    verdicts = PairwiseJudge(model, criteria=ONE).compare(["q"] * 7, first, second)
    assert verdicts.scores[0, :3].tolist() == [0.5, 0.0, 1.0]
    assert verdicts.scores[0, 3:].isnan().all()  # nothing to compare
    assert model.asked == []


def test_unusable_verdicts_do_not_count(scripted_model: Callable[..., Any]) -> None:
    def reply(system: str, question: str) -> Any:
        return "The first." if pair(question)[0].startswith("bad") else {"reason": "", "winner": 1}

    judge = PairwiseJudge(scripted_model(reply), criteria=ONE, tries=2)
    assert judge.compare(["q", "r"], ["bad", "b"], ["c", "d"]).scores.nan_to_num(-1).tolist() == [[-1.0, 0.5]]
    with pytest.raises(ValueError, match="`criteria` must contain at least one criterion, got none"):
        PairwiseJudge(scripted_model(reply), criteria={})


@pytest.mark.parametrize(
    "content", ["{", "[1]", '{"winner": 1}', '{"reason": "", "winner": 3}', '{"reason": "", "winner": 1, "why": ""}']
)  # fmt: skip
def test_strict_parsing(content: str) -> None:
    with pytest.raises(ValueError, match="the answer must be"):
        parse_winner(content)


NAN = math.nan
BOTH = {"system": "x", "baseline": "y"}


def test_counts_rates_and_agreement() -> None:
    forward = torch.tensor([[1.0, 1.0, 0.0, -1.0, NAN, 1.0], [-1.0] * 6]).double()
    backward = torch.tensor([[1.0, 0.0, 0.0, -1.0, 1.0, -1.0], [-1.0] * 6]).double()
    first, second = win_rates(Verdicts(("a", "b"), forward, backward), **BOTH)
    assert (first.criterion, first.wins, first.ties, first.losses) == ("a", 2, 2, 1)
    assert first.rate == pytest.approx(0.6)  # (1 + 1 + 0.5 + 0 + 0.5) / 5
    assert first.agreement == pytest.approx(3 / 5)
    assert first.interval[0] < 0.6 < first.interval[1]
    assert first.p_value > 0.5
    assert (second.wins, second.losses, second.rate, second.interval, second.agreement) == (0, 6, 0.0, (0.0, 0.0), 1.0)
    assert second.p_value == pytest.approx(2 / 64, rel=0.2)


def test_tables_with_and_without_a_usable_verdict() -> None:
    (rate,) = win_rates(Verdicts(("a",), torch.full((1, 3), NAN), torch.zeros(1, 3)), **BOTH)
    assert (rate.wins, rate.ties, rate.losses) == (0, 0, 0)
    assert math.isnan(rate.rate)
    assert math.isnan(rate.p_value)
    ones = torch.ones(1, 20).double()
    table = wins_table([rate, *win_rates(Verdicts(("directness",), ones, ones), **BOTH)])
    assert [[str(cell) for cell in row] for row in table.rows] == [
        ["y", "a", "0", "0", "0", "3", "-", "-", "-"],
        ["y", "directness", "20", "0", "0", "0", "100.00 (100.0 to 100.0)", "< 0.0001", "100.00"],
    ]
    assert table.printed
