"""Many systems compared in many measures at once: differences, intervals, effect sizes and p-values, over queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.records import Counterfactual, PairedTest
from graphrerank.evaluation.significance import (
    LEVEL,
    RESAMPLES,
    TOLERANCE,
    check_level,
    check_pairs,
    complete_measures,
    holm,
    outer_quantiles,
    randomization_tests,
    resampled_means,
)
from graphrerank.evaluation.systems import RankedSystem

NUMBERS = ("difference", "effect_size", "share_changed", "p_randomization", "p_bootstrap", "p_greater", "p_holm")
TOP = 10  # nodes of a list that are said to change
CELLS = 1 << 23  # of pairs times resamples held at once: 64 MiB, and torch's limit of quantiles is near


@dataclass(frozen=True, eq=False)
class PairedStatistics:
    """Comparisons of ``C`` pairs of systems in ``M`` measures, ``[C, M]`` float64 each; NaN where no query counts."""

    num_queries: Tensor  # `[M]` int64, queries that count
    difference: Tensor  # mean of first minus second
    interval: Tensor  # `[C, M, 2]`, percentile bootstrap interval of `difference`
    effect_size: Tensor  # `difference` over the standard deviation of the queries' differences; NaN where none differs
    share_changed: Tensor  # share of the queries on which the two differ
    p_randomization: Tensor  # two-sided, by sign flips
    p_greater: Tensor  # one-sided, by the same sign flips: of a difference this large or larger
    p_bootstrap: Tensor  # two-sided, by the same samples as `interval`
    p_holm: Tensor  # `p_randomization` corrected for all pairs and measures together (Holm)


def bootstrap_tests(
    scores: Tensor, pairs: Sequence[tuple[int, int]], *, samples: int = RESAMPLES, level: float = LEVEL, seed: int = 0
) -> tuple[Tensor, Tensor]:
    r"""Resample queries: intervals of the differences of pairs, and how likely they are by chance.

    .. math:: p = \frac{1 + |\{b : |\bar d_b - \bar d| \ge |\bar d|\}|}{1 + B}

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 16.4 (samples moved to a mean of 0);
    for pairs, Sakai, "Evaluating Evaluation Metrics Based on the Bootstrap", 2006. *Where we differ:* Sakai divides by
    each sample's standard error.

    Arguments are those of :func:`randomization_tests`; intervals hold a share ``level`` of the samples. Returns
    intervals ``[C, M, 2]`` and two-sided p-values ``[C, M]``; NaN where no query counts.
    """
    check_level(level)
    first, second = check_pairs(scores, pairs)
    shape = len(pairs), scores.shape[1]
    intervals = torch.full((*shape, 2), torch.nan, dtype=torch.float64)
    p_values = torch.full(shape, torch.nan, dtype=torch.float64)
    for measures, rows in complete_measures(scores):
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


def compare_pairs(
    scores: Tensor,
    pairs: Sequence[tuple[int, int]],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> PairedStatistics:
    """Compare ``C`` pairs of systems (indices) in several measures; arguments as :func:`randomization_tests`."""
    two_sided, greater = randomization_tests(scores, pairs, permutations=resamples, seed=seed)
    intervals, p_bootstrap = bootstrap_tests(scores, pairs, samples=resamples, level=level, seed=seed)
    first, second = check_pairs(scores, pairs)
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
        p_holm=holm(two_sided),
    )


def compare_last(values: Mapping[str, Mapping[str, Tensor]], plan: EvaluationPlan) -> list[PairedTest]:
    """Test the last system against every other one in the tested measures; Holm's correction covers all of it."""
    names = list(values)
    if len(names) < 2:
        return []
    table = torch.stack([torch.stack([values[name][measure] for measure in plan.tested]) for name in names])
    pairs = [(len(names) - 1, other) for other in range(len(names) - 1)]
    statistics = compare_pairs(table, pairs, resamples=plan.resamples, level=plan.level, seed=plan.seed)
    tests = []
    for row, (_, other) in enumerate(pairs):
        for column, measure in enumerate(plan.tested):
            low, high = statistics.interval[row, column].tolist()
            tests.append(
                PairedTest(
                    system=names[-1],
                    baseline=names[other],
                    measure=measure,
                    num_queries=int(statistics.num_queries[column]),
                    interval=(low, high),
                    **{name: float(getattr(statistics, name)[row, column]) for name in NUMBERS},
                )
            )
    return tests


def compare_with_itself(
    ranked: RankedSystem, edges: str, values: Mapping[str, Tensor], changed: Mapping[str, Tensor], plan: EvaluationPlan
) -> Counterfactual:
    """Compare a system with itself on another graph, in the first tested measure of rankings.

    ``values`` and ``changed`` are ``[Q]`` of each measure, on the graph as it is and on the other one.
    """
    measure = next((name for name in plan.tested if name in changed), next(iter(changed)))
    table = torch.stack([values[measure], changed[measure]]).unsqueeze(1)
    statistics = compare_pairs(table, [(0, 1)], resamples=plan.resamples, level=plan.level, seed=plan.seed)
    low, high = statistics.interval[0, 0].tolist()
    top, other = (ranking.nodes[:, :TOP] for ranking in (ranked.ranking, ranked.on_other_edges[edges]))
    return Counterfactual(
        system=ranked.name,
        edges=edges,
        measure=measure,
        mean=float(changed[measure].nanmean()),
        difference=float(statistics.difference),
        interval=(low, high),
        p_randomization=float(statistics.p_randomization),
        share_changed=float((top != other).any(dim=1).double().mean()),
    )
