"""Dynamic batching: collect concurrent requests of one process and run them together in worker threads."""

import asyncio
import logging
import math
import os
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.serving import metrics
from graphrerank.serving.engine import Check, Engine, Refusal, answer_all, encode, too_late
from graphrerank.serving.fair_queue import Backlog, FairQueue, Sender
from graphrerank.serving.json_log import log
from graphrerank.serving.limits import Limits
from graphrerank.serving.prices import DEFAULT_PRICES, DEFAULTS, ENCODING, MeasuredSpeeds, Prices, Work
from graphrerank.serving.work_estimates import EXPLAIN, READ_CHARS, encoding_seconds, num_encoded_chars

GRACE_SECONDS = 2.0  # time after the last deadline of a batch at which a stuck process is killed and replaced
BATCH_SECONDS = 0.5  # estimated work at which a batch is full
ENCODING_SECONDS = 0.4  # estimated work of a full batch of texts to encode, and of one chunk of a long request
LOOP_SECONDS = 10.0  # time that a thread waits for the event loop
NOTABLE_CHANGE = 0.05  # relative change of a measured speed after which the waiting work is estimated again
SMALLEST_SECONDS = 15.0  # time for which the smallest request is remembered
LOOK_SECONDS = 0.1  # interval at which one request is parsed under overload, because it may be unusually small
QUICK_SECONDS = 0.02  # time for which the estimated wait of a client is cached before its requests are parsed
WRITING, FEEDBACK = "documents", "feedback"  # engines with a separate thread, so that searches do not wait for them
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(eq=False)
class EncodingJob:
    """Texts of a request to encode in chunks. The encoder caches the vectors until the engine needs them.

    Attributes:
        encoder: Encoder with a cache.
        request: Job with a method ``texts_to_encode``.
        seconds_left: Estimated seconds to encode the remaining texts.
        prices: Prices of the encoder.
        seconds: Estimated seconds of the last chunk.
    """

    encoder: MemoryVectorCache
    request: Any
    seconds_left: float
    prices: Prices = DEFAULTS
    seconds: float = 0.0

    @cached_property
    def left(self) -> list[tuple[MemoryVectorCache, str]]:
        """Remaining texts with their encoders, the longest text first."""
        queries, passages = self.request.texts_to_encode()
        encoders = ((self.encoder.for_queries, queries), (self.encoder, passages))
        missing = [(encoder, text) for encoder, texts in encoders for text in encoder.missing(texts)]
        return sorted(missing, key=lambda entry: len(entry[1]), reverse=True)

    def next_chunk(self, seconds: float) -> list[tuple[MemoryVectorCache, str]]:
        """Return the next texts with their encoders, and remove them. The texts of a chunk have similar lengths.

        Args:
            seconds: Estimated time to encode the returned texts.
        """
        chunk = []
        self.seconds = 0.0
        while self.left and self.seconds < seconds:
            chunk.append(self.left.pop())
            self.seconds += encoding_seconds(1, num_encoded_chars([chunk[-1][1]]), self.prices)
        self.count_left()
        return chunk

    def count_left(self) -> None:
        """Estimate the time to encode the remaining texts, except those that are already cached."""
        num_chars = num_encoded_chars(text for _, text in self.left)
        self.seconds_left = encoding_seconds(len(self.left), num_chars, self.prices)


class EncodingEngine(Engine[EncodingJob]):
    """Encodes the next chunk of each request of a batch.

    Args:
        chunk_seconds: Estimated seconds of a chunk.
    """

    def __init__(self, chunk_seconds: float) -> None:
        self._chunk_seconds = chunk_seconds

    def answer(self, jobs: Mapping[str, EncodingJob], check: Check = lambda: None) -> dict[str, EncodingJob]:
        """Encode the next chunk of each job.

        Args:
            jobs: Jobs by request id.
            check: Function that raises TimeoutError once nobody waits for the batch. It is not called.

        Returns:
            The jobs.
        """
        texts: defaultdict[MemoryVectorCache, list[str]] = defaultdict(list)
        for job in jobs.values():
            for encoder, text in job.next_chunk(self._chunk_seconds):
                texts[encoder].append(text)
        for encoder, texts_of_encoder in texts.items():
            # Batches are padded to their longest text, so each batch has texts within a factor of two in length.
            for _, batch in groupby(sorted(texts_of_encoder, key=len), key=lambda text: len(text).bit_length()):
                with metrics.STAGE_SECONDS.labels("encode").time():
                    encode(encoder, list(batch))
        return dict(jobs)


