"""Significance of differences: bootstrap intervals, paired tests, Holm's correction, and tests over data sets."""

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from graphrerank.evaluation.records import DatasetResult, PairedTest, Replication
from graphrerank.utils.checks import UserError, check_counts

RESAMPLES = 10_000  # default number of random sign flips and of bootstrap samples
CONFIDENCE = 0.95  # confidence level of intervals
ALPHA = 0.05  # significance level of tests
POWER = 0.8  # probability of finding a true difference of `smallest_difference`
BLOCK_NUMBERS = 1 << 21  # number of random numbers per block (16 MiB)
TOLERANCE = 1e-9  # differences of means up to this size are rounding errors of sums in another order


def compare_pairs(
    scores: Tensor, pairs: Sequence[tuple[int, int]], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Tensor]:
    """Compare pairs of systems in several measures over the same queries.

    Args:
        scores: ``[S, M, Q]`` scores of ``S`` systems in ``M`` measures. NaN marks queries that a measure excludes,
            which must be the same for all systems.
        pairs: ``C`` pairs of indices of systems.
        resamples: Number of random sign flips of each test, and number of bootstrap samples.
        seed: Random seed of resampling.

    Returns:
        Tensors ``[C, M]`` (float64) by name, NaN for measures that include no query:

        - ``num_queries``: Number of queries that the measure includes.
        - ``difference``: Mean of the first system minus mean of the second.
        - ``interval``: ``[C, M, 2]`` bootstrap interval of ``difference``.
        - ``effect_size``: ``difference`` divided by the standard deviation of the queries' differences. NaN if no
          query differs.
        - ``share_changed``: Fraction of queries whose scores differ.
        - ``p_randomization``: Two-sided p-value of the randomisation test.
        - ``p_greater``: One-sided p-value that the first system is better.
        - ``p_holm``: ``p_randomization``, corrected for all pairs and measures.
        - ``smallest_difference``: Difference that a two-sided test at level ``ALPHA`` finds with probability ``POWER``,
          by the normal approximation. NaN if no query differs.

    Raises:
        UserError: If ``scores`` has another shape, if systems have NaN at different queries, or if an index is invalid.
    """
    missing = scores.isnan()
    if scores.dim() != 3 or bool((missing != missing[:1]).any()):
        raise UserError(
            "`scores` must be [systems, measures, queries] with NaN at the same queries for all systems, got shape "
            f"{list(scores.shape)}"
        )
    first, second = indices = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    if bool(((indices < 0) | (indices >= len(scores))).any()):
        raise UserError(f"`pairs` must contain indices of systems, 0 to {len(scores) - 1}, got {list(pairs)}")
    differences = (scores[first] - scores[second]).to(torch.float64)  # [C, M, Q]
    two_sided, greater = randomization_tests(differences, permutations=resamples, seed=seed)
    mean = differences.nanmean(dim=2)
    count = (~differences.isnan()).sum(dim=2)
    spread = ((differences - mean.unsqueeze(2)).square().nansum(dim=2) / (count - 1)).sqrt()
    return {
        "num_queries": count,
        "difference": mean,
        "interval": bootstrap_interval(differences, samples=resamples, seed=seed),
        "effect_size": torch.where(spread > TOLERANCE, mean / spread, torch.nan),
        "share_changed": (differences.nan_to_num(0.0).abs() > TOLERANCE).sum(dim=2) / count,
        "p_randomization": two_sided,
        "p_greater": greater,
        "p_holm": holm(two_sided),
        "smallest_difference": torch.where(spread > TOLERANCE, smallest_difference(spread, count), torch.nan),
    }


def smallest_difference(spread: Tensor, num_queries: Tensor) -> Tensor:
    r"""Return the smallest true mean difference that a paired test would find.

    .. math:: d = (z_{1 - \alpha / 2} + z_{1 - \beta})\,\frac{s}{\sqrt{n}}

    Source: Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988, chapter 2 (paired samples, normal
    approximation), with a level of ``ALPHA`` and a power of ``POWER``.

    Args:
        spread: Standard deviation of the queries' differences, any shape.
        num_queries: Number of queries, of the same shape.

    Returns:
        Smallest difference, of the same shape, float64.

    Example:
        >>> smallest_difference(torch.tensor([0.3]), torch.tensor([100])).round(decimals=4)
        tensor([0.0840], dtype=torch.float64)
    """
    return power_quantile() * spread.to(torch.float64) / num_queries.to(torch.float64).sqrt()


