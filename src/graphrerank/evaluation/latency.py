"""Measure the latency of systems in milliseconds per stage, one query at a time."""

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from graphrerank.core import PairEncoder, Queries
from graphrerank.core.adapters import is_lookup
from graphrerank.corpus import CorpusGraph
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.vector_cache import PairCache
from graphrerank.pipelines.pipeline import Retrieved

TOTAL = "total"
WARM_UP = 10  # number of queries that are run before timing
LATENCY_QUERIES = 200  # maximum number of queries that are run one at a time to measure the latency
TIME_BUDGET_SECONDS = 20.0  # upper limit per system; slow systems are timed on fewer queries
TIMED_QUERIES, TIMED_PAIRS = 8, 128  # queries and pairs that are encoded again without the cache, for timing

Clock = Callable[[], float]  # returns the seconds since an arbitrary moment


def spread_over(count: int, wanted: int) -> Tensor:
    """Choose evenly spread indices.

    Args:
        count: Number of items.
        wanted: Number of indices to choose. If there are fewer items, all indices are chosen.

    Returns:
        Indices in ascending order, ``[n]`` int64.
    """
    return torch.linspace(0, count - 1, min(wanted, count)).long()


def latency_sample(queries: Tensor) -> list[int]:
    """Select the queries to time.

    Args:
        queries: Indices of queries, ``[Q]`` int64.

    Returns:
        At most ``LATENCY_QUERIES`` indices, evenly spread.
    """
    return queries[spread_over(len(queries), LATENCY_QUERIES)].tolist()


def time_stages(
    queries: Sequence[int],
    run: Callable[[int], Mapping[str, float]],
    *,
    warm_up: int = 2,
    budget_seconds: float = TIME_BUDGET_SECONDS,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Time one query after the other until a time budget is spent.

    Args:
        queries: Indices of queries. At least the first one is timed.
        run: Function that runs a query and returns the seconds of each stage.
        warm_up: Number of queries that are run before the first query is timed.
        budget_seconds: Time after which no further query is timed.
        clock: Clock of the budget. Defaults to ``time.perf_counter``.

    Returns:
        Milliseconds of each timed query by stage, 0 for queries that did not run the stage.
    """
    for query in queries[:warm_up]:
        run(query)
    rows: list[Mapping[str, float]] = []
    end = clock() + budget_seconds
    for query in queries:
        rows.append(run(query))
        if clock() > end:
            break
    stages = dict.fromkeys(stage for row in rows for stage in row)
    return {stage: [1000 * row.get(stage, 0.0) for row in rows] for stage in stages}


def retrieval_times(prepared: PreparedDataset, queries: Tensor) -> dict[str, list[float]]:
    """Time the search for candidates, one query at a time.

    Args:
        prepared: Data set with the retriever of its candidates.
        queries: Indices of queries, ``[Q]`` int64, of which a sample is timed (:func:`latency_sample`).

    Returns:
        Milliseconds of each timed query, under the stage ``retrieve``. Empty without a retriever, and for rankings
        from a file, which are looked up for a whole data set at once.
    """
    retriever = prepared.retriever
    if retriever is None or is_lookup(retriever):
        return {}
    dataset, vectors = prepared.dataset, prepared.query_vectors

    def run(query: int) -> dict[str, float]:
        vector = None if vectors is None else vectors[query : query + 1]
        single = Queries([dataset.query_ids[query]], [dataset.query_texts[query]], vector)
        begin = time.perf_counter()
        retriever.retrieve(single)
        return {"retrieve": time.perf_counter() - begin}

    return time_stages(latency_sample(queries), run, warm_up=WARM_UP)


def stage_quantiles(times: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Return the median and the 95th percentile of each stage and of the sum over all stages.

    Args:
        times: Milliseconds of each query by stage (:func:`time_stages`). If stages were timed on different numbers of
            queries, the sum is limited to the queries that were timed for all stages.

    Returns:
        ``p50`` and ``p95`` in milliseconds by stage, with the sum under ``total``. Stages that were not timed are left
        out.
    """
    total = [sum(row) for row in zip(*times.values(), strict=False)]
    levels = torch.tensor([0.5, 0.95], dtype=torch.float64)
    return {
        stage: dict(zip(("p50", "p95"), torch.tensor(row, dtype=torch.float64).quantile(levels).tolist(), strict=True))
        for stage, row in {**times, TOTAL: total}.items()
        if row
    }


def pair_milliseconds(
    encoder: PairEncoder | None, retrieved: Sequence[Retrieved], queries: Queries, graph: CorpusGraph
) -> float | None:
    """Measure the time that a cached cross-encoder takes to encode a pair, bypassing the cache.

    Args:
        encoder: Cross-encoder of the pipelines, or None.
        retrieved: Results of pipelines. Pairs of the last pipeline that used the cross-encoder are encoded again.
        queries: Queries in the order of the results' rows.
        graph: Corpus graph that the results refer to.

    Returns:
        Milliseconds per pair. None if the encoder has no cache, or if no pipeline used it.
    """
    reading = [result for result in retrieved if int(result.num_encodings.sum())]
    if not isinstance(encoder, PairCache) or not reading:
        return None
    nodes = reading[-1].ranking.nodes.cpu()
    rows = spread_over(len(nodes), TIMED_QUERIES)
    row, column = torch.nonzero(nodes[rows] >= 0, as_tuple=True)
    sample = spread_over(len(row), TIMED_PAIRS)
    texts = [queries.texts[query] for query in rows[row[sample]].tolist()]
    passages = [graph.texts[node] for node in nodes[rows[row[sample]], column[sample]].tolist()]
    encoder.encoder.encode(texts[:1], passages[:1])  # loads the model
    begin = time.perf_counter()
    encoder.encoder.encode(texts, passages)
    return 1000 * (time.perf_counter() - begin) / len(texts)
