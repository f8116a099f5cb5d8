"""The cost of ranking: milliseconds by stage, one query at a time, and resident memory."""

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from graphrerank.core import Queries
from graphrerank.core.retriever import is_lookup
from graphrerank.data.candidates import PreparedDataset

TOTAL = "total"
WARM_UP = 10  # queries
LATENCY_QUERIES = 200
MOST_SECONDS = 20.0  # of timing one system; slow systems are timed on fewer queries
RESET = Path("/proc/self/clear_refs")  # Linux: 5 resets the peak of resident memory
STATUS = Path("/proc/self/status")

Result = TypeVar("Result")
_highest = 0.0  # of what was reset, MiB


def peak_memory_mib() -> float:
    """Largest resident memory of this process so far, in MiB (``ru_maxrss`` is in KiB on Linux, in bytes on macOS)."""
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return max(_highest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def with_peak_memory(work: Callable[[], Result]) -> tuple[Result, float | None]:
    """Do some work, and measure the largest resident memory of the process meanwhile, in MiB.

    None where the system cannot reset the peak (other than Linux).
    """
    global _highest
    _highest = peak_memory_mib()
    try:
        RESET.write_text("5")
    except OSError:
        return work(), None
    result = work()
    peaks = [int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
    _highest = max(_highest, *peaks)
    return result, next(iter(peaks), None)


def spread_over(count: int, wanted: int) -> Tensor:
    """Choose ``wanted`` of ``count`` numbers, or all, evenly spread: ``[n]`` int64."""
    return torch.linspace(0, count - 1, min(wanted, count)).long()


def time_stages(
    queries: Sequence[int], run: Callable[[int], Mapping[str, float]], *, warm_up: int = 2
) -> dict[str, list[float]]:
    """Time one query after the other, for :data:`MOST_SECONDS` at most, after ``warm_up`` of them.

    ``run`` ranks for one query and returns seconds by stage. Returns milliseconds of each query by stage, 0 where a
    query has none of it; one query at least.
    """
    for query in queries[:warm_up]:
        run(query)
    rows: list[Mapping[str, float]] = []
    end = time.perf_counter() + MOST_SECONDS
    for query in queries:
        rows.append(run(query))
        if time.perf_counter() > end:
            break
    stages = dict.fromkeys(stage for row in rows for stage in row)
    return {stage: [1000 * row.get(stage, 0.0) for row in rows] for stage in stages}


def retrieval_times(prepared: PreparedDataset, queries: Tensor) -> dict[str, list[float]]:
    """Time the search for candidates of some of the queries, ``[Q]`` int64, one at a time: the stage ``retrieve``.

    Nothing without a retriever, or for rankings of a file, which are looked up for a whole data set at once.
    """
    retriever = prepared.retriever
    if retriever is None or is_lookup(retriever):
        return {}
    data, vectors = prepared.dataset, prepared.query_vectors

    def run(query: int) -> dict[str, float]:
        vector = None if vectors is None else vectors[query : query + 1]
        single = Queries([data.query_ids[query]], [data.query_texts[query]], vector)
        begin = time.perf_counter()
        retriever.retrieve(single)
        return {"retrieve": time.perf_counter() - begin}

    return time_stages(latency_sample(queries), run, warm_up=WARM_UP)


def latency_sample(queries: Tensor) -> list[int]:
    """Choose the queries that are timed, of ``[Q]`` int64."""
    return queries[spread_over(len(queries), LATENCY_QUERIES)].tolist()


def stage_quantiles(times: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Return median and 95th percentile of each stage, and of all stages of a query, in milliseconds.

    Where stages were timed on more queries than others, the first queries count.
    """
    total = [sum(row) for row in zip(*times.values(), strict=False)]
    levels = torch.tensor([0.5, 0.95], dtype=torch.float64)
    return {
        stage: dict(zip(("p50", "p95"), torch.tensor(row, dtype=torch.float64).quantile(levels).tolist(), strict=True))
        for stage, row in {**times, TOTAL: total}.items()
        if row
    }
