"""The workers of a Ray cluster of this machine do what this process does; one may die."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphrerank.task_engines import ray_engine
from graphrerank.task_engines.base import LOCAL
from graphrerank.task_engines.ray_engine import RayEngine


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    """Two workers."""
    pytest.importorskip("ray", reason="Ray is optional: pip install 'graphrerank[ray]'")
    with RayEngine(workers=2) as engine:
        yield engine


class Upper:
    """Return texts in capitals; die at one task a number of times, and refuse another."""

    def __init__(self, folder: Path, *, dies_at: int = -1, times: int = 1, refuses: int = -1) -> None:
        self.folder, self.dies_at, self.times, self.refuses = folder, dies_at, times, refuses

    def __call__(self, task: tuple[int, str]) -> str:
        number, text = task
        with (self.folder / "started").open("a") as log:
            log.write(f"{number}\n")
        if number == self.refuses:
            raise ValueError(f"passage p{number} is too long")
        deaths = (self.folder / "started").read_text().split().count(str(self.dies_at))
        if number == self.dies_at and deaths <= self.times:
            while (self.folder / "started").read_text().split().count(str(number + 1)) == 0:
                time.sleep(0.1)  # until the other worker has a task: Ray repeats a task whose answer is lost
            os.kill(os.getpid(), signal.SIGKILL)
        return text.upper()


def tasks(count: int) -> list[tuple[int, str]]:
    return [(number, f"text é {number}") for number in range(count)]


@pytest.mark.slow
def test_results_are_in_the_order_of_the_tasks(engine: RayEngine, tmp_path: Path) -> None:
    expected = list(LOCAL.map(Upper(tmp_path), tasks(9)))
    assert list(engine.map(Upper(tmp_path), tasks(9))) == expected


@pytest.mark.slow
def test_the_task_of_a_killed_worker_is_repeated(engine: RayEngine, tmp_path: Path) -> None:
    assert list(engine.map(Upper(tmp_path, dies_at=1), tasks(5))) == [text.upper() for _, text in tasks(5)]
    started = (tmp_path / "started").read_text().split()
    assert started.count("1") == 2
    assert set(started) == set("01234")


@pytest.mark.slow
def test_a_task_that_kills_its_workers_is_an_error(
    engine: RayEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "TRIES", 2)
    with pytest.raises(ValueError, match="a task was started 2 times, and each time its worker died"):
        list(engine.map(Upper(tmp_path, dies_at=1, times=99), tasks(3)))


@pytest.mark.slow
def test_an_error_of_a_worker_is_that_of_the_function(engine: RayEngine, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^passage p2 is too long$"):
        list(engine.map(Upper(tmp_path, refuses=2), tasks(4)))


def test_a_single_task_starts_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert list(RayEngine().map(Upper(tmp_path), tasks(1))) == ["TEXT É 0"]


def test_without_ray_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"engine=ray needs ray, .*: pip install 'graphrerank\[ray\]'"):
        list(RayEngine().map(Upper(tmp_path), tasks(2)))


def test_without_a_cluster_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is optional: pip install 'graphrerank[ray]'")

    def init(**_: object) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ValueError, match=r"engine=ray could not start a Ray cluster: .*timed out.*`ray start --head`"):
        list(RayEngine().map(Upper(tmp_path), tasks(2)))


def test_the_number_of_workers_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"`workers` must be .*, got 0"):
        RayEngine(workers=0)
