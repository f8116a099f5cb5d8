"""The processes of a service: workers that answer, one that stands by, and the watch over them.

A worker sends a sign of life every second over a pipe. The end of the pipe tells at once that it has died. A worker
that stands by has loaded its engines and does not listen; it takes the place of a worker that is gone.
"""

import contextlib
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from graphrerank.serving.json_log import log

SIGN_SECONDS = 1.0  # between two signs of life
STOPPED_SECONDS = 2.0  # for which a worker is seen to be stopped before it is replaced
SILENT_SECONDS = 10.0  # without a sign of life, after which a worker is replaced
LOOK_SECONDS = 0.5  # between two looks at the workers
RETRY_SECONDS = 10.0  # after which a worker starts again if one could not load its engines while others serve
LOADING, STANDING_BY, SERVING, FAILED = "loading", "standby", "serving", "failed"
PROCESS_NAME = "rerank"  # of workers; with the state at most 15 characters
SERVE = "serve"  # what the supervisor sends to a worker that stands by
# imported once by the process that forks the others: the engines, and what builds their components by name
PRELOADED = ("graphrerank.serving.setup.service", "graphrerank.config.yaml_components")


class Worker(Protocol):
    """Properties of a worker that the watch reads."""

    pid: int

    def news(self) -> Sequence[str] | None:
        """Return the states that the worker sent since the last call; None if it has ended."""

    def is_stopped(self) -> bool:
        """Return whether the operating system has stopped the worker, as by SIGSTOP."""

    def serve(self) -> None:
        """Let the worker listen as soon as its engines are loaded."""

    def end(self) -> None:
        """Let the worker finish its requests and end."""

    def kill(self) -> None:
        """End the worker at once."""


WorkerT = TypeVar("WorkerT", bound=Worker)


class _Watched(Generic[WorkerT]):
    """A worker and what is known of it; times are of the watch's clock."""

    def __init__(self, worker: WorkerT, now: float) -> None:
        self.worker = worker
        self.state = LOADING
        self.may_serve = False
        self.last_sign = now
        self.stopped_since: float | None = None


class Watch(Generic[WorkerT]):
    """Decides which workers start, serve and are replaced.

    - A worker that has ended is replaced at the next look.
    - A worker that is stopped for :data:`STOPPED_SECONDS`, or gives no sign of life for :data:`SILENT_SECONDS`, is
      killed and replaced.
    - The place of a worker is taken by one that stands by, if there is any; another one then starts.
    - If the watch itself was stopped, it waits for new signs of life before it replaces anything.
    - A worker that cannot load its engines ends the service, unless another one serves. Then it is started again after
      :data:`RETRY_SECONDS`.

    Args:
        start: Starts a worker.
        num_workers: Number of workers that serve.
        num_standby: Number of further workers that stand by.
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
        """Read the signs of life, replace workers that are gone, and start what is missing."""
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
        """Let workers serve in the places of those that are gone, and start others."""
        missing = self._num_workers - sum(one.may_serve for one in self._watched)
        ready_first = sorted(self._watched, key=lambda one: one.state != STANDING_BY)
        for one in [one for one in ready_first if not one.may_serve][: max(0, missing)]:
            one.may_serve = True
            one.worker.serve()
            missing -= 1
        spare = sum(not one.may_serve for one in self._watched)
        wanted = missing
        if not missing and all(one.state == SERVING for one in self._watched if one.may_serve):
            wanted = self._num_standby - spare  # only then, so that it does not delay those that serve
        for _ in range(wanted if now >= self._next_start else 0):
            one = _Watched(self._start(), now)
            self._watched.append(one)
            if missing > 0:
                missing -= 1
                one.may_serve = True
                one.worker.serve()


class WorkerProcess:
    """A worker in a process of its own.

    Args:
        context: Start method of processes.
        target: Called in the process with its :class:`Post` and ``arguments``.
        arguments: Further arguments; they are pickled.
    """

    def __init__(self, context: BaseContext, target: Callable[..., None], arguments: Sequence[Any]) -> None:
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs, target, *arguments))  # type: ignore[attr-defined]
        self._process.start()
        theirs.close()  # so that the pipe ends with the process
        self.pid = int(self._process.pid)
        self._has_ended = False

    @property
    def pipe(self) -> Connection:
        """Becomes readable when the worker sends something or ends."""
        return self._pipe

    def news(self) -> list[str] | None:
        """Return the states that the worker sent since the last call; None if it has ended."""
        states = list[str]()
        try:
            while self._pipe.poll():
                states.append(self._pipe.recv())
        except (EOFError, OSError):
            self._has_ended = True
            return states if FAILED in states else None
        return states

    def is_stopped(self) -> bool:
        """Return whether the operating system has stopped the worker; False where that cannot be seen."""
        try:
            # the state follows the name, which is in parentheses and may contain others
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:
            return False

    def serve(self) -> None:
        """Let the worker listen as soon as its engines are loaded."""
        with contextlib.suppress(OSError):
            self._pipe.send(SERVE)

    def end(self) -> None:
        """Let the worker finish its requests and end."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the worker at once."""
        self._signal(signal.SIGKILL)
        self._pipe.close()
        self._process.join(1)

    def join(self) -> None:
        """Wait until the worker has ended."""
        while self.news() is not None and not self._has_ended:
            wait([self._pipe])
        self._process.join(1)

    def _signal(self, signum: int) -> None:
        """Send a signal, unless the process has ended and another one may have its number."""
        if not self._has_ended:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signum)


class Post:
    """A worker's end of the pipe to its supervisor.

    Args:
        pipe: The pipe.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._state = LOADING
        self.may_serve = threading.Event()

    def watch(self) -> None:
        """Send signs of life from a thread, and end the process when its supervisor is gone."""
        threading.Thread(target=self._watch, daemon=True).start()

    def report(self, state: str) -> None:
        """Send a state.

        Args:
            state: One of ``loading``, ``standby``, ``serving`` and ``failed``. Where the system allows it, it is a
                part of the name of the process, as `ps` and `top` show it.
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


def _run(pipe: Connection, target: Callable[..., None], *arguments: Any) -> None:
    """Run a worker in its process."""
    # what a fork inherits is never collected: its pages, which a collection would write to, stay shared with the others
    gc.freeze()
    post = Post(pipe)
    post.watch()
    target(post, *arguments)


def supervise(
    target: Callable[..., None], arguments: Sequence[Any], *, workers: int, standby: int, forks: bool
) -> None:
    """Run workers until SIGTERM or SIGINT, then let them finish their requests.

    Args:
        target: Called in each process with its :class:`Post` and ``arguments``.
        arguments: Further arguments; they are pickled.
        workers: Number of workers that serve.
        standby: Number of further workers that stand by.
        forks: Whether workers are forked from a process that has imported what they need, which starts them in a
            fraction of the time. False where that is unsafe, as with CUDA, or not possible.
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
