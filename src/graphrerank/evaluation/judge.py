"""Judge systems side by side: the same queries, the same candidates, one function for training and evaluation."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.cost import (
    TOTAL,
    Laps,
    retrieval_times,
    spread_over,
    stage_quantiles,
    time_stages,
    with_peak_memory,
)
from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.graphs import CandidateGraphs, Ranking, Retriever
from graphrerank.metrics import parse_measure

Scorer = Callable[[CandidateGraphs], Tensor]

MEASURES = ("PR@5", "PR@10", "PR@5/multi", "PR@10/multi", "R@2", "R@5", "R@10", "nDCG@10")
TESTED_MEASURES = ("PR@10", "nDCG@10")  # get an interval, and a test of the last system against the others
BASELINES = ("base_ranking", "gcs", "mlp", "cross_encoder", "granker")
BATCH_QUERIES = 64
STATES_QUERIES = 4  # where a batch carries the states of all tokens, some tens of MiB a query
LATENCY_QUERIES = 200
LATENCY_WARMUP = 10


@dataclass(frozen=True)
class System:
    """A named way to rerank candidates.

    Attributes:
        name: Key in reports, such as ``gatv2``.
        score: Maps candidate graphs to ``[N]`` scores.
        reads_graph: Whether it needs edges; without, its latency holds no graph building.
        reads_vectors: Whether it needs query and node vectors.
    """

    name: str
    score: Scorer
    reads_graph: bool = True
    reads_vectors: bool = False


@dataclass(frozen=True)
class SystemResult:
    """What one system achieved on one split.

    Attributes:
        measures: Mean of each measure over the queries that count, as a fraction; NaN where none counts.
        latency_ms: ``p50`` and ``p95`` of the reranking stage for one query at a time, in milliseconds.
        ranking: The reranked lists, one row per query.
        values: ``[Q]`` float64 of each measure, what ``measures`` are the means of; NaN = the query does not count.
        intervals: 95% bootstrap interval of a mean over queries, lower and upper end.
        stages_ms: ``p50`` and ``p95`` of each stage: ``retrieve`` where a retriever was given, then ``graph`` and
            ``rerank``, which together are ``latency_ms``, and ``total``.
        peak_memory_mib: Largest resident memory of the process while it reranked; None where not known.
    """

    measures: Mapping[str, float]
    latency_ms: Mapping[str, float]
    ranking: Ranking
    values: Mapping[str, Tensor]
    intervals: Mapping[str, tuple[float, float]]
    stages_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    peak_memory_mib: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The primary system against another one in one measure.

    Attributes:
        baseline: Name of the other system.
        measure: Name of the measure.
        difference: Primary minus baseline, as a fraction.
        p_value: Of a paired randomisation test over queries, two-sided.
    """

    baseline: str
    measure: str
    difference: float
    p_value: float


