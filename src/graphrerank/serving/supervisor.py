"""Manage the processes of a service: workers that answer requests, standby workers, and a supervisor.

A worker sends a heartbeat every second over a pipe. When it dies, the pipe closes, which the supervisor notices at
once. A standby worker has loaded its engines but does not listen. It replaces a worker that dies or hangs.
"""

import contextlib
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from graphrerank.installation.extras import is_installed
from graphrerank.serving.json_log import log

SIGN_SECONDS = 1.0  # time between two heartbeats
STOPPED_SECONDS = 2.0  # time after which a stopped worker is replaced
SILENT_SECONDS = 10.0  # time without a heartbeat after which a worker is replaced
LOOK_SECONDS = 0.5  # time between two checks of the workers
RETRY_SECONDS = 10.0  # time until the next start after a worker could not load its engines while others serve
LOADING, STANDING_BY, SERVING, FAILED = "loading", "standby", "serving", "failed"
PROCESS_NAME = "rerank"  # name of worker processes, at most 15 characters with the state
SERVE = "serve"  # message that activates a standby worker
# Modules that the fork server imports once: the engines, and the code that builds their components by name.
PRELOADED = ("graphrerank.serving.setup.service", "graphrerank.config.yaml_components")


class Worker(Protocol):
    """Worker as the supervisor sees it.

    Attributes:
        pid: Process id.
    """

    pid: int

    def news(self) -> Sequence[str] | None:
        """Return the states that the worker has sent since the last call, or None if the worker has ended."""

    def is_stopped(self) -> bool:
        """Return whether the operating system has stopped the worker, for example by SIGSTOP."""

    def serve(self) -> None:
        """Let the worker listen as soon as its engines are loaded."""

    def end(self) -> None:
        """Let the worker finish its requests and exit."""

    def kill(self) -> None:
        """Kill the worker."""


WorkerT = TypeVar("WorkerT", bound=Worker)


class _Watched(Generic[WorkerT]):
    """Worker with its state. Times are of the supervisor's clock."""

    def __init__(self, worker: WorkerT, now: float) -> None:
        self.worker = worker
        self.state = LOADING
        self.may_serve = False
        self.last_sign = now
        self.stopped_since: float | None = None


class Watch(Generic[WorkerT]):
    """Supervisor that decides which workers start, serve and are replaced.

    - A worker that has ended is replaced at the next check.
    - A worker that is stopped for :data:`STOPPED_SECONDS`, or sends no heartbeat for :data:`SILENT_SECONDS`, is killed
      and replaced.
    - A standby worker, if there is one, takes over from a replaced worker, and a new standby worker starts.
    - If the supervisor itself was stopped, it waits for new heartbeats before it replaces anything.
    - If a worker cannot load its engines, the service ends. While another worker serves, a new one is started after
      :data:`RETRY_SECONDS` instead.

    Args:
        start: Function that starts a worker.
        num_workers: Number of workers that serve.
        num_standby: Number of standby workers.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        start: Callable[[], WorkerT],
        num_workers: int,
        num_standby: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._clock = start, clock
        self._num_workers, self._num_standby = num_workers, num_standby
        self._watched: list[_Watched[WorkerT]] = []
        self._last_look = clock()
        self._next_start = -float("inf")
        self.has_failed = False

    @property
    def workers(self) -> list[WorkerT]:
        """All workers."""
        return [one.worker for one in self._watched]

    def workers_that_serve(self) -> list[WorkerT]:
        """Return the workers that listen."""
        return [one.worker for one in self._watched if one.state == SERVING]

    def look(self) -> None:
        """Receive heartbeats, replace workers that have died or hang, and start missing workers."""
        now = self._clock()
        was_stopped = now - self._last_look > SILENT_SECONDS / 2
        self._last_look = now
        for one in list(self._watched):
            news = one.worker.news()
            if news:
                one.state, one.last_sign = news[-1], now
            if was_stopped:
                one.last_sign, one.stopped_since = now, None
            if one.state == FAILED:
                if not self.workers_that_serve():
                    self.has_failed = True
                    return
                self._next_start = now + RETRY_SECONDS
                self._replace(one, "worker could not load its engines")
            elif news is None:
                self._replace(one, "worker died")
            elif self._is_stopped(one, now):
                self._replace(one, "worker is stopped and is replaced")
            elif now - one.last_sign > SILENT_SECONDS:
                self._replace(one, "worker is silent and is replaced")
        self._fill(now)

    def _is_stopped(self, one: _Watched[WorkerT], now: float) -> bool:
        if not one.worker.is_stopped():
            one.stopped_since = None
            return False
        one.stopped_since = now if one.stopped_since is None else one.stopped_since
        return now - one.stopped_since >= STOPPED_SECONDS

    def _replace(self, one: _Watched[WorkerT], event: str) -> None:
        log(event, level=logging.WARNING, pid=one.worker.pid, state=one.state)
        one.worker.kill()
        self._watched.remove(one)

    def _fill(self, now: float) -> None:
        """Activate workers to replace missing ones, and start new ones."""
        missing = self._num_workers - sum(one.may_serve for one in self._watched)
        ready_first = sorted(self._watched, key=lambda one: one.state != STANDING_BY)
        for one in [one for one in ready_first if not one.may_serve][: max(0, missing)]:
            one.may_serve = True
            one.worker.serve()
            missing -= 1
        spare = sum(not one.may_serve for one in self._watched)
        wanted = missing
        if not missing and all(one.state == SERVING for one in self._watched if one.may_serve):
            wanted = self._num_standby - spare  # standby workers start last, so that they do not delay the others
        for _ in range(wanted if now >= self._next_start else 0):
            one = _Watched(self._start(), now)
            self._watched.append(one)
            if missing > 0:
                missing -= 1
                one.may_serve = True
                one.worker.serve()


class WorkerProcess:
    """Worker in a separate process.

    Args:
        context: Start method of processes.
        target: Function called in the process with its :class:`Post` and ``arguments``.
        arguments: Additional arguments, which are pickled.
    """

    def __init__(self, context: BaseContext, target: Callable[..., None], arguments: Sequence[Any]) -> None:
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs, target, *arguments))  # type: ignore[attr-defined]
        self._process.start()
        theirs.close()  # otherwise the pipe would stay open when the worker ends
        self.pid = int(self._process.pid)
        self._has_ended = False

    @property
    def pipe(self) -> Connection:
        """Pipe that becomes readable when the worker sends something or ends."""
        return self._pipe

    def news(self) -> list[str] | None:
        """Return the states that the worker has sent since the last call, or None if the worker has ended."""
        states = list[str]()
        try:
            while self._pipe.poll():
                states.append(self._pipe.recv())
        except (EOFError, OSError):
            self._has_ended = True
            return states if FAILED in states else None
        return states

    def is_stopped(self) -> bool:
        """Return whether the operating system has stopped the worker. False if this cannot be determined."""
        try:
            # the state follows the process name, which is in parentheses and may contain parentheses itself
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:
            return False

    def serve(self) -> None:
        """Let the worker listen as soon as its engines are loaded."""
        with contextlib.suppress(OSError):
            self._pipe.send(SERVE)

    def end(self) -> None:
        """Let the worker finish its requests and exit."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the worker."""
        self._signal(signal.SIGKILL)
        self._pipe.close()
        self._process.join(1)

    def join(self) -> None:
        """Wait until the worker has ended."""
        while self.news() is not None and not self._has_ended:
            wait([self._pipe])
        self._process.join(1)

    def _signal(self, signum: int) -> None:
        """Send a signal, unless the process has ended, because its id may have been reused."""
        if not self._has_ended:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signum)


