"""The way of requests to workers and back, with threads in the place of processes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from graphrerank.serving.dispatcher import GRACE_SECONDS, Dispatcher
from graphrerank.serving.engine import Refusal
from graphrerank.serving.limits import Limits
from graphrerank.serving.messages import connect, listen, pack, read_message, receive


@dataclass
class Job:
    """A job of so many documents and seconds."""

    num_documents: int = 1
    seconds: float = 0.001
    num_chars: int = 0


class Unsendable(Job):
    """A job that cannot be pickled."""

    def __reduce__(self):
        raise RecursionError("too deep")


class Worker:
    """The worker's end of a connection, in the test's hands."""

    def __init__(self, address: Path, pid: int = 0) -> None:
        self.connection = connect(address)
        self.connection.settimeout(10)  # rather than to wait for ever
        self.connection.sendall(pack(pid))

    async def take(self):
        """Return the kind and the ids of a batch."""
        kind, requests = await asyncio.to_thread(receive, self.connection)
        return kind, [uid for uid, *_ in requests]

    def give(self, uids, seconds=0.001):
        self.connection.sendall(pack((seconds, {uid: f"result of {uid}" for uid in uids})))

    def is_idle(self):
        self.connection.settimeout(0.05)
        try:
            self.connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.connection.settimeout(10)
        return False


@asynccontextmanager
async def dispatching(folder, *, batch_requests=4, batch_candidates=100, http_processes=1, encodes=False, **limits):
    dispatcher = Dispatcher(
        Limits(**limits),
        batch_requests=batch_requests,
        batch_candidates=batch_candidates,
        http_processes=http_processes,
        encodes=encodes,
    )
    with listen(folder / "http-0") as listener:
        async with dispatcher.serving(listener):
            yield dispatcher, folder / "http-0"


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("s")  # a short path, as those of sockets must be


def ask_all(dispatcher, requests, **arguments):
    return [
        asyncio.create_task(dispatcher.ask(kind, job or Job(), f"r{index}", **arguments))
        for index, (kind, job) in enumerate(requests)
    ]


@pytest.mark.parametrize("size", [0, 10, 10**6])
def test_messages_come_as_they_were(folder, size):
    async def play():
        message = {"a": b"x" * size}
        there, here = socket.socketpair()
        thread = threading.Thread(target=there.sendall, args=(pack(message) * 2,))
        thread.start()
        assert receive(here) == message
        reader, writer = await asyncio.open_unix_connection(sock=here)
        assert await read_message(reader) == message
        thread.join()
        there.sendall(pack(message)[:5])
        there.close()
        with pytest.raises(EOFError):
            await read_message(reader)
        writer.close()

    asyncio.run(play())


def test_a_path_that_is_too_long_for_a_socket(folder):
    with pytest.raises(ValueError, match=r"x: cannot open a socket .* set TMPDIR"):
        listen(folder / ("x" * 200))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([1] * 6, [4, 2]), ([60, 30, 20, 1], [3, 1]), ([500, 1, 1], [1, 2]), ([1], [1])],
)
def test_a_batch_takes_what_waits_up_to_its_limits(folder, sizes, expected):
    async def play():
        async with dispatching(folder) as (dispatcher, address):
            asked, worker = ask_all(dispatcher, [("rerank", Job(size)) for size in sizes]), Worker(address)
            batches = [(await worker.take())[1] for _ in expected]
            assert [len(batch) for batch in batches] == expected
            for batch in batches:
                worker.give(batch)
            assert [await task for task in asked] == [f"result of r{index}" for index in range(len(sizes))]

    asyncio.run(play())


def test_a_batch_is_of_one_kind_and_the_longest_waiting_comes_first(folder):
    async def play():
        async with dispatching(folder) as (dispatcher, address):
            asked, worker = ask_all(dispatcher, [(kind, None) for kind in "abaab"]), Worker(address)
            first, second = await worker.take(), await worker.take()
            assert (first, second) == (("a", ["r0", "r2", "r3"]), ("b", ["r1", "r4"]))
            worker.give(first[1])
            worker.give(second[1])
            await asyncio.gather(*asked)

    asyncio.run(play())


def test_a_worker_holds_two_batches_and_the_idler_one_gets_the_next(folder):
    async def play():
        async with dispatching(folder, batch_requests=1) as (dispatcher, address):
            asked, worker = ask_all(dispatcher, [("rerank", None)] * 4), Worker(address)
            assert [await worker.take(), await worker.take()] == [("rerank", ["r0"]), ("rerank", ["r1"])]
            assert worker.is_idle()
            other = Worker(address)
            assert [await other.take(), await other.take()] == [("rerank", ["r2"]), ("rerank", ["r3"])]
            other.give(["r2"])
            assert await asked[2] == "result of r2"
            (late,) = ask_all(dispatcher, [("rerank", None)])
            assert await other.take() == ("rerank", ["r0"])
            for end, uid in ((other, "r3"), (other, "r0"), (worker, "r0"), (worker, "r1")):
                end.give([uid])
            await asyncio.gather(*asked, late)

    asyncio.run(play())


def test_a_batch_is_no_longer_than_its_limit_in_seconds(folder):
    """So that a request with many texts to encode does not expire with its batch."""

    async def play():
        async with dispatching(folder, encodes=True) as (dispatcher, address):
            asked, worker = ask_all(dispatcher, [("rerank", Job(num_chars=10_000))] * 4), Worker(address)
            for batch in (["r0", "r1"], ["r2", "r3"]):
                assert await worker.take() == ("rerank", batch)
                worker.give(batch, seconds=0.6)
            await asyncio.gather(*asked)

    asyncio.run(play())


def test_nobody_is_sent_behind_long_work(folder):
    """A small request waits for the first worker that is free, not for one that computes for long."""

    async def play():
        async with dispatching(folder) as (dispatcher, address):
            worker, other = Worker(address), Worker(address)
            (long,) = ask_all(dispatcher, [("rerank", Job(seconds=1.0))])
            await asyncio.sleep(0.05)
            busy, free = (other, worker) if worker.is_idle() else (worker, other)
            for _ in range(2):
                (short,) = ask_all(dispatcher, [("rerank", None)])
                free.give((await free.take())[1])
                assert await short == "result of r0"
            busy.give((await busy.take())[1])
            await long

    asyncio.run(play())


def test_requests_of_a_dead_worker_are_given_to_another_once_and_alone(folder):
    """A request that kills workers takes no other one with it."""

    async def play():
        async with dispatching(folder) as (dispatcher, address):
            asked, dying = ask_all(dispatcher, [("rerank", None)] * 2), Worker(address)
            assert await dying.take() == ("rerank", ["r0", "r1"])
            dying.connection.close()
            heir = Worker(address)
            assert [await heir.take(), await heir.take()] == [("rerank", ["r0"]), ("rerank", ["r1"])]
            heir.connection.close()
            refusals = [await task for task in asked]
            assert [(refusal.status, "workers died" in refusal.message) for refusal in refusals] == [(503, True)] * 2
            (asked_later,), last = ask_all(dispatcher, [("rerank", None)]), Worker(address)
            last.give((await last.take())[1])
            assert await asked_later == "result of r0"

    asyncio.run(play())


def test_a_request_that_cannot_be_sent_harms_no_other(folder):
    """Before, it stayed booked with the worker, and all later requests waited for ever."""

    async def play():
        async with dispatching(folder) as (dispatcher, address):
            worker = Worker(address)
            for _ in range(3):
                (bad,) = ask_all(dispatcher, [("rerank", Unsendable())])
                assert (await bad).status == 500
            (good,) = ask_all(dispatcher, [("rerank", None)])
            worker.give((await worker.take())[1])
            assert await good == "result of r0"

    asyncio.run(play())


def test_expired_requests_are_not_worked_on(folder):
    async def play():
        async with dispatching(folder, request_seconds=0.1) as (dispatcher, address):
            refusals = await asyncio.gather(*ask_all(dispatcher, [("rerank", None)] * 3))
            assert [refusal.status for refusal in refusals] == [504] * 3
            worker = Worker(address)
            (asked,) = ask_all(dispatcher, [("rerank", None)])
            assert await worker.take() == ("rerank", ["r0"])
            assert (await asked).status == 504
            worker.give(["r0"])  # too late: nobody is disturbed
            (asked,) = ask_all(dispatcher, [("rerank", None)])
            worker.give((await worker.take())[1])
            assert await asked == "result of r0"

    asyncio.run(play())


def test_a_request_that_arrived_too_long_ago_is_not_worked_on(folder):
    """Its body came slowly, or the process was busy: nobody has noticed yet that its time is over."""

    async def play():
        async with dispatching(folder, request_seconds=1.0) as (dispatcher, address):
            worker = Worker(address)
            while not dispatcher.num_workers:
                await asyncio.sleep(0.01)
            (late,) = ask_all(dispatcher, [("rerank", None)], arrival=time.monotonic() - 2)
            assert (await late).status == 504
            assert worker.is_idle()

    asyncio.run(play())


def test_requests_whose_client_is_gone_are_not_worked_on(folder):
    async def play():
        async with dispatching(folder) as (dispatcher, address):
            (asked,) = ask_all(dispatcher, [("rerank", None)], gone=lambda: asyncio.sleep(0))
            assert (await asked).status == 499
            worker = Worker(address)
            assert worker.is_idle()

    asyncio.run(play())


@pytest.mark.parametrize("http_processes", [1, 2])
def test_requests_are_refused_when_the_wait_would_be_too_long(folder, http_processes):
    async def play():
        limits = {"queue_seconds": 3.0, "http_processes": http_processes}
        async with dispatching(folder, batch_requests=1, **limits) as (dispatcher, address):
            worker = Worker(address)
            asked = ask_all(dispatcher, [("rerank", Job(seconds=1.0)), ("rerank", Job(seconds=1.0))])
            for _ in asked:
                worker.give((await worker.take())[1], seconds=2.0)  # it is slower than estimated
            await asyncio.gather(*asked)
            assert 1.0 < dispatcher.slowness < 2.0
            tasks = ask_all(dispatcher, [("rerank", Job(seconds=1.0))] * 10)
            await asyncio.sleep(0.1)
            refusals = [task.result() for task in tasks if task.done()]
            assert len(refusals) == 10 - (2 if http_processes == 1 else 1)
            assert {refusal.status for refusal in refusals} == {429}
            assert all(refusal.retry_after >= 1 for refusal in refusals)
            for task in tasks:
                task.cancel()

    asyncio.run(play())


def test_too_many_waiting(folder):
    async def play():
        async with dispatching(folder, waiting=2) as (dispatcher, _):
            tasks = ask_all(dispatcher, [("rerank", None)] * 3)
            await asyncio.sleep(0.05)
            assert [task.done() for task in tasks] == [False, False, True]
            assert tasks[2].result() == Refusal(429, "too many requests: 2 are waiting", retry_after=1)
            for task in tasks:
                task.cancel()

    asyncio.run(play())


def test_a_worker_has_time_until_the_last_deadline_of_its_batch(folder, monkeypatch):
    monkeypatch.setattr("graphrerank.serving.dispatcher.GRACE_SECONDS", 0.1)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])

    async def play():
        async with dispatching(folder) as (dispatcher, address):
            asked, worker = ask_all(dispatcher, [("rerank", None)] * 2), Worker(address, process.pid)
            assert len((await worker.take())[1]) == 2
            first, last = dispatcher._workers[0].batches[0]
            first.deadline = 0.0
            await asyncio.sleep(0.5)  # above the grace
            assert process.poll() is None
            last.deadline = 0.0
            assert await asyncio.to_thread(process.wait, 10) == -signal.SIGKILL
            for task in asked:
                task.cancel()

    try:
        asyncio.run(play())
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_worker_that_overruns_is_killed(folder):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])

    async def play():
        async with dispatching(folder, request_seconds=0.2) as (dispatcher, address):
            worker = Worker(address, process.pid)
            (asked,) = ask_all(dispatcher, [("rerank", None)])
            await worker.take()
            assert (await asked).status == 504
            assert process.poll() is None
            await asyncio.sleep(GRACE_SECONDS * 1.5)

    asyncio.run(play())
    assert process.wait(10) == -signal.SIGKILL


def test_a_worker_whose_answer_is_none_is_killed(folder):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])

    async def play():
        async with dispatching(folder) as (dispatcher, address):
            worker = Worker(address, process.pid)
            (asked,) = ask_all(dispatcher, [("rerank", None)])
            await worker.take()
            worker.give(["another"])
            heir = Worker(address, os.getpid())
            heir.give((await heir.take())[1])
            assert await asked == "result of r0"
            assert dispatcher.num_workers == 1

    before = time.monotonic()
    asyncio.run(play())
    assert process.wait(10) == -signal.SIGKILL
    assert before < time.monotonic()
