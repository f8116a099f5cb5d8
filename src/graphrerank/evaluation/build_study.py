"""From rankings to a study: measures, tests and findings of all systems on one data set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from graphrerank.data import RetrievalDataset
from graphrerank.evaluation.findings import Breakdown, Counterfactual, PairedTest, QueryDifference
from graphrerank.evaluation.hub_bias import hub_bias
from graphrerank.evaluation.measuring import break_ties, measure_ranking, relevant_nodes, tied_share
from graphrerank.evaluation.paired_tests import compare_pairs, mean_intervals
from graphrerank.evaluation.query_analysis import (
    break_down,
    mean_degree,
    quantile_groups,
    query_differences,
    relevant_groups,
)
from graphrerank.evaluation.reliability import judge_reliability, ranked_pairs
from graphrerank.evaluation.seeds import seed_spreads
from graphrerank.evaluation.significance import holm
from graphrerank.evaluation.study import Cost, DatasetStudy, SystemStudy
from graphrerank.graphs import CorpusGraph, Ranking
from graphrerank.graphs.calibration import Calibration
from graphrerank.text import WordTokenizer
from graphrerank.text.tokenizer import count_tokens

TOP = 10


@dataclass(frozen=True, eq=False)
class RankedSystem:
    """What a system ranked for the queries of a study.

    Attributes:
        name: Key in reports.
        kind: As in :class:`SystemStudy`.
        source: Where it came from.
        ranking: ``[Q, K]``; a query that it ranked nothing for is all padding.
        cost: What it takes, or None.
        config: Hash of what it was trained with beside the seed, or None.
        seed: Seed of its training, or None.
        fingerprint: SHA-256 of its weights or run file, or None.
        calibration: What turns its scores into probabilities, or None.
        on_other_edges: What it ranks on a graph with ``shuffled`` or ``removed`` edges; empty where not tried.
    """

    name: str
    kind: str
    source: str
    ranking: Ranking
    cost: Cost | None = None
    config: str | None = None
    seed: int | None = None
    fingerprint: str | None = None
    calibration: Calibration | None = None
    on_other_edges: Mapping[str, Ranking] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyPlan:
    """What to measure and how sure to be.

    Attributes:
        measures: Names of measures, the tables' columns.
        tested: Those of them that are tested; findings about queries use the first.
        ties: How ties are broken (:func:`break_ties`).
        resamples: Sign flips of each test, and bootstrap samples.
        level: Of intervals.
        seed: Of sign flips, samples and shuffled edges.
    """

    measures: Sequence[str]
    tested: Sequence[str]
    ties: str = "own"
    resamples: int = 10_000
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        strangers = [name for name in self.tested if name not in self.measures]
        if strangers or not self.tested:
            raise ValueError(f"`tested` must name one or more of `measures` {list(self.measures)}, got {self.tested}")


def build_study(
    dataset: RetrievalDataset,
    split: str,
    queries: Tensor,
    systems: Sequence[RankedSystem],
    plan: StudyPlan,
    *,
    candidates: Tensor | None = None,
) -> DatasetStudy:
    """Measure and compare systems; the last is the primary one.

    Args:
        dataset: The data set.
        split: Whose judgements count.
        queries: ``[Q]`` int64 numbers of queries, in the order of the rankings' rows.
        systems: What they ranked.
        plan: What to measure.
        candidates: ``[Q, K]`` nodes that checkpoints reranked, padded with -1; None where there is no checkpoint: then
            a query's graph density is that of the primary system's list.

    Raises:
        ValueError: If there is no system, a name repeats, a ranking is of other queries, or a measure is unknown.
    """
    names = [system.name for system in systems]
    if not systems or len(set(names)) != len(names):
        raise ValueError(f"`systems` must be one or more of different names, got {names}")
    for system in systems:
        if len(system.ranking) != len(queries):
            raise ValueError(
                f"`systems` must each rank {len(queries)} queries, {system.name} has {len(system.ranking)}"
            )
    qrels, graph = dataset.split(split), dataset.graph
    relevant = relevant_nodes(qrels, queries)
    numbers = queries.tolist()
    ids, texts = ([strings[number] for number in numbers] for strings in (dataset.query_ids, dataset.query_texts))

    def measured(ranking: Ranking) -> dict[str, Tensor]:
        return measure_ranking(
            dataset, qrels, queries, break_ties(ranking, graph.node_ids, ties=plan.ties), plan.measures
        )

    values = {system.name: measured(system.ranking) for system in systems}
    table = torch.stack([torch.stack(list(rows.values())) for rows in values.values()])  # [S, M, Q]
    intervals = mean_intervals(table, samples=plan.resamples, level=plan.level, seed=plan.seed).tolist()
    studies = {
        system.name: _system_study(graph, system, values[system.name], ends, ids, plan)
        for system, ends in zip(systems, intervals, strict=True)
    }
    main, num_relevant = plan.tested[0], (relevant >= 0).sum(1).tolist()
    scores = {name: rows[main] for name, rows in values.items()}
    listed = systems[-1].ranking.nodes if candidates is None else candidates
    groups = {
        "relevant nodes": relevant_groups(num_relevant),
        "graph density": quantile_groups(mean_degree(graph, listed), unit="neighbours"),
        "query length": quantile_groups(_num_words(texts).double(), unit="words"),
    }
    found = [hub_bias(graph, system.ranking, relevant, system=system.name) for system in systems]
    return DatasetStudy(
        name=dataset.name,
        split=split,
        fingerprint=dataset.fingerprint,
        query_ids=ids,
        query_texts=texts,
        num_relevant=num_relevant,
        systems=studies,
        tested=tuple(plan.tested),
        tests=compare_last(values, plan),
        query_differences=_differences(scores, main, ids, texts, num_relevant),
        breakdowns=_breakdowns(scores, groups, main),
        hub_bias=[bias for bias in found if bias is not None],
        counterfactuals=[
            counterfactual(system, edges, values[system.name], measured(ranking), plan)
            for system in systems
            for edges, ranking in system.on_other_edges.items()
        ],
        seed_spreads=seed_spreads(list(studies.values()), plan.tested),
        reliability=[
            judge_reliability(
                system.name,
                system.calibration,
                *ranked_pairs(system.ranking, qrels, queries, num_nodes=graph.num_nodes),
            )
            for system in systems
            if system.calibration is not None
        ],
    )


def compare_last(values: Mapping[str, Mapping[str, Tensor]], plan: StudyPlan) -> list[PairedTest]:
    """Test the last system against every other one in the tested measures; Holm's correction covers all of it.

    Args:
        values: ``[Q]`` of each measure, by system.
        plan: The tested measures, and how often to resample.
    """
    names = list(values)
    if len(names) < 2:
        return []
    table = torch.stack([torch.stack([values[name][measure] for measure in plan.tested]) for name in names])
    pairs = [(len(names) - 1, other) for other in range(len(names) - 1)]
    found = compare_pairs(table, pairs, resamples=plan.resamples, level=plan.level, seed=plan.seed)
    corrected = holm(found.p_randomization)
    return [
        PairedTest(
            system=names[-1],
            baseline=names[other],
            measure=measure,
            num_queries=int(found.num_queries[column]),
            difference=float(found.difference[row, column]),
            interval=_ends(found.interval[row, column]),
            effect_size=float(found.effect_size[row, column]),
            share_changed=float(found.share_changed[row, column]),
            p_randomization=float(found.p_randomization[row, column]),
            p_bootstrap=float(found.p_bootstrap[row, column]),
            p_greater=float(found.p_greater[row, column]),
            p_holm=float(corrected[row, column]),
        )
        for row, (_, other) in enumerate(pairs)
        for column, measure in enumerate(plan.tested)
    ]


def counterfactual(
    system: RankedSystem, edges: str, values: Mapping[str, Tensor], changed: Mapping[str, Tensor], plan: StudyPlan
) -> Counterfactual:
    """Compare a system with itself on another graph, in the first tested measure.

    Args:
        system: The system, with what it ranks on that graph.
        edges: ``shuffled`` or ``removed``.
        values: ``[Q]`` of each measure on the graph as it is.
        changed: ``[Q]`` of each measure on the other one.
        plan: The measure, and how often to resample.
    """
    measure = plan.tested[0]
    table = torch.stack([values[measure], changed[measure]]).unsqueeze(1)
    found = compare_pairs(table, [(0, 1)], resamples=plan.resamples, level=plan.level, seed=plan.seed)
    top, other = (ranking.nodes[:, :TOP] for ranking in (system.ranking, system.on_other_edges[edges]))
    return Counterfactual(
        system=system.name,
        edges=edges,
        measure=measure,
        mean=float(changed[measure].nanmean()),
        difference=float(found.difference),
        interval=_ends(found.interval[0, 0]),
        p_randomization=float(found.p_randomization),
        share_changed=float((top != other).any(dim=1).double().mean()),
    )


def _system_study(
    graph: CorpusGraph,
    system: RankedSystem,
    values: Mapping[str, Tensor],
    intervals: Sequence[Sequence[float]],
    query_ids: Sequence[str],
    plan: StudyPlan,
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
    )


def _differences(
    scores: Mapping[str, Tensor],
    measure: str,
    query_ids: Sequence[str],
    query_texts: Sequence[str],
    num_relevant: Sequence[int],
) -> list[QueryDifference]:
    """Hold the last system against the best of the others."""
    *others, primary = scores
    if not others:
        return []
    best = max(others, key=lambda name: float(scores[name].nansum()))
    return query_differences(
        scores, system=primary, baseline=best, measure=measure, query_ids=query_ids, query_texts=query_texts,
        num_relevant=num_relevant,
    )  # fmt: skip


def _breakdowns(
    scores: Mapping[str, Tensor], groups: Mapping[str, Mapping[str, Tensor]], measure: str
) -> list[Breakdown]:
    return break_down(scores, {by: parts for by, parts in groups.items() if len(parts) > 1}, measure=measure)


def _tokens(graph: CorpusGraph, ranking: Ranking) -> float:
    """Mean words of the top passages, per query."""
    top = ranking.nodes[:, :TOP].cpu()
    nodes, place = torch.unique(top, return_inverse=True)
    texts = ["" if node < 0 else graph.texts[node] for node in nodes.tolist()]
    return float(_num_words(texts)[place].double().sum(dim=1).mean())


def _num_words(texts: Sequence[str]) -> Tensor:
    return torch.tensor(count_tokens(WordTokenizer(), texts), dtype=torch.int64)


def _ends(interval: Tensor) -> tuple[float, float]:
    return float(interval[0]), float(interval[1])
