"""Dispatch of requests from an HTTP process to workers, and of results back."""

import asyncio
import logging
import math
import os
import signal
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from graphrerank.serving.engine import Refusal
from graphrerank.serving.json_log import log
from graphrerank.serving.limits import Limits
from graphrerank.serving.messages import pack, read_message
from graphrerank.serving.metrics import metrics
from graphrerank.serving.work import encoding_seconds

AHEAD = 2  # batches per worker: while it computes one, the next is on its way
AHEAD_SECONDS = 0.05  # of estimated work, behind which no further batch is sent
ATTEMPTS = 2  # per request: it is sent again, alone, if its worker died
GRACE_SECONDS = 2.0  # after the last deadline of its batch, a worker is replaced
WATCH_AFTER_SECONDS = 0.25  # a client whose answer takes longer is watched for its leaving
MEMORY = 0.9  # weight of earlier measurements of the speed of workers
BATCH_SECONDS = 0.5  # of estimated work, at which a batch is full


class Dispatcher:
    """Sends the requests of an HTTP process to the workers in batches, and returns their results.

    - A worker receives the waiting requests, up to a batch, as soon as it has at most one batch left: a single request
      never waits for others, and under load batches fill up.
    - Each request has a deadline. Expired ones are not handed out, and a worker that computes beyond the deadlines of
      its batch is killed; the supervisor starts another.
    - The wait of a further request is estimated from the work that is waiting and the measured speed of workers.

    Args:
        limits: Limits of time, and of waiting requests.
        batch_requests: Maximum number of requests in a batch.
        batch_candidates: Number of documents at which a batch is full.
        http_processes: Number of processes that share the workers.
        encodes: Whether the workers encode texts, which is then most of their work.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        batch_requests: int,
        batch_candidates: int,
        http_processes: int = 1,
        encodes: bool = False,
    ) -> None:
        self.limits = limits
        self.batch_requests = batch_requests
        self.batch_candidates = batch_candidates
        self._http_processes = http_processes
        self._unanswered = 0
        self._work = 0.0  # estimated seconds of the unanswered requests
        self._waiting: deque[_Waiting] = deque()
        self._workers: list[_Worker] = []
        self._encodes = encodes
        self._measured = self._estimated = 1.0  # seconds of batches, earlier ones with less weight

    @property
    def slowness(self) -> float:
        """Measured seconds of a worker per estimated second of work."""
        return self._measured / self._estimated

    @property
    def num_workers(self) -> int:
        """Number of connected workers; each connects when it is warm."""
        return len(self._workers)

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Accept workers at a socket, and replace those that overrun."""
        server = await asyncio.start_unix_server(self._attend, sock=listener)
        watch = asyncio.create_task(self._replace_overrunning())
        try:
            yield
        finally:
            watch.cancel()
            server.close()
            for worker in self._workers:
                worker.writer.close()

    def refusal(self) -> Refusal | None:
        """Return a refusal if a further request would wait too long."""
        if self._unanswered >= self.limits.waiting:
            return Refusal(429, f"too many requests: {self.limits.waiting} are waiting", retry_after=1)
        wait = self._estimated_wait()
        if wait <= self.limits.queue_seconds:
            return None
        message = f"too many requests: the wait would be above {self.limits.queue_seconds:g} seconds; try again later"
        return Refusal(429, message, retry_after=math.ceil(wait - self.limits.queue_seconds / 2))

    async def ask(
        self,
        kind: str,
        job: Any,
        uid: str,
        *,
        arrival: float | None = None,
        gone: Callable[[], Awaitable[Any]] | None = None,
    ) -> Any:
        """Let a worker do a job.

        Args:
            kind: Name of the engine.
            job: The engine's job, with ``seconds``, ``num_documents`` and ``num_chars``, those to encode.
            uid: The request's id.
            arrival: Its arrival by the monotonic clock, which all processes share; None for now.
            gone: Returns when the client is gone.

        Returns:
            The result, or a refusal: 429 if the wait is too long, 503 if workers died with it, 504 at the deadline.
        """
        if (refusal := self.refusal()) is not None:
            return refusal
        loop = asyncio.get_running_loop()
        arrival = time.monotonic() if arrival is None else arrival
        seconds = job.seconds + (encoding_seconds(job.num_chars) if self._encodes else 0.0)
        deadline = arrival + self.limits.request_seconds
        waiting = _Waiting(uid, kind, job, seconds, loop.create_future(), arrival, deadline)
        self._waiting.append(waiting)
        self._unanswered += 1
        self._work += seconds
        loop.call_soon(self._send_batches)  # later, so that requests that arrive together share a batch
        try:
            return await self._result(waiting, gone)
        finally:
            self._unanswered -= 1
            self._work -= seconds
            if not waiting.result.done():
                waiting.result.cancel()
            if not waiting.is_taken:
                self._waiting.remove(waiting)

    async def _result(self, waiting: "_Waiting", gone: Callable[[], Awaitable[Any]] | None) -> Any:
        """Wait for a result, the deadline, or the client's leaving."""
        await asyncio.wait([waiting.result], timeout=WATCH_AFTER_SECONDS)
        if not waiting.result.done():
            leaving = None if gone is None else asyncio.ensure_future(gone())
            events = [waiting.result] if leaving is None else [waiting.result, leaving]
            rest = max(0.0, waiting.deadline - time.monotonic())
            await asyncio.wait(events, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
            if leaving is not None:
                leaving.cancel()
        if waiting.result.done():
            return waiting.result.result()
        if time.monotonic() < waiting.deadline:
            return Refusal(499, "the client is gone")
        return Refusal(504, f"no answer within {self.limits.request_seconds:g} seconds")

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one worker until it is gone."""
        try:
            worker = _Worker(writer, await read_message(reader))
        except (EOFError, ConnectionError):
            writer.close()
            return
        self._workers.append(worker)
        try:
            while True:
                self._send_batches()
                seconds, results = await read_message(reader)
                batch = worker.batches[0]  # it answers the oldest first
                own_results = [results[waiting.uid] for waiting in batch]
                worker.batches.popleft()
                self._learn(seconds, batch)
                for waiting, result in zip(batch, own_results, strict=True):
                    waiting.finish(result)
        except (EOFError, ConnectionError):
            pass
        except Exception as error:  # an answer that is none: the worker cannot be trusted
            log("worker answered nonsense", level=logging.ERROR, error=error, pid=worker.pid)
            worker.kill()
        finally:
            writer.close()
            self._workers.remove(worker)
            self._requeue(worker)

    def _send_batches(self) -> None:
        while self._waiting and self._workers:
            worker = min(self._workers, key=_Worker.work)
            is_busy = worker.batches and self.slowness * worker.work() > AHEAD_SECONDS
            if is_busy or len(worker.batches) >= AHEAD or not (batch := self._next_batch()):
                break
            try:
                requests = [(waiting.uid, waiting.arrival, waiting.deadline, waiting.job) for waiting in batch]
                message = pack((batch[0].kind, requests))
            except Exception as error:  # before the batch is the worker's
                log("request could not be sent to a worker", level=logging.ERROR, error=error)
                for waiting in batch:
                    waiting.finish(Refusal(500, f"internal error; see the logs for this id: {waiting.uid}"))
                continue
            worker.batches.append(batch)
            worker.writer.write(message)
        metrics().queue_length.set(len(self._waiting))

    def _next_batch(self) -> "list[_Waiting]":
        """Take requests for the same engine as the first one, up to a batch; skip those that nobody waits for."""
        batch: list[_Waiting] = []
        others: list[_Waiting] = []
        candidates, work, now = 0, 0.0, time.monotonic()
        while (
            self._waiting
            and len(batch) < self.batch_requests
            and candidates < self.batch_candidates
            and work < BATCH_SECONDS
        ):
            waiting = self._waiting.popleft()
            waiting.is_taken = True
            if waiting.result.done() or waiting.deadline <= now:
                continue
            if batch and (waiting.kind != batch[0].kind or waiting.attempts or batch[0].attempts):
                others.append(waiting)
                continue
            batch.append(waiting)
            candidates += waiting.job.num_documents
            work += self.slowness * waiting.seconds
        self._put_back(others)
        return batch

    def _requeue(self, worker: "_Worker") -> None:
        """Put the requests of a dead worker before all others; refuse those that have been tried before."""
        requests = [waiting for batch in worker.batches for waiting in batch]
        for waiting in requests:
            waiting.attempts += 1
            if waiting.attempts == ATTEMPTS:
                waiting.finish(Refusal(503, "workers died with this request; try again later", retry_after=1))
        self._put_back([waiting for waiting in requests if not waiting.result.done()])
        self._send_batches()

    def _put_back(self, requests: "list[_Waiting]") -> None:
        """Let some requests be the next ones."""
        self._waiting.extendleft(reversed(requests))
        for waiting in requests:
            waiting.is_taken = False

    def _learn(self, seconds: float, batch: "list[_Waiting]") -> None:
        """Update the measured speed by a batch that took so many seconds."""
        self._measured = MEMORY * self._measured + seconds
        self._estimated = MEMORY * self._estimated + sum(waiting.seconds for waiting in batch)
        metrics().slowness.set(self.slowness)

    def _estimated_wait(self) -> float:
        """Estimate the seconds until a further request is handed to a worker."""
        return self.slowness * self._work * self._http_processes / max(1, len(self._workers))

    async def _replace_overrunning(self) -> None:
        """Kill workers that compute beyond the deadlines of a batch, now and then."""
        while True:
            await asyncio.sleep(GRACE_SECONDS / 4)
            now = time.monotonic()
            for worker in self._workers:
                if worker.batches and now > max(waiting.deadline for waiting in worker.batches[0]) + GRACE_SECONDS:
                    log("worker overran, it is replaced", level=logging.ERROR, pid=worker.pid)
                    worker.kill()


@dataclass(eq=False)
class _Waiting:
    """An unanswered request.

    Attributes:
        uid: Its id.
        kind: Name of its engine.
        job: The engine's job.
        seconds: Its estimated work.
        result: Its future result.
        arrival: Its arrival by the monotonic clock.
        deadline: Time by which it must be answered.
        attempts: Number of workers that died with it.
        is_taken: Whether it is no longer waiting for a worker.
    """

    uid: str
    kind: str
    job: Any
    seconds: float
    result: asyncio.Future[Any]
    arrival: float
    deadline: float
    attempts: int = 0
    is_taken: bool = False

    def finish(self, result: Any) -> None:
        """Set the result, unless there is one."""
        if not self.result.done():
            self.result.set_result(result)


@dataclass(eq=False)
class _Worker:
    """A connected worker.

    Attributes:
        writer: Its connection.
        pid: Its process.
        batches: Its unanswered batches, oldest first, which it answers in this order.
    """

    writer: asyncio.StreamWriter
    pid: int
    batches: deque[list[_Waiting]] = field(default_factory=deque)

    def work(self) -> float:
        """Return the estimated seconds of its unanswered requests."""
        return sum(waiting.seconds for batch in self.batches for waiting in batch)

    def kill(self) -> None:
        """End its process, which the supervisor replaces."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
