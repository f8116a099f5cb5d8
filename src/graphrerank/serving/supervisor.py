"""The supervisor: starts the processes of a service, replaces those that die, and ends all of them.

- It is the main process, and runs no model and answers no request.
- A process is forked from it, so that a new one is ready in a fraction of a second. With CUDA, workers are spawned.
- A process says that it is ready, and then that it is alive, once a second, over a pipe. One that dies is replaced;
  one that is silent for long is killed; one that was stopped is continued.
- A process that dies again and again before it is ready ends the service with an error.
- Processes notice the end of the supervisor by the end of a pipe, and end too: none is left behind.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

from graphrerank.serving.json_log import log
from graphrerank.serving.metrics import forget_process

FAILED_STARTS = 3  # of one process in a row, before the service ends
LONGEST_PAUSE_SECONDS = 5.0  # before a process that failed to start is started anew
LOOK_SECONDS = 0.5
DIED_OF = "died of "  # opens the report of an error that another start may not meet
SILENT_SECONDS = 30.0  # after which a process is taken for hung
LAST_SECONDS = 5.0  # for the processes that end last, which have no request left to finish


@dataclass(frozen=True)
class Program:
    """What a process does.

    Attributes:
        name: Its name in logs.
        run: Called in the process with its lifeline and the arguments.
        arguments: Arguments.
        spawn: Whether the process is spawned rather than forked; all arguments are then pickled.
        ends_first: Whether it is ended before the others, by SIGTERM; the others end by the end of the lifeline.
    """

    name: str
    run: Callable[..., None]
    arguments: tuple[Any, ...] = ()
    spawn: bool = False
    ends_first: bool = False


class Lifeline:
    """A process's connection to its supervisor.

    Args:
        reports: Takes the process's reports.
        supervisor: Ends when the supervisor does.
    """

    def __init__(self, reports: Connection, supervisor: Connection) -> None:
        self._reports = reports
        self._supervisor = supervisor

    def say(self, report: str) -> None:
        """Report ``ready`` (alive and able to work), or the error that makes the start impossible."""
        with contextlib.suppress(OSError):  # the supervisor is gone
            self._reports.send(report)

    def say_ready_always(self) -> None:
        """Report once a second, from a thread."""
        Thread(target=self._say_ready_always, daemon=True).start()

    def is_cut(self) -> bool:
        """Return whether the supervisor is gone, or ends the service."""
        return self._supervisor.poll()

    def wait_for_cut(self) -> None:
        """Wait until the supervisor is gone."""
        self._supervisor.poll(None)

    def _say_ready_always(self) -> None:
        while True:
            self.say("ready")
            time.sleep(1)


class StartError(ValueError):
    """A process could not start."""


class Supervisor:
    """Runs programs until SIGTERM or Ctrl+C.

    Args:
        programs: The programs, each of which runs in a process of its own.
        shutdown_seconds: Time for the processes to finish their work at the end.
        on_end: Called when the end begins.
    """

    def __init__(
        self, programs: Sequence[Program], *, shutdown_seconds: float, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._slots = [_Slot(program) for program in programs]
        self._shutdown_seconds = shutdown_seconds
        self._on_end = on_end
        self._is_ending = False
        self._lifeline_end, self._lifeline = multiprocessing.Pipe(duplex=False)
        self._wake_end, self._wake = os.pipe()

    def run(self) -> None:
        """Run until the end of the service.

        Raises:
            StartError: If a process reports an error at its start, or dies again and again before it is ready.
        """
        before = {signum: signal.signal(signum, self._end) for signum in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not self._is_ending:
                self._mend()
                self._wait(LOOK_SECONDS)
            self._finish()
        finally:
            for slot in self._slots:
                slot.kill()
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _end(self, signum: int, frame: FrameType | None) -> None:
        self._is_ending = True
        os.write(self._wake, b"!")

    def _finish(self) -> None:
        """Let the processes finish their requests, and mend the other ones meanwhile."""
        self._on_end()
        first = [slot for slot in self._slots if slot.program.ends_first]
        for slot in first:
            slot.signal(signal.SIGTERM)
        self._wait_for_end(first, self._shutdown_seconds)
        self._lifeline.close()
        self._wait_for_end(self._slots, LAST_SECONDS)

    def _wait_for_end(self, slots: Sequence["_Slot"], seconds: float) -> None:
        """Wait for processes that were told to end; one of them that was stopped is continued, none is replaced."""
        deadline = time.monotonic() + seconds
        for slot in slots:
            slot.is_ending = True
        while any(slot.is_alive() for slot in slots) and time.monotonic() < deadline:
            self._mend()
            self._wait(0.1)

    def _wait(self, seconds: float) -> None:
        deaths = [slot.process.sentinel for slot in self._slots if slot.process is not None]
        ready = wait([*deaths, self._wake_end], seconds)
        if self._wake_end in ready:
            os.read(self._wake_end, 1)

    def _mend(self) -> None:
        """Read reports; start and replace processes."""
        for slot in self._slots:
            slot.read_reports()
            slot.continue_or_kill()
            if slot.is_alive():
                continue
            if slot.is_ending:
                slot.clear()
                continue
            slot.note_death()
            if time.monotonic() >= slot.start_at:
                slot.start(self._lifeline_end, self._lifeline)


@dataclass(eq=False)
class _Slot:
    """The place of one process.

    Attributes:
        program: What it does.
        process: The process; None before the first start.
        reports: The end of its pipe.
        reported_at: Time of its last report; None if it is not ready yet.
        failures: Number of starts in a row that failed.
        start_at: Time from which on it may be started.
        cause: The last error that ended it; empty for none.
        is_ending: Whether it was told to end, and is not replaced.
    """

    program: Program
    process: BaseProcess | None = None
    reports: Connection | None = None
    reported_at: float | None = None
    failures: int = 0
    start_at: float = field(default_factory=time.monotonic)
    cause: str = ""
    is_ending: bool = False

    def start(self, lifeline_end: Connection, lifeline: Connection) -> None:
        """Start the process."""
        context: Any = multiprocessing.get_context("spawn" if self.program.spawn else "fork")
        self.reports, reports = context.Pipe(duplex=False)
        others = () if self.program.spawn else (lifeline, self.reports)
        arguments = (self.program, Lifeline(reports, lifeline_end), others)
        process = context.Process(target=_run, args=arguments, name=self.program.name)
        try:
            process.start()
        except OSError as error:  # no memory or no process left, for now
            log("process cannot be started", level=logging.ERROR, process=self.program.name, reason=error.strerror)
            self.reports, self.start_at = None, time.monotonic() + LONGEST_PAUSE_SECONDS
        else:
            self.process, self.reported_at = process, None
        reports.close()

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self.process is not None and self.process.is_alive()

    def read_reports(self) -> None:
        """Note that the process is alive.

        Raises:
            StartError: If it cannot start.
        """
        try:
            while self.reports is not None and self.reports.poll():
                report = self.reports.recv()
                if report.startswith(DIED_OF):
                    self.cause = report.removeprefix(DIED_OF)
                    continue
                if report != "ready" and self.reported_at is None:
                    raise StartError(report)
                self.reported_at, self.failures = time.monotonic(), 0
        except (EOFError, OSError):
            self.reports = None

    def continue_or_kill(self) -> None:
        """Continue a stopped process; kill a silent one."""
        if not self.is_alive():
            return
        if _is_stopped(self.process):
            log("process was stopped, it is continued", level=logging.WARNING, process=self.program.name)
            self.signal(signal.SIGCONT)
        elif self.reported_at is not None and time.monotonic() > self.reported_at + SILENT_SECONDS:
            log("process is silent, it is killed", level=logging.ERROR, process=self.program.name)
            self.kill()

    def note_death(self) -> None:
        """Log the end of a process, and decide when the next one starts.

        Raises:
            StartError: If it cannot start, or died again and again before it was ready.
        """
        if self.process is None:
            return
        self.read_reports()  # those that came since the last look
        code = self.process.exitcode
        log("process died", level=logging.ERROR, process=self.program.name, exit_code=code)
        self.clear()
        pause = 0.0
        if self.reported_at is None:
            self.failures += 1
            pause = min(LONGEST_PAUSE_SECONDS, 0.25 * 2**self.failures)
            if self.failures >= FAILED_STARTS:
                cause = f": {self.cause}" if self.cause else ""
                raise StartError(
                    f"{self.program.name} died {self.failures} times before it was ready, exit code {code}{cause}"
                )
        self.start_at = time.monotonic() + pause

    def clear(self) -> None:
        """Let go of a process that is dead."""
        if self.process is not None:
            forget_process(self.process.pid or 0)
            self.process.close()
        self.process = self.reports = None

    def signal(self, signum: int) -> None:
        """Send a signal to the process if it runs."""
        if self.process is not None and self.process.pid and self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signum)

    def join(self, seconds: float) -> None:
        """Wait for the end of the process."""
        if self.process is not None:
            self.process.join(seconds)

    def kill(self) -> None:
        """End the process at once."""
        self.signal(signal.SIGKILL)
        self.join(5.0)


def _run(program: Program, lifeline: Lifeline, others: Sequence[Connection]) -> None:
    """Run a program in its process."""
    for connection in others:  # the supervisor's ends, which a fork copies
        connection.close()
    with contextlib.suppress(OSError):  # the name that `top` shows, on Linux
        Path("/proc/self/comm").write_text(program.name, encoding="utf-8")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all processes; the supervisor ends them
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        program.run(lifeline, *program.arguments)
    except ValueError as error:
        lifeline.say(str(error))
        raise SystemExit(1) from None
    except Exception as error:
        lifeline.say(f"{DIED_OF}{type(error).__name__}: {error}")
        raise


def _is_stopped(process: BaseProcess | None) -> bool:
    """Return whether a process was stopped by a signal; False where the system does not say."""
    assert process is not None
    try:
        status = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] == "T"
