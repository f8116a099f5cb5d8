"""From rankings to a result: measures, tests and comparisons of all systems on one data set."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphrerank.evaluation.analysis import (
    break_down,
    browse_queries,
    edges_of_type,
    hub_bias,
    mean_degree,
    num_words,
    query_differences,
    query_groups,
    seed_spreads,
)
from graphrerank.evaluation.measuring import EvaluationPlan, break_ties, measure_ranking, relevant_nodes, tied_share
from graphrerank.evaluation.records import Counterfactual, DatasetResult, PairedTest, SystemResult
from graphrerank.evaluation.reliability import judge_confidence, judge_reliability, label_ranking
from graphrerank.evaluation.significance import bootstrap_interval, compare_pairs
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, StageResult
from graphrerank.graphs import CorpusGraph, Ranking

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

    values = {system.name: _in_order(measured(system.ranking), system, plan, stages) for system in systems}
    table = torch.stack([torch.stack(list(rows.values())) for rows in values.values()])  # [S, M, Q]
    intervals = bootstrap_interval(table, samples=plan.resamples, seed=plan.seed).tolist()
    results = {
        system.name: _system_result(graph, system, values[system.name], ends, ids, plan, stages)
        for system, ends in zip(systems, intervals, strict=True)
    }
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
    measure = result.tested[0]
    pair = [name for name in (result.baseline, result.primary) if name is not None]
    browser = browse_queries(
        graph,
        {name: ranking for name in pair if (ranking := results[name].ranking) is not None},
        {name: values[name][measure] for name in pair},
        relevant,
        measure=measure,
        query_ids=ids,
        query_texts=texts,
    )
    return replace(with_comparisons(result, plan), browser=browser)


def _joined(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: entry for mapping in mappings for key, entry in mapping.items()}


def _in_order(
    scores: Mapping[str, Tensor], system: RankedSystem, plan: EvaluationPlan, stages: Sequence[StageResult]
) -> dict[str, Tensor]:
    """Put the measures of a ranking and of the stages after it into the order of the plan."""
    every = {**scores, **_joined(stage.measures.get(system.name, {}) for stage in stages)}
    if missing := [name for name in plan.measures if name not in every]:
        raise ValueError(f"`measures` {missing} are of a stage after ranking that was not run, such as answers=...")
    return {name: every[name] for name in plan.measures}


def _system_result(
    graph: CorpusGraph,
    system: RankedSystem,
    values: Mapping[str, Tensor],
    intervals: Sequence[Sequence[float]],
    query_ids: Sequence[str],
    plan: EvaluationPlan,
    stages: Sequence[StageResult],
) -> SystemResult:
    empty = ~(system.ranking.nodes >= 0).any(dim=1)
    cost = system.cost if system.cost is None else replace(system.cost, tokens=_tokens(graph, system.ranking))
    return SystemResult(
        **{name: getattr(system, name) for name in TAKEN_OVER},
        values=values,
        intervals={name: (ends[0], ends[1]) for name, ends in zip(values, intervals, strict=True)},
        cost=cost,
        missing=tuple(query_ids[row] for row in empty.nonzero().flatten().tolist()),
        tied_share=tied_share(system.ranking),
        ranking=break_ties(system.ranking, graph.node_ids, ties=plan.ties),
        extra=_joined(stage.system_extra.get(system.name, {}) for stage in stages),
    )


def _tokens(graph: CorpusGraph, ranking: Ranking) -> float:
    """Mean words of the top passages, per query."""
    top = ranking.nodes[:, :TOP].cpu()
    nodes, position = torch.unique(top, return_inverse=True)
    texts = ["" if node < 0 else graph.texts[node] for node in nodes.tolist()]
    return float(num_words(texts)[position].double().sum(dim=1).mean())


def with_comparisons(result: DatasetResult, plan: EvaluationPlan) -> DatasetResult:
    """Compare the last system of a result with the others, and average all of them over groups of queries."""
    main = plan.tested[0]
    scores = {name: system.values[main] for name, system in result.systems.items()}
    *others, primary = scores
    differences = []
    if others:
        differences = query_differences(
            scores,
            system=primary,
            baseline=max(others, key=lambda name: float(scores[name].nansum())),
            measure=main,
            query_ids=result.query_ids,
            query_texts=result.query_texts,
            num_relevant=result.num_relevant,
        )
    groups = {
        by: {name: torch.tensor(rows, dtype=torch.int64) for name, rows in parts.items()}
        for by, parts in result.groups.items()
    }

    def of_stage(measure: str) -> dict[str, Tensor]:
        return {name: system.values[measure] for name, system in result.systems.items()}

    return replace(
        result,
        tests=_compare_last({name: system.values for name, system in result.systems.items()}, plan),
        query_differences=differences,
        breakdowns=[
            *break_down(scores, query_groups(result.num_relevant, result.densities, result.query_texts), measure=main),
            *(group for measure in result.grouped for group in break_down(of_stage(measure), groups, measure=measure)),
        ],
        seed_spreads=seed_spreads(list(result.systems.values()), plan.tested),
    )


def _compare_last(values: Mapping[str, Mapping[str, Tensor]], plan: EvaluationPlan) -> list[PairedTest]:
    """Test the last system against every other one in the tested measures; Holm's correction covers all of it."""
    *others, last = values
    if not others:
        return []
    table = torch.stack([torch.stack([values[name][measure] for measure in plan.tested]) for name in values])
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
