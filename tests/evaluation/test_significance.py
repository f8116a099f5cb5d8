import math

import pytest
import torch
from scipy import stats

from graphrerank.evaluation.significance import (
    bootstrap_interval,
    combined_randomization,
    compare_pairs,
    count_replicated,
    holm,
    paired_randomization,
    randomization_tests,
)


def simulated(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_randomization_against_scipy(alternative: str) -> None:
    scores = simulated(3, 2, 60)
    scores[:, 1] = (scores[:, 1] > 0.5).double()  # a measure of yes and no, full of ties
    scores[2] += 0.1
    pairs = [(0, 1), (2, 0), (2, 1)]
    first, second = torch.tensor(pairs).T
    two_sided, greater = randomization_tests(scores[first] - scores[second], permutations=20_000)
    ours = two_sided if alternative == "two-sided" else greater
    for row, (a, b) in enumerate(pairs):
        for measure in range(2):
            theirs = stats.permutation_test(
                (scores[a, measure].numpy(), scores[b, measure].numpy()), lambda x, y, axis: (x - y).mean(axis=axis),
                permutation_type="samples", n_resamples=20_000, alternative=alternative, vectorized=True, rng=1,
            ).pvalue  # fmt: skip
            error = 3 * math.sqrt(2 * theirs * (1 - theirs) / 20_000) + 1e-4  # of both, three standard deviations
            assert float(ours[row, measure]) == pytest.approx(theirs, abs=error)


def test_bootstrap_of_a_difference_against_scipy() -> None:
    scores = simulated(2, 1, 90)
    scores[0] += 0.05
    found = compare_pairs(scores, [(0, 1)], resamples=20_000)
    difference = (scores[0, 0] - scores[1, 0]).numpy()
    theirs = stats.bootstrap(
        (difference,), lambda x, axis: x.mean(axis), n_resamples=20_000, method="percentile", rng=1
    )  # fmt: skip
    assert found["interval"][0, 0].tolist() == pytest.approx(list(theirs.confidence_interval), abs=0.004)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_covers_the_true_mean_as_often_as_it_says(level: float) -> None:
    trials, num_queries = 400, 120
    values = (simulated(trials, num_queries) < 0.8).double()
    intervals = torch.stack([bootstrap_interval(row, level=level, samples=500) for row in values])
    covered = ((intervals[:, 0] <= 0.8) & (intervals[:, 1] >= 0.8)).double().mean()
    assert float(covered) == pytest.approx(level, abs=0.07)


def test_measures_of_other_queries_are_tested_on_theirs() -> None:
    scores = simulated(3, 2, 40)
    scores[:, 1, 10:] = math.nan
    together = compare_pairs(scores, [(0, 1), (0, 2)], resamples=2_000)
    alone = compare_pairs(scores[:, 1:, :10], [(0, 1), (0, 2)], resamples=2_000)
    assert together["num_queries"].tolist() == [[40, 10]] * 2
    for name in ("difference", "interval", "effect_size", "share_changed", "p_randomization"):
        assert torch.allclose(together[name][:, 1:], alone[name], atol=1e-12)


def test_effect_size_and_share_by_hand() -> None:
    a = torch.tensor([1.0, 1.0, 0.0, 0.5])
    b = torch.tensor([0.0, 1.0, 0.0, 0.0])
    found = compare_pairs(torch.stack([a, b, b]).unsqueeze(1), [(0, 1), (1, 2)], resamples=100)
    assert found["difference"].flatten().tolist() == [0.375, 0.0]
    assert float(found["effect_size"][0]) == pytest.approx(0.375 / (a - b).std().item())
    assert math.isnan(found["effect_size"][1])
    assert found["share_changed"].flatten().tolist() == [0.5, 0.0]
    assert found["p_randomization"][1] == found["p_greater"][1] == 1.0
    nothing = compare_pairs(torch.full((2, 1, 3), math.nan), [(0, 1)], resamples=100)
    assert nothing["num_queries"].tolist() == [[0]]
    assert all(bool(nothing[name].isnan().all()) for name in ("difference", "interval", "p_randomization"))


def test_equal_systems_give_few_small_p_values() -> None:
    """Two copies of one system with noise, 1,000 times: a test at 5% finds a difference in 3 to 7% of them."""
    truth, noise = simulated(1, 1_000, 60), simulated(2, 1_000, 60, seed=1)
    found = compare_pairs((truth + 0.2 * noise).clamp(max=1), [(0, 1)], resamples=1_000)
    assert 0.03 <= float((found["p_randomization"] < 0.05).double().mean()) <= 0.07


def test_p_is_symmetric_and_one_of_equal_systems() -> None:
    a, b = simulated(40, seed=7), simulated(40, seed=8)
    assert float(paired_randomization(torch.ones(50), torch.zeros(50), permutations=999)) == pytest.approx(0.001)
    assert float(paired_randomization(a, a)) == 1
    assert torch.equal(paired_randomization(a, b), paired_randomization(b, a))


def test_rows_at_once_equal_one_by_one() -> None:
    a, b = simulated(2, 3, 300, seed=12), simulated(2, 3, 300, seed=13)
    together = bootstrap_interval(a, samples=100)
    assert together.shape == (2, 3, 2)
    assert torch.allclose(together[1, 2], bootstrap_interval(a[1, 2], samples=100))
    p_values = paired_randomization(a, b, permutations=100)
    assert p_values.shape == (2, 3)
    assert float(p_values[1, 2]) == float(paired_randomization(a[1, 2], b[1, 2], permutations=100))
    two_sided, _ = randomization_tests(a - b, permutations=100)
    assert torch.equal(two_sided, p_values)  # the same flips


def test_queries_that_do_not_count_or_do_not_differ_are_left_out() -> None:
    a, b = simulated(20, seed=14), simulated(20, seed=15)
    gap, agreed = torch.full((5,), torch.nan), simulated(500, seed=11)
    assert torch.equal(bootstrap_interval(torch.cat([gap, a])), bootstrap_interval(a))
    for same in (gap, agreed):
        assert torch.equal(paired_randomization(torch.cat([same, a]), torch.cat([same, b])), paired_randomization(a, b))
    assert bool(bootstrap_interval(gap).isnan().all())
    assert bool(paired_randomization(gap, gap).isnan())


def test_same_seed_same_numbers_and_the_global_generator_is_left_alone() -> None:
    a, state = simulated(50, seed=16), torch.get_rng_state()
    assert torch.equal(bootstrap_interval(a), bootstrap_interval(a))
    assert not torch.equal(bootstrap_interval(a), bootstrap_interval(a, seed=1))
    assert torch.equal(torch.get_rng_state(), state)


def test_holm_against_its_definition() -> None:
    corrected = holm(torch.tensor([[0.01, 0.5], [math.nan, 0.02]]))
    assert corrected.flatten().tolist() == pytest.approx([0.03, 0.5, math.nan, 0.04], nan_ok=True)
    assert holm(torch.tensor([0.6, 0.9])).tolist() == [1.0, 1.0]
    assert holm(torch.tensor([])).tolist() == []
    p_values = simulated(12)
    ordered = torch.sort(p_values).values.tolist()
    for p, found in zip(p_values.tolist(), holm(p_values).tolist(), strict=True):
        rank = ordered.index(p)
        naive = max((len(ordered) - place) * ordered[place] for place in range(rank + 1))
        assert found == pytest.approx(min(1.0, naive))


@pytest.mark.parametrize(
    ("scores", "pairs", "message"),
    [
        (torch.zeros(2, 3), [(0, 1)], r"must be \[systems, measures, queries\] .* got shape \[2, 3\]"),
        (torch.tensor([[[1.0]], [[math.nan]]]), [(0, 1)], "NaN at the same queries for all systems"),
        (torch.zeros(2, 1, 3), [(0, 2)], r"`pairs` must contain indices of systems, 0 to 1, got \[\(0, 2\)\]"),
        (torch.zeros(2, 1, 3), [(-1, 0)], r"`pairs` must contain indices of systems, 0 to 1, got \[\(-1, 0\)\]"),
    ],
)
def test_scores_and_pairs_that_do_not_fit_are_refused(scores: torch.Tensor, pairs: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_pairs(scores, pairs)


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="`samples` must be a positive integer, got 0"):
        bootstrap_interval(torch.ones(3), samples=0)
    with pytest.raises(ValueError, match=r"`a` and `b` must have the same shape, got \(3,\) and \(4,\)"):
        paired_randomization(torch.ones(3), torch.ones(4))


def test_counts_of_replicated_wins() -> None:
    assert count_replicated([0.04, 0.3, 0.001, 0.02]) == 1  # 4 * 0.001, 3 * 0.02, 2 * 0.04, 0.3
    assert count_replicated([0.001, 0.001, 0.04]) == 3
    assert count_replicated([0.03, 0.03, 0.03]) == 0  # Bonferroni rejects no first, and so none
    assert count_replicated([0.5, 1.0]) == 0


def test_the_count_is_seldom_too_large() -> None:
    """Two true effects among five data sets: a count above two comes in at most 5% of the draws."""
    generator = torch.Generator().manual_seed(0)
    null = torch.rand(2_000, 3, generator=generator, dtype=torch.float64).clamp(min=1e-9)
    found = [count_replicated([1e-6, 1e-6, *row]) for row in null.tolist()]
    assert sum(count > 2 for count in found) / len(found) <= 0.06
    assert min(found) >= 2


def test_combination_of_one_data_set_is_its_own_test() -> None:
    generator = torch.Generator().manual_seed(0)
    difference = torch.randn(50, generator=generator, dtype=torch.float64) + 0.2
    mean, p_value = combined_randomization([difference], permutations=20_000)
    theirs = stats.permutation_test(
        (difference.numpy(),), lambda x, axis: x.mean(axis=axis), permutation_type="samples", n_resamples=20_000, rng=0
    ).pvalue
    assert mean == pytest.approx(float(difference.mean()))
    assert p_value == pytest.approx(theirs, abs=0.012)


def test_each_data_set_counts_the_same() -> None:
    many, few = torch.full((1_000,), 0.1), torch.tensor([-0.3, math.nan, -0.3])
    mean, _ = combined_randomization([many, few], permutations=100)
    assert mean == pytest.approx(-0.1)
    mean, p_value = combined_randomization([many, torch.full((2,), math.nan)], permutations=100)
    assert math.isnan(mean)
    assert math.isnan(p_value)


def test_combined_p_is_uniform_when_nothing_differs() -> None:
    generator = torch.Generator().manual_seed(3)
    draws = torch.randn(400, 2, 30, generator=generator, dtype=torch.float64)
    found = torch.tensor([combined_randomization(list(row), permutations=400)[1] for row in draws])
    assert 0.02 <= float((found < 0.05).double().mean()) <= 0.09
    assert float(found.mean()) == pytest.approx(0.5, abs=0.06)
