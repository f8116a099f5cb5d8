"""Metrics of a service for Prometheus, aggregated over its processes through files in a folder.

``prometheus_client`` reads the folder's name when it is imported, so it is imported at the first use.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's variable
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics; ``GET /metrics`` describes each."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._registry = CollectorRegistry()
        shared: dict[str, Any] = {"namespace": "graphrerank", "registry": self._registry}
        self.stage_seconds = Histogram(
            "stage_seconds", "Seconds by stage: of a request in total or in the queue, of a batch in an engine.",
            ["stage"], buckets=SECONDS, **shared,
        )  # fmt: skip
        self.batch_requests = Histogram("batch_requests", "Requests per batch.", buckets=REQUESTS, **shared)
        self.errors = Counter("errors", "Error responses.", ["route", "status"], **shared)
        self.restarts = Counter("worker_starts", "Starts of processes.", **shared)
        self.slowness = Gauge(
            "slowness", "Seconds of an engine per estimated second of work.", multiprocess_mode="livemax", **shared
        )
        self.queue_length = Gauge(
            "queue_length", "Requests waiting for an engine.", multiprocess_mode="livesum", **shared
        )

    def render(self) -> bytes:
        """Return the metrics of all processes in Prometheus's text format."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        if not os.environ.get(FOLDER):
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


@cache
def metrics() -> Metrics:
    """Return the metrics of this process."""
    return Metrics()


def forget_dead_processes(folder: Path) -> None:
    """Remove the gauges of processes that died."""
    from prometheus_client.multiprocess import mark_process_dead

    for pid in {int(file.stem.rpartition("_")[2]) for file in folder.glob("gauge_live*_*.db")}:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]


def count_together(folder: Path) -> None:
    """Let this process and its children write their metrics into a folder; call before any metric is used."""
    os.environ[FOLDER] = str(folder)
