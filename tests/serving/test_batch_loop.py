"""The way of requests through queue and workers, without processes."""

import asyncio
import time
from dataclasses import dataclass, field
from queue import Queue
from types import SimpleNamespace

import pytest

from graphrerank.serving import Limits
from graphrerank.serving.batch_loop import ANSWERS, STARTED, BatchLoop
from graphrerank.serving.engine import Answer
from graphrerank.serving.queue_spec import QueueSpec


@dataclass
class Sized:
    """A request of so many documents."""

    num_documents: int = 1


@dataclass
class Recorder:
    """An engine that records its batches, and a transport that records what it sends."""

    batches: list = field(default_factory=list)
    sent: list = field(default_factory=list)

    def answer(self, requests):
        self.batches.append(list(requests))
        if any(request == "bad" for request in requests.values()):
            raise ValueError("`field` is bad")
        return {uid: Answer(200, uid.encode()) for uid in requests}

    def send(self, item, consumer_id):
        self.sent.append((consumer_id, item))


def make_loop(**settings):
    return BatchLoop(
        **{"batch_requests": 4, "batch_candidates": 100, "request_seconds": 5, "http_processes": 2, **settings}
    )


def fill(requests):
    queue = Queue()
    for place, request in enumerate(requests):
        queue.put((place % 2, f"r{place}", time.monotonic(), request))
    return queue


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([1] * 6, [4, 2]), ([60, 30, 20, 1], [3, 1]), ([500, 1, 1], [1, 2]), ([1], [1])],
)
def test_a_batch_takes_what_waits_up_to_its_limits(sizes, expected):
    queue, loop = fill([("rerank", Sized(size)) for size in sizes]), make_loop()
    assert [len(loop.next_batch(queue)) for _ in expected] == expected
    assert queue.empty()


def test_answers_go_back_together_to_whom_they_belong():
    recorder, loop = Recorder(), make_loop(batch_requests=9)
    batch = loop.next_batch(fill([("a", 1), ("b", 2), ("a", 3), ("a", "bad"), ("b", 4)]))
    old = (0, "old", time.monotonic() - 6, ("a", 1))  # answered with 504 by now
    loop._work({"a": recorder, "b": recorder}, [old, *batch], recorder)
    assert recorder.batches == [["r0", "r2", "r3"], ["r0"], ["r2"], ["r3"], ["r1", "r4"]]  # the bad one fails alone
    sent = [(to, uid, {key: one.status for key, one in data.items()}) for to, (uid, (data, *_)) in recorder.sent]
    assert sent == [
        (0, ANSWERS, {"r0": 200, "r2": 200}),
        (1, ANSWERS, {"r3": 422}),
        (0, ANSWERS, {"r4": 200}),
        (1, ANSWERS, {"r1": 200}),
    ]


def test_a_worker_says_when_it_starts_and_ends_with_the_service():
    recorder = Recorder()
    gone = SimpleNamespace(get=lambda: (_ for _ in ()).throw(EOFError))
    make_loop()(SimpleNamespace(engines={}), "cpu", 3, gone, recorder, {}, None)
    assert [(to, uid, data) for to, (uid, (data, *_)) in recorder.sent] == [(0, STARTED, 3), (1, STARTED, 3)]


def spec_of(**limits):
    spec = QueueSpec(Limits(**limits))
    queue = Queue()
    spec.setup(SimpleNamespace(response_buffer={}, _get_request_queue=lambda path: queue, data_streamer=None))
    return spec


def post(spec, uid, message):
    """What LitServe does with what comes back."""
    item = spec.response_buffer.get(uid)
    item.response = [message, "OK"]
    item.event.set()


async def soon(condition):
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("nothing came")


def test_a_request_gets_its_answer():
    async def play():
        spec = spec_of()
        asked = [asyncio.create_task(spec.ask("rerank", place, f"r{place}")) for place in range(2)]
        await soon(lambda: spec.request_queue.qsize() == 2)
        post(spec, ANSWERS, {"r1": Answer(200, b"1"), "r0": Answer(200, b"0"), "gone": Answer(200, b"?")})
        assert [(await one).body for one in asked] == [b"0", b"1"]
        assert set(spec.response_buffer) == {ANSWERS, STARTED}

    asyncio.run(play())


def test_what_a_dead_worker_held_is_put_back_once():
    async def play():
        spec = spec_of()
        asked = asyncio.create_task(spec.ask("rerank", None, "r"))
        await soon(lambda: spec.request_queue.qsize() == 1)
        post(spec, STARTED, 0)  # the first worker
        post(spec, STARTED, 1)  # another one: nobody died
        await asyncio.sleep(0.01)
        assert spec.request_queue.qsize() == 1
        post(spec, STARTED, 1)
        await soon(lambda: spec.request_queue.qsize() == 2)
        post(spec, STARTED, 0)
        answer = await asked
        assert (answer.status, b"workers died" in answer.body) == (503, True)
        assert set(spec.response_buffer) == {ANSWERS, STARTED}

    asyncio.run(play())


def test_too_slow_and_too_many():
    async def play():
        spec = spec_of(request_seconds=0.02, waiting=2)
        answers = await asyncio.gather(*(spec.ask("rerank", None, f"r{place}") for place in range(3)))
        assert sorted(answer.status for answer in answers) == [429, 504, 504]
        assert set(spec.response_buffer) == {ANSWERS, STARTED}

    asyncio.run(play())
