"""Judge pipelines side by side: the same queries, and each pipeline retrieves for itself."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from graphrerank.data import PairCache, PreparedDataset, RetrievalDataset
from graphrerank.evaluation.cost import spread_over, stage_quantiles, time_stages, with_peak_memory
from graphrerank.evaluation.judge import Comparison, compare_with_baselines
from graphrerank.evaluation.measuring import OF_GRAPH, relevant_nodes
from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.graphs import CorpusGraph, PairEncoder, Queries, Ranking
from graphrerank.graphs.routes import route_shares
from graphrerank.metrics import parse_measure
from graphrerank.pipelines import Pipeline, Retrieved

PIPELINE_MEASURES = ("CR@10", "nDCG@10", "R@5", "R@10")
COMPARED_MEASURES = ("CR@10", "nDCG@10")  # of the last pipeline with the others
READING = "encode"  # the stage in which the cross-encoder reads
TIMED_QUERIES, TIMED_PAIRS = 8, 128  # read once more, past the cache, to know what reading takes


@dataclass(frozen=True)
class PipelineResult:
    """What one pipeline achieved on one split.

    Attributes:
        values: ``[Q]`` float64 of each measure.
        measures: Their means, as fractions.
        intervals: 95% bootstrap interval of a mean over queries, lower and upper end.
        ranking: ``[Q, budget]``.
        encodings: Mean pairs that the cross-encoder was asked for, per query.
        ms: Mean milliseconds per query of each stage, many queries at once; ``other`` is what no stage counts. Where
            pairs come from a cache, ``encode`` is their number times what a pair takes (``PipelinesResult.pair_ms``).
        routes: Share of the queries on each path of a router; empty where the pipeline has none.
        latency_ms: ``p50`` and ``p95`` of each stage and of the ``total``, one query at a time; empty where not timed.
        peak_memory_mib: Largest resident memory of the process while it retrieved; None where not known.
    """

    values: Mapping[str, Tensor]
    measures: Mapping[str, float]
    intervals: Mapping[str, Sequence[float]]
    ranking: Ranking
    encodings: float
    ms: Mapping[str, float]
    routes: Mapping[str, float] = field(default_factory=dict)
    latency_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    peak_memory_mib: float | None = None

    @property
    def total_ms(self) -> float:
        """Milliseconds per query, all stages together."""
        return sum(self.ms.values())

    @property
    def overhead(self) -> float:
        """Share of the time that is not the cross-encoder's reading; 1 where nothing is read."""
        return 1 - self.ms.get(READING, 0.0) / self.total_ms

    def to_json(self) -> dict[str, Any]:
        """Return what ``metrics.json`` holds for this pipeline."""
        return {
            **self.measures,
            "interval": {measure: list(ends) for measure, ends in self.intervals.items()},
            "encodings": self.encodings,
            "ms": dict(self.ms),
            "overhead": self.overhead,
            **({"routes": dict(self.routes)} if self.routes else {}),
            **({"latency_ms": dict(self.latency_ms)} if self.latency_ms else {}),
        }


