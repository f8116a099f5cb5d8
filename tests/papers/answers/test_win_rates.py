import math

import pytest
import torch

from graphrerank_papers.answers.answer_judge import Verdicts
from graphrerank_papers.answers.win_rates import win_rates, wins_table

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


def test_no_usable_verdict() -> None:
    (rate,) = win_rates(Verdicts(("a",), torch.full((1, 3), NAN), torch.zeros(1, 3)), **BOTH)
    assert (rate.wins, rate.ties, rate.losses) == (0, 0, 0)
    assert math.isnan(rate.rate)
    assert math.isnan(rate.p_value)
    assert [cell.text for cell in wins_table([rate]).rows[0]] == ["y", "a", "0", "0", "0", "3", "-", "-", "-"]
    assert rate.to_json()["rate"] is None


def test_table() -> None:
    ones = torch.ones(1, 20).double()
    table = wins_table(win_rates(Verdicts(("directness",), ones, ones), **BOTH))
    (row,) = table.rows
    assert [str(cell) for cell in row] == [
        "y", "directness", "20", "0", "0", "0", "100.00 (100.0 to 100.0)", "< 0.0001", "100.00",
    ]  # fmt: skip
    assert table.printed
