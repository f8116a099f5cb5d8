"""Pipelines, each of which retrieves for itself: their rankings of the same queries, and their cost."""

import time
from collections.abc import Mapping
from functools import partial

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.pair_cache import PairCache
from graphrerank.evaluation.cost import TOTAL, spread_over, stage_quantiles, time_stages, with_peak_memory
from graphrerank.evaluation.records import READING, Cost
from graphrerank.evaluation.systems import RankedSystem
from graphrerank.graphs import CorpusGraph, PairEncoder, Queries
from graphrerank.graphs.routes import route_shares
from graphrerank.pipelines.pipeline import Pipeline, Retrieved

TIMED_QUERIES, TIMED_PAIRS = 8, 128  # read once more, past the cache, to know what reading takes


def run_pipelines(
    prepared: PreparedDataset,
    queries: Tensor,
    pipelines: Mapping[str, Pipeline],
    *,
    progress: bool = False,
    alone: int = 0,
) -> list[RankedSystem]:
    """Let every pipeline retrieve for some queries, many at once, and time it.

    Args:
        prepared: The data set, encoded where a pipeline reads vectors; its candidate lists are not used.
        queries: ``[Q]`` int64, the order of the rankings' rows.
        pipelines: By name.
        progress: Whether to draw a progress bar.
        alone: Queries that are retrieved once more, one at a time, for ``Cost.ms``.

    Raises:
        ValueError: If a pipeline reads vectors that are not there.
    """
    dataset = prepared.dataset
    batch = Queries(dataset.query_ids, dataset.query_texts, prepared.query_vectors).select(queries)
    retrieved = _retrieve(pipelines, batch, progress=progress)
    pair_ms = _pair_ms(prepared.pair_encoder, [entry[0] for entry in retrieved.values()], batch, dataset.graph)
    ranked = []
    for name, (result, elapsed, peak) in retrieved.items():
        encodings = float(result.num_encodings.double().mean())
        batch_ms = {stage: 1000 * seconds / len(batch) for stage, seconds in result.seconds.items()}
        batch_ms["other"] = 1000 * elapsed / len(batch) - sum(batch_ms.values())
        if pair_ms is not None and READING in batch_ms:
            batch_ms[READING] = encodings * pair_ms
        ms = _latency(pipelines[name], batch, alone, pair_ms) if alone else {}
        cost = Cost(ms, encodings or None, None, peak, ms.get(TOTAL, {}), batch_ms, pair_ms if encodings else None)
        routes = {} if result.routes is None else route_shares(result.routes)
        ranked.append(RankedSystem(name, "pipeline", f"pipeline={name}", result.ranking, cost, routes=routes))
    return ranked


def _retrieve(
    pipelines: Mapping[str, Pipeline], queries: Queries, *, progress: bool
) -> dict[str, tuple[Retrieved, float, float | None]]:
    """Let every pipeline retrieve; return its result, seconds, and the peak of memory."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} queries")
    retrieved = {}
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), disable=not progress) as bars:
        for name, pipeline in pipelines.items():
            task = bars.add_task(name, total=len(queries))
            begin = time.perf_counter()
            result, peak = with_peak_memory(partial(pipeline.retrieve, queries, advance=partial(bars.advance, task)))
            retrieved[name] = result, time.perf_counter() - begin, peak
    return retrieved


def _latency(pipeline: Pipeline, queries: Queries, wanted: int, pair_ms: float | None) -> dict[str, dict[str, float]]:
    """Time a pipeline's stages, one query at a time; cached pairs cost the time of reading them."""

    def run(row: int) -> dict[str, float]:
        begin = time.perf_counter()
        result = pipeline.retrieve(queries.block(row, row + 1))
        elapsed, seconds = time.perf_counter() - begin, dict(result.seconds)
        seconds["other"] = elapsed - sum(seconds.values())
        if pair_ms is not None and READING in seconds:
            seconds[READING] = float(result.num_encodings.sum()) * pair_ms / 1000
        return seconds

    return stage_quantiles(time_stages(spread_over(len(queries), wanted).tolist(), run))


def _pair_ms(
    encoder: PairEncoder | None, retrieved: list[Retrieved], queries: Queries, graph: CorpusGraph
) -> float | None:
    """Measure how long reading a pair takes where a cache hides it, on pairs of the last pipeline that reads some."""
    reading = [result for result in retrieved if int(result.num_encodings.sum())]
    if not isinstance(encoder, PairCache) or not reading:
        return None
    nodes = reading[-1].ranking.nodes.cpu()
    rows = torch.linspace(0, len(nodes) - 1, min(TIMED_QUERIES, len(nodes))).long()
    row, column = torch.nonzero(nodes[rows] >= 0, as_tuple=True)
    some = torch.linspace(0, len(row) - 1, min(TIMED_PAIRS, len(row))).long()
    texts = [queries.texts[query] for query in rows[row[some]].tolist()]
    passages = [graph.texts[node] for node in nodes[rows[row[some]], column[some]].tolist()]
    encoder.encoder.encode(texts[:1], passages[:1])  # loads the model
    begin = time.perf_counter()
    encoder.encoder.encode(texts, passages)
    return 1000 * (time.perf_counter() - begin) / len(texts)