@dataclass(frozen=True)
class DatasetResult:
    """All systems on one split of one data set.

    Attributes:
        dataset: Name of the data set.
        split: Name of the split.
        query_ids: One per query, in the order of the rankings' rows.
        ceiling: Share of queries whose relevant nodes are all candidates: no reranker's PR can pass it.
        base_ceiling: The same for as many candidates without expansion; equal where nothing was expanded.
        top_k: Candidates per query.
        systems: Results by system name, in the order of the table's rows; the last is the primary one.
        comparisons: The primary system against the baselines that are there.
    """

    dataset: str
    split: str
    query_ids: Sequence[str]
    ceiling: float
    base_ceiling: float
    top_k: int
    systems: Mapping[str, SystemResult] = field(default_factory=dict)
    comparisons: Sequence[Comparison] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what ``metrics.json`` holds for this data set; a mean over no query is None."""
        return {
            "split": self.split,
            "queries": len(self.query_ids),
            "candidates": self.top_k,
            "ceiling": self.ceiling,
            "base_ceiling": self.base_ceiling,
            "systems": {
                name: {
                    **{measure: None if math.isnan(mean) else mean for measure, mean in result.measures.items()},
                    "interval": {measure: list(ends) for measure, ends in result.intervals.items()},
                    "latency_ms": dict(result.latency_ms),
                }
                for name, result in self.systems.items()
            },
            "comparisons": [{"system": list(self.systems)[-1], **asdict(entry)} for entry in self.comparisons],
        }


def base_ranking(graphs: CandidateGraphs) -> Tensor:
    """Score candidates as the base ranking did."""
    return graphs.x[:, 0]


@torch.inference_mode()
def judge(
    prepared: PreparedDataset,
    split: str,
    systems: Sequence[System],
    *,
    measures: Sequence[str] = MEASURES,
    queries: Tensor | None = None,
    retriever: Retriever | None = None,
) -> DatasetResult:
    """Rerank a split's queries with every system, and measure quality and latency.

    ``PR@K`` is the share of queries with all relevant nodes in the top K, ``R@K`` the mean share of a query's relevant
    nodes in it (not capped: with more than K of them it stays below 1); ``/multi`` counts queries with more than one.
    A relevant node that is no candidate counts as missed.

    Args:
        prepared: The data set with its candidates.
        split: The split to judge on.
        systems: The systems, in the order of the table's rows.
        measures: Names of measures.
        queries: ``[Q]`` int64, those of the split to judge on; all when None.
        retriever: What gave the candidates, to be timed; None where that is not asked for.
    """
    if queries is None:
        queries = prepared.dataset.split(split).queries
    sample = queries[spread_over(len(queries), LATENCY_QUERIES)]
    retrieval = {} if retriever is None else retrieval_times(prepared, sample, retriever)
    results = {}
    for system in systems:
        measured = partial(measure_queries, prepared, split, system, measures=measures, queries=queries)
        (ranking, values), peak = with_peak_memory(measured)
        means = {name: float(per_query.nanmean()) for name, per_query in values.items()}
        times = _reranking_times(prepared, sample, system)
        latency, stages = stage_quantiles(times)[TOTAL], stage_quantiles({**retrieval, **times})
        results[system.name] = SystemResult(means, latency, ranking, values, {}, stages, peak)
    tested = [name for name in TESTED_MEASURES if name in measures]
    return DatasetResult(
        dataset=prepared.dataset.name,
        split=split,
        query_ids=[prepared.dataset.query_ids[i] for i in queries.tolist()],
        ceiling=prepared.ceiling(split),
        base_ceiling=prepared.base_ceiling(split),
        top_k=prepared.top_k,
        systems=_with_intervals(results, tested),
        comparisons=compare_with_baselines({name: result.values for name, result in results.items()}, tested),
    )


@torch.inference_mode()
def measure_queries(
    prepared: PreparedDataset,
    split: str,
    system: System,
    *,
    measures: Sequence[str] = MEASURES,
    queries: Tensor | None = None,
) -> tuple[Ranking, dict[str, Tensor]]:
    """Rerank a split's queries with one system and score each of them.

    Args:
        prepared: The data set with its candidates.
        split: The split to judge on.
        system: The system.
        measures: Names of measures.
        queries: ``[Q]`` int64, those of the split to judge on; all when None.

    Returns:
        The reranked lists, one row per query, and ``[Q]`` float64 of each measure, NaN = the query does not count.
    """
    qrels = prepared.dataset.split(split)
    queries = qrels.queries if queries is None else queries
    ranking = rerank(prepared, queries, system)
    relevance = qrels.relevance(queries, ranking.nodes, num_nodes=prepared.dataset.graph.num_nodes)
    gains = qrels.gains(queries)
    return ranking, {name: parse_measure(name)(relevance, gains) for name in measures}


@torch.inference_mode()
def rerank(prepared: PreparedDataset, queries: Tensor, system: System) -> Ranking:
    """Rerank the candidates of some queries (``[Q]`` int64) in batches; returns ``[Q, top_k]``."""
    nodes, scores = [], []
    for batch in torch.split(queries, BATCH_QUERIES if prepared.state_encoder is None else STATES_QUERIES):
        part = _rerank_batch(prepared.graphs(batch, vectors=system.reads_vectors), system, prepared.top_k)
        nodes.append(part.nodes)
        scores.append(part.scores)
    return Ranking(torch.cat(nodes), torch.cat(scores))


def compare_with_baselines(
    values: Mapping[str, Mapping[str, Tensor]],
    measures: Sequence[str] = TESTED_MEASURES,
    *,
    baselines: Sequence[str] = BASELINES,
) -> list[Comparison]:
    """Test the last system against every baseline that is there.

    Args:
        values: ``[Q]`` of each measure, by system; NaN = the query does not count.
        measures: Names of the measures to test in.
        baselines: Names of systems.

    Returns:
        One entry per baseline and measure.
    """
    if not values or not measures:
        return []
    primary = list(values)[-1]
    pairs = [(name, measure) for name in baselines if name in values and name != primary for measure in measures]
    if not pairs:
        return []
    ours = torch.stack([values[primary][measure] for _, measure in pairs])
    theirs = torch.stack([values[name][measure] for name, measure in pairs])
    differences = (ours - theirs).nanmean(dim=1).tolist()
    p_values = paired_randomization(ours, theirs).tolist()
    return [Comparison(*pair, *numbers) for pair, *numbers in zip(pairs, differences, p_values, strict=True)]


def _rerank_batch(graphs: CandidateGraphs, system: System, top_k: int) -> Ranking:
    node_scores = system.score(graphs).cpu().float()
    order = graphs.order(node_scores)
    padding, at = order < 0, order.clamp(min=0)
    assert graphs.nodes is not None
    nodes = graphs.nodes[at].masked_fill(padding, -1)
    scores = node_scores[at].masked_fill(padding, -torch.inf)
    missing = top_k - nodes.shape[1]
    return Ranking(
        torch.nn.functional.pad(nodes, (0, missing), value=-1),
        torch.nn.functional.pad(scores, (0, missing), value=-torch.inf),
    )


def _with_intervals(results: Mapping[str, SystemResult], measures: Sequence[str]) -> dict[str, SystemResult]:
    if not results or not measures:
        return dict(results)
    stacked = torch.stack([torch.stack([result.values[name] for name in measures]) for result in results.values()])
    intervals = bootstrap_interval(stacked).tolist()  # [systems, measures, 2]
    return {
        name: replace(result, intervals={measure: tuple(ends) for measure, ends in zip(measures, rows, strict=True)})
        for (name, result), rows in zip(results.items(), intervals, strict=True)
    }


def _reranking_times(prepared: PreparedDataset, queries: Tensor, system: System) -> dict[str, list[float]]:
    """Time the reranking stage, one query at a time: candidate graph; then scores and order."""

    def run(query: int) -> dict[str, float]:
        laps = Laps()
        at = torch.tensor([query])
        graphs = prepared.graphs(at, vectors=system.reads_vectors, edges=system.reads_graph)
        laps.lap("graph")
        _rerank_batch(graphs, system, prepared.top_k)
        laps.lap("rerank")
        return laps.seconds

    return time_stages(queries.tolist(), run, warm_up=LATENCY_WARMUP)
