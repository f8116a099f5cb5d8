"""Uncertainty of measured differences: intervals, paired tests, Holm's correction; wins over several data sets."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from graphrerank.evaluation.records import DatasetResult, PairedTest, Replication
from graphrerank.utils.checks import UserError, check_counts

RESAMPLES = 10_000
CONFIDENCE = 0.95  # level of an interval
ALPHA = 0.05  # significance level of tests
BLOCK_NUMBERS = 1 << 21  # random numbers drawn at once: 16 MiB
TOLERANCE = 1e-9  # of a mean; sums of one set of numbers differ by rounding when their order does


def compare_pairs(
    scores: Tensor, pairs: Sequence[tuple[int, int]], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Tensor]:
    """Compare pairs of systems in several measures over the same queries.

    ``scores`` are ``[S, M, Q]``, NaN at the same queries for all systems: the query does not count; ``pairs`` are ``C``
    pairs of indices of systems. Returns ``[C, M]`` float64 by name, NaN where no query counts: ``num_queries``,
    ``difference`` (mean of first minus second) with its bootstrap ``interval`` ``[C, M, 2]``, ``effect_size`` (over the
    standard deviation of the queries' differences; NaN where none differs), ``share_changed`` (of the queries),
    ``p_randomization``, ``p_greater`` (one-sided), and ``p_holm``: the first, corrected for all pairs and measures.
    """
    missing = scores.isnan()
    if scores.dim() != 3 or bool((missing != missing[:1]).any()):
        raise UserError(
            "`scores` must be [systems, measures, queries], each measure NaN at the same queries for all systems, got "
            f"shape {list(scores.shape)}"
        )
    first, second = indices = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    if bool(((indices < 0) | (indices >= len(scores))).any()):
        raise UserError(f"`pairs` must number systems 0 to {len(scores) - 1}, got {list(pairs)}")
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
    }


def bootstrap_interval(values: Tensor, *, level: float = CONFIDENCE, samples: int = RESAMPLES, seed: int = 0) -> Tensor:
    """Return the percentile bootstrap interval of a mean over queries.

    It says how much the mean would vary with other queries, not with another seed of training.

    Source: Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979 (percentile interval).

    ``values`` are ``[..., Q]``, a measure per query, NaN = the query does not count; rows that count the same queries
    share the drawn samples. ``level``, in (0, 1), of the samples' means lie within the interval. torch's global
    generator is left alone. Returns ``[..., 2]`` float64, lower and upper end; NaN where no query counts.

    Example:
        >>> bootstrap_interval(torch.tensor([1.0, 1.0, 1.0, 0.0]))
        tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    check_counts(samples=samples)
    levels = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    rows = values.detach().cpu().reshape(-1, values.shape[-1])
    intervals = torch.full((len(rows), 2), torch.nan, dtype=torch.float64)
    for at, counting in _complete_rows(rows):
        means = _resampled_means(counting, samples=samples, seed=seed)
        intervals[at] = means.quantile(levels, dim=1).T
    return intervals.reshape(*values.shape[:-1], 2)


def randomization_tests(differences: Tensor, *, permutations: int = RESAMPLES, seed: int = 0) -> tuple[Tensor, Tensor]:
    r"""Test whether two systems differ in their means over the same queries, in several comparisons at once.

    Were two systems equal, each query's two numbers could be swapped, which flips the sign of their difference:

    .. math:: p = \frac{1 + |\{s : |\bar d_s| \ge |\bar d|\}|}{1 + S}

    Rows that count the same queries share the flips: a p-value does not depend on which others are tested with it.

    Source: Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
    Evaluation", 2007 (randomisation test); the ones added: Phipson and Smyth, "Permutation P-values Should Never Be
    Zero", 2010.

    ``differences`` are ``[..., Q]``, NaN = the query does not count; ``permutations`` is the number of random swaps.
    Returns two-sided p-values, and one-sided ones of the first system above the second, ``[...]`` float64 each; NaN
    where no query counts.
    """
    check_counts(permutations=permutations)
    *shape, num_queries = differences.shape
    rows = differences.detach().cpu().reshape(math.prod(shape), num_queries)
    p_values = torch.full((2, len(rows)), torch.nan, dtype=torch.float64)
    for at, counting in _complete_rows(rows):
        observed = counting.sum(dim=1, keepdim=True)
        allowed = TOLERANCE * counting.shape[1]
        at_least = torch.zeros(2, len(counting), dtype=torch.float64)
        for flipped in _flipped_sums(counting, permutations=permutations, seed=seed):  # [R, block]
            at_least[0] += (flipped.abs() >= observed.abs() - allowed).sum(dim=1)
            at_least[1] += (flipped >= observed - allowed).sum(dim=1)
        p_values[:, at] = (1 + at_least) / (1 + permutations)
    two_sided, greater = p_values.reshape(2, *shape)
    return two_sided, greater


def paired_randomization(a: Tensor, b: Tensor, *, permutations: int = 10_000, seed: int = 0) -> Tensor:
    """Test whether two systems differ in their mean over the same queries, two-sided (:func:`randomization_tests`).

    Queries on which no row differs are left out first: p does not depend on how many such queries there are. ``a`` and
    ``b`` are ``[..., Q]``, rows share the swaps. Returns ``[...]`` float64 p-values in (0, 1]; 1 where no query
    differs, NaN where no query counts.
    """
    if a.shape != b.shape:
        raise UserError(f"`a` and `b` must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    difference = a - b
    differs = (difference.nan_to_num(0.0) != 0).reshape(-1, a.shape[-1]).any(dim=0)
    p_values, _ = randomization_tests(difference[..., differs], permutations=permutations, seed=seed)
    return torch.where(difference.isnan().all(dim=-1), torch.nan, p_values.nan_to_num(1.0))


def holm(p_values: Tensor) -> Tensor:
    r"""Correct p-values for multiple comparisons: the chance of any false finding stays below the level.

    .. math:: \tilde p_{(i)} = \min\bigl(1, \max_{j \le i} (m - j + 1)\, p_{(j)}\bigr)

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.
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
    """Yield the sums of rows ``[R, Q]`` after random flips of the queries' signs, ``[R, block]`` each."""
    generator, num_queries = np.random.default_rng(seed), rows.shape[1]
    total = rows.sum(dim=1, keepdim=True)
    for size in _blocks(permutations, num_queries):  # whatever the rows: p depends on queries alone
        drawn = np.frombuffer(generator.bytes(-(-size * num_queries // 8)), dtype=np.uint8)
        bits = np.unpackbits(drawn, count=size * num_queries).reshape(size, num_queries)
        yield total - 2 * rows @ torch.from_numpy(bits).to(torch.float64).T


def _complete_rows(rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the numbers of the rows ``[R, Q]`` that count the same queries, and their entries there, float64."""
    if not rows.shape[1]:
        return
    patterns, group = torch.unique(rows.isnan(), dim=0, return_inverse=True)
    for index, pattern in enumerate(patterns):
        if not bool(pattern.all()):
            at = (group == index).nonzero().flatten()
            yield at, rows[at][:, ~pattern].to(torch.float64)


def _resampled_means(rows: Tensor, *, samples: int, seed: int) -> Tensor:
    """Return the means of rows ``[R, Q]`` over ``Q`` queries drawn with replacement, ``[R, samples]``."""
    num_queries, means = rows.shape[1], []
    generator = torch.Generator().manual_seed(seed)
    for size in _blocks(samples, max(rows.shape)):
        drawn = torch.randint(num_queries, (size, num_queries), generator=generator)
        times = torch.zeros(size, num_queries, dtype=torch.float64)
        times.scatter_add_(1, drawn, torch.ones(1, 1, dtype=torch.float64).expand_as(times))
        means.append(rows @ times.T / num_queries)
    return torch.cat(means, dim=1)


def _blocks(total: int, width: int) -> Iterator[int]:
    """Split ``total`` rows of ``width`` numbers into blocks that fit into the processor's caches."""
    size = max(1, BLOCK_NUMBERS // max(1, width))
    for start in range(0, total, size):
        yield min(size, total - start)


def count_replicated(p_values: Sequence[float]) -> int:
    r"""Count the data sets on which an effect replicates, by partial conjunction.

    .. math:: p^{u/n} = (n - u + 1)\, p_{(u)}

    tests whether an effect is there on at least u of n data sets, however they depend on each other (Bonferroni). The
    count is the largest u with all hypotheses up to it rejected; the chance that it is too large is at most 0.05.

    Source: Benjamini and Heller, "Screening for Partial Conjunction Hypotheses", 2008; Dror, Baumer, Bogomolov and
    Reichart, "Replicability Analysis for Natural Language Processing", 2017, Eq. (2) and (4).

    Example:
        >>> count_replicated([0.2, 0.001, 0.01])  # one-sided, one per data set: 0.003, 0.02 and 0.2
        2
    """
    ordered = torch.tensor(sorted(p_values), dtype=torch.float64)
    left = torch.arange(len(ordered), 0, -1, dtype=torch.float64)  # n - u + 1
    return int(((left * ordered).cummax(0).values <= ALPHA).sum())


def combined_randomization(
    differences: Sequence[Tensor], *, permutations: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    r"""Test the mean over data sets of mean differences, by sign flips of all queries of all data sets, two-sided.

    .. math:: \bar d = \frac{1}{n} \sum_k \frac{1}{Q_k} \sum_q d_{kq}

    It asks whether the win would hold with other queries of the same data sets; not whether on other data sets. Each
    data set counts the same, however many queries it has. ``differences`` are ``[Q_k]``, NaN = the query does not
    count. Returns the mean difference and its p-value; NaN where a data set has no query that counts.
    """
    counting = [of_dataset[~of_dataset.isnan()].to(torch.float64) for of_dataset in differences]
    if any(not len(of_dataset) for of_dataset in counting):
        return float("nan"), float("nan")
    weighted = torch.cat([of_dataset / len(of_dataset) for of_dataset in counting]) / len(counting)
    p_value, _ = randomization_tests(weighted * len(weighted), permutations=permutations, seed=seed)
    return float(weighted.sum()), float(p_value)


def across_datasets(
    datasets: Sequence[DatasetResult], *, permutations: int = 10_000, seed: int = 0
) -> list[Replication]:
    """Count, for each comparison made on two data sets or more, on how many of them the system wins."""
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
