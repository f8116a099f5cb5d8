"""Dispatch of requests from an HTTP process to workers, and of answers back."""

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litserve.specs.base import LitSpec

from graphrerank.serving.engine import Answer
from graphrerank.serving.limits import Limits
from graphrerank.serving.messages import listen, pack, read_message
from graphrerank.serving.metrics import metrics

AHEAD = 2  # batches per worker: while it computes one, the next is on its way
ATTEMPTS = 2  # per request: it is sent again if its worker died


class Dispatcher(LitSpec):
    """Sends the requests of an HTTP process to the workers in batches, and returns their answers.

    A worker receives the waiting requests, up to a batch, as soon as it has at most one batch left: a single request
    never waits for others, and under load batches fill up. LitServe's own queue is not used: it sends each request
    through a third process, and never answers those of a dead worker.

    Args:
        limits: Time limit of a request, and maximum number of unanswered ones.
        batch_requests: Maximum number of requests in a batch.
        batch_candidates: Number of documents at which a batch is full.
    """

    def __init__(self, limits: Limits, *, batch_requests: int, batch_candidates: int) -> None:
        super().__init__()
        self.api_path = "/v1/rerank"  # names LitServe's queue
        self.limits = limits
        self.batch_requests = batch_requests
        self.batch_candidates = batch_candidates
        self._listeners: list[socket.socket] = []
        self._unanswered = 0
        self._waiting: deque[_Waiting] = deque()
        self._workers: list[_Worker] = []

    def __getstate__(self) -> dict[str, Any]:
        """Drop what workers neither need nor can unpickle."""
        return {**super().__getstate__(), "response_buffer": None, "_listeners": []}

    def listen(self, addresses: Sequence[Path]) -> None:
        """Open the socket of each HTTP process, in the process that starts them all."""
        self._listeners = [listen(address) for address in addresses]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Accept workers, in an HTTP process."""
        server = await asyncio.start_unix_server(self._attend, sock=self._listeners[self.response_queue_id or 0])
        try:
            yield
        finally:
            server.close()
            for worker in self._workers:
                worker.writer.close()

    async def ask(self, kind: str, request: Any, uid: str) -> Answer:
        """Let a worker answer a request.

        Args:
            kind: Name of the engine.
            request: The engine's request.
            uid: The request's id.

        Returns:
            The answer; 429 if too many are waiting, 503 if workers died with it, 504 after the time limit.
        """
        if self._unanswered >= self.limits.waiting:
            return Answer.refuse(429, f"too many requests: {self.limits.waiting} are waiting; try again later")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(uid, kind, request, loop.create_future())
        self._waiting.append(waiting)
        self._unanswered += 1
        loop.call_soon(self._send_batches)  # later, so that requests that arrive together share a batch
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                return await waiting.answer
        except TimeoutError:
            return Answer.refuse(504, f"no answer within {self.limits.request_seconds:g} seconds")
        finally:
            self._unanswered -= 1
            if waiting.answer.cancelled():  # by the time limit, or the client is gone
                with suppress(ValueError):  # it was already sent
                    self._waiting.remove(waiting)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one worker until it is gone."""
        worker = _Worker(writer)
        self._workers.append(worker)
        try:
            while True:
                self._send_batches()
                answers = await read_message(reader)  # of its oldest batch
                for waiting in worker.batches.popleft():
                    waiting.finish(answers[waiting.uid])
        except (EOFError, ConnectionError):
            self._workers.remove(worker)
            self._requeue(worker)
        finally:
            writer.close()

    def _send_batches(self) -> None:
        while self._waiting and self._workers:
            worker = min(self._workers, key=lambda worker: len(worker.batches))
            if len(worker.batches) >= AHEAD:
                break
            batch = self._next_batch()
            worker.batches.append(batch)
            requests = [(waiting.uid, waiting.arrival, waiting.request) for waiting in batch]
            worker.writer.write(pack((batch[0].kind, requests)))
        metrics().queue_length.set(len(self._waiting))

    def _next_batch(self) -> "list[_Waiting]":
        """Take requests for the same engine as the first one, up to a batch."""
        batch: list[_Waiting] = []
        others: list[_Waiting] = []
        candidates = 0
        while self._waiting and len(batch) < self.batch_requests and candidates < self.batch_candidates:
            waiting = self._waiting.popleft()
            if batch and waiting.kind != batch[0].kind:
                others.append(waiting)
                continue
            batch.append(waiting)
            candidates += int(getattr(waiting.request, "num_documents", 1))
        self._waiting.extendleft(reversed(others))
        return batch

    def _requeue(self, worker: "_Worker") -> None:
        """Put the requests of a dead worker before all others; refuse those that have been tried before."""
        requests = [waiting for batch in worker.batches for waiting in batch]
        for waiting in requests:
            waiting.attempts += 1
            if waiting.attempts == ATTEMPTS:
                waiting.finish(Answer.refuse(503, "workers died with this request; try again later"))
        self._waiting.extendleft(waiting for waiting in reversed(requests) if not waiting.answer.done())
        self._send_batches()


@dataclass(eq=False)
class _Waiting:
    """An unanswered request.

    Attributes:
        uid: Its id.
        kind: Name of its engine.
        request: The engine's request.
        answer: Its future answer.
        arrival: Its arrival by the monotonic clock, which all processes share.
        attempts: Number of workers that died with it.
    """

    uid: str
    kind: str
    request: Any
    answer: asyncio.Future[Answer]
    arrival: float = field(default_factory=time.monotonic)
    attempts: int = 0

    def finish(self, answer: Answer) -> None:
        """Set the answer, unless it is done."""
        if not self.answer.done():
            self.answer.set_result(answer)


@dataclass(eq=False)
class _Worker:
    """A connected worker.

    Attributes:
        writer: Its connection.
        batches: Its unanswered batches, oldest first, which it answers in this order.
    """

    writer: asyncio.StreamWriter
    batches: deque[list[_Waiting]] = field(default_factory=deque)