def power_quantile(num_comparisons: int = 1) -> float:
    r"""Return the sum of the normal quantiles of a two-sided test's level and power.

    .. math:: z_{1 - \alpha / 2m} + z_{1 - \beta}

    Args:
        num_comparisons: Number :math:`m` of comparisons to correct the level ``ALPHA`` for.

    Returns:
        Number of standard errors by which a true difference must exceed 0 to be found with probability ``POWER``.

    Example:
        >>> round(power_quantile(), 3)
        2.802
    """
    normal = NormalDist()
    return normal.inv_cdf(1 - ALPHA / (2 * num_comparisons)) + normal.inv_cdf(POWER)


def bootstrap_interval(values: Tensor, *, level: float = CONFIDENCE, samples: int = RESAMPLES, seed: int = 0) -> Tensor:
    """Return the percentile bootstrap interval of a mean over queries.

    The interval reflects the choice of queries, not the random seed of training. Rows with NaN at the same queries
    share the bootstrap samples. The global random generator of torch is not used.

    Source: Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979 (percentile interval).

    Args:
        values: ``[..., Q]`` scores per query. NaN marks excluded queries.
        level: Fraction of the bootstrap means inside the interval, in (0, 1).
        samples: Number of bootstrap samples.
        seed: Random seed of the samples.

    Returns:
        Lower and upper ends ``[..., 2]`` (float64). NaN for rows without included queries.

    Raises:
        UserError: If ``samples`` is not positive.

    Example:
        >>> bootstrap_interval(torch.tensor([1.0, 1.0, 1.0, 0.0]))
        tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    check_counts(samples=samples)
    levels = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    rows = values.detach().cpu().reshape(-1, values.shape[-1])
    intervals = torch.full((len(rows), 2), torch.nan, dtype=torch.float64)
    for indices, complete in _complete_rows(rows):
        means = _resampled_means(complete, samples=samples, seed=seed)
        intervals[indices] = means.quantile(levels, dim=1).T
    return intervals.reshape(*values.shape[:-1], 2)


def randomization_tests(differences: Tensor, *, permutations: int = RESAMPLES, seed: int = 0) -> tuple[Tensor, Tensor]:
    r"""Test whether two systems differ in their means over the same queries, in several comparisons at once.

    If the systems were equal, the scores of a query could be swapped, which flips the sign of their difference. With
    the mean difference :math:`\bar d` and the means :math:`\bar d_s` after :math:`S` random sign flips:

    .. math:: p = \frac{1 + |\{s : |\bar d_s| \ge |\bar d|\}|}{1 + S}

    Rows with NaN at the same queries share the sign flips, so a p-value does not depend on the other comparisons.

    Source: Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
    Evaluation", 2007 (randomisation test). Adding one to numerator and denominator: Phipson and Smyth, "Permutation
    P-values Should Never Be Zero", 2010.

    Args:
        differences: ``[..., Q]`` score of the first system minus score of the second, per query. NaN marks excluded
            queries.
        permutations: Number of random sign flips, :math:`S`.
        seed: Random seed of the sign flips.

    Returns:
        Two-sided p-values ``[...]`` (float64), and one-sided p-values ``[...]`` that the first system is better. NaN
        for rows without included queries.

    Raises:
        UserError: If ``permutations`` is not positive.
    """
    check_counts(permutations=permutations)
    *shape, num_queries = differences.shape
    rows = differences.detach().cpu().reshape(math.prod(shape), num_queries)
    p_values = torch.full((2, len(rows)), torch.nan, dtype=torch.float64)
    for indices, complete in _complete_rows(rows):
        observed = complete.sum(dim=1, keepdim=True)
        allowed = TOLERANCE * complete.shape[1]
        at_least = torch.zeros(2, len(complete), dtype=torch.float64)
        for flipped in _flipped_sums(complete, permutations=permutations, seed=seed):  # [R, block]
            at_least[0] += (flipped.abs() >= observed.abs() - allowed).sum(dim=1)
            at_least[1] += (flipped >= observed - allowed).sum(dim=1)
        p_values[:, indices] = (1 + at_least) / (1 + permutations)
    two_sided, greater = p_values.reshape(2, *shape)
    return two_sided, greater


def paired_randomization(a: Tensor, b: Tensor, *, permutations: int = 10_000, seed: int = 0) -> Tensor:
    """Test whether two systems differ in their mean over the same queries (:func:`randomization_tests`).

    Queries on which no row differs are removed first, so the p-values do not depend on the number of such queries. All
    rows share the sign flips.

    Args:
        a: ``[..., Q]`` scores of the first system. NaN marks excluded queries.
        b: ``[..., Q]`` scores of the second system.
        permutations: Number of random sign flips.
        seed: Random seed of the sign flips.

    Returns:
        Two-sided p-values ``[...]`` (float64) in (0, 1]. The p-value is 1 if no query differs, and NaN for rows without
        included queries.

    Raises:
        UserError: If the shapes differ.
    """
    if a.shape != b.shape:
        raise UserError(f"`a` and `b` must have the same shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    difference = a - b
    differs = (difference.nan_to_num(0.0) != 0).reshape(-1, a.shape[-1]).any(dim=0)
    p_values, _ = randomization_tests(difference[..., differs], permutations=permutations, seed=seed)
    return torch.where(difference.isnan().all(dim=-1), torch.nan, p_values.nan_to_num(1.0))


def holm(p_values: Tensor) -> Tensor:
    r"""Correct p-values for multiple comparisons.

    The correction controls the family-wise error rate, the probability of at least one false positive:

    .. math:: \tilde p_{(i)} = \min\bigl(1, \max_{j \le i} (m - j + 1)\, p_{(j)}\bigr)

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.

    Args:
        p_values: p-values of any shape. NaN entries are ignored.

    Returns:
        Corrected p-values (float64) of the same shape.

    Example:
        >>> holm(torch.tensor([0.01, 0.04, 0.03], dtype=torch.float64))
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