@dataclass(eq=False)
class _Waiting:
    """Job of an unanswered request.

    Attributes:
        uid: Id of the request.
        sender: Sender of the request.
        kind: Kind of the engine.
        job: Input of the engine.
        num_documents: Number of documents for the size of a batch.
        work_kind: Kind of work, by which the speed is measured.
        seconds: Estimated seconds of work.
        arrival: Arrival on the batcher's clock.
        deadline: Deadline on the batcher's clock.
        result: Future of the result.
    """

    uid: str
    sender: Sender
    kind: str
    job: Any
    num_documents: int
    work_kind: str
    seconds: float
    arrival: float
    deadline: float
    result: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def group(self) -> tuple[str, bool]:
        """Key of requests that share batches. Explanations take long, so they are separate from other requests."""
        return self.kind, self.is_long

    @property
    def is_long(self) -> bool:
        """Whether other requests may be answered between the steps of this one."""
        return self.work_kind.endswith(EXPLAIN)


class _Lane:
    """Worker thread with the jobs that wait for it and its unanswered work.

    Args:
        batch_seconds: Estimated seconds of work at which a batch is full.
        patience: Waiting time in seconds after which a job may overtake the fair order.
    """

    def __init__(self, batch_seconds: float, patience: float) -> None:
        self.batch_seconds = batch_seconds
        self.waiting: FairQueue[_Waiting] = FairQueue(patience)
        self.running: list[_Waiting] = []
        self.thread = ThreadPoolExecutor(1)
        self.speeds = MeasuredSpeeds()
        self.unanswered = Backlog(self.speeds.of)
        self._repriced_at: dict[str, float] = {}  # speeds with which the unanswered work was last estimated
        self._expected_end = 0.0  # estimated end of the running batch

    def begin(self, batch: list[_Waiting], now: float) -> None:
        """Record that a batch has started, so that its work no longer counts as waiting."""
        self.running = batch
        self._expected_end = now + sum(self.speeds.of(waiting.work_kind) * waiting.seconds for waiting in batch)
        for waiting in batch:
            self.unanswered.start(waiting.uid, waiting.seconds)

    def learn(self, batch: Sequence[_Waiting], seconds: float) -> None:
        """Update the measured speed with a finished batch."""
        estimated = defaultdict[str, float](float)
        for waiting in batch:
            estimated[waiting.work_kind] += waiting.seconds
        self.speeds.learn(estimated, seconds)
        for kind in estimated:
            if abs(self.speeds.of(kind) / self._repriced_at.get(kind, 1.0) - 1) > NOTABLE_CHANGE:
                self._repriced_at[kind] = self.speeds.of(kind)
                self.unanswered.reprice()

    def wait(self, sender: Sender, seconds: float, now: float, *, is_long: bool = False) -> float:
        """Estimate the waiting time of one more request.

        The remaining time of the running batch counts only where it exceeds a usual batch, and only if the request is
        long or the batch is not, because short requests are answered between the steps of long ones.

        Args:
            sender: Sender of the request.
            seconds: Measured seconds of work of the request.
            now: Current time of the clock.
            is_long: Whether other requests may be answered between the steps of the request.
        """
        running = 0.0
        if self.running and (is_long or not self.running[0].is_long):
            running = self._rest(now)
        return running + self.unanswered.wait(sender, seconds)

    def longest_wait(self, now: float) -> float:
        """Return an upper bound of :meth:`wait` over all senders, which is cheap to compute."""
        return (self._rest(now) if self.running else 0.0) + self.unanswered.seconds

    def _rest(self, now: float) -> float:
        """Return the estimated remaining time of the running batch that exceeds a usual batch."""
        return max(0.0, self._expected_end - now - self.batch_seconds)


