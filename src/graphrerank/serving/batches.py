"""Batches: requests of one process that wait for its engines, answered together in threads."""

import asyncio
import logging
import math
import os
import signal
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.graphs.queries import query_encoder
from graphrerank.serving import metrics
from graphrerank.serving.engine import Check, Engine, Refusal, answer_all, encode, too_late
from graphrerank.serving.json_log import log
from graphrerank.serving.limits import READ_CHARS, Limits, Work, encoding_seconds, num_encoded_chars

GRACE_SECONDS = 2.0  # after the last deadline of its batch, the process ends, and uvicorn starts another
BATCH_SECONDS = 0.5  # of estimated work, at which a batch is full
ENCODING_SECONDS = 0.4  # likewise, of texts to encode, and of a piece of a long request's
NUM_RATIOS = 15  # batches, whose median speed is that of a lane, so that a wrong estimate changes it little
WRITING, FEEDBACK = "documents", "feedback"  # engines with a thread of their own, so that searches do not wait
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(eq=False)
class EncodingJob:
    """The texts of a request that are to be encoded, in pieces; the encoder keeps the vectors for the engine."""

    encoder: MemoryVectorCache
    request: Any
    seconds_left: float  # estimated
    seconds: float = 0.0  # of the last piece

    @cached_property
    def left(self) -> list[tuple[MemoryVectorCache, str]]:
        """The texts, with their encoders, the longest first."""
        queries, passages = self.request.texts_to_encode()
        encoders = ((query_encoder(self.encoder), queries), (self.encoder, passages))
        left = [(encoder, text) for encoder, texts in encoders for text in encoder.missing(texts)]
        return sorted(left, key=lambda entry: len(entry[1]), reverse=True)

    def next_piece(self, seconds: float) -> list[tuple[MemoryVectorCache, str]]:
        """Take texts of similar lengths, with their encoders, of about this estimated time."""
        piece, self.seconds = [], 0.0
        while self.left and self.seconds < seconds:
            piece.append(self.left.pop())
            self.seconds += encoding_seconds(1, num_encoded_chars([piece[-1][1]]))
        self.seconds_left = encoding_seconds(len(self.left), num_encoded_chars(text for _, text in self.left))
        return piece


class EncodingEngine(Engine[EncodingJob]):
    """Encodes the next piece of each request of a batch, ``piece_seconds`` of estimated time."""

    def __init__(self, piece_seconds: float) -> None:
        self._piece_seconds = piece_seconds

    def answer(self, jobs: Mapping[str, EncodingJob], check: Check = lambda: None) -> dict[str, EncodingJob]:
        """Return the jobs."""
        texts: defaultdict[MemoryVectorCache, list[str]] = defaultdict(list)
        for job in jobs.values():
            for encoder, text in job.next_piece(self._piece_seconds):
                texts[encoder].append(text)
        for encoder, pieces in texts.items():
            # a batch is padded to its longest text: texts of one have at most twice the length of each other
            for _, batch in groupby(sorted(pieces, key=len), key=lambda text: len(text).bit_length()):
                with metrics.STAGE_SECONDS.labels("encode").time():
                    encode(encoder, list(batch))
        return dict(jobs)


@dataclass(eq=False)
class _Waiting:
    """A job of an unanswered request; times are of the monotonic clock."""

    uid: str
    kind: str  # of its engine
    job: Any
    num_documents: int
    seconds: float  # estimated work
    arrival: float
    deadline: float
    result: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(eq=False)
class _Lane:
    """A thread, and the jobs that wait for it."""

    batch_seconds: float = BATCH_SECONDS
    waiting: deque[_Waiting] = field(default_factory=deque)
    running: list[_Waiting] = field(default_factory=list)
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    unanswered: dict[str, float] = field(default_factory=dict)  # estimated seconds of work that is left, by request
    work: float = 0.0  # their sum
    ratios: deque[float] = field(default_factory=lambda: deque([1.0], NUM_RATIOS))
    slowness: float = 1.0  # seconds per estimated second of work, the median of the last batches

    def count(self, uid: str, seconds: float) -> None:
        """Note how much work of a request is left."""
        self.work += seconds - self.unanswered.get(uid, 0.0)
        self.unanswered[uid] = seconds

    def forget(self, uid: str) -> None:
        """Forget a request."""
        self.work -= self.unanswered.pop(uid)


