from typing import Any

import pytest

from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.price import Price

REPLIES = [
    Reply("Metz", "answered", "m", 1000, 10),
    Reply("Me", "cut", "m", 3000, 30),
    Reply("", "failed", attempts=6, problem="status 500"),
]


def test_cost_of_replies_without_failed_ones() -> None:
    assert Price(0.5, 2.0).of(REPLIES) == pytest.approx((4000 * 0.5 + 40 * 2.0) / 1e6)


def test_no_cost_without_a_price_or_without_counts() -> None:
    assert Price().of(REPLIES) is None
    assert Price(1.0, 1.0).of([Reply("Metz", "answered", "m")]) is None


@pytest.mark.parametrize("usd", ["abc", float("nan"), float("inf"), -0.1, True])
@pytest.mark.parametrize("name", ["input", "output"])
def test_a_price_is_a_number(name: str, usd: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"`price\.{name}` must be a non-negative number of USD per million tokens, got"
    ):
        Price(**{"input": 1.0, "output": 1.0, name: usd})


def test_both_prices_or_neither() -> None:
    with pytest.raises(ValueError, match="`price` must have both `input` and `output` or neither"):
        Price(1.0)
