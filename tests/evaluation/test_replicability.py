import math

import pytest
import torch
from scipy import stats

from graphrerank.evaluation.replicability import combined_randomization, count_replicated


def test_counts() -> None:
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
