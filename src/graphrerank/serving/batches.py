"""Batches: requests of one process that wait for its engines, ranked together in a thread."""

import asyncio
import logging
import math
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from graphrerank.serving import metrics
from graphrerank.serving.engine import Engine, Refusal, answer_all, too_late
from graphrerank.serving.json_log import log
from graphrerank.serving.limits import Limits, Work

GRACE_SECONDS = 2.0  # after the last deadline of its batch, the process ends, and uvicorn starts another
MEMORY = 0.9  # weight of earlier measurements of the speed
BATCH_SECONDS = 0.5  # of estimated work, at which a batch is full
WRITING = "documents"  # the engine that changes the corpus runs in a separate thread, so that searches do not wait
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(eq=False)
class _Waiting:
    """An unanswered request; times are of the monotonic clock."""

    uid: str
    kind: str  # of its engine
    job: Any
    num_documents: int
    seconds: float  # estimated work
    result: asyncio.Future[Any]
    arrival: float
    deadline: float


@dataclass(eq=False)
class _Lane:
    """A thread, and the requests that wait for it."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    running: list[_Waiting] = field(default_factory=list)
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    unanswered: int = 0
    work: float = 0.0  # estimated seconds of the unanswered requests
    measured: float = 1.0  # seconds of batches, earlier ones with less weight
    estimated: float = 1.0

    @property
    def slowness(self) -> float:
        """Measured seconds per estimated second of work."""
        return self.measured / self.estimated


class Batcher:
    """Lets engines answer requests in batches.

    - A thread takes the waiting requests, up to a batch, as soon as it is free: a single request never waits for
      others, and under load batches fill up.
    - Each request has a deadline. Expired ones are not computed; long work is checked between its steps.
    - The wait of a further request is estimated from the work that is waiting and the measured speed.

    Args:
        engines: By kind.
        limits: Limits of time, and of waiting requests.
        batch_requests: Maximum number of requests in a batch.
        batch_candidates: Number of documents at which a batch is full.
        encodes: Whether the engines encode texts, which is then most of their work.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine[Any]],
        limits: Limits,
        *,
        batch_requests: int = 32,
        batch_candidates: int = 4096,
        encodes: bool = False,
    ) -> None:
        self.limits = limits
        self._engines = engines
        self._most = (batch_requests, batch_candidates)
        self._encodes = encodes
        self._reading, self._writing = _Lane(), _Lane()

    @property
    def slowness(self) -> float:
        """Measured seconds per estimated second of work."""
        return self._reading.slowness

    def check_wait(self) -> None:
        """Raise a refusal if a further request would wait too long."""
        if self._reading.unanswered + self._writing.unanswered >= self.limits.waiting:
            raise Refusal(429, f"too many requests: {self.limits.waiting} are waiting", retry_after=1)
        self._check_lane(self._reading)

    def _check_lane(self, lane: _Lane) -> None:
        wait, most = lane.slowness * lane.work, self.limits.queue_seconds
        if wait > most:
            message = f"too many requests: the wait would be above {most:g} seconds; try again later"
            raise Refusal(429, message, retry_after=math.ceil(wait - most / 2))

    async def ask(
        self, kind: str, job: Any, work: Work, uid: str, *, arrival: float | None = None, receive: Receive | None = None
    ) -> Any:
        """Let an engine do a job, and return its result.

        Args:
            kind: Name of the engine.
            job: The engine's job.
            work: Its estimated work.
            uid: The request's id.
            arrival: Its arrival by the monotonic clock; None for now.
            receive: Receives ASGI's messages of the client, to notice that it is gone.

        Raises:
            Refusal: The engine's; 429 if the wait is too long, 504 at the deadline, 499 if the client is gone.
        """
        lane = self._writing if kind == WRITING else self._reading
        self._check_lane(lane)
        loop, now = asyncio.get_running_loop(), time.monotonic()
        arrival = now if arrival is None else arrival
        deadline = arrival + self.limits.request_seconds
        seconds = work.total_seconds(encodes=self._encodes)
        waiting = _Waiting(uid, kind, job, work.num_documents, seconds, loop.create_future(), arrival, deadline)
        lane.waiting.append(waiting)
        lane.unanswered += 1
        lane.work += seconds
        loop.call_soon(self._start, lane)  # later, so that requests that arrive together share a batch
        events = [waiting.result] if receive is None else [waiting.result, asyncio.ensure_future(_left(receive))]
        try:
            await asyncio.wait(events, timeout=max(0.0, deadline - now), return_when=asyncio.FIRST_COMPLETED)
            if waiting.result.done():
                return waiting.result.result()
            if time.monotonic() < deadline:
                raise Refusal(499, "the client is gone")
            raise Refusal(504, f"no answer within {self.limits.request_seconds:g} seconds")
        finally:
            lane.unanswered -= 1
            lane.work -= seconds
            for event in events:
                event.cancel()

    def _start(self, lane: _Lane) -> None:
        """Hand the next batch to the thread, if it is free."""
        if lane.running or not (batch := self._next_batch(lane)):
            return
        lane.running = batch
        loop, rest = asyncio.get_running_loop(), max(waiting.deadline for waiting in batch) - time.monotonic()
        overrun = loop.call_later(rest + GRACE_SECONDS, _end_process)
        done = loop.run_in_executor(lane.thread, self._work, batch)
        done.add_done_callback(lambda done: self._finish(lane, overrun, *done.result()))
        metrics.QUEUE_LENGTH.set(len(self._reading.waiting))

    def _finish(self, lane: _Lane, overrun: asyncio.TimerHandle, seconds: float, results: Mapping[str, Any]) -> None:
        """Deliver a batch's results, learn its speed, and start the next."""
        overrun.cancel()
        for waiting in lane.running:
            result = results.get(waiting.uid) or too_late()
            if waiting.result.done():
                continue
            if isinstance(result, Refusal):
                waiting.result.set_exception(result)
            else:
                waiting.result.set_result(result)
        lane.measured = MEMORY * lane.measured + seconds
        lane.estimated = MEMORY * lane.estimated + sum(waiting.seconds for waiting in lane.running)
        lane.running = []
        metrics.SLOWNESS.set(self.slowness)
        self._start(lane)

    def _next_batch(self, lane: _Lane) -> list[_Waiting]:
        """Take requests for the same engine as the first one, up to a batch; skip those that nobody waits for."""
        batch: list[_Waiting] = []
        others: list[_Waiting] = []
        candidates, work, now = 0, 0.0, time.monotonic()
        most_requests, most_candidates = self._most
        while lane.waiting and len(batch) < most_requests and candidates < most_candidates and work < BATCH_SECONDS:
            waiting = lane.waiting.popleft()
            if waiting.result.done() or waiting.deadline <= now:
                continue
            if batch and waiting.kind != batch[0].kind:
                others.append(waiting)
                continue
            batch.append(waiting)
            candidates += waiting.num_documents
            work += lane.slowness * waiting.seconds
        lane.waiting.extendleft(reversed(others))
        return batch

    def _work(self, batch: list[_Waiting]) -> tuple[float, dict[str, Any]]:
        """Answer a batch in the thread; return the seconds that it took, and the result of each request by id."""
        now, last = time.monotonic(), max(waiting.deadline for waiting in batch)
        metrics.BATCH_REQUESTS.observe(len(batch))
        for waiting in batch:
            metrics.STAGE_SECONDS.labels("queue").observe(now - waiting.arrival)

        def check() -> None:
            if time.monotonic() > last:
                raise TimeoutError

        results = answer_all(self._engines[batch[0].kind], {waiting.uid: waiting.job for waiting in batch}, check)
        return time.monotonic() - now, results


async def _left(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _end_process() -> None:
    """End a process whose engine does not come back."""
    log("engine overran, the process is replaced", level=logging.ERROR, pid=os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)
