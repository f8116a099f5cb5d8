"""The way of requests to workers and back, with threads in the place of processes."""

import asyncio
import pickle
import socket
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphrerank.serving import Limits
from graphrerank.serving.batch_loop import BatchLoop
from graphrerank.serving.dispatcher import Dispatcher
from graphrerank.serving.engine import Answer
from graphrerank.serving.messages import connect, listen, pack, read_message, receive


@dataclass
class Sized:
    """A request of so many documents."""

    num_documents: int = 1


@dataclass
class Recorder:
    """An engine that records its batches."""

    batches: list = field(default_factory=list)

    def answer(self, requests):
        self.batches.append(list(requests))
        if any(request == "bad" for request in requests.values()):
            raise ValueError("`field` is bad")
        return {uid: Answer(200, uid.encode()) for uid in requests}


class Worker:
    """The worker's end of a connection, in the test's hands."""

    def __init__(self, address: Path) -> None:
        self.connection = connect(address)

    async def take(self):
        """Return the kind and the ids of a batch."""
        kind, requests = await asyncio.wait_for(asyncio.to_thread(receive, self.connection), 10)
        return kind, [uid for uid, _, _ in requests]

    def give(self, uids):
        self.connection.sendall(pack({uid: Answer(200, uid.encode()) for uid in uids}))

    def is_idle(self):
        self.connection.settimeout(0.05)
        try:
            self.connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.connection.settimeout(None)
        return False


@asynccontextmanager
async def dispatching(folder, *, batch_requests=4, batch_candidates=100, **limits):
    dispatcher = Dispatcher(Limits(**limits), batch_requests=batch_requests, batch_candidates=batch_candidates)
    dispatcher.listen([folder / "http-0"])
    async with dispatcher.serving():
        yield dispatcher, folder / "http-0"


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("s")  # a short path, as those of sockets must be


def ask_all(dispatcher, requests):
    return [asyncio.create_task(dispatcher.ask(*request, f"r{place}")) for place, request in enumerate(requests)]


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
            asked, worker = ask_all(dispatcher, [("rerank", Sized(size)) for size in sizes]), Worker(address)
            batches = [(await worker.take())[1] for _ in expected]
            assert [len(batch) for batch in batches] == expected
            for batch in batches:
                worker.give(batch)
            assert [(await one).body.decode() for one in asked] == [f"r{place}" for place in range(len(sizes))]

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
            assert (await asked[2]).body == b"r2"
            (late,) = ask_all(dispatcher, [("rerank", None)])
            assert await other.take() == ("rerank", ["r0"])
            for one, uid in ((other, "r3"), (other, "r0"), (worker, "r0"), (worker, "r1")):
                one.give([uid])
            await asyncio.gather(*asked, late)

    asyncio.run(play())


def test_what_a_dead_worker_held_is_given_to_another_once(folder):
    async def play():
        async with dispatching(folder) as (dispatcher, address):
            asked, dying = ask_all(dispatcher, [("rerank", None)] * 2), Worker(address)
            await dying.take()
            dying.connection.close()
            heir = Worker(address)
            assert await heir.take() == ("rerank", ["r0", "r1"])
            heir.connection.close()
            answers = [await one for one in asked]
            assert [(answer.status, b"workers died" in answer.body) for answer in answers] == [(503, True)] * 2
            (asked_later,), last = ask_all(dispatcher, [("rerank", None)]), Worker(address)
            last.give((await last.take())[1])
            assert (await asked_later).status == 200

    asyncio.run(play())


def test_too_slow_and_too_many(folder):
    async def play():
        async with dispatching(folder, request_seconds=0.05, waiting=2) as (dispatcher, address):
            answers = await asyncio.gather(*ask_all(dispatcher, [("rerank", None)] * 3))
            assert sorted(answer.status for answer in answers) == [429, 504, 504]
            worker = Worker(address)
            (asked,) = ask_all(dispatcher, [("rerank", None)])
            assert await worker.take() == ("rerank", ["r0"])  # the others are not worked on
            assert (await asked).status == 504
            worker.give(["r0"])  # too late: nobody is disturbed
            (asked,) = ask_all(dispatcher, [("rerank", None)])
            worker.give((await worker.take())[1])
            assert (await asked).status == 200

    asyncio.run(play())


def test_one_bad_request_does_not_harm_its_batch():
    recorder = Recorder()
    batch = [("r0", 0.0, 1), ("r1", 0.0, "bad"), ("r2", 0.0, 2)]
    answers = BatchLoop().work({"a": recorder}, ("a", batch))
    assert {uid: answer.status for uid, answer in answers.items()} == {"r0": 200, "r1": 422, "r2": 200}
    assert recorder.batches == [["r0", "r1", "r2"], ["r0"], ["r1"], ["r2"]]


def test_a_worker_answers_every_http_process_until_all_are_gone(folder):
    listeners, loop = [listen(folder / f"http-{number}") for number in range(2)], BatchLoop()
    loop.addresses = [folder / f"http-{number}" for number in range(2)]
    thread = threading.Thread(target=loop, args=(SimpleNamespace(engines={"a": Recorder()}), "cpu", 3))
    thread.start()
    connections = [listener.accept()[0] for listener in listeners]
    for connection in connections:
        connection.sendall(pack(("a", [("r", 0.0, 1)])))
        assert receive(connection) == {"r": Answer(200, b"r")}
        connection.close()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_the_workers_copy_leaves_sockets_and_requests_behind(folder):
    dispatcher = Dispatcher(Limits(), batch_requests=1, batch_candidates=1)
    dispatcher.listen([folder / "http-0"])
    assert pickle.loads(pickle.dumps(dispatcher)).limits == Limits()
