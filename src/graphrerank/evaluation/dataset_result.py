"""From rankings to a result: measures, tests and groups of queries of one data set's systems."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.evaluation.measuring import EvaluationPlan, break_ties, measure_ranking, relevant_nodes, tied_share
from graphrerank.evaluation.records import (
    Breakdown,
    Counterfactual,
    DatasetResult,
    PairedTest,
    QueryDifference,
    SystemResult,
)
from graphrerank.evaluation.reliability import judge_confidence, judge_reliability, label_ranking
from graphrerank.evaluation.significance import bootstrap_interval, compare_pairs
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, StageResult
from graphrerank.utils.checks import UserError

TOP = 10
TAKEN_OVER = ("name", "kind", "source", "fingerprint", "routes")  # by a result from what was ranked
MOST = 10  # queries listed on either side
RELEVANT_GROUPS = ((1, 1), (2, 2), (3, 5), (6, 20), (21, None))


def measure_systems(ranked: RankedDataset, plan: EvaluationPlan, stages: Sequence[StageResult] = ()) -> DatasetResult:
    """Measure and compare systems; the last is the primary one.

    ``stages`` are the results of stages after ranking.
    """
    dataset, queries, systems, candidates = ranked.dataset, ranked.queries, ranked.systems, ranked.candidates
    qrels, graph = dataset.split(ranked.split), dataset.graph
    relevant = relevant_nodes(qrels, queries)
    ids, texts = ([strings[q] for q in queries.tolist()] for strings in (dataset.query_ids, dataset.query_texts))

    def measured(ranking: Ranking) -> dict[str, Tensor]:
        ranking = break_ties(ranking, graph.node_ids, ties=plan.ties)
        return measure_ranking(dataset, qrels, queries, ranking, plan.measures, stage=plan.stage)

    values = {}
    for system in systems:
        added = _joined(stage.measures.get(system.name, {}) for stage in stages)
        every = {**measured(system.ranking), **added}
        if missing := [name for name in plan.measures if name not in every]:
            raise UserError(f"`measures` {missing} are of a stage after ranking that was not run, such as answers=...")
        values[system.name] = {name: every[name] for name in plan.measures}
    table = torch.stack([torch.stack(list(rows.values())) for rows in values.values()])  # [S, M, Q]
    intervals = bootstrap_interval(table, samples=plan.resamples, seed=plan.seed).tolist()
    results = {}
    for system, ends in zip(systems, intervals, strict=True):
        empty = ~(system.ranking.nodes >= 0).any(dim=1)
        results[system.name] = SystemResult(
            **{name: getattr(system, name) for name in TAKEN_OVER},
            values=values[system.name],
            intervals={name: (low, high) for name, (low, high) in zip(plan.measures, ends, strict=True)},
            cost=system.cost,
            missing=tuple(ids[row] for row in empty.nonzero().flatten().tolist()),
            tied_share=tied_share(system.ranking),
            ranking=break_ties(system.ranking, graph.node_ids, ties=plan.ties),
            extra=_joined(stage.system_extra.get(system.name, {}) for stage in stages),
        )
    reliability, list_reliability = [], []
    for system in systems:
        if system.calibration is not None:
            lists = label_ranking(system.ranking, qrels, queries, num_nodes=graph.num_nodes)
            reliability.append(judge_reliability(system.name, system.calibration, *lists.pairs))
            if system.confidence is not None:
                list_reliability += judge_confidence(system.name, system.calibration, system.confidence, lists)
    ceilings: dict[str, Any] = {}
    if candidates is not None:
        base = candidates.nodes if candidates.base_nodes is None else candidates.base_nodes
        ceilings = {
            "candidates": min(candidates.nodes.shape[1], graph.num_nodes),
            "ceiling": qrels.share_complete(queries, candidates.nodes, num_nodes=graph.num_nodes),
            "base_ceiling": qrels.share_complete(queries, base, num_nodes=graph.num_nodes),
        }
    result = DatasetResult(
        name=dataset.name,
        split=ranked.split,
        fingerprint=dataset.fingerprint,
        query_ids=ids,
        query_texts=texts,
        num_relevant=(relevant >= 0).sum(1).tolist(),
        systems=results,
        tested=tuple(plan.tested),
        counterfactuals=[
            _compare_with_itself(system, edges, values[system.name], measured(ranking), plan)
            for system in systems
            for edges, ranking in system.on_other_edges.items()
        ],
        reliability=reliability,
        list_reliability=list_reliability,
        notes=(*ranked.notes, *(note for stage in stages for note in stage.notes)),
        tables=[table for stage in stages for table in stage.tables],
        groups={
            by: {name: inside.nonzero().flatten().tolist() for name, inside in groups.items()}
            for by, groups in _joined(stage.groups for stage in stages).items()
        },
        grouped=[name for name in plan.measures if name in plan.stage],
        extra=_joined(stage.extra for stage in stages),
        node_ids=graph.node_ids,
        **ceilings,
    )
    return with_comparisons(result, plan)


def _joined(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: entry for mapping in mappings for key, entry in mapping.items()}


def with_comparisons(result: DatasetResult, plan: EvaluationPlan) -> DatasetResult:
    """Compare the last system of a result with the others, and average all of them over groups of queries."""
    *others, last = result.systems
    result, main = replace(result, tested=tuple(plan.tested)), plan.tested[0]
    groups = {
        by: {name: torch.tensor(rows, dtype=torch.int64) for name, rows in parts.items()}
        for by, parts in result.groups.items()
    }
    tests, differences = list[PairedTest](), list[QueryDifference]()
    if others:
        values = [system.values for system in result.systems.values()]
        table = torch.stack([torch.stack([of_system[measure] for measure in plan.tested]) for of_system in values])
        pairs = [(len(others), other) for other in range(len(others))]
        found = compare_pairs(table, pairs, resamples=plan.resamples, seed=plan.seed)
        numbers = {name: column.tolist() for name, column in found.items()}
        tests = [
            PairedTest(last, other, measure, **{name: rows[row][column] for name, rows in numbers.items()})
            for row, other in enumerate(others)
            for column, measure in enumerate(plan.tested)
        ]
        best = max(others, key=lambda name: float(result.systems[name].values[main].nansum()))
        differences = query_differences(result, baseline=best)
    by_relevant = relevant_groups(result.num_relevant)
    usual = {"relevant nodes": by_relevant} if len(by_relevant) > 1 else {}
    return replace(
        result,
        tests=tests,
        query_differences=differences,
        breakdowns=[
            *break_down(result, usual, measure=main),
            *(group for measure in result.grouped for group in break_down(result, groups, measure=measure)),
        ],
    )


def _compare_with_itself(
    ranked: RankedSystem, edges: str, values: Mapping[str, Tensor], changed: Mapping[str, Tensor], plan: EvaluationPlan
) -> Counterfactual:
    """Compare a system with itself on another graph, in the first tested measure of rankings."""
    measure = next((name for name in plan.tested if name in changed), next(iter(changed)))
    table = torch.stack([values[measure], changed[measure]]).unsqueeze(1)
    found = compare_pairs(table, [(0, 1)], resamples=plan.resamples, seed=plan.seed)
    top, other = (ranking.nodes[:, :TOP] for ranking in (ranked.ranking, ranked.on_other_edges[edges]))
    return Counterfactual(
        system=ranked.name,
        edges=edges,
        measure=measure,
        mean=float(changed[measure].nanmean()),
        difference=float(found["difference"]),
        interval=tuple(found["interval"][0, 0].tolist()),
        p_randomization=float(found["p_randomization"]),
        share_changed=float((top != other).any(dim=1).double().mean()),
    )


def query_differences(result: DatasetResult, *, baseline: str) -> list[QueryDifference]:
    """List the queries on which the primary system gains most over another one, then those on which it loses most.

    At most ten of each in the first measure that is tested, the largest first; equal ones by id.
    """
    measure, system = result.tested[0], result.primary
    theirs, ours = (result.systems[name].values[measure].tolist() for name in (baseline, system))
    facts = zip(result.query_ids, result.query_texts, result.num_relevant, theirs, ours, strict=True)
    found = [
        QueryDifference(query, text, baseline, measure, system, relevant, a, b)
        for query, text, relevant, a, b in facts
        if abs(b - a) > 0  # not of NaN
    ]
    found.sort(key=lambda entry: (-abs(entry.difference), entry.query_id))
    gains, losses = ([entry for entry in found if sign * entry.difference > 0][:MOST] for sign in (1, -1))
    return [*gains, *losses]


def break_down(result: DatasetResult, groups: Mapping[str, Mapping[str, Tensor]], *, measure: str) -> list[Breakdown]:
    """Average every system over each group of queries, ``[Q]`` bool or ``[n]`` rows."""
    scores = {name: system.values[measure] for name, system in result.systems.items()}
    counts = torch.stack([~row.isnan() for row in scores.values()]).any(0)
    return [
        Breakdown(by, group, number, measure, {name: float(row[inside].nanmean()) for name, row in scores.items()})
        for by, parts in groups.items()
        for group, inside in parts.items()
        if (number := int(counts[inside].sum()))
    ]


def relevant_groups(num_relevant: Sequence[int]) -> dict[str, Tensor]:
    """Group queries by their number of relevant nodes; groups without a query are left out."""
    counts, groups = torch.tensor(num_relevant), {}
    for low, high in RELEVANT_GROUPS:
        inside = (counts >= low) & (counts <= high) if high is not None else counts >= low
        if bool(inside.any()):
            groups[f"{low} or more" if high is None else str(low) if low == high else f"{low} to {high}"] = inside
    return groups
