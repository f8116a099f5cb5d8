"""From rankings to a result: measures, tests, groups of queries, edges and seeds of one data set's systems."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.evaluation.measuring import EvaluationPlan, break_ties, measure_ranking, relevant_nodes, tied_share
from graphrerank.evaluation.records import (
    Breakdown,
    Counterfactual,
    DatasetResult,
    EdgesOfType,
    PairedTest,
    QueryDifference,
    SeedSpread,
    SystemResult,
)
from graphrerank.evaluation.reliability import judge_confidence, judge_reliability, label_ranking
from graphrerank.evaluation.significance import bootstrap_interval, compare_pairs
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, StageResult
from graphrerank.graphs import CorpusGraph, Ranking, candidate_edges
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.text import WordTokenizer
from graphrerank.text.tokenizer import count_tokens

TOP = 10
TAKEN_OVER = ("name", "kind", "source", "config", "seed", "fingerprint", "routes")  # by a result from what was ranked
MOST = 10  # queries listed on either side
GROUPS = 3
BLOCK_QUERIES = 256
RELEVANT_GROUPS = ((1, 1), (2, 2), (3, 5), (6, 20), (21, None))


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
    num_words = count_tokens(WordTokenizer(), result.query_texts)
    usual = {
        "relevant nodes": relevant_groups(result.num_relevant),
        "graph density": quantile_groups(result.densities, unit="neighbours"),
        "query length": quantile_groups(num_words, unit="words"),
    }
    usual = {by: parts for by, parts in usual.items() if len(parts) > 1}
    return replace(
        result,
        tests=tests,
        query_differences=differences,
        breakdowns=[
            *break_down(result, usual, measure=main),
            *(group for measure in result.grouped for group in break_down(result, groups, measure=measure)),
        ],
        seed_spreads=seed_spreads(result),
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


def quantile_groups(of_queries: Sequence[float], *, unit: str) -> dict[str, Tensor]:
    """Group queries by a number into about equal parts, the lowest first; equal numbers stay together."""
    numbers, ascending = torch.tensor(of_queries, dtype=torch.float64), sorted(of_queries)
    ends = {ascending[len(ascending) * part // GROUPS - 1] for part in range(1, GROUPS + 1)} if ascending else set()
    groups, below = {}, -torch.inf
    for end in sorted(ends):
        inside = (numbers > below) & (numbers <= end)
        low, high = (f"{float(edge):.3g}" for edge in (numbers[inside].min(), numbers[inside].max()))
        groups[f"{low} {unit}" if low == high else f"{low} to {high} {unit}"] = inside
        below = end
    return groups


def mean_degree(graph: CorpusGraph, nodes: Tensor) -> Tensor:
    """Average the numbers of neighbours among the candidates ``[Q, K]`` of each query: ``[Q]`` float64."""
    edges = []
    for part in torch.split(nodes.cpu(), BLOCK_QUERIES):
        edge_index, _, ptr, _ = candidate_edges(graph, part)
        ends = torch.searchsorted(torch.sort(edge_index[1]).values, ptr)
        edges.append(ends[1:] - ends[:-1])
    return torch.cat(edges).double() / (nodes.cpu() >= 0).sum(1).clamp(min=1)


def edges_of_type(graph: CorpusGraph, nodes: Tensor, relevance: Tensor) -> list[EdgesOfType]:
    """Describe the edges of each type between the candidates ``[Q, K]``; ``relevance`` is ``[Q, K]`` bool."""
    counts = torch.zeros(len(EDGE_TYPES), 5, dtype=torch.int64)  # pairs; nodes; relevant ones; their ends, relevant
    valid = nodes.cpu() >= 0
    relevance = relevance.cpu() & valid
    for part, here, labels in zip(
        *(torch.split(rows, BLOCK_QUERIES) for rows in (nodes.cpu(), valid, relevance)), strict=True
    ):
        edge_index, _, _, edge_type = candidate_edges(graph, part, keep_types=True)
        assert edge_type is not None
        relevant = labels[here]
        for number in torch.unique(edge_type).tolist():
            source, target = edge_index[:, edge_type == number]
            pairs = torch.unique(torch.stack([source, target]).sort(dim=0).values, dim=1).shape[1]
            led = relevant[source]  # edges out of relevant candidates
            reached = torch.unique(target[led & relevant[target]]).numel()
            counts[number] += torch.tensor(
                [pairs, torch.unique(target).numel(), reached, int(led.sum()), int((led & relevant[target]).sum())]
            )
    num_nodes, num_relevant = max(int(valid.sum()), 1), int(relevance.sum())
    return [
        EdgesOfType(
            EDGE_TYPES[number],
            per_query=pairs / max(len(nodes), 1),
            share_joined=joined / num_nodes,
            share_reached=reached / num_relevant if num_relevant else None,
            share_relevant=hits / led if led else None,
            base_rate=num_relevant / num_nodes,
        )
        for number, (pairs, joined, reached, led, hits) in enumerate(counts.tolist())
        if pairs
    ]


def seed_spreads(result: DatasetResult) -> list[SeedSpread]:
    """Describe checkpoints that were trained alike but for the seed: how far their means lie apart."""
    alike: dict[str, dict[str, SystemResult]] = {}
    for name, system in result.systems.items():
        if system.config is not None and system.seed is not None:
            alike.setdefault(system.config, {})[name] = system
    spreads = []
    for group in alike.values():
        seeds = tuple(system.seed for system in group.values() if system.seed is not None)
        for measure in result.tested if len(set(seeds)) > 1 else ():
            means = np.array([system.means[measure] for system in group.values()])
            numbers = float(means.mean()), float(means.std(ddof=1)), float(means.min()), float(means.max())
            spreads.append(SeedSpread(tuple(group), seeds, measure, *numbers))
    return spreads
