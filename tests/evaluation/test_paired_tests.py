import math

import pytest
import torch
from scipy import stats

from graphrerank.evaluation.paired_tests import bootstrap_tests, compare_pairs
from graphrerank.evaluation.significance import holm, paired_randomization, randomization_tests


def simulated(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_randomization_against_scipy(alternative: str) -> None:
    scores = simulated(3, 2, 60)
    scores[:, 1] = (scores[:, 1] > 0.5).double()  # a measure of yes and no, full of ties
    scores[2] += 0.1
    pairs = [(0, 1), (2, 0), (2, 1)]
    two_sided, greater = randomization_tests(scores, pairs, permutations=20_000)
    ours = two_sided if alternative == "two-sided" else greater
    for row, (a, b) in enumerate(pairs):
        for measure in range(2):
            theirs = stats.permutation_test(
                (scores[a, measure].numpy(), scores[b, measure].numpy()), lambda x, y, axis: (x - y).mean(axis=axis),
                permutation_type="samples", n_resamples=20_000, alternative=alternative, vectorized=True, rng=1,
            ).pvalue  # fmt: skip
            error = 3 * math.sqrt(2 * theirs * (1 - theirs) / 20_000) + 1e-4  # of both, three standard deviations
            assert float(ours[row, measure]) == pytest.approx(theirs, abs=error)


def test_few_queries_against_all_their_swaps() -> None:
    scores = simulated(2, 1, 8)
    exact = stats.permutation_test(
        (scores[0, 0].numpy(), scores[1, 0].numpy()), lambda x, y: (x - y).mean(), permutation_type="samples"
    ).pvalue
    found, _ = randomization_tests(scores, [(0, 1)], permutations=40_000)
    assert float(found) == pytest.approx(exact, abs=0.01)


def test_one_pair_equals_the_test_of_one_pair() -> None:
    scores = simulated(2, 3, 50)
    two_sided, _ = randomization_tests(scores, [(0, 1)], permutations=5_000)
    alone = paired_randomization(scores[0], scores[1], permutations=5_000)
    assert torch.equal(two_sided[0], alone)  # the same flips


def test_bootstrap_against_scipy() -> None:
    scores = simulated(2, 1, 90)
    scores[0] += 0.05
    interval, p_value = bootstrap_tests(scores, [(0, 1)], samples=20_000)
    difference = (scores[0, 0] - scores[1, 0]).numpy()
    theirs = stats.bootstrap(
        (difference,), lambda x, axis: x.mean(axis), n_resamples=20_000, method="percentile", rng=1
    )  # fmt: skip
    assert interval[0, 0].tolist() == pytest.approx(list(theirs.confidence_interval), abs=0.004)
    moved = abs(theirs.bootstrap_distribution - difference.mean()) >= abs(difference.mean())
    assert float(p_value) == pytest.approx(moved.mean(), abs=0.015)


def test_measures_of_other_queries_are_tested_on_theirs() -> None:
    scores = simulated(3, 2, 40)
    scores[:, 1, 10:] = math.nan
    together = compare_pairs(scores, [(0, 1), (0, 2)], resamples=2_000)
    alone = compare_pairs(scores[:, 1:, :10], [(0, 1), (0, 2)], resamples=2_000)
    assert together.num_queries.tolist() == [40, 10]
    for name in ("difference", "interval", "effect_size", "share_changed", "p_randomization", "p_bootstrap"):
        assert torch.allclose(getattr(together, name)[:, 1:], getattr(alone, name), atol=1e-12)


def test_effect_size_and_share_by_hand() -> None:
    a = torch.tensor([1.0, 1.0, 0.0, 0.5])
    b = torch.tensor([0.0, 1.0, 0.0, 0.0])
    found = compare_pairs(torch.stack([a, b, b]).unsqueeze(1), [(0, 1), (1, 2)], resamples=100)
    assert found.difference.flatten().tolist() == [0.375, 0.0]
    assert float(found.effect_size[0]) == pytest.approx(0.375 / (a - b).std().item())
    assert math.isnan(found.effect_size[1])
    assert found.share_changed.flatten().tolist() == [0.5, 0.0]
    assert found.p_randomization[1] == found.p_bootstrap[1] == found.p_greater[1] == 1.0


def test_no_query_counts() -> None:
    found = compare_pairs(torch.full((2, 1, 3), math.nan), [(0, 1)], resamples=100)
    assert found.num_queries.tolist() == [0]
    assert all(bool(getattr(found, name).isnan().all()) for name in ("difference", "interval", "p_randomization"))


def test_equal_systems_give_few_small_p_values() -> None:
    """Two copies of one system with noise, 1,000 times: a test at 5% finds a difference in 3 to 7% of them."""
    truth, noise = simulated(1, 1_000, 60), simulated(2, 1_000, 60, seed=1)
    p_values, _ = randomization_tests((truth + 0.2 * noise).clamp(max=1), [(0, 1)], permutations=2_000)
    assert 0.03 <= float((p_values < 0.05).double().mean()) <= 0.07
    _, by_bootstrap = bootstrap_tests((truth + 0.2 * noise).clamp(max=1), [(0, 1)], samples=1_000)
    assert 0.03 <= float((by_bootstrap < 0.05).double().mean()) <= 0.07


def test_power_on_a_known_shift() -> None:
    """A true difference of 0.4 standard deviations over 60 queries is found about as often as by a t-test."""
    noise = torch.randn(1_000, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    scores = torch.stack([noise + 0.4, torch.zeros_like(noise)])
    p_values, _ = randomization_tests(scores, [(0, 1)], permutations=2_000)
    power = float((p_values < 0.05).double().mean())
    shift = 0.4 * math.sqrt(60)
    limit = stats.t.ppf(0.975, 59)
    expected = stats.nct.sf(limit, 59, shift) + stats.nct.cdf(-limit, 59, shift)
    print(f"power {power:.3f}, of a t-test {expected:.3f}")
    assert power == pytest.approx(expected, abs=0.04)


def test_holm_by_hand_and_order() -> None:
    assert holm(torch.tensor([[0.01, 0.5], [math.nan, 0.02]])).tolist()[0] == pytest.approx([0.03, 0.5])
    corrected = holm(torch.tensor([[0.01, 0.5], [math.nan, 0.02]]))
    assert corrected[1, 1] == pytest.approx(0.04)
    assert math.isnan(corrected[1, 0])
    assert holm(torch.tensor([0.6, 0.9])).tolist() == [1.0, 1.0]
    assert holm(torch.tensor([])).tolist() == []


def test_holm_against_statsmodels_definition() -> None:
    p_values = simulated(12)
    ordered = torch.sort(p_values).values.tolist()
    for p, corrected in zip(p_values.tolist(), holm(p_values).tolist(), strict=True):
        rank = ordered.index(p)
        naive = max((len(ordered) - place) * ordered[place] for place in range(rank + 1))
        assert corrected == pytest.approx(min(1.0, naive))


@pytest.mark.parametrize(
    ("scores", "pairs", "message"),
    [
        (torch.zeros(2, 3), [(0, 1)], r"must be \[systems, measures, queries\], got shape \(2, 3\)"),
        (torch.zeros(2, 1, 3), [(0, 2)], r"must number systems 0 to 1, got \[\(0, 2\)\]"),
        (torch.tensor([[[1.0]], [[math.nan]]]), [(0, 1)], "NaN at the same queries for all systems"),
    ],
)
def test_scores_that_do_not_fit_are_refused(scores: torch.Tensor, pairs: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        randomization_tests(scores, pairs)
    with pytest.raises(ValueError, match="`level` must lie in"):
        bootstrap_tests(torch.zeros(2, 1, 3), [(0, 1)], level=1.0)
