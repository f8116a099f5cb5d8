"""A worker, with threads in the place of HTTP processes."""

import threading
import time

import pytest

from graphrerank.serving.engine import Refusal
from graphrerank.serving.messages import listen, pack, receive
from graphrerank.serving.worker import answer_batches, load_engines, work


class Recorder:
    """An engine that records its batches."""

    def __init__(self):
        self.batches = []

    def answer(self, jobs, check):
        self.batches.append(list(jobs))
        if "slow" in jobs.values():
            time.sleep(0.06)
        check()
        if any(job == "bad" for job in jobs.values()):
            raise ValueError("`field` is bad")
        return {uid: f"result of {uid}" for uid in jobs}

    def warm_up(self):
        self.batches.append("warm")


FOREVER = float("inf")  # a deadline counted from the import would run out in a slow run of all tests


def test_one_bad_job_does_not_harm_its_batch():
    recorder = Recorder()
    batch = [("r0", 0.0, FOREVER, 1), ("r1", 0.0, FOREVER, "bad"), ("r2", 0.0, FOREVER, 2)]
    _, results = work({"a": recorder}, ("a", batch))
    assert results == {"r0": "result of r0", "r1": Refusal(422, "`field` is bad"), "r2": "result of r2"}
    assert recorder.batches == [["r0", "r1", "r2"], ["r0"], ["r1"], ["r2"]]


def test_expired_jobs_are_not_done():
    recorder = Recorder()
    _, results = work({"a": recorder}, ("a", [("r0", 0.0, 0.0, 1), ("r1", 0.0, FOREVER, 1)]))
    assert (results["r0"].status, results["r1"]) == (504, "result of r1")
    assert recorder.batches == [["r1"]]


def test_work_stops_when_nobody_waits_any_longer():
    recorder = Recorder()
    soon = time.monotonic() + 0.05
    _, results = work({"a": recorder}, ("a", [("r0", 0.0, soon, "slow"), ("r1", 0.0, soon, 1)]))
    assert [results[uid].status for uid in ("r0", "r1")] == [504, 504]
    _, results = work({"a": recorder}, ("a", [("r0", 0.0, FOREVER, "slow"), ("r1", 0.0, time.monotonic() + 0.05, 1)]))
    assert results == {"r0": "result of r0", "r1": "result of r1"}


def test_engines_are_warm():
    engine = Recorder()
    assert load_engines({"a": lambda device: engine}, device="cpu", num_threads=1) == {"a": engine}
    assert engine.batches == ["warm"]
    with pytest.raises(ValueError, match="no model"):
        load_engines({"a": _no_model}, device="cpu", num_threads=1)


def _no_model(device):
    raise ValueError("no model")


def test_a_worker_connects_anew_to_an_http_process_that_died_and_ends_with_the_service(tmp_path_factory):
    folder, ending = tmp_path_factory.mktemp("s"), threading.Event()
    addresses = [folder / f"http-{index}" for index in range(2)]
    listeners = [listen(address) for address in addresses]
    arguments = ({"a": Recorder()}, addresses)
    thread = threading.Thread(target=answer_batches, args=arguments, kwargs={"is_ending": ending.is_set}, daemon=True)
    thread.start()

    def attend(listener):
        listener.settimeout(30)  # rather than to wait for ever
        connection = listener.accept()[0]
        connection.settimeout(30)
        receive(connection)  # its process
        connection.sendall(pack(("a", [("r", 0.0, FOREVER, 1)])))
        assert receive(connection)[1] == {"r": "result of r"}
        return connection

    connections = [attend(listener) for listener in listeners]
    connections[0].close()
    connections[0] = attend(listeners[0])
    ending.set()
    for end in (*connections, *listeners):
        end.close()
    thread.join(timeout=10)
    assert not thread.is_alive()