def _flipped_sums(rows: Tensor, *, permutations: int, seed: int) -> Iterator[Tensor]:
    """Yield blocks ``[R, block]`` of the sums of rows ``[R, Q]`` after random flips of the queries' signs."""
    generator, num_queries = np.random.default_rng(seed), rows.shape[1]
    total = rows.sum(dim=1, keepdim=True)
    for size in _blocks(permutations, num_queries):  # independent of the number of rows, so p depends on queries alone
        drawn = np.frombuffer(generator.bytes(-(-size * num_queries // 8)), dtype=np.uint8)
        bits = np.unpackbits(drawn, count=size * num_queries).reshape(size, num_queries)
        yield total - 2 * rows @ torch.from_numpy(bits).to(torch.float64).T


def _complete_rows(rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield groups of rows with NaN at the same queries: their indices, and their float64 entries without NaN."""
    if not rows.shape[1]:
        return
    patterns, group = torch.unique(rows.isnan(), dim=0, return_inverse=True)
    for index, pattern in enumerate(patterns):
        if not bool(pattern.all()):
            indices = (group == index).nonzero().flatten()
            yield indices, rows[indices][:, ~pattern].to(torch.float64)


def _resampled_means(rows: Tensor, *, samples: int, seed: int) -> Tensor:
    """Return the means ``[R, samples]`` of rows ``[R, Q]`` over ``Q`` queries drawn with replacement."""
    num_queries, means = rows.shape[1], []
    generator = torch.Generator().manual_seed(seed)
    for size in _blocks(samples, max(rows.shape)):
        drawn = torch.randint(num_queries, (size, num_queries), generator=generator)
        times = torch.zeros(size, num_queries, dtype=torch.float64)
        times.scatter_add_(1, drawn, torch.ones(1, 1, dtype=torch.float64).expand_as(times))
        means.append(rows @ times.T / num_queries)
    return torch.cat(means, dim=1)


def _blocks(total: int, width: int) -> Iterator[int]:
    """Yield the sizes of blocks that together have ``total`` rows of ``width`` numbers and fit into CPU caches."""
    size = max(1, BLOCK_NUMBERS // max(1, width))
    for start in range(0, total, size):
        yield min(size, total - start)


def count_replicated(p_values: Sequence[float]) -> int:
    r"""Count the data sets on which an effect replicates, by partial conjunction.

    The p-value of the hypothesis that the effect exists on at least :math:`u` of :math:`n` data sets is

    .. math:: p^{u/n} = (n - u + 1)\, p_{(u)}

    It is valid for any dependence between the data sets (Bonferroni). The count is the largest :math:`u` such that the
    p-values of :math:`1, \dots, u` are at most 0.05. The probability that the count is too high is at most 0.05.

    Source: Benjamini and Heller, "Screening for Partial Conjunction Hypotheses", 2008; Dror, Baumer, Bogomolov and
    Reichart, "Replicability Analysis for Natural Language Processing", 2017, Eq. (2) and (4).

    Args:
        p_values: One-sided p-values, one per data set.

    Returns:
        Number of data sets.

    Example:
        >>> count_replicated([0.2, 0.001, 0.01])  # p^{u/n} is 0.003, 0.02 and 0.2
        2
    """
    ordered = torch.tensor(sorted(p_values), dtype=torch.float64)
    factors = torch.arange(len(ordered), 0, -1, dtype=torch.float64)  # n - u + 1
    return int(((factors * ordered).cummax(0).values <= ALPHA).sum())


def combined_randomization(
    differences: Sequence[Tensor], *, permutations: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    r"""Test the mean over data sets of the mean differences, by sign flips of the queries of all data sets.

    .. math:: \bar d = \frac{1}{n} \sum_k \frac{1}{Q_k} \sum_q d_{kq}

    All data sets have the same weight, regardless of their number of queries. The test generalises to other queries of
    the same data sets, not to other data sets.

    Args:
        differences: Score of the first system minus score of the second, ``[Q_k]`` per data set. NaN marks excluded
            queries.
        permutations: Number of random sign flips.
        seed: Random seed of the sign flips.

    Returns:
        Mean difference and its two-sided p-value. Both are NaN if a data set has no included query.
    """
    included = [row[~row.isnan()].to(torch.float64) for row in differences]
    if any(not len(row) for row in included):
        return float("nan"), float("nan")
    weighted = torch.cat([row / len(row) for row in included]) / len(included)
    p_value, _ = randomization_tests(weighted * len(weighted), permutations=permutations, seed=seed)
    return float(weighted.sum()), float(p_value)


def across_datasets(
    datasets: Sequence[DatasetResult], *, permutations: int = 10_000, seed: int = 0
) -> list[Replication]:
    """Test each comparison of two systems over all data sets.

    Args:
        datasets: Results of the data sets.
        permutations: Number of random sign flips.
        seed: Random seed of the sign flips.

    Returns:
        One record for each pair of systems and measure that was tested on at least two data sets.
    """
    tests: dict[tuple[str, str, str], list[tuple[DatasetResult, PairedTest]]] = {}
    for dataset in datasets:
        for test in dataset.tests:
            if test.num_queries:
                tests.setdefault((test.system, test.baseline, test.measure), []).append((dataset, test))
    replications = []
    for (system, baseline, measure), compared in tests.items():
        if len(compared) < 2:
            continue
        names = tuple(dataset.name for dataset, _ in compared)
        p_values = torch.tensor([test.p_greater for _, test in compared], dtype=torch.float64)
        values = [[dataset.systems[name].values[measure] for name in (system, baseline)] for dataset, _ in compared]
        mean, p_combined = combined_randomization([a - b for a, b in values], permutations=permutations, seed=seed)
        won = tuple(name for name, p in zip(names, holm(p_values).tolist(), strict=True) if p <= ALPHA)
        count = count_replicated(p_values.tolist())
        replications.append(Replication(baseline, system, measure, names, ALPHA, count, won, mean, p_combined))
    return replications
