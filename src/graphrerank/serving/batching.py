"""Batches: requests of one process that wait for its engines, answered together in threads."""

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

GRACE_SECONDS = 2.0  # after the last deadline of its batch, the process ends, and uvicorn starts another
BATCH_SECONDS = 0.5  # of estimated work, at which a batch is full
ENCODING_SECONDS = 0.4  # likewise, of texts to encode, and of a piece of a long request's
LOOP_SECONDS = 10.0  # for which a thread waits for the event loop
NOTABLE_CHANGE = 0.05  # of a measured speed, from which on the work that waits is estimated again
SMALLEST_SECONDS = 15.0  # for which the smallest request is remembered
LOOK_SECONDS = 0.1  # after which one more request is parsed under overload, as it may be smaller than all before
QUICK_SECONDS = 0.02  # for which the estimated wait of a client is not estimated again before its requests are parsed
WRITING, FEEDBACK = "documents", "feedback"  # engines with a thread of their own, so that searches do not wait
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(eq=False)
class EncodingJob:
    """The texts of a request that are to be encoded, in pieces; the encoder keeps the vectors for the engine."""

    encoder: MemoryVectorCache
    request: Any
    seconds_left: float  # estimated
    prices: Prices = DEFAULTS
    seconds: float = 0.0  # of the last piece

    @cached_property
    def left(self) -> list[tuple[MemoryVectorCache, str]]:
        """The texts, with their encoders, the longest first."""
        queries, passages = self.request.texts_to_encode()
        encoders = ((self.encoder.for_queries, queries), (self.encoder, passages))
        left = [(encoder, text) for encoder, texts in encoders for text in encoder.missing(texts)]
        return sorted(left, key=lambda entry: len(entry[1]), reverse=True)

    def next_piece(self, seconds: float) -> list[tuple[MemoryVectorCache, str]]:
        """Take texts of similar lengths, with their encoders, of about this estimated time."""
        piece, self.seconds = [], 0.0
        while self.left and self.seconds < seconds:
            piece.append(self.left.pop())
            self.seconds += encoding_seconds(1, num_encoded_chars([piece[-1][1]]), self.prices)
        self.count_left()
        return piece

    def count_left(self) -> None:
        """Estimate the time to encode the texts that are left, without those whose vectors are known."""
        num_chars = num_encoded_chars(text for _, text in self.left)
        self.seconds_left = encoding_seconds(len(self.left), num_chars, self.prices)


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
    """A job of an unanswered request; times are of the batcher's clock."""

    uid: str
    sender: Sender
    kind: str  # of its engine
    job: Any
    num_documents: int
    work_kind: str  # of its speed
    seconds: float  # estimated work
    arrival: float
    deadline: float
    result: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def group(self) -> tuple[str, bool]:
        """Requests of one group share batches; explanations take long, so that others do not wait for theirs."""
        return self.kind, self.is_long

    @property
    def is_long(self) -> bool:
        """Whether other requests may be answered between the steps of this one."""
        return self.work_kind.endswith(EXPLAIN)


class _Lane:
    """A thread, the jobs that wait for it, and the unanswered work.

    Args:
        batch_seconds: Estimated seconds of work at which a batch is full.
        patience: Seconds after which a job may pass those of the fair order.
    """

    def __init__(self, batch_seconds: float, patience: float) -> None:
        self.batch_seconds = batch_seconds
        self.waiting: FairQueue[_Waiting] = FairQueue(patience)
        self.running: list[_Waiting] = []
        self.thread = ThreadPoolExecutor(1)
        self.speeds = MeasuredSpeeds()
        self.unanswered = Backlog(self.speeds.of)
        self._known: dict[str, float] = {}  # speeds at which the unanswered work is estimated
        self._expected_end = 0.0  # of the running batch

    def begin(self, batch: list[_Waiting], now: float) -> None:
        """Note that a batch runs, so that its work waits no longer."""
        self.running = batch
        self._expected_end = now + sum(self.speeds.of(one.work_kind) * one.seconds for one in batch)
        for one in batch:
            self.unanswered.start(one.uid, one.seconds)

    def learn(self, batch: Sequence[_Waiting], seconds: float) -> None:
        """Learn the speed of a batch that has run."""
        estimated = defaultdict[str, float](float)
        for one in batch:
            estimated[one.work_kind] += one.seconds
        self.speeds.learn(estimated, seconds)
        for kind in estimated:
            if abs(self.speeds.of(kind) / self._known.get(kind, 1.0) - 1) > NOTABLE_CHANGE:
                self._known[kind] = self.speeds.of(kind)
                self.unanswered.reprice()

    def wait(self, sender: Sender, seconds: float, now: float, *, is_long: bool = False) -> float:
        """Estimate how long a further request of so many measured seconds of work would wait.

        The rest of the running batch counts if it is longer than a usual batch, and if the request ``is_long`` or the
        batch is not, as short requests are answered between the steps of long ones.
        """
        running = 0.0
        if self.running and (is_long or not self.running[0].is_long):
            running = self._rest(now)
        return running + self.unanswered.wait(sender, seconds)

    def longest_wait(self, now: float) -> float:
        """Return an upper bound of :meth:`wait` for any sender, which takes no time to compute."""
        return (self._rest(now) if self.running else 0.0) + self.unanswered.seconds

    def _rest(self, now: float) -> float:
        """Estimate how much longer the running batch takes than a usual batch."""
        return max(0.0, self._expected_end - now - self.batch_seconds)


