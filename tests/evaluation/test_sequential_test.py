"""A test that may be looked at after every judgement."""

import math
from functools import cache

import numpy as np
import pytest
from scipy.integrate import quad

from graphrerank.evaluation.sequential_test import preference_evidence

THRESHOLD = math.log(20)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (3, 0), (7, 12), (60, 40)])
def test_against_the_integral(wins: int, losses: int) -> None:
    def likelihood(p: float) -> float:
        return float((2 * p) ** wins * (2 * (1 - p)) ** losses)

    for evidence, ends in zip(preference_evidence(wins, losses), ((0.5, 1.0), (0.0, 0.5)), strict=True):
        assert math.exp(evidence) == pytest.approx(2 * quad(likelihood, *ends)[0], rel=1e-6)


@pytest.mark.parametrize("preference", [0.5, 0.55])
def test_what_is_not_worse_is_seldom_called_so_however_often_one_looks(preference: float) -> None:
    """2,000 streams of 1,000 judgements, with a look after each: at most 5% in expectation."""
    draws = np.random.default_rng(0).random((2000, 1000)) < preference
    wrong = sum(worst_evidence(stream) >= THRESHOLD for stream in draws)
    assert wrong / len(draws) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    assert preference > 0.5 or wrong > 0


def test_what_is_worse_is_found() -> None:
    draws = np.random.default_rng(1).random((100, 1000)) < 0.4
    assert sum(worst_evidence(stream) >= THRESHOLD for stream in draws) >= 95


def worst_evidence(stream: np.ndarray) -> float:
    wins = np.cumsum(stream).tolist()
    return max(evidence_of_losses(won, look + 1 - won) for look, won in enumerate(wins) if look % 5 == 0)


@cache
def evidence_of_losses(wins: int, losses: int) -> float:
    """Most streams come by the same counts."""
    return preference_evidence(wins, losses)[1]


def test_numbers_that_are_none() -> None:
    assert preference_evidence(0, 0) == pytest.approx((0.0, 0.0))
    assert preference_evidence(0, 10**6)[1] > 10**5 > 0 > preference_evidence(0, 10**6)[0]
    with pytest.raises(ValueError, match="`wins` and `losses` must not be negative"):
        preference_evidence(-1, 0)
