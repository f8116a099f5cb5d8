"""Call a function on untrusted input in processes with limits of time and memory, so that no input ends the command."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe, wait
from time import monotonic
from typing import Any, NamedTuple, Self

MEMORY = 900_000_000  # bytes of one process
TOO_LONG, ENDED = "takes too long to read", "ended the process that read it"
_CHILD = "from graphrerank_documents.limited_processes import serve; serve()"

Handler = Callable[[Any], bytes]


class Task(NamedTuple):
    """One call.

    Attributes:
        message: The argument of the call, of types that JSON has.
        seconds: The time that the call may take.
    """

    message: Any
    seconds: float


class ProcessReply(NamedTuple):
    """The result of one call.

    Attributes:
        content: What the function returned; empty if it failed.
        failure: Why there is no content: :data:`TOO_LONG`, :data:`ENDED`, or empty if there is.
    """

    content: bytes
    failure: str = ""


class LimitedProcesses:
    """Processes that call a function on untrusted input; a context manager that ends them.

    A call that exceeds its time, or whose process ends, fails alone: a new process makes the other calls.

    Args:
        factory: A function as ``module:name``. Each process calls it once with ``settings``; it returns the function
            that is called with the message of each task and returns bytes.
        settings: The argument of the factory, of types that JSON has.
        workers: Number of processes, at most; they start when they are needed.
    """

    def __init__(self, factory: str, settings: Any, *, workers: int) -> None:
        self._factory, self._settings, self._workers = factory, settings, workers
        self._idle: list[_Process] = []

    def __enter__(self) -> Self:
        """Return the processes."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the processes."""
        while self._idle:
            self._idle.pop().end()

    def call(self, tasks: Iterable[Task]) -> Iterator[ProcessReply]:
        """Make a call for each task, and yield the replies in the order of the tasks.

        Args:
            tasks: The calls, which may be an iterator: a task is taken when a process is free.

        Yields:
            The reply to each task.
        """
        waiting = enumerate(tasks)
        done: dict[int, ProcessReply] = {}
        busy: list[_Process] = []
        number = 0
        try:
            while True:
                while len(busy) < self._workers and (task := next(waiting, None)):
                    busy.append(self._idle.pop() if self._idle else _Process(self._factory, self._settings))
                    busy[-1].give(*task)
                if not busy:
                    return
                ready = wait([process.pipe for process in busy], min(map(_Process.seconds_left, busy)))
                for process in [each for each in busy if each.pipe in ready or not each.seconds_left()]:
                    done[process.number] = process.take()
                    busy.remove(process)
                    if process.is_alive:
                        self._idle.append(process)
                    else:
                        process.end()
                while number in done:
                    yield done.pop(number)
                    number += 1
        finally:
            for process in busy:
                process.end()


class _Process:
    """A process that makes one call after the other."""

    def __init__(self, factory: str, settings: Any) -> None:
        self.number, self._deadline = 0, 0.0
        self.pipe, child = Pipe()
        paths = os.pathsep.join(filter(None, sys.path))
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        # -P: Python would look for modules in the current folder first, which may be one of untrusted documents
        command = [sys.executable, "-P", "-c", _CHILD, str(child.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[child.fileno()], env=environment)
        child.close()
        self._send([factory, settings])

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def seconds_left(self) -> float:
        return max(0.0, self._deadline - monotonic())

    def give(self, number: int, task: Task) -> None:
        """Send a task."""
        self.number = number
        self._send(task.message)
        self._deadline = monotonic() + task.seconds

    def take(self) -> ProcessReply:
        """Return the reply; the process is ended if there is none."""
        if not self.pipe.poll():
            self.end()
            return ProcessReply(b"", TOO_LONG)
        try:
            return ProcessReply(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.end()
            return ProcessReply(b"", ENDED)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.pipe.close()

    def _send(self, message: Any) -> None:
        with suppress(OSError):  # the process has ended: the reply says so
            self.pipe.send_bytes(json.dumps(message).encode())


def serve() -> None:
    """Make the calls that the parent process asks for, until it ends this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    pipe = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError, KeyboardInterrupt):
        factory, settings = json.loads(pipe.recv_bytes())
        module, name = factory.split(":")
        handler: Handler = getattr(import_module(module), name)(settings)
        while True:
            pipe.send_bytes(handler(json.loads(pipe.recv_bytes())))
