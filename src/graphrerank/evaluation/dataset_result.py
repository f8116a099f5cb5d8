"""From rankings to a result: measures, tests and comparisons of all systems on one data set."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.evaluation.analysis import (
    break_down,
    browse_queries,
    edges_of_type,
    hub_bias,
    mean_degree,
    query_differences,
    query_groups,
    seed_spreads,
)
from graphrerank.evaluation.measuring import EvaluationPlan, break_ties, measure_ranking, relevant_nodes, tied_share
from graphrerank.evaluation.records import Counterfactual, DatasetResult, PairedTest, SystemResult
from graphrerank.evaluation.reliability import judge_confidence, judge_reliability, label_ranking
from graphrerank.evaluation.significance import bootstrap_interval, compare_pairs
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, StageResult
from graphrerank.graphs import Ranking

TOP = 10
TAKEN_OVER = ("name", "kind", "source", "config", "seed", "fingerprint", "routes")  # by a result from what was ranked


def measure_systems(ranked: RankedDataset, plan: EvaluationPlan, stages: Sequence[StageResult] = ()) -> DatasetResult:
    """Measure and compare systems; the last is the primary one.

    ``stages`` are the results of stages after ranking.
    """
    dataset, queries, systems, candidates = ranked.dataset, ranked.queries, ranked.systems, ranked.candidates
    qrels, graph = dataset.split(ranked.split), dataset.graph
    relevant = relevant_nodes(qrels, queries)
    ids, texts = ([strings[q] for q in queries.tolist()] for strings in (dataset.query_ids, dataset.query_texts))
    nodes = (systems[-1].ranking if candidates is None else candidates).nodes

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
        densities=mean_degree(graph, nodes).tolist(),
        systems=results,
        tested=tuple(plan.tested),
        hub_bias=[
            bias for system in systems if (bias := hub_bias(graph, system.ranking, relevant, system=system.name))
        ],
        edges_of_type=edges_of_type(graph, nodes, qrels.relevance(queries, nodes, num_nodes=graph.num_nodes) > 0),
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
    result = with_comparisons(result, plan)
    return replace(result, browser=browse_queries(result, graph, relevant))


def _joined(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: entry for mapping in mappings for key, entry in mapping.items()}


def with_comparisons(result: DatasetResult, plan: EvaluationPlan) -> DatasetResult:
    """Compare the last system of a result with the others, and average all of them over groups of queries."""
    *others, _ = result.systems
    groups = {
        by: {name: torch.tensor(rows, dtype=torch.int64) for name, rows in parts.items()}
        for by, parts in result.groups.items()
    }
    usual = query_groups(result.num_relevant, result.densities, result.query_texts)

    def scores(measure: str) -> dict[str, Tensor]:
        return {name: system.values[measure] for name, system in result.systems.items()}

    main = plan.tested[0]
    result = replace(result, tested=tuple(plan.tested))
    best = max(others, key=lambda name: float(scores(main)[name].nansum()), default=None)
    return replace(
        result,
        tests=_compare_last(result, plan),
        query_differences=[] if best is None else query_differences(result, baseline=best),
        breakdowns=[
            *break_down(scores(main), usual, measure=main),
            *(group for measure in result.grouped for group in break_down(scores(measure), groups, measure=measure)),
        ],
        seed_spreads=seed_spreads(result),
    )


def _compare_last(result: DatasetResult, plan: EvaluationPlan) -> list[PairedTest]:
    """Test the last system against every other one in the tested measures; Holm's correction covers all of it."""
    *others, last = result.systems
    if not others:
        return []
    systems = result.systems.values()
    table = torch.stack([torch.stack([system.values[measure] for measure in plan.tested]) for system in systems])
    pairs = [(len(others), other) for other in range(len(others))]
    found = compare_pairs(table, pairs, resamples=plan.resamples, seed=plan.seed)
    numbers = {name: table.tolist() for name, table in found.items()}
    return [
        PairedTest(last, other, measure, **{name: rows[row][column] for name, rows in numbers.items()})
        for row, other in enumerate(others)
        for column, measure in enumerate(plan.tested)
    ]


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