class Batcher:
    """Collects requests into batches and lets engines answer them.

    - A thread takes the waiting requests as soon as it is free, up to ``batch_requests`` requests and
      ``batch_candidates`` documents. A single request never waits for others, and batches fill up under load.
    - Clients share a thread fairly, and so do the connections of one client (:class:`FairQueue`).
    - Texts whose vectors an engine needs are encoded first, in another thread. Long requests are encoded in chunks, so
      that a short request waits for at most one chunk of each.
    - Explanations take long. Between their steps, the thread answers one batch of other waiting requests.
    - Each request has a deadline. Expired requests are not computed, and long work is interrupted between its steps.
    - The waiting time of a new request is estimated from the waiting work, at the speed measured for each kind of work.
      A request that would finish after its deadline is rejected at once.

    Args:
        engines: Engines by kind of request.
        limits: Limits of the service.
        batch_requests: Number of requests at which a batch is full.
        batch_candidates: Number of documents at which a batch is full.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine[Any]],
        limits: Limits,
        *,
        batch_requests: int = 32,
        batch_candidates: int = 4096,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits, self.engines = limits, engines
        self.prices: Mapping[str, Prices] = {}  # by kind of engine, and under `ENCODING` for the encoder
        self._batch_requests = batch_requests
        self._batch_candidates = batch_candidates
        self._clock = clock
        patience = limits.queue_seconds / 2
        self._reading, self._writing, self._feedback = (_Lane(BATCH_SECONDS, patience) for _ in range(3))
        self._encoding = _Lane(ENCODING_SECONDS, patience)
        self._smallest = _Smallest(clock)
        self._smallest.note(DEFAULT_PRICES["requests"])
        self._next_look = -math.inf
        self._quick: dict[Sender, tuple[float, float]] = {}  # time of the estimate, and estimated wait

    @property
    def slowness(self) -> float:
        """Measured seconds per estimated second of work."""
        return self._reading.speeds.overall

    @property
    def is_idle(self) -> bool:
        """Whether no rerank or search request is waiting or running."""
        return not (len(self._reading.waiting) or self._reading.running)

    def priced(self, kind: str, work: Work) -> Work:
        """Return the work of a request at the prices measured for its engine.

        Args:
            kind: Kind of the engine.
            work: Work at the default prices.

        Returns:
            The work with new ``seconds``, or the same work if no prices were measured.
        """
        return self.prices[kind].reprice(work) if kind in self.prices else work

    @property
    def _chunk_seconds(self) -> float:
        """Estimated seconds of a chunk of texts, from the measured speed of the encoder."""
        return ENCODING_SECONDS / self._encoding.speeds.of(ENCODING)

    def check_wait(self, sender: Sender = Sender()) -> None:  # noqa: B008
        """Raise a :class:`Refusal` if even a small request of a sender would wait too long.

        The work of the request is not known yet, so the smallest recent request is used instead. Occasionally, a
        request is let through in order to notice smaller ones; :meth:`ask` rejects it if it is large.

        Args:
            sender: Sender of the request.

        Raises:
            Refusal: 429, if the wait would be too long or too many requests are waiting.
        """
        self._check_number(sender)
        now = self._clock()
        if self._reading.longest_wait(now) <= self.limits.queue_seconds:
            return
        since, wait = self._quick.get(sender, (-math.inf, 0.0))
        if now - since > QUICK_SECONDS:
            wait = self._reading.wait(sender, self._smallest.seconds, now)
            if len(self._quick) > self.limits.waiting:
                self._quick.clear()
            self._quick[sender] = (now, wait)
        if wait > self.limits.queue_seconds and now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            return
        self._check_wait(wait)

    def _check_number(self, sender: Sender) -> None:
        """Reject a client that has more than its share of the unanswered requests, if there are too many."""
        limit = self.limits.waiting
        backlogs = [lane.unanswered for lane in (self._reading, self._writing, self._feedback)]
        if sum(map(len, backlogs)) < limit:
            return
        clients = {sender.client}.union(*(backlog.clients for backlog in backlogs))
        num_requests = sum(backlog.requests_of(sender.client) for backlog in backlogs)
        if num_requests >= limit // len(clients):
            raise Refusal(429, f"too many requests, {limit} are waiting. Try again later", retry_after=1)

    def _check_wait(self, seconds: float) -> None:
        limit = self.limits.queue_seconds
        if seconds > limit:
            message = f"too many requests, the wait would exceed {limit:g} seconds. Try again later"
            raise Refusal(429, message, retry_after=math.ceil(seconds - limit / 2))

    def _encoding_job(self, kind: str, job: Any, work: Work) -> EncodingJob | None:
        """Return the job that encodes the texts of a request, or None if there is nothing to encode.

        Args:
            kind: Kind of the engine.
            job: Input of the engine.
            work: Estimated work of the request.

        Raises:
            Refusal: 422, if the number of characters to encode exceeds ``limits.encoded_chars``.
        """
        if not work.encoded_chars or kind not in self.engines:
            return None
        encoder = self.engines[kind].encoder
        if encoder is None:
            return None
        limit = self.limits.encoded_chars
        if work.encoded_chars > limit:
            message = f"the texts must have at most `limits.encoded_chars` = {limit} characters to encode"
            raise Refusal(422, f"{message} (the first {READ_CHARS} of each text count), got {work.encoded_chars}")
        prices = self.prices.get(ENCODING, DEFAULTS)
        seconds = encoding_seconds(work.num_documents, work.encoded_chars, prices)
        return EncodingJob(encoder, job, seconds, prices)

    async def ask(
        self,
        kind: str,
        job: Any,
        work: Work,
        uid: str,
        *,
        sender: Sender = Sender(),  # noqa: B008
        arrival: float | None = None,
        receive: Receive | None = None,
    ) -> Any:
        """Let an engine answer a request.

        Args:
            kind: Kind of the engine.
            job: Input of the engine.
            work: Estimated work at the prices of :meth:`priced`.
            uid: Id of the request.
            sender: Sender of the request.
            arrival: Arrival of the request on the clock. If None, now.
            receive: Function that returns the next ASGI message of the client. If None, disconnects are not noticed.

        Returns:
            The engine's result.

        Raises:
            Refusal: The engine's refusal, or 422 for too many characters to encode, 413 for a request that cannot be
                answered within its deadline, 429 for a long wait, 504 at the deadline, 499 if the client has
                disconnected.
        """
        arrival = self._clock() if arrival is None else arrival
        deadline = arrival + self.limits.request_seconds
        sender = sender if sender.connection else sender._replace(connection=uid)
        lane = {WRITING: self._writing, FEEDBACK: self._feedback}.get(kind, self._reading)
        work_kind = f"{kind}/{work.kind}"
        texts = self._encoding_job(kind, job, work)
        if texts is not None and lane is self._writing:  # it can have many texts, which wait for the texts of searches
            deadline += 2 * self._encoding.speeds.of(ENCODING) * texts.seconds_left
        if lane is self._reading:
            self._smallest.note(lane.speeds.of(work_kind) * work.seconds)
        await self._check_end(lane, work_kind, work, texts, sender, deadline)
        # counted before any await, so that requests that arrive together see each other
        lane.unanswered.count(uid, sender, work_kind, work.seconds)
        if texts is not None:
            self._encoding.unanswered.count(uid, sender, ENCODING, texts.seconds_left)

        waiting = _Waiting(uid, sender, kind, job, work.num_documents, work_kind, work.seconds, arrival, deadline)
        if texts is None:
            answered = self._enqueue(lane, waiting)
        else:
            answered = asyncio.ensure_future(self._encode_first(texts, lane, waiting))
        events = [answered] if receive is None else [answered, asyncio.ensure_future(_disconnected(receive))]
        try:
            seconds_left = max(0.0, deadline - self._clock())
            await asyncio.wait(events, timeout=seconds_left, return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                return answered.result()
            if events[-1].done():
                raise Refusal(499, "the client has disconnected")
            raise Refusal(504, f"no answer within {deadline - arrival:.3g} seconds")
        finally:
            lane.unanswered.forget(uid)
            if texts is not None:
                self._encoding.unanswered.forget(uid)
            for event in events:
                event.cancel()

    async def _check_end(
        self, lane: _Lane, work_kind: str, work: Work, texts: EncodingJob | None, sender: Sender, deadline: float
    ) -> None:
        """Reject a request that would wait too long or finish after its deadline."""
        self._check_number(sender)
        now = self._clock()
        request_seconds = lane.speeds.of(work_kind) * work.seconds
        longest = lane.longest_wait(now)
        if texts is None and longest <= self.limits.queue_seconds and longest + request_seconds <= deadline - now:
            return  # in time even if all other requests are answered first
        wait = lane.wait(sender, request_seconds, now, is_long=work.kind == EXPLAIN)
        self._check_wait(wait)
        if texts is None:
            self._check_deadline(wait + request_seconds, work.seconds, deadline - now, "")
            return
        speed = self._encoding.speeds.of(ENCODING)
        for is_exact in (False, True):
            encoding = speed * texts.seconds_left
            turn = self._encoding.wait(sender, encoding, now)
            try:
                self._check_wait(turn)
                end = max(wait, turn + encoding) + request_seconds
                self._check_deadline(end, texts.seconds_left + work.seconds, deadline - now, " or shorter texts")
                return
            except Refusal:
                if is_exact:
                    raise
            await asyncio.to_thread(texts.count_left)  # slow, but leaves out texts that are already cached

    def _check_deadline(self, seconds: float, seconds_alone: float, seconds_left: float, hint: str) -> None:
        """Reject a request whose answer is estimated to take longer than the time left.

        Args:
            seconds: Estimated seconds from now to the answer.
            seconds_alone: Estimated seconds of the work on an idle service.
            seconds_left: Seconds to the deadline.
            hint: Additional way to make the request smaller, for the message.
        """
        if seconds <= seconds_left or seconds_left <= 0:  # an expired request gets 504 elsewhere
            return
        limit = self.limits.request_seconds
        if seconds_alone > limit:
            message = (
                f"the request would take about {seconds_alone:.0f} seconds, but `limits.request_seconds` is {limit:g}"
            )
            raise Refusal(413, f"{message}. Send fewer documents{hint}")
        message = f"too many requests, no response is expected within {limit:g} seconds. Try again later or send less"
        raise Refusal(429, message, retry_after=max(1, math.ceil(seconds - seconds_left)))

    async def _encode_first(self, texts: EncodingJob, lane: _Lane, waiting: _Waiting) -> Any:
        """Encode the texts of a request chunk by chunk, then return the result of its job."""
        while texts.seconds_left:
            seconds = min(texts.seconds_left, self._chunk_seconds)
            # Chunks of long requests go into separate batches, so that short requests do not wait for their end.
            length = "short" if texts.seconds_left == seconds else "long"
            uid, sender = waiting.uid, waiting.sender
            chunk = _Waiting(uid, sender, length, texts, 1, ENCODING, seconds, waiting.arrival, waiting.deadline)
            await self._enqueue(self._encoding, chunk)
            self._encoding.unanswered.count(uid, sender, ENCODING, texts.seconds_left)
        return await self._enqueue(lane, waiting)

    def _enqueue(self, lane: _Lane, waiting: _Waiting) -> asyncio.Future[Any]:
        """Queue a job and return the future of its result."""
        seconds = lane.speeds.of(waiting.work_kind) * waiting.seconds
        lane.waiting.add(waiting, waiting.sender, seconds, self._clock())
        # deferred, so that requests that arrive together share a batch
        asyncio.get_running_loop().call_soon(self._start, lane)
        return waiting.result

    def _start(self, lane: _Lane) -> None:
        """Start the next batch if the thread is free."""
        if lane.running or not (batch := self._next_batch(lane)):
            return
        now = self._clock()
        lane.begin(batch, now)
        loop = asyncio.get_running_loop()
        seconds_left = max(waiting.deadline for waiting in batch) - now
        overrun = loop.call_later(seconds_left + GRACE_SECONDS, _end_process)
        answered = loop.run_in_executor(lane.thread, self._work, batch, lane, loop)
        answered.add_done_callback(lambda future: self._finish(lane, overrun, *future.result()))
        metrics.QUEUE_LENGTH.set(len(self._reading.waiting))

    def _finish(self, lane: _Lane, overrun: asyncio.TimerHandle, seconds: float, results: Mapping[str, Any]) -> None:
        """Deliver the results of a batch, and start the next one."""
        overrun.cancel()
        self._deliver(lane, lane.running, seconds, results)
        lane.running = []
        # deferred, so that the next chunks of these requests are queued too
        asyncio.get_running_loop().call_soon(self._start, lane)

    def _deliver(self, lane: _Lane, batch: Sequence[_Waiting], seconds: float, results: Mapping[str, Any]) -> None:
        """Deliver the results of a batch, and update the measured speed."""
        lane.learn(batch, seconds)
        metrics.SLOWNESS.set(self.slowness)
        for waiting in batch:
            if waiting.result.done():
                continue
            result = results.get(waiting.uid) or too_late()
            if isinstance(result, Refusal):
                waiting.result.set_exception(result)
            else:
                waiting.result.set_result(result)

    def _next_batch(self, lane: _Lane, *, is_between: bool = False) -> list[_Waiting]:
        """Remove a batch of requests of the same group from the queue and return it, without expired requests.

        If ``is_between`` the steps of explanations, the batch has no explanations.
        """
        now = self._clock()
        lane.waiting.discard(lambda waiting: waiting.result.done() or waiting.deadline <= now)
        group: tuple[str, bool] | None = None
        requests, candidates, seconds = 0, 0, 0.0

        def choose(waiting: _Waiting) -> bool | None:
            nonlocal group, requests, candidates, seconds
            is_full = requests >= self._batch_requests or candidates >= self._batch_candidates
            if is_full or seconds >= lane.batch_seconds:
                return None
            if group not in (None, waiting.group) or (is_between and waiting.is_long):
                return False
            group = waiting.group
            requests += 1
            candidates += waiting.num_documents
            seconds += lane.speeds.of(waiting.work_kind) * waiting.seconds
            return True

        return lane.waiting.take(choose, now)

    def _work(
        self, batch: list[_Waiting], lane: _Lane, loop: asyncio.AbstractEventLoop
    ) -> tuple[float, dict[str, Any]]:
        """Answer a batch in the worker thread.

        Returns:
            The seconds that the batch took, and the result of each request by id. The time of long requests includes
            requests that were answered between their steps, because this will also happen to later ones.
        """
        begin, last = self._clock(), max(waiting.deadline for waiting in batch)

        def check() -> None:
            if self._clock() > last:
                raise TimeoutError
            if batch[0].is_long:
                self._work_between(lane, loop)

        jobs = {waiting.uid: waiting.job for waiting in batch}
        if isinstance(batch[0].job, EncodingJob):
            results = answer_all(EncodingEngine(self._chunk_seconds), jobs, check)
            for waiting in batch:
                waiting.seconds = waiting.job.seconds  # excludes texts that were already cached
        else:
            metrics.BATCH_REQUESTS.observe(len(batch))
            for waiting in batch:
                metrics.STAGE_SECONDS.labels("queue").observe(begin - waiting.arrival)
            results = answer_all(self.engines[batch[0].kind], jobs, check)
        return self._clock() - begin, results

    def _work_between(self, lane: _Lane, loop: asyncio.AbstractEventLoop) -> None:
        """Answer one batch of waiting short requests between two steps of a long one."""

        async def take() -> list[_Waiting]:
            batch = self._next_batch(lane, is_between=True)
            for waiting in batch:
                lane.unanswered.start(waiting.uid, waiting.seconds)
            return batch

        taking = asyncio.run_coroutine_threadsafe(take(), loop)
        try:
            batch = taking.result(LOOP_SECONDS)
        except (TimeoutError, CancelledError):  # the process is shutting down
            taking.cancel()
            return
        if batch:
            loop.call_soon_threadsafe(self._deliver, lane, batch, *self._work(batch, lane, loop))


class _Smallest:
    """Smallest of the numbers seen in the last one to two periods of ``SMALLEST_SECONDS``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = -math.inf
        self._before, self._current = math.inf, math.inf

    def note(self, seconds: float) -> None:
        """Add a number."""
        if (now := self._clock()) > self._end:
            is_old = now > self._end + SMALLEST_SECONDS
            self._before, self._current = math.inf if is_old else self._current, math.inf
            self._end = now + SMALLEST_SECONDS
        self._current = min(self._current, seconds)

    @property
    def seconds(self) -> float:
        """Smallest number, or 0 if there is none."""
        smallest = min(self._before, self._current)
        return 0.0 if smallest == math.inf else smallest


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _end_process() -> None:
    """Kill the process because its engine does not return."""
    log("engine does not return, the process is replaced", level=logging.ERROR, pid=os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)
