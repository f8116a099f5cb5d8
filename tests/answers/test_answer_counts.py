import json

import pytest

from graphrerank.answers import AnswerCounts, Context, Price
from graphrerank.language_models import Reply


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
    assert AnswerCounts.from_json(json.loads(json.dumps(counts.to_json()))) == counts


def test_no_money_without_counts() -> None:
    counts = AnswerCounts.of("w", [Reply("Metz", "answered", "m")], [Context((), 0)], Price(1.0, 1.0))
    assert (counts.usd, counts.input_tokens) == (None, None)
