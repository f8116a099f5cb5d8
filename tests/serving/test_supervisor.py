"""The watch over the workers of a service: with simulated workers and a clock, and with real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from graphrerank.serving.supervisor import (
    FAILED,
    LOADING,
    RETRY_SECONDS,
    SERVING,
    SILENT_SECONDS,
    STANDING_BY,
    STOPPED_SECONDS,
    Watch,
)
from tests.support.running import Service, running


class Simulated:
    """A worker that needs some seconds to load and gives a sign of life at each look."""

    def __init__(self, pid: int, loaded_at: float, clock: Callable[[], float], *, fails: bool = False) -> None:
        self.pid, self._loaded_at, self._clock, self._fails = pid, loaded_at, clock, fails
        self.may_serve = self.is_killed = self.is_dead = self.stopped = self.silent = False

    def news(self) -> list[str] | None:
        if self.is_dead:
            return None
        if self.silent or self.stopped:
            return []
        if self._clock() < self._loaded_at:
            return [LOADING]
        return [FAILED] if self._fails else [SERVING] if self.may_serve else [STANDING_BY]

    def is_stopped(self) -> bool:
        return self.stopped

    def serve(self) -> None:
        self.may_serve = True

    def end(self) -> None:
        raise AssertionError

    def kill(self) -> None:
        self.is_killed = True

    @property
    def answers(self) -> bool:
        return self.may_serve and self._clock() >= self._loaded_at and not (self.is_dead or self.stopped or self.silent)


class Crew:
    """A watch over simulated workers that take fifteen seconds to start."""

    def __init__(self, num_workers: int = 2, num_standby: int = 1, load_seconds: float = 15.0) -> None:
        self.time, self.load_seconds, self.fails = 0.0, load_seconds, False
        self.started: list[Simulated] = []
        self.watch = Watch(self._start, num_workers, num_standby, lambda: self.time)

    def _start(self) -> Simulated:
        ready = self.time + self.load_seconds
        self.started.append(Simulated(len(self.started), ready, lambda: self.time, fails=self.fails))
        return self.started[-1]

    def run(self, seconds: float) -> float:
        """Look every half second; return for how long nobody answered."""
        away, end = 0.0, self.time + seconds
        while self.time < end:
            self.watch.look()
            away += 0.0 if self.num_answering else 0.5
            self.time += 0.5
        return away

    @property
    def num_answering(self) -> int:
        return sum(worker.answers for worker in self.watch.workers)

    @property
    def serving(self) -> list[Simulated]:
        return self.watch.workers_that_serve()


def whole_crew(**settings: float) -> Crew:
    crew = Crew(**settings)  # type: ignore[arg-type]
    crew.run(40)
    assert crew.num_answering == 2
    assert len(crew.started) == 3
    return crew


def test_the_worker_that_stands_by_starts_after_those_that_serve() -> None:
    crew = Crew()
    crew.run(15)
    assert len(crew.started) == 2
    crew.run(20)
    assert [worker.may_serve for worker in crew.started] == [True, True, False]


def test_a_worker_that_dies_is_replaced_at_the_next_look() -> None:
    crew = whole_crew()
    crew.serving[0].is_dead = True
    assert crew.run(1) == 0
    assert crew.num_answering == 2
    crew.run(20)
    assert len(crew.started) == 4


def test_both_workers_are_never_away_for_longer_than_a_look() -> None:
    crew = whole_crew()
    for worker in crew.serving:
        worker.is_dead = True
    assert crew.run(20) <= 0.5
    assert crew.num_answering == 2


@pytest.mark.parametrize("both", [False, True])
def test_one_killed_and_one_stopped_for_a_minute(both: bool) -> None:
    """Both were away for 45 seconds: a stopped worker was waited for, and then another one started."""
    crew = whole_crew()
    first, second = crew.serving
    first.is_dead, first.stopped = not both, both
    second.stopped = True
    assert crew.run(60) <= STOPPED_SECONDS + 0.5
    assert first.is_killed
    assert second.is_killed
    assert crew.num_answering == 2


def test_a_silent_worker_is_replaced_and_a_slow_one_is_not() -> None:
    crew = whole_crew()
    silent = crew.serving[0]
    silent.silent = True
    crew.run(SILENT_SECONDS - 1)
    silent.silent = False
    crew.run(5)
    assert not silent.is_killed
    silent.silent = True
    crew.run(SILENT_SECONDS + 1)
    assert silent.is_killed
    assert crew.num_answering == 2


def test_a_short_stop_replaces_nobody() -> None:
    crew = whole_crew()
    worker = crew.serving[0]
    for _ in range(5):
        worker.stopped = True
        crew.run(STOPPED_SECONDS - 0.5)
        worker.stopped = False
        crew.run(1)
    assert not worker.is_killed


def test_a_watch_that_was_stopped_itself_replaces_nobody() -> None:
    crew = whole_crew()
    for worker in crew.watch.workers:
        worker.silent = True
    crew.time += 60
    crew.watch.look()
    for worker in crew.watch.workers:
        worker.silent = False
    crew.run(30)
    assert len(crew.started) == 3


def test_a_standby_that_dies_is_replaced() -> None:
    crew = whole_crew()
    crew.watch.workers[-1].is_dead = True
    crew.run(20)
    assert len(crew.started) == 4
    assert crew.num_answering == 2


def test_without_a_standby_another_worker_starts() -> None:
    crew = Crew(num_standby=0)
    crew.run(20)
    for worker in crew.serving:
        worker.is_dead = True
    assert 15 <= crew.run(20) <= 16
    assert len(crew.started) == 4


def test_a_worker_that_cannot_load_ends_the_service_unless_others_serve() -> None:
    crew = Crew()
    crew.fails = True
    crew.run(20)
    assert crew.watch.has_failed
    crew = whole_crew()
    crew.fails = True
    crew.serving[0].is_dead = True
    crew.run(60)
    assert not crew.watch.has_failed
    assert crew.num_answering == 2
    assert len(crew.started) <= 3 + 60 / RETRY_SECONDS  # not at each look
    crew.fails = False
    crew.run(30)
    assert len(crew.watch.workers) == 3


def whole(service: Service) -> bool:
    return len(service.workers()) == 2 and len(service.processes("rerank standby")) == 1


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> float:
    """Return the seconds until a condition holds."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds
        time.sleep(0.02)
    return time.monotonic() - begin


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers and one that stands by. The last test kills the supervisor."""
    settings = ("artifact=base", "encoder=none", "workers=2", "standby=1")
    with running(tmp_path_factory.mktemp("service"), *settings) as service:
        yield service


@pytest.mark.slow
def test_workers_that_are_killed_and_stopped_are_replaced_while_others_answer(service: Service) -> None:
    """Every request is answered, over a connection of its own, though perhaps by the worker that stood by."""
    body = json.dumps({"query": "a", "scores": [1, 0]})
    wait_for(lambda: whole(service))
    for first, second in (
        (signal.SIGKILL, signal.SIGKILL),
        (signal.SIGKILL, signal.SIGSTOP),
        (signal.SIGSTOP, signal.SIGSTOP),
    ):
        victims = service.workers()
        for victim, signum in zip(victims, (first, second), strict=True):
            os.kill(victim.pid, signum)
        answers, gone = list[int](), {victim.pid for victim in victims}
        while not whole(service) or gone & {worker.pid for worker in service.workers()}:
            answers.append(httpx.post(f"{service.url}/v2/rerank", content=body, timeout=60).status_code)
        assert set(answers) == {200}


@pytest.mark.parametrize("changes", ["", "use_thread_lock_in_progress_bars()"])
def test_a_worker_that_a_signal_ends_leaves_no_semaphore_of_progress_bars(changes: str, tmp_path: Path) -> None:
    """Without the change, Python warns when the service stops."""
    pytest.importorskip("tqdm", reason="tqdm, which the extra train installs, creates the semaphore")
    script = tmp_path / "service.py"
    script.write_text(
        "import multiprocessing, os, signal\n"
        "from graphrerank.serving.supervisor import use_thread_lock_in_progress_bars\n\n"
        "def work():\n"
        f"    {changes or 'pass'}\n"
        "    from tqdm import tqdm\n"
        "    list(tqdm(range(2)))\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert ("leaked semaphore" in done.stderr) == (not changes), done.stderr


@pytest.mark.slow
def test_workers_end_with_their_supervisor(service: Service) -> None:
    wait_for(lambda: whole(service))
    children = psutil.Process(service.process.pid).children(recursive=True)
    os.kill(service.process.pid, signal.SIGKILL)
    service.process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
