"""Metrics for Prometheus; of several processes, if the environment names a ``FOLDER`` before they import this."""

import os
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's variable
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
TENTHS = tuple(tenth / 10 for tenth in range(11))
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)

_REGISTRY = CollectorRegistry()
_SHARED: dict[str, Any] = {"namespace": "graphrerank", "registry": _REGISTRY}
_STAGES = "Seconds by stage: of a request in total or in the queue, of a batch in an engine."
STAGE_SECONDS = Histogram("stage_seconds", _STAGES, ["stage"], buckets=SECONDS, **_SHARED)
BATCH_REQUESTS = Histogram("batch_requests", "Requests per batch.", buckets=REQUESTS, **_SHARED)
ERRORS = Counter("errors", "Error responses.", ["route", "status"], **_SHARED)
FEEDBACK = Counter(
    "feedback", "Results with feedback, by kind; lost: answers that the log could not take.", ["kind"], **_SHARED
)
SHADOW_OVERLAP = Histogram(
    "shadow_overlap", "Share of the first ten results that a shadow's have too.", buckets=TENTHS, **_SHARED
)
SHADOW_SKIPPED = Counter("shadow_skipped", "Requests that a shadow did not rank, as others waited.", **_SHARED)
_LISTS = "Interleaved lists that the new artifact won and lost, and whether it was dropped."
INTERLEAVED = Gauge("interleaved", _LISTS, ["lists"], multiprocess_mode="livemax", **_SHARED)
WORKER_STARTS = Counter("worker_starts", "Starts of processes.", **_SHARED)
_SLOWNESS = "Seconds of an engine per estimated second of work."
SLOWNESS = Gauge("slowness", _SLOWNESS, multiprocess_mode="livemax", **_SHARED)
QUEUE_LENGTH = Gauge("queue_length", "Requests waiting for an engine.", multiprocess_mode="livesum", **_SHARED)


def render() -> bytes:
    """Return the metrics of all processes in Prometheus's text format."""
    registry = _REGISTRY
    if os.environ.get(FOLDER):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def forget_dead_processes(folder: Path) -> None:
    """Remove the gauges of processes that died."""
    for pid in {int(file.stem.rpartition("_")[2]) for file in folder.glob("gauge_live*_*.db")}:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
