"""Call a function on untrusted input in processes with time and memory limits, so that no input stops the command."""

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

#: Memory limit of a process in bytes.
MEMORY = 900_000_000
#: Reasons why a call failed: it exceeded its time limit; its process crashed.
TOO_LONG, ENDED = "takes too long to read", "crashes the process that reads it"
_CHILD = "from graphrerank_documents.limited_processes import serve; serve()"

#: Function that a process calls with the message of each task.
Handler = Callable[[Any], bytes]


class Task(NamedTuple):
    """Call to make in a process.

    Attributes:
        message: Argument of the call. Must be serialisable as JSON.
        seconds: Time limit of the call.
    """

    message: Any
    seconds: float


class ProcessReply(NamedTuple):
    """Result of a call.

    Attributes:
        content: Return value of the function. Empty if the call failed.
        failure: :data:`TOO_LONG` or :data:`ENDED` if the call failed, otherwise empty.
    """

    content: bytes
    failure: str = ""


class LimitedProcesses:
    """Pool of processes that call a function on untrusted input.

    If a call exceeds its time limit or crashes its process, only that call fails. A new process makes the remaining
    calls. The pool is a context manager that terminates the processes.

    Args:
        factory: Name of a function as ``module:name``. Each process calls it once with ``settings``. It must return the
            function to call with the message of each task.
        settings: Argument of the factory. Must be serialisable as JSON.
        workers: Maximum number of processes. Processes are started on demand.
    """

    def __init__(self, factory: str, settings: Any, *, workers: int) -> None:
        self._factory, self._settings, self._workers = factory, settings, workers
        self._idle: list[_Process] = []

    def __enter__(self) -> Self:
        """Return this pool."""
        return self

    def __exit__(self, *error: object) -> None:
        """Terminate the processes."""
        while self._idle:
            self._idle.pop().end()

    def call(self, tasks: Iterable[Task]) -> Iterator[ProcessReply]:
        """Make a call for each task and yield the replies in the order of the tasks.

        Args:
            tasks: Calls to make. An iterator is advanced only when a process is free.

        Yields:
            Reply to each task.
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
    """Process that makes one call at a time."""

    def __init__(self, factory: str, settings: Any) -> None:
        self.number, self._deadline = 0, 0.0
        self.pipe, child = Pipe()
        paths = os.pathsep.join(filter(None, sys.path))
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        # -P: otherwise Python would first import modules from the current folder, which may contain untrusted documents
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
        """Send a task to the process."""
        self.number = number
        self._send(task.message)
        self._deadline = monotonic() + task.seconds

    def take(self) -> ProcessReply:
        """Return the reply, or terminate the process if there is none."""
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
        with suppress(OSError):  # the process has crashed, which the reply reports
            self.pipe.send_bytes(json.dumps(message).encode())


def serve() -> None:
    """Make the calls requested by the parent process until it terminates this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    pipe = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError, KeyboardInterrupt):
        factory, settings = json.loads(pipe.recv_bytes())
        module, name = factory.split(":")
        handler: Handler = getattr(import_module(module), name)(settings)
        while True:
            pipe.send_bytes(handler(json.loads(pipe.recv_bytes())))
