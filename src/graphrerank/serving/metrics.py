"""Prometheus metrics.

They cover several processes if the environment variable ``FOLDER`` names a folder before this module is imported.
"""

import os
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # environment variable of prometheus_client
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
TENTHS = tuple(tenth / 10 for tenth in range(11))
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)

_REGISTRY = CollectorRegistry()
_SHARED: dict[str, Any] = {"namespace": "graphrerank", "registry": _REGISTRY}
_STAGES = "Duration of each stage in seconds: of a request in total and in the queue, of a batch in an engine."
STAGE_SECONDS = Histogram("stage_seconds", _STAGES, ["stage"], buckets=SECONDS, **_SHARED)
BATCH_REQUESTS = Histogram("batch_requests", "Requests per batch.", buckets=REQUESTS, **_SHARED)
ERRORS = Counter("errors", "Error responses.", ["route", "status"], **_SHARED)
FEEDBACK = Counter(
    "feedback", "Results with feedback by kind. lost counts responses that could not be logged.", ["kind"], **_SHARED
)
SHADOW_OVERLAP = Histogram(
    "shadow_overlap",
    "Share of the first ten results that the shadow ranker also ranks in the first ten.",
    buckets=TENTHS,
    **_SHARED,
)
SHADOW_SKIPPED = Counter(
    "shadow_skipped", "Requests that the shadow ranker skipped because others were waiting.", **_SHARED
)
_LISTS = "Interleaved lists that the new artifact won and lost, and whether the comparison ended because it is worse."
INTERLEAVED = Gauge("interleaved", _LISTS, ["lists"], multiprocess_mode="livemax", **_SHARED)
WORKER_STARTS = Counter("worker_starts", "Number of times that a worker process started.", **_SHARED)
_SLOWNESS = "Measured seconds per estimated second of work."
SLOWNESS = Gauge("slowness", _SLOWNESS, multiprocess_mode="livemax", **_SHARED)
QUEUE_LENGTH = Gauge("queue_length", "Requests waiting for an engine.", multiprocess_mode="livesum", **_SHARED)


def render() -> bytes:
    """Return the metrics of all processes in the text format of Prometheus."""
    registry = _REGISTRY
    if os.environ.get(FOLDER):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def forget_dead_processes(folder: Path) -> None:
    """Remove the gauges of processes that have died.

    Args:
        folder: Folder of the metrics.
    """
    for pid in {int(file.stem.rpartition("_")[2]) for file in folder.glob("gauge_live*_*.db")}:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
