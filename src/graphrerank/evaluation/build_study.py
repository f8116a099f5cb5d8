"""From rankings to a study: measures, tests and findings of all systems on one data set."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphrerank.evaluation.findings import Breakdown
from graphrerank.evaluation.hub_bias import hub_bias
from graphrerank.evaluation.measuring import break_ties, measure_ranking, relevant_nodes, tied_share
from graphrerank.evaluation.paired_tests import compare_last, compare_with_itself
from graphrerank.evaluation.query_analysis import (
    break_down,
    edges_of_type,
    mean_degree,
    num_words,
    query_differences,
    query_groups,
)
from graphrerank.evaluation.query_browser import QueryBrowser, browse_queries
from graphrerank.evaluation.ranked_system import RankedDataset, RankedSystem
from graphrerank.evaluation.reliability import judge_confidence, judge_reliability, label_ranking
from graphrerank.evaluation.seeds import seed_spreads
from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.evaluation.stage import StageResult
from graphrerank.evaluation.study import DatasetStudy, SystemStudy
from graphrerank.evaluation.study_plan import StudyPlan
from graphrerank.graphs import CorpusGraph, Ranking

TOP = 10


def build_study(ranked: RankedDataset, plan: StudyPlan, stages: Sequence[StageResult] = ()) -> DatasetStudy:
    """Measure and compare systems; the last is the primary one.

    Where nothing was reranked, a query's graph density is that of the primary system's list. ``stages`` are the results
    of stages after ranking.
    """
    dataset, queries, systems, candidates = ranked.dataset, ranked.queries, ranked.systems, ranked.candidates
    qrels, graph = dataset.split(ranked.split), dataset.graph
    relevant = relevant_nodes(qrels, queries)
    ids, texts = ([strings[q] for q in queries.tolist()] for strings in (dataset.query_ids, dataset.query_texts))

    def measured(ranking: Ranking) -> dict[str, Tensor]:
        return measure_ranking(
            dataset,
            qrels,
            queries,
            break_ties(ranking, graph.node_ids, ties=plan.ties),
            plan.measures,
            stage=plan.stage,
        )

    values = {system.name: _in_order(measured(system.ranking), system, plan, stages) for system in systems}
    table = torch.stack([torch.stack(list(rows.values())) for rows in values.values()])  # [S, M, Q]
    intervals = bootstrap_interval(table, samples=plan.resamples, level=plan.level, seed=plan.seed).tolist()
    calibrations = {system.name: system.calibration for system in systems if system.calibration is not None}
    lists = {
        system.name: label_ranking(system.ranking, qrels, queries, num_nodes=graph.num_nodes)
        for system in systems
        if system.name in calibrations
    }
    biases = [hub_bias(graph, system.ranking, relevant, system=system.name) for system in systems]
    candidate_nodes = (systems[-1].ranking if candidates is None else candidates).nodes
    study = DatasetStudy(
        name=dataset.name,
        split=ranked.split,
        fingerprint=dataset.fingerprint,
        query_ids=ids,
        query_texts=texts,
        num_relevant=(relevant >= 0).sum(1).tolist(),
        densities=mean_degree(graph, candidate_nodes).tolist(),
        systems={
            system.name: _system_study(graph, system, values[system.name], ends, ids, plan, stages)
            for system, ends in zip(systems, intervals, strict=True)
        },
        tested=tuple(plan.tested),
        hub_bias=[bias for bias in biases if bias is not None],
        edges_of_type=edges_of_type(
            graph, candidate_nodes, qrels.relevance(queries, candidate_nodes, num_nodes=graph.num_nodes) > 0
        ),
        counterfactuals=[
            compare_with_itself(system, edges, values[system.name], measured(ranking), plan)
            for system in systems
            for edges, ranking in system.on_other_edges.items()
        ],
        reliability=[
            judge_reliability(name, calibration, *lists[name].pairs) for name, calibration in calibrations.items()
        ],
        list_reliability=[
            found
            for system in systems
            if system.calibration is not None and system.confidence is not None
            for found in judge_confidence(system.name, system.calibration, system.confidence, lists[system.name])
        ],
        notes=(*ranked.notes, *(note for stage in stages for note in stage.notes)),
        tables=[table for stage in stages for table in stage.tables],
        groups={
            by: {name: inside.nonzero().flatten().tolist() for name, inside in groups.items()}
            for stage in stages
            for by, groups in stage.groups.items()
        },
        grouped=[name for name in plan.measures if name in plan.stage],
        extra={key: entry for stage in stages for key, entry in stage.extra.items()},
    )
    if candidates is not None:
        base = candidates.nodes if candidates.base_nodes is None else candidates.base_nodes
        study = replace(
            study,
            candidates=min(candidates.nodes.shape[1], graph.num_nodes),
            ceiling=qrels.share_complete(queries, candidates.nodes, num_nodes=graph.num_nodes),
            base_ceiling=qrels.share_complete(queries, base, num_nodes=graph.num_nodes),
        )
    return replace(with_comparisons(study, plan), browser=_browser(study, graph, relevant))


def _browser(study: DatasetStudy, graph: CorpusGraph, relevant: Tensor) -> QueryBrowser:
    """Lay out the queries of the primary system beside the baseline's."""
    measure = study.tested[0]
    names = [name for name in (study.baseline, study.primary) if name is not None]
    rankings = {name: ranking for name in names if (ranking := study.systems[name].ranking) is not None}
    scores = {name: study.systems[name].values[measure] for name in rankings}
    return browse_queries(graph, rankings, scores, relevant, measure=measure, query_ids=study.query_ids)


