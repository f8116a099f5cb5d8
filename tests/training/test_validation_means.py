import pytest
import torch

from graphrerank.training.validation_means import ValidationMeans

NAN = torch.nan


def filled(*batches: tuple[float, int, list[list[float]]]) -> ValidationMeans:
    means = ValidationMeans(["pr@10", "pr@10/multi"])
    for loss, num_queries, per_query in batches:
        means.update(torch.tensor(loss), torch.tensor(float(num_queries)), torch.tensor(per_query))
    return means


def test_against_means_over_all_queries_at_once() -> None:
    """Batches of unequal size; the second measure is defined for two of the three queries."""
    found = filled((0.5, 2, [[1.0, 0.0], [1.0, NAN]]), (2.0, 1, [[1.0], [0.0]])).compute()
    assert {name: float(mean) for name, mean in found.items()} == {
        "loss": pytest.approx((0.5 * 2 + 2.0) / 3),
        "pr@10": pytest.approx(2 / 3),
        "pr@10/multi": 0.5,
    }


def test_a_measure_that_no_query_defines_is_nan_and_a_loss_without_queries_0() -> None:
    found = filled((0.0, 0, [[1.0], [NAN]])).compute()
    assert float(found["loss"]) == 0.0
    assert bool(found["pr@10/multi"].isnan())


def test_two_processes_have_the_means_of_one() -> None:
    batches = (0.5, 2, [[1.0, 0.0], [1.0, NAN]]), (2.0, 1, [[1.0], [0.0]])
    first, second = filled(batches[0]), filled(batches[1])
    sent: list[torch.Tensor] = []
    second.compute(lambda totals: (sent.append(totals.clone()), totals)[1])
    found = first.compute(lambda totals: totals + sent[0])
    assert [tuple(totals.shape) for totals in sent] == [(2, 3)]  # one tensor: processes communicate once
    expected = filled(*batches).compute()
    assert {name: float(mean) for name, mean in found.items()} == pytest.approx(
        {name: float(mean) for name, mean in expected.items()}
    )


def test_computed_before_any_batch_is_refused() -> None:
    with pytest.raises(RuntimeError, match="`update` must be called"):
        filled().compute()
