"""How sure a measured difference is: bootstrap intervals and the paired randomisation test, over queries."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

BLOCK_NUMBERS = 1 << 21  # random numbers drawn at once: 16 MiB
TOLERANCE = 1e-9  # of a mean; sums of one set of numbers differ by rounding when their order does


def bootstrap_interval(values: Tensor, *, level: float = 0.95, samples: int = 10_000, seed: int = 0) -> Tensor:
    """Give the percentile bootstrap interval of a mean over queries.

    Queries are drawn with replacement, as many as there are; the interval runs between the outer quantiles of the means
    of these samples. It says how much the mean would vary with other queries, not with another seed of training.

    Source: Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979 (percentile interval).

    Args:
        values: ``[..., Q]``, a measure per query; rows share the drawn samples. NaN = the query does not count, in all
            rows or in none.
        level: Share of the samples' means within the interval, in (0, 1).
        samples: Number of samples.
        seed: Seed of the drawing; torch's global generator is left alone.

    Returns:
        ``[..., 2]`` float64, lower and upper end; NaN where no query counts.

    Raises:
        ValueError: If ``level`` or ``samples`` is out of range, or rows have NaN at different queries.

    Example:
        >>> bootstrap_interval(torch.tensor([1.0, 1.0, 1.0, 0.0]))
        tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    if not 0 < level < 1:
        raise ValueError(f"`level` must lie in (0, 1), got {level}")
    rows = _counting_rows(values, "values")
    _check_count("samples", samples)
    if rows.shape[1] == 0:
        return torch.full((*values.shape[:-1], 2), torch.nan, dtype=torch.float64)
    means = torch.cat(list(resampled_means(rows, samples=samples, seed=seed)), dim=1)
    return outer_quantiles(means, level).reshape(*values.shape[:-1], 2)


