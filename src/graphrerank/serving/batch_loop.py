"""What a worker does: take all that waits, up to a batch, answer it, and send the answers back.

LitServe's own batching loop waits a fixed time for a batch to fill, asks the queue a thousand times a second meanwhile,
fails a whole batch with one of its requests, and sends each answer alone. This one takes what is there: a lone request
never waits for company, and under load batches fill by themselves; the answers of a batch go back together.
"""

import time
from collections.abc import Iterator, Mapping
from itertools import groupby
from queue import Empty, Queue
from typing import Any

from litserve import LitAPI
from litserve.loops.base import LitLoop
from litserve.transport.base import MessageTransport
from litserve.utils import LitAPIStatus, LoopResponseType

from graphrerank.serving.engine import Engine, answer_all
from graphrerank.serving.metrics import metrics

ANSWERS, STARTED = "the answers of a batch", "a worker has started"  # in the place of a request's id
Waiting = tuple[int, str, float, tuple[str, Any]]  # HTTP process, id, when it was put there, kind and request


class BatchLoop(LitLoop):
    """Answers requests of several kinds with their engines, the api's ``engines``.

    Args:
        batch_requests: Largest number of requests in a batch.
        batch_candidates: A batch is full when its requests have so many documents together.
        request_seconds: Requests that have waited longer have been answered with an error, and are left out.
        http_processes: Each is told when this worker starts.
    """

    def __init__(
        self, *, batch_requests: int, batch_candidates: int, request_seconds: float, http_processes: int
    ) -> None:
        super().__init__()
        self.batch_requests = batch_requests
        self.batch_candidates = batch_candidates
        self.request_seconds = request_seconds
        self.http_processes = http_processes

    def __call__(
        self,
        lit_api: LitAPI,
        device: str,
        worker_id: int,
        request_queue: Queue[Waiting],
        transport: MessageTransport,
        workers_setup_status: dict[str, str],
        callback_runner: Any,
    ) -> None:
        """Work until the service is gone; the arguments are LitServe's."""
        engines: Mapping[str, Engine[Any]] = lit_api.engines
        metrics().restarts.inc()
        try:
            for http_process in range(self.http_processes):
                self._send(transport, http_process, STARTED, worker_id)
            while True:
                self._work(engines, self.next_batch(request_queue), transport)
        except (EOFError, ConnectionError):  # the main process is gone, and the queue with it
            return

    def next_batch(self, request_queue: Queue[Waiting]) -> list[Waiting]:
        """Wait for a request, and take those behind it that wait too."""
        batch = [request_queue.get()]
        candidates = _num_candidates(batch[0])
        for _ in range(min(request_queue.qsize(), self.batch_requests - 1)):
            if candidates >= self.batch_candidates:
                break
            try:
                batch.append(request_queue.get_nowait())
            except Empty:  # another worker was faster
                break
            candidates += _num_candidates(batch[-1])
        return batch

    def _work(self, engines: Mapping[str, Engine[Any]], batch: list[Waiting], transport: MessageTransport) -> None:
        now = time.monotonic()
        metrics().batch_requests.observe(len(batch))
        for _, _, since, _ in batch:
            metrics().stage_seconds.labels("queue").observe(now - since)
        in_time = [waiting for waiting in batch if now - waiting[2] <= self.request_seconds]
        http_process_of = {uid: http_process for http_process, uid, _, _ in in_time}
        for kind, requests in _by_kind(in_time):
            answers = answer_all(engines[kind], requests)
            for http_process in sorted({http_process_of[uid] for uid in answers}):
                own = {uid: answer for uid, answer in answers.items() if http_process_of[uid] == http_process}
                self._send(transport, http_process, ANSWERS, own)

    def _send(self, transport: MessageTransport, http_process: int, uid: str, message: Any) -> None:
        self.put_response(transport, http_process, uid, message, LitAPIStatus.OK, LoopResponseType.REGULAR)


def _by_kind(batch: list[Waiting]) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, group in groupby(sorted(batch, key=lambda waiting: waiting[3][0]), key=lambda waiting: waiting[3][0]):
        yield kind, {uid: request for _, uid, _, (_, request) in group}


def _num_candidates(waiting: Waiting) -> int:
    return int(getattr(waiting[3][1], "num_documents", 1))