@dataclass(frozen=True)
class PipelinesResult:
    """All pipelines on one split of one data set.

    Attributes:
        dataset: Name of the data set.
        split: Name of the split.
        query_ids: One per query, in the order of the rankings' rows.
        pipelines: Results by name, in the order of the table's rows.
        comparisons: The last pipeline against each of the others.
        pair_ms: Milliseconds that the cross-encoder takes to read a pair, measured where a cache keeps its vectors;
            else None.
    """

    dataset: str
    split: str
    query_ids: Sequence[str]
    pipelines: Mapping[str, PipelineResult]
    comparisons: Sequence[Comparison]
    pair_ms: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what ``metrics.json`` holds for this data set."""
        return {
            "split": self.split,
            "queries": len(self.query_ids),
            "pair_ms": self.pair_ms,
            "pipelines": {name: result.to_json() for name, result in self.pipelines.items()},
            "comparisons": [{"pipeline": list(self.pipelines)[-1], **asdict(entry)} for entry in self.comparisons],
        }


def judge_pipelines(
    prepared: PreparedDataset,
    split: str,
    pipelines: Mapping[str, Pipeline],
    *,
    measures: Sequence[str] = PIPELINE_MEASURES,
    limit: int | None = None,
    progress: bool = False,
    alone: int = 0,
) -> PipelinesResult:
    """Retrieve a split's queries with every pipeline, and measure quality, encodings and time.

    Args:
        prepared: The data set, encoded where a pipeline reads vectors; its candidate lists are not used.
        split: The split to judge on.
        pipelines: By name, in the order of the table's rows.
        measures: Names of measures; ``TR`` and ``MissTR`` over all that was retrieved come on top.
        limit: Judge on the first queries by id alone; on all when None.
        progress: Whether to draw a progress bar.
        alone: Queries that are retrieved once more, one at a time, for ``latency_ms``.

    Raises:
        ValueError: If ``limit`` is below 1, or a pipeline reads vectors that are not there.
    """
    dataset, qrels = prepared.dataset, prepared.dataset.split(split)
    at = first_queries(dataset, split, limit)
    numbers = at.tolist()
    vectors = None if prepared.query_vectors is None else prepared.query_vectors[at]
    ids, texts = ([strings[number] for number in numbers] for strings in (dataset.query_ids, dataset.query_texts))
    queries, relevant, gains = Queries(ids, texts, vectors), relevant_nodes(qrels, at), qrels.gains(at)
    results = {}
    retrieved = _retrieve(pipelines, queries, progress=progress)
    pair_ms = _pair_ms(prepared.pair_encoder, retrieved, queries, dataset.graph)
    for name, (found, elapsed, peak) in retrieved.items():
        nodes = found.ranking.nodes.to(at.device)
        relevance = qrels.relevance(at, nodes, num_nodes=dataset.graph.num_nodes)
        values = {measure: parse_measure(measure)(relevance, gains) for measure in measures}
        values |= {name: function(dataset.graph, nodes, relevant) for name, function in OF_GRAPH.items()}
        intervals = bootstrap_interval(torch.stack(list(values.values()))).tolist()
        encodings = float(found.num_encodings.double().mean())
        ms = {stage: 1000 * seconds / len(numbers) for stage, seconds in found.seconds.items()}
        ms["other"] = 1000 * elapsed / len(numbers) - sum(ms.values())
        if pair_ms is not None and READING in ms:
            ms[READING] = encodings * pair_ms
        results[name] = PipelineResult(
            values=values,
            measures={measure: float(per_query.nanmean()) for measure, per_query in values.items()},
            intervals=dict(zip(values, intervals, strict=True)),
            ranking=found.ranking,
            encodings=encodings,
            ms=ms,
            routes={} if found.routes is None else route_shares(found.routes),
            latency_ms=_latency(pipelines[name], queries, alone, pair_ms) if alone else {},
            peak_memory_mib=peak,
        )
    compared = [measure for measure in COMPARED_MEASURES if measure in measures]
    values_of = {name: result.values for name, result in results.items()}
    comparisons = compare_with_baselines(values_of, compared, baselines=list(results))
    return PipelinesResult(dataset.name, split, ids, results, comparisons, pair_ms)


def first_queries(dataset: RetrievalDataset, split: str, limit: int | None) -> Tensor:
    """Number the first queries of a split by id, all when ``limit`` is None: ``[Q]`` int64.

    Raises:
        ValueError: If ``limit`` is below 1, or there is no such split.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"`limit` must be a positive integer, got {limit}")
    queries = dataset.split(split).queries.tolist()
    return torch.tensor(sorted(queries, key=lambda number: dataset.query_ids[number])[:limit])


def _retrieve(
    pipelines: Mapping[str, Pipeline], queries: Queries, *, progress: bool
) -> dict[str, tuple[Retrieved, float, float | None]]:
    """Let every pipeline retrieve; what each found, seconds, and the peak of memory."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} queries")
    retrieved = {}
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), disable=not progress) as bars:
        for name, pipeline in pipelines.items():
            task = bars.add_task(name, total=len(queries))
            begin = time.perf_counter()
            found, peak = with_peak_memory(partial(pipeline.retrieve, queries, advance=partial(bars.advance, task)))
            retrieved[name] = found, time.perf_counter() - begin, peak
    return retrieved


def _latency(pipeline: Pipeline, queries: Queries, wanted: int, pair_ms: float | None) -> dict[str, dict[str, float]]:
    """Time a pipeline's stages, one query at a time; pairs that a cache keeps count what reading them takes."""

    def run(row: int) -> dict[str, float]:
        begin = time.perf_counter()
        found = pipeline.retrieve(queries.block(row, row + 1))
        elapsed, seconds = time.perf_counter() - begin, dict(found.seconds)
        seconds["other"] = elapsed - sum(seconds.values())
        if pair_ms is not None and READING in seconds:
            seconds[READING] = float(found.num_encodings.sum()) * pair_ms / 1000
        return seconds

    return stage_quantiles(time_stages(spread_over(len(queries), wanted).tolist(), run))


def _pair_ms(
    encoder: PairEncoder | None,
    retrieved: Mapping[str, tuple[Retrieved, float, float | None]],
    queries: Queries,
    graph: CorpusGraph,
) -> float | None:
    """Measure how long a pair takes to read, where a cache hides it, on pairs of the last pipeline that reads some."""
    reading = [found for found, _, _ in retrieved.values() if int(found.num_encodings.sum())]
    if not isinstance(encoder, PairCache) or not reading:
        return None
    nodes = reading[-1].ranking.nodes.cpu()
    rows = torch.linspace(0, len(nodes) - 1, min(TIMED_QUERIES, len(nodes))).long()
    row, column = torch.nonzero(nodes[rows] >= 0, as_tuple=True)
    some = torch.linspace(0, len(row) - 1, min(TIMED_PAIRS, len(row))).long()
    texts = [queries.texts[number] for number in rows[row[some]].tolist()]
    passages = [graph.texts[node] for node in nodes[rows[row[some]], column[some]].tolist()]
    encoder.encoder.encode(texts[:1], passages[:1])  # loads the model
    begin = time.perf_counter()
    encoder.encoder.encode(texts, passages)
    return 1000 * (time.perf_counter() - begin) / len(texts)
