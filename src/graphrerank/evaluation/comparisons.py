"""Compare the systems of a data set: significance tests, edge ablations, single queries and groups of queries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.evaluation.measuring import EvaluationPlan, break_ties, measure_ranking
from graphrerank.evaluation.records import (
    Breakdown,
    Counterfactual,
    DatasetResult,
    PairedTest,
    QueryDifference,
)
from graphrerank.evaluation.significance import compare_pairs
from graphrerank.evaluation.systems import RankedDataset, RankedSystem

TOP = 10  # number of top ranks in which an edge ablation must change the ranking to be counted
MAX_QUERIES = 10  # maximum number of listed queries with gains, and of listed queries with losses
LENGTH_GROUPS = 3  # number of groups of queries by their length
RELEVANT_GROUPS = ((1, 1), (2, 2), (3, 5), (6, 20), (21, None))


def compare_dataset(result: DatasetResult, ranked: RankedDataset, plan: EvaluationPlan) -> DatasetResult:
    """Add the comparisons to measured systems.

    Args:
        result: Scores of all systems (:func:`~graphrerank.evaluation.dataset_result.measure_dataset`).
        ranked: Rankings that were measured, with those of the edge ablations.
        plan: Significance tests, resampling and tie-breaking.

    Returns:
        Result with edge ablations, tests, single queries and groups of queries.
    """
    return compare_systems(replace(result, counterfactuals=compare_ablations(result, ranked, plan)), plan)


def measure_rows(ranked: RankedDataset, ranking: Ranking, plan: EvaluationPlan) -> dict[str, Tensor]:
    """Measure a ranking of a data set's queries.

    Args:
        ranked: Data set and queries.
        ranking: Ranking ``[Q, K]`` of these queries.
        plan: Measures and tie-breaking.

    Returns:
        Scores ``[Q]`` (float64) by measure, without the measures of stages after ranking.
    """
    ordered = break_ties(ranking, ranked.dataset.graph.node_ids, ties=plan.ties)
    qrels = ranked.dataset.split(ranked.split)
    return measure_ranking(ranked.dataset, qrels, ranked.queries, ordered, plan.measures, stage=plan.stage)


def compare_ablations(result: DatasetResult, ranked: RankedDataset, plan: EvaluationPlan) -> list[Counterfactual]:
    """Compare every system with its edge ablations.

    Args:
        result: Scores of all systems.
        ranked: Rankings of all systems and of their edge ablations.
        plan: Measures and resampling.

    Returns:
        One record per system and ablation.
    """
    return [
        compare_ablation(system, edges, result.systems[system.name].values, measure_rows(ranked, ranking, plan), plan)
        for system in ranked.systems
        for edges, ranking in system.on_other_edges.items()
    ]


def compare_ablation(
    system: RankedSystem,
    edges: str,
    scores: Mapping[str, Tensor],
    ablated_scores: Mapping[str, Tensor],
    plan: EvaluationPlan,
) -> Counterfactual:
    """Compare a system with one of its edge ablations, in the first tested measure that applies to rankings.

    Args:
        system: System with its rankings.
        edges: Name of the ablation.
        scores: Scores of the system by measure, ``[Q]`` each.
        ablated_scores: Scores of the ablation by measure, ``[Q]`` each.
        plan: Tested measures and resampling.

    Returns:
        Difference with its interval and test.
    """
    measure = next((name for name in plan.significance_measures if name in ablated_scores), next(iter(ablated_scores)))
    table = torch.stack([scores[measure], ablated_scores[measure]]).unsqueeze(1)
    comparison = compare_pairs(table, [(0, 1)], resamples=plan.resamples, seed=plan.seed)
    top, ablated_top = (ranking.nodes[:, :TOP] for ranking in (system.ranking, system.on_other_edges[edges]))
    return Counterfactual(
        system=system.name,
        edges=edges,
        measure=measure,
        mean=float(ablated_scores[measure].nanmean()),
        difference=float(comparison["difference"]),
        interval=tuple(comparison["interval"][0, 0].tolist()),
        p_randomization=float(comparison["p_randomization"]),
        share_changed=float((top != ablated_top).any(dim=1).double().mean()),
    )


def compare_systems(result: DatasetResult, plan: EvaluationPlan) -> DatasetResult:
    """Compare the last system of a result with the others, and average all systems over groups of queries.

    Args:
        result: Scores of all systems.
        plan: Tested measures and resampling.

    Returns:
        Result with tests, single queries and groups of queries.
    """
    result = replace(result, tested=tuple(plan.significance_measures))
    return replace(
        result,
        tests=paired_tests(result, plan),
        query_differences=differences_to_best(result),
        breakdowns=breakdowns(result),
    )


def paired_tests(result: DatasetResult, plan: EvaluationPlan) -> list[PairedTest]:
    """Test the last system of a result against every other system.

    Args:
        result: Scores of all systems.
        plan: Tested measures and resampling.

    Returns:
        One test per other system and measure. Empty if there is a single system.
    """
    *others, last = result.systems
    if not others:
        return []
    scores = [system.values for system in result.systems.values()]
    table = torch.stack([torch.stack([rows[measure] for measure in plan.significance_measures]) for rows in scores])
    pairs = [(len(others), other) for other in range(len(others))]
    comparison = compare_pairs(table, pairs, resamples=plan.resamples, seed=plan.seed)
    columns = {name: column.tolist() for name, column in comparison.items()}
    return [
        PairedTest(last, other, measure, **{name: rows[row][column] for name, rows in columns.items()})
        for row, other in enumerate(others)
        for column, measure in enumerate(plan.significance_measures)
    ]


def differences_to_best(result: DatasetResult) -> list[QueryDifference]:
    """List the queries on which the last system differs most from the best of the others.

    Args:
        result: Scores of all systems, with the tested measures. The best system is the one with the highest mean in
            the first tested measure.

    Returns:
        Queries in the order of :func:`query_differences`. Empty if there is a single system.
    """
    best = best_other(result)
    return [] if best is None else query_differences(result, baseline=best)


def best_other(result: DatasetResult) -> str | None:
    """Return the name of the best system apart from the last one, by the mean of the first tested measure.

    Args:
        result: Scores of all systems, with the tested measures.

    Returns:
        Name of the system. None if there is a single system.
    """
    *others, _ = result.systems
    return max(others, key=lambda name: float(result.systems[name].values[result.tested[0]].nansum()), default=None)


def query_differences(result: DatasetResult, *, baseline: str) -> list[QueryDifference]:
    """List the queries with the largest gains of the primary system over another system, then the largest losses.

    Args:
        result: Scores of all systems. The first tested measure is compared.
        baseline: Name of the other system.

    Returns:
        At most ``MAX_QUERIES`` gains and ``MAX_QUERIES`` losses, the largest first. Ties are ordered by query id.
    """
    measure, system = result.tested[0], result.primary
    baseline_scores, system_scores = (result.systems[name].values[measure].tolist() for name in (baseline, system))
    rows = zip(result.query_ids, result.query_texts, result.num_relevant, baseline_scores, system_scores, strict=True)
    differences = [
        QueryDifference(query_id, text, baseline, measure, system, num_relevant, baseline_score, system_score)
        for query_id, text, num_relevant, baseline_score, system_score in rows
        if abs(system_score - baseline_score) > 0  # False for NaN
    ]
    differences.sort(key=lambda entry: (-abs(entry.difference), entry.query_id))
    gains = [entry for entry in differences if entry.difference > 0]
    losses = [entry for entry in differences if entry.difference < 0]
    return [*gains[:MAX_QUERIES], *losses[:MAX_QUERIES]]


def breakdowns(result: DatasetResult) -> list[Breakdown]:
    """Average all systems over groups of queries.

    Args:
        result: Scores of all systems, with the groups that stages define.

    Returns:
        Means of the first tested measure by number of relevant passages and by length of the query, if there are at
        least two such groups, followed by means of the stages' measures over the stages' groups.
    """
    usual = {
        "relevant nodes": relevant_groups(result.num_relevant),
        "query length": length_groups(result.query_texts),
    }
    usual = {by: groups for by, groups in usual.items() if len(groups) > 1}
    stage_groups = {
        by: {name: torch.tensor(rows, dtype=torch.int64) for name, rows in groups.items()}
        for by, groups in result.groups.items()
    }
    means = break_down(result, usual, measure=result.tested[0])
    for measure in result.grouped:
        means += break_down(result, stage_groups, measure=measure)
    return means


def break_down(result: DatasetResult, groups: Mapping[str, Mapping[str, Tensor]], *, measure: str) -> list[Breakdown]:
    """Average every system over each group of queries.

    Args:
        result: Scores of all systems.
        groups: Queries by kind of group and name of the group: a mask ``[Q]`` bool, or row indices ``[n]`` int64.
        measure: Name of the measure to average.

    Returns:
        One record per group with at least one query that the measure includes.
    """
    scores = {name: system.values[measure] for name, system in result.systems.items()}
    is_counted = torch.stack([~row.isnan() for row in scores.values()]).any(0)
    return [
        Breakdown(by, group, number, measure, {name: float(row[inside].nanmean()) for name, row in scores.items()})
        for by, members in groups.items()
        for group, inside in members.items()
        if (number := int(is_counted[inside].sum()))
    ]


def relevant_groups(num_relevant: Sequence[int]) -> dict[str, Tensor]:
    """Group queries by their number of relevant passages.

    Args:
        num_relevant: Number of relevant passages of each query.

    Returns:
        Masks ``[Q]`` bool by name of the group, such as ``3 to 5``. Empty groups are left out.
    """
    counts, groups = torch.tensor(num_relevant), {}
    for low, high in RELEVANT_GROUPS:
        inside = (counts >= low) & (counts <= high) if high is not None else counts >= low
        if bool(inside.any()):
            groups[_range_name(low, high)] = inside
    return groups


def length_groups(texts: Sequence[str]) -> dict[str, Tensor]:
    """Group queries by their number of words into about three equal parts.

    Args:
        texts: Texts of the queries.

    Returns:
        Masks ``[Q]`` bool by name of the group, such as ``4 to 7 words``, shortest first. Queries of equal length are
        in the same group, so that there can be fewer groups.
    """
    num_words = [len(text.split()) for text in texts]
    ascending, counts = sorted(num_words), torch.tensor(num_words)
    bounds = sorted({ascending[len(ascending) * part // LENGTH_GROUPS - 1] for part in range(1, LENGTH_GROUPS + 1)})
    groups, below = {}, -1
    for bound in bounds:
        inside = (counts > below) & (counts <= bound)
        if bool(inside.any()):
            low, high = int(counts[inside].min()), int(counts[inside].max())
            groups[f"{_range_name(low, high)} words"] = inside
        below = bound
    return groups


def _range_name(low: int, high: int | None) -> str:
    if high is None:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"
