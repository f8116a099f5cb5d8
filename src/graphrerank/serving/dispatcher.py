"""The way of a request from an HTTP process to a worker and back."""

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

AHEAD = 2  # batches of a worker: while it is at one, the next is on its way
ATTEMPTS = 2  # of a request whose worker died with it: an answer does not depend on how often it is computed


class Dispatcher(LitSpec):
    """Hands the requests of an HTTP process out to the workers, in batches, and their answers back.

    A worker is given what waits, up to a batch, as soon as it has no more than one batch left: a lone request never
    waits for company, and under load batches fill by themselves. LitServe's own queue is not used: it costs each
    request a way through a third process, and leaves those of a dead worker unanswered.

    Args:
        limits: How long a request may take, and how many may wait.
        batch_requests: Largest number of requests in a batch.
        batch_candidates: A batch is full when its requests have so many documents together.
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
        """Leave behind what workers have no use for and cannot take."""
        return {**super().__getstate__(), "response_buffer": None, "_listeners": []}

    def listen(self, addresses: Sequence[Path]) -> None:
        """Open the socket of each HTTP process; call in the process that starts them all."""
        self._listeners = [listen(address) for address in addresses]

    @asynccontextmanager
    async def attending(self) -> AsyncIterator[None]:
        """Let the workers in, in an HTTP process."""
        server = await asyncio.start_unix_server(self._attend, sock=self._listeners[self.response_queue_id or 0])
        try:
            yield
        finally:
            server.close()
            for worker in self._workers:
                worker.writer.close()

    async def ask(self, kind: str, request: Any, uid: str) -> Answer:
        """Have a request answered by a worker.

        Args:
            kind: Name of the engine.
            request: What the engine takes.
            uid: The request's id.

        Returns:
            The answer; 429 where too many wait, 503 where workers died with it, 504 where it took too long.
        """
        if self._unanswered >= self.limits.waiting:
            return Answer.refuse(429, f"too many requests: {self.limits.waiting} are waiting; try again later")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(uid, kind, request, loop.create_future())
        self._waiting.append(waiting)
        self._unanswered += 1
        loop.call_soon(self._hand_out)  # not at once: what has come with it goes with it
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                return await waiting.answer
        except TimeoutError:
            return Answer.refuse(504, f"no answer within {self.limits.request_seconds:g} seconds")
        finally:
            self._unanswered -= 1
            if waiting.answer.cancelled():  # it took too long, or the client is gone
                with suppress(ValueError):  # a worker has it
                    self._waiting.remove(waiting)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Work with one worker until it is gone."""
        worker = _Worker(writer)
        self._workers.append(worker)
        try:
            while True:
                self._hand_out()
                answers = await read_message(reader)  # of its oldest batch
                for waiting in worker.batches.popleft():
                    waiting.end(answers[waiting.uid])
        except (EOFError, ConnectionError):
            self._workers.remove(worker)
            self._take_back(worker)
        finally:
            writer.close()

    def _hand_out(self) -> None:
        while self._waiting and self._workers:
            worker = min(self._workers, key=lambda worker: len(worker.batches))
            if len(worker.batches) >= AHEAD:
                break
            batch = self._next_batch()
            worker.batches.append(batch)
            requests = [(waiting.uid, waiting.since, waiting.request) for waiting in batch]
            worker.writer.write(pack((batch[0].kind, requests)))
        metrics().queue_length.set(len(self._waiting))

    def _next_batch(self) -> "list[_Waiting]":
        """Take those that wait for the same engine as the first one, up to a batch."""
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

    def _take_back(self, worker: "_Worker") -> None:
        """Let what a dead worker held wait again, before all others; once."""
        held = [waiting for batch in worker.batches for waiting in batch]
        for waiting in held:
            waiting.attempts += 1
            if waiting.attempts == ATTEMPTS:
                waiting.end(Answer.refuse(503, "workers died with this request; try again later"))
        self._waiting.extendleft(waiting for waiting in reversed(held) if not waiting.answer.done())
        self._hand_out()


@dataclass(eq=False)
class _Waiting:
    """A request without an answer.

    Attributes:
        uid: Its id.
        kind: Name of its engine.
        request: What the engine takes.
        answer: Comes here.
        since: When it came, by the monotonic clock, which all processes share.
        attempts: How many workers have died with it.
    """

    uid: str
    kind: str
    request: Any
    answer: asyncio.Future[Answer]
    since: float = field(default_factory=time.monotonic)
    attempts: int = 0

    def end(self, answer: Answer) -> None:
        """Give the answer, where it is still waited for."""
        if not self.answer.done():
            self.answer.set_result(answer)


@dataclass(eq=False)
class _Worker:
    """A worker that is connected.

    Attributes:
        writer: To it.
        batches: What it holds, oldest first; it answers them in this order.
    """

    writer: asyncio.StreamWriter
    batches: deque[list[_Waiting]] = field(default_factory=deque)