class Post:
    """Worker's end of the pipe to its supervisor.

    Args:
        pipe: Pipe to the supervisor.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._state = LOADING
        self.may_serve = threading.Event()

    def watch(self) -> None:
        """Send heartbeats from a thread, and end the process if its supervisor dies."""
        threading.Thread(target=self._watch, daemon=True).start()

    def report(self, state: str) -> None:
        """Send a state to the supervisor.

        Args:
            state: One of ``loading``, ``standby``, ``serving`` and ``failed``. Where the system allows it, the state
                becomes part of the process name that `ps` and `top` show.
        """
        self._state = state
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(f"{PROCESS_NAME} {state}")
        with self._lock, contextlib.suppress(OSError):
            self._pipe.send(state)

    def _watch(self) -> None:
        try:
            while True:
                with self._lock:
                    self._pipe.send(self._state)
                if self._pipe.poll(SIGN_SECONDS) and self._pipe.recv() == SERVE:
                    self.may_serve.set()
        except (EOFError, OSError):  # the supervisor was killed
            os.kill(os.getpid(), signal.SIGTERM if self._state == SERVING else signal.SIGKILL)


def use_thread_lock_in_progress_bars() -> None:
    """Let the progress bars of tqdm, which encoders create, use a lock of this process.

    By default, tqdm creates a semaphore of the operating system. A worker that a signal ends cannot remove its
    semaphore, and then Python warns of leaked semaphores when the service stops.
    """
    if is_installed("tqdm"):  # which encoders install; this package does not use it itself
        import_module("tqdm").tqdm.set_lock(threading.RLock())


def _run(pipe: Connection, target: Callable[..., None], *arguments: Any) -> None:
    """Run a worker in its process."""
    use_thread_lock_in_progress_bars()
    # Inherited objects are excluded from garbage collection, which would write to memory pages shared between workers.
    gc.freeze()
    post = Post(pipe)
    post.watch()
    target(post, *arguments)


def supervise(
    target: Callable[..., None], arguments: Sequence[Any], *, workers: int, standby: int, forks: bool
) -> None:
    """Run workers until SIGTERM or SIGINT, then let them finish their requests.

    Args:
        target: Function called in each process with its :class:`Post` and ``arguments``.
        arguments: Additional arguments, which are pickled.
        workers: Number of workers that serve.
        standby: Number of standby workers.
        forks: Whether workers are forked from a process that has already imported all modules, which is much faster.
            Must be False where forking is unsafe, as with CUDA, or not available.
    """
    context = get_context("forkserver" if forks else "spawn")
    if forks:
        context.set_forkserver_preload(list(PRELOADED))
    asked_to_end = threading.Event()
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    for signum in before:
        signal.signal(signum, lambda signum, frame: asked_to_end.set())
    watch: Watch[WorkerProcess] = Watch(lambda: WorkerProcess(context, target, arguments), workers, standby)
    try:
        while not asked_to_end.is_set():
            watch.look()
            if watch.has_failed:
                break
            wait([worker.pipe for worker in watch.workers], LOOK_SECONDS)
    finally:
        serving = watch.workers_that_serve()
        for worker in watch.workers:
            (worker.end if worker in serving else worker.kill)()
        for worker in serving:
            worker.join()
        for signum, handler in before.items():
            signal.signal(signum, handler)
