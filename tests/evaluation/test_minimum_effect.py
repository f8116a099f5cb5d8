import math

import pytest
import torch

from graphrerank.evaluation.minimum_effect import MinimumEffect, minimum_effect


def test_by_hand() -> None:
    found = minimum_effect(torch.tensor([1.0, 0.5, torch.nan, 0.0]), torch.tensor([0.0, 0.5, torch.nan, 0.0]))
    assert found is not None
    assert found.num_queries == 3
    assert found.deviation == pytest.approx(math.sqrt(1 / 3))
    assert found.effect == pytest.approx((1.959964 + 0.841621) * math.sqrt(1 / 3) / math.sqrt(3), rel=1e-5)


@pytest.mark.parametrize("num_queries", [40, 400])
def test_such_a_difference_is_found_four_times_out_of_five(num_queries: int) -> None:
    """Against drawn samples."""
    found = MinimumEffect(num_queries, deviation=0.25)
    drawn = found.effect + 0.25 * torch.randn(20_000, num_queries, generator=torch.Generator().manual_seed(0))
    z = drawn.mean(dim=1) / (drawn.std(dim=1) / math.sqrt(num_queries))
    assert float((z.abs() > 1.959964).double().mean()) == pytest.approx(0.8, abs=0.02)
    assert found.queries_for(found.effect) in (num_queries, num_queries + 1)


def test_nothing_can_be_said() -> None:
    same = torch.rand(5)
    assert minimum_effect(same, same) is None
    assert minimum_effect(same[:1], torch.zeros(1)) is None
    assert minimum_effect(torch.full((3,), torch.nan), torch.zeros(3)) is None
