"""Many systems compared in many measures at once: differences, intervals, effect sizes and p-values, over queries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.evaluation.significance import (
    TOLERANCE,
    bootstrap_interval,
    flipped_sums,
    outer_quantiles,
    resampled_means,
)

RESAMPLES = 10_000
LEVEL = 0.95
CELLS = 1 << 23  # of pairs times resamples held at once: 64 MiB, and torch's limit of quantiles is near


@dataclass(frozen=True, eq=False)
class PairedStatistics:
    """What comparing ``C`` pairs of systems in ``M`` measures says, ``[C, M]`` float64 each; NaN where no query counts.

    Attributes:
        num_queries: ``[M]`` int64, queries that count.
        difference: Mean of first minus second.
        interval: ``[C, M, 2]``, percentile bootstrap interval of ``difference``.
        effect_size: ``difference`` over the standard deviation of the queries' differences; NaN where none differs.
        share_changed: Share of the queries on which the two differ.
        p_randomization: Two-sided, by sign flips.
        p_greater: One-sided, by the same sign flips: of a difference this large or larger.
        p_bootstrap: Two-sided, by the same samples as ``interval``.
    """

    num_queries: Tensor
    difference: Tensor
    interval: Tensor
    effect_size: Tensor
    share_changed: Tensor
    p_randomization: Tensor
    p_greater: Tensor
    p_bootstrap: Tensor


def randomization_tests(
    scores: Tensor, pairs: Sequence[tuple[int, int]], *, permutations: int = RESAMPLES, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Test pairs of systems in several measures by the same sign flips.

    The flipped sum of a difference is the difference of the flipped sums, so that the matrix product is over systems
    and not over pairs: ``[permutations, Q] x [Q, S * M]``.

    Source: as :func:`graphrerank.evaluation.significance.paired_randomization`.

    Args:
        scores: ``[S, M, Q]``; a measure is NaN at the same queries for all systems.
        pairs: ``C`` pairs of numbers of systems.
        permutations: Number of random flips.
        seed: Seed of the flips.

    Returns:
        Two-sided p-values, and one-sided ones of first above second, ``[C, M]`` each; NaN where no query counts.

    Raises:
        ValueError: If shapes do not fit, a number is out of range, or NaN are at different queries.
    """
    first, second = _check(scores, pairs)
    p_values = torch.full((2, len(pairs), scores.shape[1]), torch.nan, dtype=torch.float64)
    for measures, rows in _complete(scores):
        num_systems, num_queries = len(scores), rows.shape[-1]
        observed = (rows.sum(dim=2)[first] - rows.sum(dim=2)[second]).flatten().unsqueeze(1)  # [C * M', 1]
        allowed = TOLERANCE * num_queries
        at_least = torch.zeros(2, len(observed), dtype=torch.float64)
        for sums in flipped_sums(rows.reshape(-1, num_queries), permutations=permutations, seed=seed):
            by_system = sums.reshape(num_systems, len(measures), -1)
            flipped = (by_system[first] - by_system[second]).flatten(0, 1)  # [C * M', block]
            at_least[0] += (flipped.abs() >= observed.abs() - allowed).sum(dim=1)
            at_least[1] += (flipped >= observed - allowed).sum(dim=1)
        p_values[:, :, measures] = ((1 + at_least) / (1 + permutations)).reshape(2, len(pairs), -1)
    return p_values[0], p_values[1]


