"""What a service counts, for Prometheus. Processes of one service count together, through files in a folder.

``prometheus_client`` reads where that folder is when it is imported, so it is imported when something is first counted.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's variable
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The measures; see each one's text at ``GET /metrics``."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._registry = CollectorRegistry()
        kept: dict[str, Any] = {"namespace": "graphrerank", "registry": self._registry}
        self.stage_seconds = Histogram(
            "stage_seconds", "Seconds by stage: of a request in all or in the queue, of a batch at work.",
            ["stage"], buckets=SECONDS, **kept,
        )  # fmt: skip
        self.batch_requests = Histogram("batch_requests", "Requests in a batch.", buckets=REQUESTS, **kept)
        self.errors = Counter("errors", "Answers that are errors.", ["route", "status"], **kept)
        self.restarts = Counter("worker_starts", "Starts of workers.", **kept)
        self.queue_length = Gauge(
            "queue_length", "Requests that wait for a worker.", multiprocess_mode="livesum", **kept
        )

    def render(self) -> bytes:
        """Write the measures of all processes in Prometheus's text format."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        if not os.environ.get(FOLDER):
            return generate_latest(self._registry)
        everywhere = CollectorRegistry()
        MultiProcessCollector(everywhere)  # type: ignore[no-untyped-call]
        return generate_latest(everywhere)


@cache
def metrics() -> Metrics:
    """Return this process's measures."""
    return Metrics()


def count_together(folder: Path) -> None:
    """Let this process, and those it starts, count into a folder; call before anything is counted."""
    os.environ[FOLDER] = str(folder)
