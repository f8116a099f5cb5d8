"""Admission of requests: fair shares, measured speeds and deadlines. Only the engines advance the clock."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.serving.batching import Batcher
from graphrerank.serving.engine import Engine, Refusal
from graphrerank.serving.fair_queue import Sender
from graphrerank.serving.limits import Limits
from graphrerank.serving.prices import ENCODING, Prices, Work


@dataclass
class Job:
    """A job of some estimated and actual seconds."""

    estimate: float
    actual: float
    kind: str = "scores"
    texts: Sequence[str] = ()

    @property
    def work(self) -> Work:
        return Work(self.estimate, len(self.texts) or 1, sum(map(len, self.texts)), self.kind)

    def texts_to_encode(self) -> tuple[list[str], list[str]]:
        return [], list(self.texts)


class Simulation(Engine[Any]):
    """A batcher whose engine and encoder advance its clock by the actual seconds of the work."""

    encoder: MemoryVectorCache | None = None
    dim, name, fingerprint = 2, "simulated", "f" * 64

    def __init__(self, seconds_per_text: float = 0.0, **limits: Any) -> None:
        self.time = 0.0
        self.encoder = MemoryVectorCache(self) if seconds_per_text else None
        self.seconds_per_text = seconds_per_text
        self.batcher = Batcher({"a": self}, Limits(**limits), clock=lambda: self.time)  # type: ignore[dict-item]
        self.statuses: dict[str, list[int]] = {}
        self.waits: dict[str, list[float]] = {}
        self.retries: list[int] = []

    def answer(self, jobs: Any, check: Any) -> dict[str, str]:
        for job in jobs.values():
            self.time += job.actual
            check()
        return dict.fromkeys(jobs, "result")

    def warm_up(self) -> None:
        return

    def encode(self, texts: Sequence[str]) -> Tensor:
        self.time += self.seconds_per_text * len(texts)
        return torch.ones(len(texts), 2)

    async def ask(self, job: Job, client: str, connection: str, uid: str) -> int:
        sender, begin = Sender(client, connection), self.time
        try:
            self.batcher.check_wait(sender)
            await self.batcher.ask("a", job, job.work, uid, sender=sender)
            status = 200
            self.waits.setdefault(client, []).append(self.time - begin)
        except Refusal as refusal:
            status = refusal.status_code
            if status == 429:
                self.retries.append(refusal.retry_after or 0)
        self.statuses.setdefault(client, []).append(status)
        return status

    def counts(self, client: str) -> Counter[int]:
        return Counter(self.statuses.get(client, ()))


EXPLAIN = Job(2.0, 2.0, "explain")
PLAIN = Job(0.01, 0.01)


async def load(simulation: Simulation, clients: Sequence[tuple[str, Job, int, int]]) -> None:
    """Let each client's connections ask a number of times, one request after the other."""
    ids = iter(range(10**6))

    async def connection(client: str, job: Job, name: str, times: int) -> None:
        for _ in range(times):
            await simulation.ask(job, client, name, f"r{next(ids)}")

    await asyncio.gather(
        *(
            connection(client, job, f"{client} {job.kind} {number}", times)
            for client, job, connections, times in clients
            for number in range(connections)
        )
    )


@pytest.mark.parametrize("heavy", ["heavy", "plain"], ids=["another address", "the same address"])
@pytest.mark.parametrize("connections", [1, 4, 40])
def test_connections_with_expensive_requests_refuse_nobody_else(heavy: str, connections: int) -> None:
    """One connection refused half of everybody, and four nearly all."""
    simulation = Simulation()
    asyncio.run(load(simulation, [(heavy, EXPLAIN, connections, 5), ("plain", PLAIN, 8, 25)]))
    statuses = simulation.counts("plain")
    assert statuses[200] >= 200
    assert 504 not in statuses + simulation.counts(heavy)
    if heavy != "plain":
        assert statuses == {200: 200}
        assert simulation.counts(heavy)[200] >= 5  # it has its share
        assert max(simulation.waits["plain"]) < 5


def test_the_wait_is_estimated_at_the_measured_speed_of_each_kind() -> None:
    """Explanations that take four times their price are answered in time or refused at once: 504 before."""
    simulation = Simulation(queue_seconds=10.0, request_seconds=30.0)
    slow = Job(0.5, 2.0, "explain")

    async def play() -> None:
        await load(simulation, [("one", slow, 1, 4), ("one", PLAIN, 1, 4)])  # which the speeds are learned from
        await load(simulation, [(f"client {number}", slow, 1, 1) for number in range(100)])

    asyncio.run(play())
    statuses = Counter(status for each in simulation.statuses.values() for status in each)
    assert set(statuses) == {200, 429}
    assert statuses[200] >= 8 + 5  # ten seconds of work wait
    assert max(max(waits) for waits in simulation.waits.values()) < 20
    assert min(simulation.retries) >= 1