class Batcher:
    """Lets engines answer requests in batches.

    - A thread takes the waiting requests as soon as it is free, at most ``batch_requests`` and up to
      ``batch_candidates`` documents: a single request never waits for others, and under load batches fill up.
    - Texts that an engine needs as vectors are encoded before, by another thread. Long requests are encoded in
      pieces and wait for their turn after each, so that short requests wait for one piece of each.
    - Each request has a deadline. Expired ones are not computed; long work is checked between its steps.
    - The wait of a further request is estimated from the work that is waiting and the measured speed.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine[Any]],
        limits: Limits,
        *,
        batch_requests: int = 32,
        batch_candidates: int = 4096,
    ) -> None:
        self.limits, self.engines = limits, engines
        self._most = (batch_requests, batch_candidates)
        self._reading, self._writing, self._feedback, self._encoding = (
            _Lane(),
            _Lane(),
            _Lane(),
            _Lane(ENCODING_SECONDS),
        )

    @property
    def slowness(self) -> float:
        """Measured seconds per estimated second of work."""
        return self._reading.slowness

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for an engine that reads."""
        return not (self._reading.waiting or self._reading.running)

    @property
    def _piece_seconds(self) -> float:
        """Estimated seconds of a piece of texts, from the measured speed of the encoder."""
        return ENCODING_SECONDS / self._encoding.slowness

    def check_wait(self) -> None:
        """Raise a refusal if a further request would wait too long."""
        lanes = (self._reading, self._writing, self._feedback)
        if sum(len(lane.unanswered) for lane in lanes) >= self.limits.waiting:
            raise Refusal(429, f"too many requests: {self.limits.waiting} are waiting", retry_after=1)
        self._check_wait(self._reading.slowness * self._reading.work)

    def _check_wait(self, seconds: float) -> None:
        if seconds > (most := self.limits.queue_seconds):
            message = f"too many requests: the wait would be above {most:g} seconds; try again later"
            raise Refusal(429, message, retry_after=math.ceil(seconds - most / 2))

    async def ask(
        self, kind: str, job: Any, work: Work, uid: str, *, arrival: float | None = None, receive: Receive | None = None
    ) -> Any:
        """Let an engine do a job, and return its result.

        ``arrival`` is of the monotonic clock, None for now; ``receive`` gets ASGI's messages of the client. Raises the
        engine's refusals; 422 for too much to encode, 429 for a long wait, 504 at the deadline, 499 without the client.
        """
        now = time.monotonic()
        arrival = now if arrival is None else arrival
        deadline = arrival + self.limits.request_seconds
        lane = {WRITING: self._writing, FEEDBACK: self._feedback}.get(kind, self._reading)
        seconds_to_encode = 0.0
        encoder: MemoryVectorCache | None = getattr(self.engines.get(kind), "encoder", None)
        if encoder is not None and work.encoded_chars:
            if work.encoded_chars > (most := self.limits.encoded_chars):
                message = f"the texts must have at most `limits.encoded_chars` = {most} characters to encode"
                raise Refusal(422, f"{message}, of each the first {READ_CHARS}, got {work.encoded_chars}")
            seconds_to_encode = encoding_seconds(work.num_documents, work.encoded_chars)
        self._check_wait(lane.slowness * lane.work)
        if seconds_to_encode:  # requests take turns
            others = sum(min(seconds_to_encode, other) for other in self._encoding.unanswered.values())
            self._check_wait(self._encoding.slowness * others)
        if lane is self._writing:  # its texts are many, and wait for those of searches
            deadline += 2 * self._encoding.slowness * seconds_to_encode

        async def answer() -> Any:
            if encoder is not None and seconds_to_encode:
                texts = EncodingJob(encoder, job, seconds_to_encode)
                while texts.seconds_left:
                    seconds = min(texts.seconds_left, self._piece_seconds)
                    # pieces of long requests are separate batches, so that short ones do not end with them
                    length = "short" if texts.seconds_left == seconds else "long"
                    await self._wait(self._encoding, _Waiting(uid, length, texts, 1, seconds, arrival, deadline))
                    self._encoding.count(uid, texts.seconds_left)
            waiting = _Waiting(uid, kind, job, work.num_documents, work.seconds, arrival, deadline)
            return await self._wait(lane, waiting)

        lane.count(uid, work.seconds)
        self._encoding.count(uid, seconds_to_encode)
        answered = asyncio.ensure_future(answer())
        events = [answered] if receive is None else [answered, asyncio.ensure_future(_disconnected(receive))]
        try:
            await asyncio.wait(events, timeout=max(0.0, deadline - now), return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                return answered.result()
            if events[-1].done():
                raise Refusal(499, "the client is gone")
            raise Refusal(504, f"no answer within {deadline - arrival:.3g} seconds")
        finally:
            lane.forget(uid)
            self._encoding.forget(uid)
            for event in events:
                event.cancel()

    async def _wait(self, lane: _Lane, waiting: _Waiting) -> Any:
        """Return the result of a job when its lane has done it."""
        lane.waiting.append(waiting)
        asyncio.get_running_loop().call_soon(self._start, lane)  # later: requests that arrive together share a batch
        return await waiting.result

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
        if estimated := sum(waiting.seconds for waiting in lane.running):
            lane.ratios.append(seconds / estimated)
            lane.slowness = statistics.median(lane.ratios)
        metrics.SLOWNESS.set(self.slowness)
        for waiting in lane.running:
            result, future = results.get(waiting.uid) or too_late(), waiting.result
            if not future.done():
                (future.set_exception if isinstance(result, Refusal) else future.set_result)(result)
        lane.running = []
        asyncio.get_running_loop().call_soon(self._start, lane)  # when the next pieces of these requests wait, too

    def _next_batch(self, lane: _Lane) -> list[_Waiting]:
        """Take requests for the same engine as the first one, up to a batch; skip those that nobody waits for."""
        batch: list[_Waiting] = []
        others: list[_Waiting] = []
        candidates, work, now = 0, 0.0, time.monotonic()
        most_requests, most_candidates = self._most
        while (
            lane.waiting and len(batch) < most_requests and candidates < most_candidates and work < lane.batch_seconds
        ):
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

        def check() -> None:
            if time.monotonic() > last:
                raise TimeoutError

        jobs = {waiting.uid: waiting.job for waiting in batch}
        if isinstance(batch[0].job, EncodingJob):
            results = answer_all(EncodingEngine(self._piece_seconds), jobs, check)
            for waiting in batch:
                waiting.seconds = waiting.job.seconds  # without those that were encoded before
        else:
            metrics.BATCH_REQUESTS.observe(len(batch))
            for waiting in batch:
                metrics.STAGE_SECONDS.labels("queue").observe(now - waiting.arrival)
            results = answer_all(self.engines[batch[0].kind], jobs, check)
        return time.monotonic() - now, results


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _end_process() -> None:
    """End a process whose engine does not come back."""
    log("engine overran, the process is replaced", level=logging.ERROR, pid=os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)
