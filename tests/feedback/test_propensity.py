import random

import pytest
import torch

from graphrerank.feedback.log import Session
from graphrerank.feedback.propensity import SLOPE, estimate_propensities, user_weights


def clicked(rng: random.Random, number: int, order: list[int], slope: float, **other: object) -> Session:
    """Simulate a user who looks at rank k with probability k^-slope, and clicks passages with a number below 3."""
    gains = tuple(float(rng.random() < rank**-slope * (0.8 if each < 3 else 0.1)) for rank, each in enumerate(order, 1))
    named = {"user": f"u{number}", "query": f"q{number}"} | other
    return Session(f"r{number}", float(number), ids=tuple(map(str, order)), gains=gains, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("slope", [0.3, 1.0, 1.5])
def test_swaps_reveal_the_bias_whatever_the_relevance(slope: float) -> None:
    rng = random.Random(0)
    sessions = []
    for number in range(6000):
        order = list(range(10))  # the relevant ones first: clicks alone would overstate the bias
        i, j = sorted(rng.sample(range(1, 11), 2))
        if rng.random() < 0.5:
            order[i - 1], order[j - 1] = order[j - 1], order[i - 1]
        sessions.append(clicked(rng, number, order, slope, swaps=((i, j, 0.5),)))
    found = estimate_propensities(sessions, user_weights(sessions))
    assert slope - 0.25 < found.slope < slope + 0.1  # drawn towards the default, never far to the other side
    assert (found.cautious >= found.curve - 1e-12).all()


def test_other_rankings_of_the_same_query_reveal_it() -> None:
    rng = random.Random(0)
    orders = [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 0, 1, 5, 3, 4]]
    sessions = [clicked(rng, n, orders[n % 3], 1.0, query=f"q{n // 30}") for n in range(6000)]
    found = estimate_propensities(sessions, user_weights(sessions))
    assert found.slope == pytest.approx(1.0, abs=0.15)
    assert "at two ranks" in found.source


def test_without_evidence_the_default_is_stated() -> None:
    rng = random.Random(0)
    sessions = [clicked(rng, number, list(range(10)), 1.0) for number in range(100)]
    found = estimate_propensities(sessions, user_weights(sessions))
    assert found.slope == SLOPE
    assert found.curve[:4] == pytest.approx(torch.tensor([1, 2**-0.5, 3**-0.5, 0.5], dtype=torch.float64))
    assert "assumed" in str(found)


def test_one_loud_user_counts_two_percent() -> None:
    def session(number: int, user: str | None, query: str) -> Session:
        return Session(str(number), 0.0, user, query, ("a",), (1.0,))

    loud = [session(n, "loud", f"q{n}") for n in range(900)]
    others = [session(n, f"u{n}", "q") for n in range(980)]
    weights = user_weights([*loud, *others])
    assert float(weights[:900].sum()) == pytest.approx(20.0)  # of 1,000 together
    assert (weights[900:] == 1).all()
    strangers = [session(n, None, f"q{n}") for n in range(900)]
    as_one = user_weights([*strangers, *others])
    assert float(as_one[:900].sum()) == pytest.approx(20.0)
    assert (user_weights([*strangers, *others], anonymous_as_one=False) == 1).all()
    again = user_weights([session(n, "u", "same") for n in range(4)])
    assert float(again.sum()) == pytest.approx(1.0)