def bootstrap_tests(
    scores: Tensor, pairs: Sequence[tuple[int, int]], *, samples: int = RESAMPLES, level: float = LEVEL, seed: int = 0
) -> tuple[Tensor, Tensor]:
    r"""Resample queries: intervals of the differences of pairs, and how likely they are by chance.

    .. math:: p = \frac{1 + |\{b : |\bar d_b - \bar d| \ge |\bar d|\}|}{1 + B}

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 16.4 (samples moved to a mean of 0);
    for pairs, Sakai, "Evaluating Evaluation Metrics Based on the Bootstrap", 2006. *Where we differ:* Sakai divides by
    each sample's standard error.

    Args:
        scores: ``[S, M, Q]``, as in :func:`randomization_tests`.
        pairs: ``C`` pairs of numbers of systems.
        samples: Number of samples.
        level: Share of the samples within the interval, in (0, 1).
        seed: Seed of the drawing.

    Returns:
        Intervals ``[C, M, 2]`` and two-sided p-values ``[C, M]``; NaN where no query counts.

    Raises:
        ValueError: As :func:`randomization_tests`, or if ``level`` is out of range.
    """
    if not 0 < level < 1:
        raise ValueError(f"`level` must lie in (0, 1), got {level}")
    first, second = _check(scores, pairs)
    shape = len(pairs), scores.shape[1]
    intervals = torch.full((*shape, 2), torch.nan, dtype=torch.float64)
    p_values = torch.full(shape, torch.nan, dtype=torch.float64)
    for measures, rows in _complete(scores):
        blocks = resampled_means(rows.reshape(-1, rows.shape[-1]), samples=samples, seed=seed)
        means = torch.cat(list(blocks), dim=1).reshape(len(scores), len(measures), samples)
        size = max(1, CELLS // (len(measures) * samples))
        for part in torch.split(torch.arange(len(pairs)), size):
            drawn = means[first[part]] - means[second[part]]  # [c, M', samples]
            observed = (rows[first[part]] - rows[second[part]]).mean(dim=2, keepdim=True)
            far = (drawn - observed).abs() >= observed.abs() - TOLERANCE
            p_values[part[:, None], measures] = (1 + far.sum(dim=2).to(torch.float64)) / (1 + samples)
            ends = outer_quantiles(drawn.flatten(0, 1), level)
            intervals[part[:, None], measures] = ends.reshape(len(part), len(measures), 2)
    return intervals, p_values


def mean_intervals(scores: Tensor, *, samples: int = RESAMPLES, level: float = LEVEL, seed: int = 0) -> Tensor:
    """Give the percentile bootstrap interval of every system's mean in every measure.

    Source: as :func:`graphrerank.evaluation.significance.bootstrap_interval`.

    Args:
        scores: ``[S, M, Q]``, as in :func:`randomization_tests`.
        samples: Number of samples.
        level: Share of the samples within the interval, in (0, 1).
        seed: Seed of the drawing.

    Returns:
        ``[S, M, 2]`` float64; NaN where no query counts.
    """
    _check(scores, [])
    intervals = torch.full((*scores.shape[:2], 2), torch.nan, dtype=torch.float64)
    for measures, rows in _complete(scores):
        intervals[:, measures] = bootstrap_interval(rows, level=level, samples=samples, seed=seed)
    return intervals


def compare_pairs(
    scores: Tensor,
    pairs: Sequence[tuple[int, int]],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> PairedStatistics:
    """Compare pairs of systems in several measures.

    Args:
        scores: ``[S, M, Q]``, as in :func:`randomization_tests`.
        pairs: ``C`` pairs of numbers of systems.
        resamples: Number of sign flips, and of bootstrap samples.
        level: Of the intervals.
        seed: Seed of both.

    Raises:
        ValueError: As :func:`bootstrap_tests`.
    """
    two_sided, greater = randomization_tests(scores, pairs, permutations=resamples, seed=seed)
    intervals, p_bootstrap = bootstrap_tests(scores, pairs, samples=resamples, level=level, seed=seed)
    first, second = _check(scores, pairs)
    differences = (scores[first] - scores[second]).to(torch.float64)  # [C, M, Q]
    mean = differences.nanmean(dim=2)
    count = (~differences.isnan()).sum(dim=2)
    spread = ((differences - mean.unsqueeze(2)).square().nansum(dim=2) / (count - 1)).sqrt()
    return PairedStatistics(
        num_queries=(~scores[0].isnan()).sum(dim=1),
        difference=mean,
        interval=intervals,
        effect_size=torch.where(spread > TOLERANCE, mean / spread, torch.nan),
        share_changed=(differences.nan_to_num(0.0).abs() > TOLERANCE).sum(dim=2) / count,
        p_randomization=two_sided,
        p_greater=greater,
        p_bootstrap=p_bootstrap,
    )


def _complete(scores: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Give the measures that count the same queries, ``[M']``, with their scores there, ``[S, M', q]`` float64."""
    missing = scores[0].isnan()  # [M, Q]
    patterns, group = torch.unique(missing, dim=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        if not bool(pattern.all()):
            measures = (group == number).nonzero().flatten()
            yield measures, scores[:, measures][:, :, ~pattern].to(torch.float64)


def _check(scores: Tensor, pairs: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Refuse what does not fit; return the first and the second systems of the pairs, ``[C]`` each."""
    if scores.dim() != 3:
        raise ValueError(f"`scores` must be [systems, measures, queries], got shape {tuple(scores.shape)}")
    missing = scores.isnan()
    if bool((missing != missing[:1]).any()):
        raise ValueError("`scores` of a measure must be NaN at the same queries for all systems")
    numbers = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    if bool(((numbers < 0) | (numbers >= len(scores))).any()):
        raise ValueError(f"`pairs` must number systems 0 to {len(scores) - 1}, got {list(pairs)}")
    return numbers[:, 0], numbers[:, 1]