def test_one_kind_that_is_slow_does_not_refuse_the_others() -> None:
    """Plain requests were estimated at the speed of explanations."""
    simulation = Simulation(queue_seconds=1.0)
    slow = Job(0.1, 3.0, "explain")

    async def play() -> None:
        await load(simulation, [("one", slow, 1, 20), ("one", PLAIN, 1, 20)])
        simulation.statuses.clear()
        await load(simulation, [("one", Job(0.05, 0.05), 10, 1)])

    asyncio.run(play())
    assert simulation.counts("one") == {200: 10}


def test_short_requests_are_answered_between_the_steps_of_explanations() -> None:
    """They waited for whole explanations, however small they were."""
    simulation, order = Simulation(queue_seconds=1.0), list[str]()

    def answer(jobs: Any, check: Any) -> dict[str, str]:
        for uid, job in jobs.items():
            for _ in range(10 if job.kind == "explain" else 1):
                simulation.time += job.actual / 10
                check()
            order.append(uid)
        return dict.fromkeys(jobs, "result")

    simulation.answer = answer  # type: ignore[method-assign]

    async def play() -> None:
        long = [asyncio.create_task(simulation.ask(EXPLAIN, "heavy 0", "1", "long 0"))]
        while not simulation.time:
            await asyncio.sleep(0)
        await asyncio.gather(*(simulation.ask(PLAIN, "plain", f"{n}", f"short {n}") for n in range(5)), *long)

    asyncio.run(play())
    assert [uid[:5] for uid in order] == ["short"] * 5 + ["long "]
    assert max(simulation.waits["plain"]) < 2 < max(simulation.waits["heavy 0"])


def test_a_client_with_many_requests_leaves_places_to_others() -> None:
    simulation = Simulation(waiting=10, queue_seconds=1000.0)
    asyncio.run(load(simulation, [("many", PLAIN, 30, 1), ("few", PLAIN, 3, 1)]))
    assert simulation.counts("few") == {200: 3}
    assert simulation.counts("many")[429] >= 15


LONG = [f"{number:03d}".ljust(900, "x") for number in range(270)]


def test_encoding_that_cannot_end_in_time_is_refused_at_once() -> None:
    """270 texts of 900 characters on a busy core took 30 seconds and ended with 504."""
    simulation = Simulation(seconds_per_text=0.15)
    job, short = Job(0.01, 0.01, texts=LONG), Job(0.01, 0.01, texts=LONG[:10])

    async def play() -> tuple[int, int, float]:
        for number in range(3):  # at three times the estimate
            texts = [f"{number} {text}" for text in short.texts]
            assert await simulation.ask(Job(0.01, 0.01, texts=texts), "one", "1", f"learn {number}") == 200
        before = simulation.time
        refused = await simulation.ask(job, "one", "1", "long")
        return refused, await simulation.ask(short, "one", "1", "short"), simulation.time - before

    refused, answered, seconds = asyncio.run(play())
    assert (refused, answered) == (429, 200)  # where the machine is idle it succeeds
    assert seconds < 5
    assert simulation.retries[0] >= 1


def test_encoding_that_never_ends_in_time_is_too_large() -> None:
    simulation = Simulation(seconds_per_text=0.15)
    simulation.batcher.prices = {ENCODING: Prices({"encoded_texts": 0.15, "encoded_characters": 0.0})}
    job = Job(0.01, 0.01, texts=LONG)
    assert asyncio.run(simulation.ask(job, "one", "1", "long")) == 413
    assert simulation.time == 0


def test_texts_whose_vectors_are_known_take_no_time() -> None:
    simulation = Simulation(seconds_per_text=0.15)
    simulation.batcher.prices = {ENCODING: Prices({"encoded_texts": 0.15, "encoded_characters": 0.0})}

    async def play() -> int:
        for start in range(0, len(LONG), 90):
            job = Job(0.01, 0.01, texts=LONG[start : start + 90])
            assert await simulation.ask(job, "one", "1", f"{start}") == 200
        return await simulation.ask(Job(0.01, 0.01, texts=LONG), "one", "1", "all")

    assert asyncio.run(play()) == 200


def test_work_that_cannot_end_in_time_is_refused_before_it_is_done() -> None:
    simulation = Simulation(request_seconds=5.0, queue_seconds=100.0)
    asyncio.run(load(simulation, [(f"client {number}", EXPLAIN, 1, 1) for number in range(9)]))
    statuses = Counter(status for each in simulation.statuses.values() for status in each)
    assert set(statuses) == {200, 429}
    assert simulation.time <= 6
