import itertools

import pytest
import torch
from scipy import stats

from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization


def simulated(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_interval_against_scipy() -> None:
    values = simulated(80) ** 2
    ours = bootstrap_interval(values, level=0.9, samples=20_000)
    theirs = stats.bootstrap(
        (values.numpy(),), lambda x, axis: x.mean(axis), confidence_level=0.9, n_resamples=20_000, method="percentile",
        rng=1,
    ).confidence_interval  # fmt: skip
    assert ours.tolist() == pytest.approx(list(theirs), abs=0.002)


def test_interval_of_yes_and_no_against_the_binomial_distribution() -> None:
    values = torch.cat([torch.ones(140), torch.zeros(60)])
    expected = [stats.binom.ppf(q, 200, 0.7) / 200 for q in (0.025, 0.975)]
    assert bootstrap_interval(values).tolist() == pytest.approx(expected, abs=0.0051)  # one query


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_covers_the_true_mean_as_often_as_it_says(level: float) -> None:
    trials, num_queries = 400, 120
    values = (simulated(trials, num_queries) < 0.8).double()
    intervals = torch.stack([bootstrap_interval(row, level=level, samples=500) for row in values])
    covered = ((intervals[:, 0] <= 0.8) & (intervals[:, 1] >= 0.8)).double().mean()
    assert float(covered) == pytest.approx(level, abs=0.07)


def test_interval_narrows_with_the_root_of_the_queries() -> None:
    widths = [float(torch.diff(bootstrap_interval(simulated(n)))) for n in (100, 1600)]
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.15)


def test_uniform_p_when_the_systems_are_equal() -> None:
    a, b = simulated(1000, 30, seed=1), simulated(1000, 30, seed=2)
    p_values = torch.stack([paired_randomization(x, y, permutations=500) for x, y in zip(a, b, strict=True)])
    assert stats.kstest(p_values.numpy(), "uniform").pvalue > 0.01
    for level in (0.01, 0.05, 0.2):
        assert float((p_values <= level).double().mean()) <= level + 3 * (level / 1000) ** 0.5


def test_p_against_scipy() -> None:
    a, b = simulated(60, seed=3) + 0.16, simulated(60, seed=4)
    theirs = stats.permutation_test(
        (a.numpy(), b.numpy()), lambda x, y, axis: (x - y).mean(axis), permutation_type="samples",
        n_resamples=100_000, vectorized=True, rng=1,
    ).pvalue  # fmt: skip
    assert float(paired_randomization(a, b, permutations=100_000)) == pytest.approx(theirs, abs=0.004)


@pytest.mark.parametrize("kind", ["numbers", "yes and no"])
def test_p_against_all_swaps_of_few_queries(kind: str) -> None:
    a, b = simulated(9, seed=5) + 0.1, simulated(9, seed=6)
    if kind == "yes and no":  # many swaps give the very same difference
        a, b = (a > 0.3).double(), (b > 0.6).double()
    signs = torch.tensor(list(itertools.product([1.0, -1.0], repeat=9)), dtype=torch.float64)
    exact = ((signs @ (a - b)).abs() >= (a - b).sum().abs() - 1e-12).double().mean()
    assert float(paired_randomization(a, b, permutations=50_000)) == pytest.approx(float(exact), abs=0.01)


def test_p_of_a_clear_difference_is_the_smallest_possible() -> None:
    assert float(paired_randomization(torch.ones(50), torch.zeros(50), permutations=999)) == pytest.approx(0.001)


def test_p_of_equal_systems_is_one_and_of_swapped_systems_the_same() -> None:
    a, b = simulated(40, seed=7), simulated(40, seed=8)
    assert float(paired_randomization(a, a)) == 1
    assert torch.equal(paired_randomization(a, b), paired_randomization(b, a))


def test_queries_where_both_agree_change_nothing_but_the_mean() -> None:
    a, b = simulated(30, seed=9) + 0.1, simulated(30, seed=10)
    agreed = simulated(500, seed=11)
    longer = paired_randomization(torch.cat([a, agreed]), torch.cat([b, agreed]))
    assert torch.equal(paired_randomization(a, b), longer)


def test_rows_at_once_equal_one_by_one() -> None:
    a, b = simulated(2, 3, 300, seed=12), simulated(2, 3, 300, seed=13)
    together = bootstrap_interval(a, samples=100)
    assert together.shape == (2, 3, 2)
    assert torch.allclose(together[1, 2], bootstrap_interval(a[1, 2], samples=100))
    p_values = paired_randomization(a, b, permutations=100)
    assert p_values.shape == (2, 3)
    assert float(p_values[1, 2]) == float(paired_randomization(a[1, 2], b[1, 2], permutations=100))


def test_queries_that_do_not_count_are_left_out() -> None:
    a, b = simulated(20, seed=14), simulated(20, seed=15)
    gap = torch.full((5,), torch.nan)
    assert torch.equal(bootstrap_interval(torch.cat([gap, a])), bootstrap_interval(a))
    assert torch.equal(paired_randomization(torch.cat([gap, a]), torch.cat([gap, b])), paired_randomization(a, b))
    assert bool(bootstrap_interval(gap).isnan().all())
    assert bool(paired_randomization(gap, gap).isnan())


def test_same_seed_same_numbers_and_the_global_generator_is_left_alone() -> None:
    a, b = simulated(50, seed=16), simulated(50, seed=17)
    state = torch.get_rng_state()
    assert torch.equal(bootstrap_interval(a), bootstrap_interval(a))
    assert not torch.equal(bootstrap_interval(a), bootstrap_interval(a, seed=1))
    assert torch.equal(paired_randomization(a, b), paired_randomization(a, b))
    assert torch.equal(torch.get_rng_state(), state)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"`level` must lie in \(0, 1\), got 95"):
        bootstrap_interval(torch.ones(3), level=95)
    with pytest.raises(ValueError, match="`samples` must be a positive integer, got 0"):
        bootstrap_interval(torch.ones(3), samples=0)
    with pytest.raises(ValueError, match="`permutations` must be a positive integer, got 0"):
        paired_randomization(torch.ones(3), torch.ones(3), permutations=0)
    with pytest.raises(ValueError, match=r"`a` and `b` must have one shape, got \(3,\) and \(4,\)"):
        paired_randomization(torch.ones(3), torch.ones(4))
    with pytest.raises(ValueError, match="must be NaN at the same queries"):
        paired_randomization(torch.tensor([torch.nan, 1.0]), torch.ones(2))
