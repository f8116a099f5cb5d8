import json

import pytest

from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.answer_counts import AnswerCounts, Price
from graphrerank_papers.answers.packing import Context


def test_counts_and_money() -> None:
    replies = [
        Reply("Metz", "answered", "m-1", 1000, 10),
        Reply("", "answered", "m-2", 2000, 20, attempts=3),
        Reply("Me", "cut", "m-1", 3000, 30),
        Reply("", "failed", attempts=6, problem="status 500"),
    ]
    contexts = [Context(("a",), 10), Context(("a",), 20), Context(("a",), 30), Context((), 0)]
    counts = AnswerCounts.of("w", replies, contexts, Price(0.5, 2.0))
    assert counts.outcomes == {"answered": 2, "cut": 1, "refused": 0, "rejected": 0, "failed": 1, "unusable": 0}
    assert (counts.questions, counts.abstained, counts.repeated, counts.context_tokens) == (4, 1, 7, 15.0)
    assert (counts.input_tokens, counts.output_tokens) == (6000, 60)
    assert counts.usd == pytest.approx((6000 * 0.5 + 60 * 2.0) / 1e6)
    assert counts.models == {"m-1": 2, "m-2": 1}
    assert json.loads(json.dumps(counts.to_json()))["outcomes"] == counts.outcomes
    assert counts.notes("x") == [
        "answers of x: 1 cut, 1 failed of 4; 1 times: status 500", "answers of x: the model changed its name, m-1, m-2",
    ]  # fmt: skip


@pytest.mark.parametrize("usd", ["abc", "1", float("nan"), float("inf"), -0.1, True])
def test_a_price_is_a_number(usd: object) -> None:
    for prices in ((usd, 1.0), (1.0, usd)):
        with pytest.raises(ValueError, match=r"`price\.(input|output)` must be USD per million tokens, 0 or more, got"):
            Price(*prices)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`price` must have both `input` and `output` or neither"):
        Price(1.0)


def test_without_a_price() -> None:
    assert Price().of([Reply("Metz", "answered", "m", 1, 1)]) is None


def test_an_endpoint_without_a_name_counts_too() -> None:
    counts = AnswerCounts.of("w", [Reply("Metz", "answered", "", 1000, 10)], [Context((), 0)], Price(1.0, 1.0))
    assert (counts.input_tokens, counts.output_tokens, counts.usd) == (1000, 10, pytest.approx(1010e-6))


def test_no_money_without_counts() -> None:
    counts = AnswerCounts.of("w", [Reply("Metz", "answered", "m")], [Context((), 0)], Price(1.0, 1.0))
    assert (counts.usd, counts.input_tokens) == (None, None)