def paired_randomization(a: Tensor, b: Tensor, *, permutations: int = 10_000, seed: int = 0) -> Tensor:
    r"""Test whether two systems differ in their mean over the same queries, two-sided.

    Were the systems equal, each query's two numbers could be swapped. So the difference of means is compared with those
    after random swaps:

    .. math:: p = \frac{1 + |\{s : |\bar d_s| \ge |\bar d|\}|}{1 + S}

    Source: Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
    Evaluation", 2007 (randomisation test); the ones added: Phipson and Smyth, "Permutation P-values Should Never Be
    Zero", 2010.

    Args:
        a: ``[..., Q]``, a measure per query of one system; rows share the swaps. NaN = the query does not count, in all
            rows of both systems or in none.
        b: ``[..., Q]``, that of the other system.
        permutations: Number ``S`` of random swaps; the smallest possible p is ``1 / (1 + S)``.
        seed: Seed of the swaps; torch's global generator is left alone.

    Returns:
        ``[...]`` float64 p-values in (0, 1]; 1 where no query differs, NaN where no query counts.

    Raises:
        ValueError: If shapes differ, ``permutations`` is out of range, or NaN are at different queries.

    Example:
        >>> a = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
        >>> bool(paired_randomization(a, torch.zeros(10)) < 0.005)  # exactly 2 / 1024
        True
    """
    if a.shape != b.shape:
        raise ValueError(f"`a` and `b` must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    _check_count("permutations", permutations)
    both = _counting_rows(torch.stack([a, b]), "a` and `b")
    differences = both[: len(both) // 2] - both[len(both) // 2 :]
    if differences.shape[1] == 0:
        return torch.full(a.shape[:-1], torch.nan, dtype=torch.float64)
    differences = differences[:, (differences != 0).any(dim=0)]  # a swap of equals changes nothing
    num_queries = both.shape[1]
    observed = differences.sum(dim=1, keepdim=True).abs()
    count = torch.zeros(len(differences), dtype=torch.float64)
    for sums in flipped_sums(differences, permutations=permutations, seed=seed):
        count += (sums.abs() >= observed - TOLERANCE * num_queries).sum(dim=1)
    return ((1 + count) / (1 + permutations)).reshape(a.shape[:-1])


def holm(p_values: Tensor) -> Tensor:
    r"""Correct p-values for being many, so that the chance of any false finding stays below the level.

    .. math:: \tilde p_{(i)} = \min\bigl(1, \max_{j \le i} (m - j + 1)\, p_{(j)}\bigr)

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.

    Args:
        p_values: ``[...]``, all of one family; NaN = was not tested.

    Returns:
        ``[...]`` float64, not below ``p_values``; NaN where they are.

    Example:
        >>> holm(torch.tensor([0.01, 0.04, 0.03]))
        tensor([0.0300, 0.0600, 0.0600], dtype=torch.float64)
    """
    flat = p_values.to(torch.float64).flatten()
    tested = (~flat.isnan()).nonzero().flatten()
    order = tested[torch.argsort(flat[tested])]
    factors = torch.arange(len(order), 0, -1, dtype=torch.float64)
    corrected = flat.clone()
    if len(order):
        corrected[order] = (factors * flat[order]).cummax(0).values.clamp(max=1)
    return corrected.reshape(p_values.shape)


def flipped_sums(rows: Tensor, *, permutations: int, seed: int) -> Iterator[Tensor]:
    """Give the sums of rows over queries after random flips of the queries' signs.

    As one matrix product a block: with a bit per query and permutation that says whether it is flipped, the sum is that
    of all less twice that of the flipped.

    Args:
        rows: ``[R, Q]`` float64; rows share the flips.
        permutations: Number of random flips.
        seed: Seed of the flips.

    Yields:
        ``[R, block]``.
    """
    generator, num_queries = np.random.default_rng(seed), rows.shape[1]
    total = rows.sum(dim=1, keepdim=True)
    for size in _blocks(permutations, max(rows.shape)):
        drawn = np.frombuffer(generator.bytes(-(-size * num_queries // 8)), dtype=np.uint8)
        bits = np.unpackbits(drawn, count=size * num_queries).reshape(size, num_queries)
        yield total - 2 * rows @ torch.from_numpy(bits).to(torch.float64).T


def resampled_means(rows: Tensor, *, samples: int, seed: int) -> Iterator[Tensor]:
    """Give the means of rows over queries that are drawn with replacement, as many as there are.

    Args:
        rows: ``[R, Q]`` float64; rows share the drawn queries.
        samples: Number of samples.
        seed: Seed of the drawing.

    Yields:
        ``[R, block]``.
    """
    num_queries = rows.shape[1]
    generator = torch.Generator().manual_seed(seed)
    for size in _blocks(samples, max(rows.shape)):
        drawn = torch.randint(num_queries, (size, num_queries), generator=generator)
        times = torch.zeros(size, num_queries, dtype=torch.float64)
        times.scatter_add_(1, drawn, torch.ones(1, 1, dtype=torch.float64).expand_as(times))
        yield rows @ times.T / num_queries


def outer_quantiles(samples: Tensor, level: float) -> Tensor:
    """Give the ends of the interval that holds the middle ``level`` of ``[R, B]`` samples: ``[R, 2]``."""
    outer = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    return samples.quantile(outer, dim=1).T


def _counting_rows(values: Tensor, name: str) -> Tensor:
    """Return ``[rows, counting queries]`` float64, without the queries that are NaN."""
    if values.dim() == 0:
        raise ValueError(f"`{name}` must have a last dimension of queries, got a scalar")
    rows = values.detach().cpu().to(torch.float64).reshape(-1, values.shape[-1])
    missing = rows.isnan()
    if bool((missing != missing[:1]).any()):
        raise ValueError(f"`{name}` must be NaN at the same queries in every row")
    return rows[:, ~missing.any(dim=0)]


def _blocks(total: int, width: int) -> Iterator[int]:
    """Split ``total`` rows of ``width`` numbers into blocks that are small beside the caches."""
    size = max(1, BLOCK_NUMBERS // max(1, width))
    for start in range(0, total, size):
        yield min(size, total - start)


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"`{name}` must be a positive integer, got {count}")