def _in_order(
    scores: Mapping[str, Tensor], system: RankedSystem, plan: StudyPlan, stages: Sequence[StageResult]
) -> dict[str, Tensor]:
    """Put the measures of a ranking and of the stages after it into the order of the plan."""
    every = {**scores}
    for stage in stages:
        every |= stage.measures.get(system.name, {})
    if missing := [name for name in plan.measures if name not in every]:
        raise ValueError(f"`measures` {missing} are of a stage after ranking that was not run, such as answers=...")
    return {name: every[name] for name in plan.measures}


def with_comparisons(study: DatasetStudy, plan: StudyPlan) -> DatasetStudy:
    """Compare the last system of a study with the others, and average all of them over groups of queries."""
    main = plan.tested[0]
    scores = {name: system.values[main] for name, system in study.systems.items()}
    *others, primary = scores
    differences = []
    if others:
        differences = query_differences(
            scores,
            system=primary,
            baseline=max(others, key=lambda name: float(scores[name].nansum())),
            measure=main,
            query_ids=study.query_ids,
            query_texts=study.query_texts,
            num_relevant=study.num_relevant,
        )
    return replace(
        study,
        tests=compare_last({name: system.values for name, system in study.systems.items()}, plan),
        query_differences=differences,
        breakdowns=[
            *break_down(scores, query_groups(study.num_relevant, study.densities, study.query_texts), measure=main),
            *_by_groups_of_stages(study),
        ],
        seed_spreads=seed_spreads(list(study.systems.values()), plan.tested),
    )


def _by_groups_of_stages(study: DatasetStudy) -> list[Breakdown]:
    """Average the measures of stages over the stages' groups."""
    groups: dict[str, dict[str, Tensor]] = {}
    for by, parts in study.groups.items():
        for name, rows in parts.items():
            inside = torch.zeros(len(study.query_ids), dtype=torch.bool)
            inside[torch.tensor(rows, dtype=torch.int64)] = True
            groups.setdefault(by, {})[name] = inside
    return [
        entry
        for measure in (study.grouped if groups else ())
        for entry in break_down(
            {name: system.values[measure] for name, system in study.systems.items()}, groups, measure=measure
        )
    ]


def _system_study(
    graph: CorpusGraph,
    system: RankedSystem,
    values: Mapping[str, Tensor],
    intervals: Sequence[Sequence[float]],
    query_ids: Sequence[str],
    plan: StudyPlan,
    stages: Sequence[StageResult],
) -> SystemStudy:
    empty = ~(system.ranking.nodes >= 0).any(dim=1)
    cost = system.cost if system.cost is None else replace(system.cost, tokens=_tokens(graph, system.ranking))
    return SystemStudy(
        name=system.name,
        kind=system.kind,
        source=system.source,
        values=values,
        intervals={name: (ends[0], ends[1]) for name, ends in zip(values, intervals, strict=True)},
        cost=cost,
        missing=tuple(query_ids[row] for row in empty.nonzero().flatten().tolist()),
        tied_share=tied_share(system.ranking),
        config=system.config,
        seed=system.seed,
        fingerprint=system.fingerprint,
        ranking=break_ties(system.ranking, graph.node_ids, ties=plan.ties),
        routes=system.routes,
        extra={key: entry for stage in stages for key, entry in stage.system_extra.get(system.name, {}).items()},
    )


def _tokens(graph: CorpusGraph, ranking: Ranking) -> float:
    """Mean words of the top passages, per query."""
    top = ranking.nodes[:, :TOP].cpu()
    nodes, position = torch.unique(top, return_inverse=True)
    texts = ["" if node < 0 else graph.texts[node] for node in nodes.tolist()]
    return float(num_words(texts)[position].double().sum(dim=1).mean())