class Batcher:
    """Lets engines answer requests in batches.

    - A thread takes the waiting requests as soon as it is free, at most ``batch_requests`` and up to
      ``batch_candidates`` documents: a single request never waits for others, and under load batches fill up.
    - Clients share a thread fairly, as do the connections of one client (:class:`FairQueue`).
    - Texts that an engine needs as vectors are encoded before, by another thread. Long requests are encoded in
      pieces and wait for their turn after each, so that short requests wait for one piece of each.
    - Explanations take long. Between their steps the thread answers one batch of the other requests that wait.
    - Each request has a deadline. Expired ones are not computed; long work is checked between its steps.
    - The wait of a further request is estimated from the work that is waiting, at the speed that was measured for each
      kind of work. A request that would end after its deadline is refused at once.

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
        self.prices: Mapping[str, Prices] = {}  # by kind of engine; those of the encoder have the key `ENCODING`
        self._most = (batch_requests, batch_candidates)
        self._clock = clock
        patience = limits.queue_seconds / 2
        self._reading, self._writing, self._feedback = (_Lane(BATCH_SECONDS, patience) for _ in range(3))
        self._encoding = _Lane(ENCODING_SECONDS, patience)
        self._smallest = _Smallest(clock)
        self._smallest.note(DEFAULT_PRICES["requests"])
        self._next_look = -math.inf
        self._quick: dict[Sender, tuple[float, float]] = {}  # time of an estimated wait, and the wait

    @property
    def slowness(self) -> float:
        """Measured seconds per estimated second of work."""
        return self._reading.speeds.overall

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for an engine that reads."""
        return not (len(self._reading.waiting) or self._reading.running)

    def priced(self, kind: str, work: Work) -> Work:
        """Return the work of a request at the prices that were fitted for its engine.

        Args:
            kind: Kind of the engine.
            work: Work at the default prices.

        Returns:
            The same work with other ``seconds``; ``work`` if no prices were fitted.
        """
        return self.prices[kind].reprice(work) if kind in self.prices else work

    @property
    def _piece_seconds(self) -> float:
        """Estimated seconds of a piece of texts, from the measured speed of the encoder."""
        return ENCODING_SECONDS / self._encoding.speeds.of(ENCODING)

    def check_wait(self, sender: Sender = Sender()) -> None:  # noqa: B008
        """Raise a refusal if even a small request of a sender would wait too long.

        The request's own work is not known yet, so that of the smallest request that was seen lately is used. Now and
        then a request passes in spite of it, so that smaller ones are noticed; :meth:`ask` refuses it if it is large.

        Args:
            sender: Who sends the request.
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
        """Refuse a client that has more than its share of the unanswered requests, if there are too many."""
        lanes, most = (self._reading, self._writing, self._feedback), self.limits.waiting
        if len(lanes[0].unanswered) + len(lanes[1].unanswered) + len(lanes[2].unanswered) < most:
            return
        clients = set[str]().union(*(lane.unanswered.clients for lane in lanes), {sender.client})
        if sum(lane.unanswered.requests_of(sender.client) for lane in lanes) >= most // len(clients):
            raise Refusal(429, f"too many requests: {most} are waiting", retry_after=1)

    def _check_wait(self, seconds: float) -> None:
        if seconds > (most := self.limits.queue_seconds):
            message = f"too many requests: the wait would be above {most:g} seconds; try again later"
            raise Refusal(429, message, retry_after=math.ceil(seconds - most / 2))

    def _encoding_job(self, kind: str, job: Any, work: Work) -> EncodingJob | None:
        """Return the job that encodes a request's texts before its engine answers; None if there is nothing to encode.

        Args:
            kind: Kind of the engine.
            job: What the engine needs.
            work: Estimated work of the request.

        Raises:
            Refusal: 422 if there are more characters to encode than ``limits.encoded_chars``.
        """
        if not work.encoded_chars or kind not in self.engines or (encoder := self.engines[kind].encoder) is None:
            return None
        if work.encoded_chars > (most := self.limits.encoded_chars):
            message = f"the texts must have at most `limits.encoded_chars` = {most} characters to encode"
            raise Refusal(422, f"{message}, of each the first {READ_CHARS}, got {work.encoded_chars}")
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
        """Let an engine do a job.

        Args:
            kind: Kind of the engine.
            job: What the engine needs.
            work: Estimated work at the prices of :meth:`priced`.
            uid: Id of the request.
            sender: Who sent the request.
            arrival: Time of the clock at which the request arrived; None for now.
            receive: Returns the ASGI messages of the client.

        Returns:
            The engine's result.

        Raises:
            Refusal: Of the engine; 422 for too many characters to encode; 413 for a request that cannot be answered
                within its deadline; 429 for a long wait; 504 at the deadline; 499 if the client is gone.
        """
        arrival = self._clock() if arrival is None else arrival
        deadline = arrival + self.limits.request_seconds
        sender = sender if sender.connection else sender._replace(connection=uid)
        lane = {WRITING: self._writing, FEEDBACK: self._feedback}.get(kind, self._reading)
        work_kind = f"{kind}/{work.kind}"
        texts = self._encoding_job(kind, job, work)
        if texts is not None and lane is self._writing:  # its texts are many, and wait for those of searches
            deadline += 2 * self._encoding.speeds.of(ENCODING) * texts.seconds_left
        if lane is self._reading:
            self._smallest.note(lane.speeds.of(work_kind) * work.seconds)
        await self._check_end(lane, work_kind, work, texts, sender, deadline)
        # counted at once, so that requests that arrive together see each other
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
            rest = max(0.0, deadline - self._clock())
            await asyncio.wait(events, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                return answered.result()
            if events[-1].done():
                raise Refusal(499, "the client is gone")
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
        """Refuse a request that would wait too long or end after its deadline."""
        self._check_number(sender)
        now = self._clock()
        own = lane.speeds.of(work_kind) * work.seconds
        longest = lane.longest_wait(now)
        if texts is None and longest <= self.limits.queue_seconds and longest + own <= deadline - now:
            return  # no matter whose turn is when
        wait = lane.wait(sender, own, now, is_long=work.kind == EXPLAIN)
        self._check_wait(wait)
        if texts is None:
            self._check_deadline(wait + own, work.seconds, deadline - now, "")
            return
        speed = self._encoding.speeds.of(ENCODING)
        for is_exact in (False, True):
            encoding = speed * texts.seconds_left
            turn = self._encoding.wait(sender, encoding, now)
            try:
                self._check_wait(turn)
                end = max(wait, turn + encoding) + own
                self._check_deadline(end, texts.seconds_left + work.seconds, deadline - now, " or shorter texts")
                return
            except Refusal:
                if is_exact:
                    raise
            await asyncio.to_thread(texts.count_left)  # without texts whose vectors are known, which takes time

    def _check_deadline(self, seconds: float, alone: float, left: float, hint: str) -> None:
        """Refuse a request of which the answer is estimated to take longer than is left.

        Args:
            seconds: Estimated seconds from now to the answer.
            alone: Estimated seconds of the work on a service that does nothing else.
            left: Seconds to the deadline.
            hint: What else makes the request shorter.
        """
        if seconds <= left or left <= 0:  # the latter is 504
            return
        most = self.limits.request_seconds
        if alone > most:
            message = f"the request would take about {alone:.0f} seconds, of `limits.request_seconds` = {most:g}"
            raise Refusal(413, f"{message}; give fewer documents{hint}")
        message = f"too many requests: no answer is expected within {most:g} seconds; try again later, or send less"
        raise Refusal(429, message, retry_after=max(1, math.ceil(seconds - left)))

    async def _encode_first(self, texts: EncodingJob, lane: _Lane, waiting: _Waiting) -> Any:
        """Encode the texts of a request piece by piece, then return the result of its job."""
        while texts.seconds_left:
            seconds = min(texts.seconds_left, self._piece_seconds)
            # pieces of long requests are separate batches, so that short ones do not end with them
            length = "short" if texts.seconds_left == seconds else "long"
            uid, sender = waiting.uid, waiting.sender
            piece = _Waiting(uid, sender, length, texts, 1, ENCODING, seconds, waiting.arrival, waiting.deadline)
            await self._enqueue(self._encoding, piece)
            self._encoding.unanswered.count(uid, sender, ENCODING, texts.seconds_left)
        return await self._enqueue(lane, waiting)

    def _enqueue(self, lane: _Lane, waiting: _Waiting) -> asyncio.Future[Any]:
        """Let a job wait for its lane, and return its future result."""
        seconds = lane.speeds.of(waiting.work_kind) * waiting.seconds
        lane.waiting.add(waiting, waiting.sender, seconds, self._clock())
        asyncio.get_running_loop().call_soon(self._start, lane)  # later: requests that arrive together share a batch
        return waiting.result

    def _start(self, lane: _Lane) -> None:
        """Hand the next batch to the thread, if it is free."""
        if lane.running or not (batch := self._next_batch(lane)):
            return
        now = self._clock()
        lane.begin(batch, now)
        loop, rest = asyncio.get_running_loop(), max(waiting.deadline for waiting in batch) - now
        overrun = loop.call_later(rest + GRACE_SECONDS, _end_process)
        done = loop.run_in_executor(lane.thread, self._work, batch, lane, loop)
        done.add_done_callback(lambda done: self._finish(lane, overrun, *done.result()))
        metrics.QUEUE_LENGTH.set(len(self._reading.waiting))

    def _finish(self, lane: _Lane, overrun: asyncio.TimerHandle, seconds: float, results: Mapping[str, Any]) -> None:
        """Deliver a batch's results, learn its speed, and start the next."""
        overrun.cancel()
        self._deliver(lane, lane.running, seconds, results)
        lane.running = []
        asyncio.get_running_loop().call_soon(self._start, lane)  # when the next pieces of these requests wait, too

    def _deliver(self, lane: _Lane, batch: Sequence[_Waiting], seconds: float, results: Mapping[str, Any]) -> None:
        """Deliver the results of a batch, and learn its speed."""
        lane.learn(batch, seconds)
        metrics.SLOWNESS.set(self.slowness)
        for waiting in batch:
            result, future = results.get(waiting.uid) or too_late(), waiting.result
            if not future.done():
                (future.set_exception if isinstance(result, Refusal) else future.set_result)(result)

    def _next_batch(self, lane: _Lane, *, is_between: bool = False) -> list[_Waiting]:
        """Take requests of the same group as the first one, up to a batch; skip those that nobody waits for.

        A batch ``is_between`` the steps of explanations and has none.
        """
        now = self._clock()
        lane.waiting.discard(lambda waiting: waiting.result.done() or waiting.deadline <= now)
        group: tuple[str, bool] | None = None
        requests, candidates, seconds = 0, 0, 0.0
        most_requests, most_candidates = self._most

        def choose(waiting: _Waiting) -> bool | None:
            nonlocal group, requests, candidates, seconds
            if requests >= most_requests or candidates >= most_candidates or seconds >= lane.batch_seconds:
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
        """Answer a batch in the thread; return the seconds that it took, and the result of each request by id.

        Those of long requests include what was answered between their steps, as further ones will wait for that too.
        """
        begin, last = self._clock(), max(waiting.deadline for waiting in batch)

        def check() -> None:
            if self._clock() > last:
                raise TimeoutError
            if batch[0].is_long:
                self._work_between(lane, loop)

        jobs = {waiting.uid: waiting.job for waiting in batch}
        if isinstance(batch[0].job, EncodingJob):
            results = answer_all(EncodingEngine(self._piece_seconds), jobs, check)
            for waiting in batch:
                waiting.seconds = waiting.job.seconds  # without those that were encoded before
        else:
            metrics.BATCH_REQUESTS.observe(len(batch))
            for waiting in batch:
                metrics.STAGE_SECONDS.labels("queue").observe(begin - waiting.arrival)
            results = answer_all(self.engines[batch[0].kind], jobs, check)
        return self._clock() - begin, results

    def _work_between(self, lane: _Lane, loop: asyncio.AbstractEventLoop) -> None:
        """Answer one batch of short requests that wait, between two steps of a long one."""

        async def take() -> list[_Waiting]:
            batch = self._next_batch(lane, is_between=True)
            for waiting in batch:
                lane.unanswered.start(waiting.uid, waiting.seconds)
            return batch

        taking = asyncio.run_coroutine_threadsafe(take(), loop)
        try:
            batch = taking.result(LOOP_SECONDS)
        except (TimeoutError, CancelledError):  # the process ends
            taking.cancel()
            return
        if batch:
            loop.call_soon_threadsafe(self._deliver, lane, batch, *self._work(batch, lane, loop))


class _Smallest:
    """The smallest of some numbers in the last one or two periods of ``SMALLEST_SECONDS``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = -math.inf
        self._before, self._current = math.inf, math.inf

    def note(self, seconds: float) -> None:
        """Note a number."""
        if (now := self._clock()) > self._end:
            is_old = now > self._end + SMALLEST_SECONDS
            self._before, self._current = math.inf if is_old else self._current, math.inf
            self._end = now + SMALLEST_SECONDS
        self._current = min(self._current, seconds)

    @property
    def seconds(self) -> float:
        """The smallest number; 0 if there is none."""
        smallest = min(self._before, self._current)
        return 0.0 if smallest == math.inf else smallest


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _end_process() -> None:
    """End a process whose engine does not come back."""
    log("engine overran, the process is replaced", level=logging.ERROR, pid=os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)
