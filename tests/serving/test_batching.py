"""Requests that wait for engines, and their results."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.serving.batching import Batcher
from graphrerank.serving.engine import Engine, Refusal
from graphrerank.serving.limits import Limits
from graphrerank.serving.prices import Work
from tests.support import ROOT
from tests.support.clocks import Clock, run_with_clock
from tests.support.encoders import HashEncoder


@dataclass
class Job:
    """A job of so many documents and seconds."""

    num_documents: int = 1
    seconds: float = 0.001
    is_bad: bool = False
    texts: Sequence[str] = ()

    @property
    def work(self) -> Work:
        return Work(self.seconds, self.num_documents, sum(map(len, self.texts)))

    def texts_to_encode(self) -> tuple[list[str], list[str]]:
        return [], list(self.texts)


class Recorder(Engine[Any]):
    """An engine that records its batches, and waits until it may answer."""

    encoder: MemoryVectorCache | None = None

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.has_begun = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def answer(self, jobs: Any, check: Any) -> dict[str, str]:
        self.batches.append(list(jobs))
        self.has_begun.set()
        assert self.may_answer.wait(20)
        check()
        if any(job.is_bad for job in jobs.values()):
            raise ValueError("`field` is bad")
        return {uid: f"result of {uid}" for uid in jobs}

    def warm_up(self) -> None:
        self.batches.append(["warm"])


def play(
    *requests: tuple[str, Job],
    engines: dict[str, Recorder],
    clock: Clock | None = None,
    hold: float | None = None,
    **settings: Any,
) -> list[Any]:
    """Ask for all requests together.

    With ``hold`` the engines answer only when so many seconds have passed and all requests are answered without them.
    """
    batching = {key: settings.pop(key) for key in ("batch_requests", "batch_candidates") if key in settings}
    arrival, receive = settings.pop("arrival", None), settings.pop("receive", None)
    clock = clock or Clock()

    async def ask_all() -> list[Any]:
        batcher = Batcher(engines, Limits(**settings), clock=clock, **batching)
        tasks = [
            asyncio.create_task(batcher.ask(kind, job, job.work, f"r{index}", arrival=arrival, receive=receive))
            for index, (kind, job) in enumerate(requests)
        ]
        if hold is not None:
            for engine in engines.values():
                assert await asyncio.to_thread(engine.has_begun.wait, 20)
            clock.move(hold)
            await asyncio.wait(tasks)
            for engine in engines.values():
                engine.may_answer.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    if hold is not None:
        for engine in engines.values():
            engine.may_answer.clear()
    return list(run_with_clock(ask_all(), clock))


@pytest.mark.parametrize(
    ("sizes", "expected"), [([1] * 6, [4, 2]), ([60, 30, 20, 1], [3, 1]), ([500, 1, 1], [1, 2]), ([1], [1])]
)
def test_a_batch_takes_what_waits_up_to_its_limits(sizes: list[int], expected: list[int]) -> None:
    engine = Recorder()
    requests = [("a", Job(size)) for size in sizes]
    results = play(*requests, engines={"a": engine}, batch_requests=4, batch_candidates=100)
    assert [len(batch) for batch in engine.batches] == expected
    assert results == [f"result of r{index}" for index in range(len(sizes))]


def test_a_batch_is_of_one_kind_and_the_longest_waiting_comes_first() -> None:
    one, other = Recorder(), Recorder()
    play(*((kind, Job()) for kind in "abaab"), engines={"a": one, "b": other}, batch_requests=4)
    assert (one.batches, other.batches) == ([["r0", "r2", "r3"]], [["r1", "r4"]])


def test_a_batch_is_no_longer_than_its_limit_in_seconds() -> None:
    """So that long requests do not expire with their batch."""
    engine = Recorder()
    play(*[("a", Job(seconds=0.3))] * 4, engines={"a": engine})
    assert engine.batches == [["r0", "r1"], ["r2", "r3"]]


def test_searches_do_not_wait_for_documents_that_are_added() -> None:
    writing, reading = Recorder(), Recorder()
    writing.may_answer.clear()

    async def ask() -> None:
        batcher = Batcher({"documents": writing, "search": reading}, Limits())
        slow = asyncio.create_task(batcher.ask("documents", Job(), Job().work, "w"))
        assert await batcher.ask("search", Job(), Job().work, "r") == "result of r"
        assert not slow.done()
        writing.may_answer.set()
        assert await slow == "result of w"

    asyncio.run(ask())


def test_one_bad_job_does_not_harm_its_batch() -> None:
    engine = Recorder()
    results = play(("a", Job()), ("a", Job(is_bad=True)), ("a", Job()), engines={"a": engine})
    assert [str(result) for result in results] == ["result of r0", "422: `field` is bad", "result of r2"]
    assert engine.batches == [["r0", "r1", "r2"], ["r0"], ["r1"], ["r2"]]


def test_expired_requests_are_answered_and_not_computed() -> None:
    engine = Recorder()
    late = play(("a", Job()), engines={"a": engine}, request_seconds=1.0, arrival=-2.0)
    assert (late[0].status_code, engine.batches) == (504, [])  # its body came slowly
    results = play(*[("a", Job())] * 3, engines={"a": engine}, hold=0.2, request_seconds=0.1, batch_requests=1)
    assert [result.status_code for result in results] == [504] * 3
    assert engine.batches == [["r0"]]


def test_long_work_stops_when_nobody_waits_any_longer() -> None:
    engine, clock = Recorder(), Clock()
    engine.may_answer.clear()
    stopped, has_stopped = [], threading.Event()
    record = engine.answer

    def answer(jobs: Any, check: Any) -> Any:
        try:
            return record(jobs, check)
        except TimeoutError:
            stopped.extend(jobs)
            raise
        finally:
            has_stopped.set()

    engine.answer = answer  # type: ignore[method-assign]

    async def ask() -> None:
        batcher = Batcher({"a": engine}, Limits(request_seconds=0.1), clock=clock)
        request = asyncio.create_task(batcher.ask("a", Job(), Job().work, "r0"))
        assert await asyncio.to_thread(engine.has_begun.wait, 20)
        clock.move(0.2)
        with pytest.raises(Refusal, match="504"):
            await request
        engine.may_answer.set()
        assert await asyncio.to_thread(has_stopped.wait, 20)

    run_with_clock(ask(), clock)
    assert stopped == ["r0"]


def test_requests_whose_client_is_gone_are_not_computed() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    engine = Recorder()
    first, second = play(*[("a", Job())] * 2, engines={"a": engine}, hold=0.0, batch_requests=1, receive=receive)
    assert (first.status_code, second.status_code) == (499, 499)
    assert engine.batches == [["r0"]]


def test_requests_are_refused_when_the_wait_would_be_too_long() -> None:
    engine, limits = Recorder(), Limits(queue_seconds=3.0, waiting=5)

    async def ask() -> None:
        batcher = Batcher({"a": engine}, limits, batch_requests=1)
        engine.may_answer.clear()
        job = Job(seconds=1.0)
        tasks = [asyncio.create_task(batcher.ask("a", job, job.work, f"r{index}")) for index in range(10)]
        await asyncio.sleep(0)  # each task runs until it waits, or is refused
        refusals = [task.exception() for task in tasks if task.done()]
        assert len(refusals) == 6  # the fifth would wait for four seconds
        assert {refusal.status_code for refusal in refusals} == {429}
        assert all(int(refusal.headers["retry-after"]) >= 1 for refusal in refusals)
        more = asyncio.create_task(batcher.ask("documents", Job(), Job().work, "more"))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="too many requests, 5 are waiting"):
            batcher.check_wait()
        more.cancel()
        engine.may_answer.set()
        await asyncio.gather(*(task for task in tasks if not task.done()))
        assert batcher.slowness < 1  # it is faster than estimated

    asyncio.run(ask())


def test_a_wrong_estimate_of_one_request_slows_no_others() -> None:
    engine, clock = Recorder(), Clock()

    def wrong(jobs: Any, check: Any) -> Any:
        clock.move(0.5 if any(job.is_bad for job in jobs.values()) else 0.002)
        return dict.fromkeys(jobs, "result")

    async def ask() -> None:
        batcher = Batcher({"a": engine}, Limits(queue_seconds=1.0), clock=clock)
        for number in range(60):
            await batcher.ask("a", Job(seconds=0.002), Job(seconds=0.002).work, f"{number}")
        before = batcher.slowness
        await batcher.ask("a", Job(seconds=0.002, is_bad=True), Job(seconds=0.002).work, "wrong")
        assert batcher.slowness < 1.5 * before

    engine.answer = wrong  # type: ignore[method-assign]
    run_with_clock(ask(), clock)


class SlowEncoder(HashEncoder):
    """Takes 20 ms a text, on a clock, and pauses after the texts that a test names."""

    def __init__(self, clock: Clock, pause_after: Sequence[str] = ()) -> None:
        super().__init__()
        self.batches: list[int] = []
        self._clock, self._pause_after = clock, set(pause_after)
        self.has_paused, self.may_encode = threading.Event(), threading.Event()
        self.may_encode.set()

    def encode(self, texts: Sequence[str]) -> Tensor:
        assert self.may_encode.wait(20)
        self.batches.append(len(texts))
        self._clock.move(0.02 * len(texts))
        if self._pause_after & set(texts):
            self.may_encode.clear()
            self.has_paused.set()
        return super().encode(texts)


LONG = [f"{number:05d}" + "x" * 495 for number in range(80)]  # 1.6 seconds


def test_short_requests_are_encoded_between_the_pieces_of_long_ones_and_others_do_not_wait() -> None:
    encoding, other, clock = Recorder(), Recorder(), Clock()
    source = SlowEncoder(clock, pause_after=[LONG[-1], "short"])  # the first piece has the last text
    encoding.encoder = MemoryVectorCache(source)
    ended: list[str] = []

    async def ask() -> None:
        limits = Limits(queue_seconds=0.01, request_seconds=1.0)
        batcher = Batcher({"a": encoding, "documents": encoding, "b": other}, limits, clock=clock)

        async def one(kind: str, job: Job, uid: str) -> None:
            await batcher.ask(kind, job, job.work, uid)
            ended.append(uid)

        long = asyncio.create_task(one("documents", Job(texts=LONG), "long"))
        assert await asyncio.to_thread(source.has_paused.wait, 20)
        short = asyncio.create_task(one("a", Job(texts=["short"]), "short"))
        await one("b", Job(), "no texts")
        source.may_encode.set()
        await short
        with pytest.raises(Refusal, match=r"the wait would exceed 0\.01 seconds"):
            await one("a", Job(texts=LONG), "too many")
        source.may_encode.set()
        await long

    run_with_clock(ask(), clock)
    assert ended == ["no texts", "short", "long"]
    assert sorted(source.asked) == sorted([*LONG, "short"])  # no text twice
    assert 8 <= source.asked.index("short") < 60
    assert encoding.batches == [["short"], ["long"]]


def test_short_texts_that_arrive_together_are_one_batch_of_the_encoder() -> None:
    engine, clock = Recorder(), Clock()
    engine.encoder = MemoryVectorCache(source := SlowEncoder(clock))
    play(*(("a", Job(texts=[f"text {number}"])) for number in range(9)), engines={"a": engine}, clock=clock)
    assert source.batches == [9]


def test_texts_to_encode_have_a_limit_and_nobodys_are_not_encoded() -> None:
    engine, clock = Recorder(), Clock()
    engine.encoder = MemoryVectorCache(source := SlowEncoder(clock))
    quick = [f"text {number}" for number in range(400)]  # eight seconds, of which estimates say one
    (late,) = play(("a", Job(texts=quick)), engines={"a": engine}, clock=clock, request_seconds=4.0)
    assert (late.status_code, engine.batches) == (504, [])
    assert 0 < len(source.asked) < len(quick)
    (refusal,) = play(("a", Job(texts=LONG)), engines={"a": engine}, encoded_chars=39_999)
    assert (refusal.status_code, "`limits.encoded_chars` = 39999" in refusal.detail) == (422, True)
    assert play(("a", Job(texts=LONG)), engines={"a": Recorder()}, encoded_chars=39_999) == ["result of r0"]


@pytest.mark.slow
def test_a_process_whose_engine_does_not_come_back_ends() -> None:
    """uvicorn starts another."""
    program = """
import asyncio
from graphrerank.serving.batching import Batcher
from graphrerank.serving.limits import Limits
from graphrerank.serving.prices import Work
from tests.serving.test_batching import Job, Recorder

async def ask():
    engine = Recorder()
    engine.may_answer.clear()
    batcher = Batcher({"a": engine}, Limits(request_seconds=0.1))
    await asyncio.gather(batcher.ask("a", Job(), Job().work, "r"), return_exceptions=True)
    await asyncio.Event().wait()

asyncio.run(ask())
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60, cwd=ROOT).returncode == -9
