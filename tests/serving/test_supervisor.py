"""The supervisor with small programs; each test runs it in a process of its own."""

import errno
import os
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from graphrerank.serving.supervisor import FAILED_STARTS, Program, StartError, _Slot

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from graphrerank.serving.json_log import start_logging
from graphrerank.serving.supervisor import Program, Supervisor

folder = Path(sys.argv[1])

def write(name):
    with (folder / name).open("a") as file:
        file.write(f"{os.getpid()}\\n")

def work(lifeline, seconds=0.0):
    write("work")
    print("a library has something to say", file=sys.stderr, flush=True)
    lifeline.say_ready_always()
    while not lifeline.is_cut():
        time.sleep(0.02)
    write("work cut")
    time.sleep(seconds)
    write("work ended")

def serve(lifeline, seconds=0.0):
    def end(*_):
        time.sleep(seconds)
        write("serve ended")
        raise SystemExit(0)
    signal.signal(signal.SIGTERM, end)
    write("serve")
    lifeline.say_ready_always()
    lifeline.wait_for_cut()
    write("serve cut")

def refuse(lifeline):
    raise ValueError("`setting` must be another")

def lose(lifeline):
    raise RuntimeError("out of something")

def die(lifeline):
    write("die")
    os._exit(7)

programs = {
    "good": [Program("serve", serve, ends_first=True), Program("work", work)],
    "two": [Program("serve", serve, (seconds,), ends_first=True) for seconds in (0.0, 1.0)],
    "long work": [Program("serve", serve, ends_first=True), Program("work", work, (1.5,))],
    "refuse": [Program("work", work), Program("refuse", refuse)],
    "lose": [Program("lose", lose)],
    "die": [Program("work", work), Program("die", die)],
}
start_logging()
Supervisor(programs[sys.argv[2]], shutdown_seconds=5, on_end=lambda: write("end")).run()
write("done")
"""


def lines(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().split() if file.is_file() else []


def wait_for(folder: Path, name: str, count: int) -> list[str]:
    deadline = time.monotonic() + 60
    while len(lines(folder, name)) < count:
        assert time.monotonic() < deadline, f"{name}: {lines(folder, name)}"
        time.sleep(0.02)
    return lines(folder, name)


@pytest.fixture
def start(tmp_path):
    started = []

    def start(kind: str, errors=subprocess.PIPE) -> subprocess.Popen:
        started.append(subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), kind], stderr=errors, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_processes_are_replaced_continued_and_ended_in_order(tmp_path, start):
    process = start("good")
    (serve,), (first,) = wait_for(tmp_path, "serve", 1), wait_for(tmp_path, "work", 1)
    os.kill(int(first), signal.SIGKILL)
    second = wait_for(tmp_path, "work", 2)[1]
    assert second != first
    os.kill(int(serve), signal.SIGKILL)
    serve = wait_for(tmp_path, "serve", 2)[1]
    stopped = psutil.Process(int(second))
    stopped.suspend()
    deadline = time.monotonic() + 30
    while stopped.status() == psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    assert process.wait(30) == 0
    assert lines(tmp_path, "serve ended") == [serve]  # before the others, and not started anew
    assert lines(tmp_path, "work ended") == [second]
    assert len(lines(tmp_path, "serve")) == 2
    assert lines(tmp_path, "end") == lines(tmp_path, "done") == [str(process.pid)]


def test_processes_are_replaced_where_the_disk_of_the_log_is_full(tmp_path, start):
    with Path("/dev/full").open("w") as full:
        process = start("good", full)
    for count in (1, 2):
        os.kill(int(wait_for(tmp_path, "work", count)[-1]), signal.SIGKILL)
    wait_for(tmp_path, "work", 3)
    process.terminate()
    assert process.wait(30) == 0


def test_a_process_that_cannot_be_started_now_is_started_later(monkeypatch):
    slot = _Slot(Program("work", print))

    def fail(_):
        raise OSError(errno.EAGAIN, "no process left")

    with monkeypatch.context() as patch:
        patch.setattr("multiprocessing.context.ForkProcess.start", fail)
        slot.start(*Pipe(duplex=False))
    assert not slot.is_alive()
    assert slot.start_at > time.monotonic() + 1
    slot.note_death()  # it never lived
    assert slot.failures == 0


def test_an_http_process_that_has_ended_is_not_started_anew_while_others_finish(tmp_path, start):
    process = start("two")
    served = wait_for(tmp_path, "serve", 2)
    process.terminate()
    assert process.wait(30) == 0
    assert "process died" not in process.stderr.read()  # one ends a second before the other
    assert lines(tmp_path, "serve") == served
    assert sorted(lines(tmp_path, "serve ended")) == sorted(served)


def test_a_process_that_ends_last_has_time_and_is_continued_where_it_was_stopped(tmp_path, start):
    process = start("long work")
    (pid,) = wait_for(tmp_path, "work", 1)
    process.terminate()
    wait_for(tmp_path, "work cut", 1)
    os.kill(int(pid), signal.SIGSTOP)
    assert process.wait(30) == 0
    assert lines(tmp_path, "work ended") == [pid]
    assert "process died" not in process.stderr.read()


def test_nobody_outlives_a_killed_supervisor(tmp_path, start):
    process = start("good")
    pids = [int(wait_for(tmp_path, name, 1)[0]) for name in ("serve", "work")]
    process.kill()
    wait_for(tmp_path, "work ended", 1)
    wait_for(tmp_path, "serve cut", 1)
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=30)
    assert not alive


def test_failed_starts_count_only_in_a_row():
    slot = _Slot(Program("work", print))

    def die(*, ready: bool) -> None:
        slot.process = SimpleNamespace(exitcode=7, pid=0, close=lambda: None)
        slot.reported_at = None
        slot.reports, end = Pipe(duplex=False)
        if ready:
            end.send("ready")
        slot.read_reports()
        slot.note_death()

    for ready in (False, False, True, False, False):
        die(ready=ready)
    with pytest.raises(StartError, match=f"work died {FAILED_STARTS} times before it was ready, exit code 7"):
        die(ready=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "message"),
    [("refuse", "StartError: `setting` must be another"), ("die", "die died 3 times before it was ready, exit code 7")],
)
def test_a_process_that_cannot_start_ends_the_service(tmp_path, start, kind, message):
    process = start(kind)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert message in errors
    assert not [pid for pid in lines(tmp_path, "work") if psutil.pid_exists(int(pid))]
    assert len(lines(tmp_path, "die")) in (0, 3)


def test_what_ended_a_start_is_told(start):
    process = start("lose")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"lose died {FAILED_STARTS} times before it was ready, exit code 1: RuntimeError: out of something" in errors
