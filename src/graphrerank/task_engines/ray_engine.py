"""Engine whose tasks are processed by the workers of a Ray cluster."""

import math
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any

from graphrerank.task_engines.base import Result, Task, TaskEngine
from graphrerank.task_engines.ray_cluster import ray_cluster
from graphrerank.utils.checks import UserError, check_counts

TRIES = 4  # Number of times that a task is started, if its worker dies.
TASKS_PER_WORKER = 2  # Number of tasks that are processed or wait, for each worker.


class RayEngine(TaskEngine):
    """Engine whose tasks are processed by the workers of a Ray cluster.

    A worker that dies is started again and repeats its task. Other tasks are not affected. All machines must see the
    folders of the tasks at the same paths, and must have the same version of this package.

    Args:
        workers: Number of workers. Each is one process with its own copy of the function.
        address: Address of a running cluster, or ``auto`` for the cluster on this machine. If None, a cluster is
            started on this machine, which :meth:`close` stops.
        remote: Resources of each worker, such as ``{"num_cpus": 4, "num_gpus": 1}``. If None, one processor.

    Raises:
        UserError: If ``workers`` is not positive.

    Example:
        >>> with RayEngine(workers=2) as engine:  # doctest: +SKIP
        ...     list(engine.map(abs, [-1, 2]))
        [1, 2]
    """

    def __init__(
        self, *, workers: int = 2, address: str | None = None, remote: Mapping[str, Any] | None = None
    ) -> None:
        check_counts(workers=workers)
        self.workers = workers
        self.address = address
        self.remote = {"num_cpus": 1} if remote is None else {str(key): option for key, option in remote.items()}
        self._cluster = ExitStack()
        self._ray: Any = None

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Apply a function to each task on the workers. A single task is processed in this process.

        Args:
            function: Function or callable object, which is pickled once for each worker.
            tasks: Arguments of the function.

        Yields:
            Results in the order of the tasks.

        Raises:
            UserError: If Ray is not installed, the cluster cannot be reached, the function raises a UserError, or a
                task's workers die repeatedly.
        """
        tasks = iter(tasks)
        first = list(islice(tasks, 2))
        if len(first) < 2:
            yield from map(function, first)
            return
        ray = self._connected()
        # Ray would unpickle the function itself before the worker's module path is set.
        settings = (ray.cloudpickle.dumps(function), str(Path.cwd()), sys.path)
        worker = ray.remote(_Worker).options(max_restarts=-1, max_task_retries=TRIES - 1, **self.remote)
        actors = [worker.remote(*settings) for _ in range(self.workers)]
        waiting: deque[Any] = deque()
        for number, task in enumerate(chain(first, tasks)):
            waiting.append(actors[number % self.workers].apply.remote(task))
            if len(waiting) == TASKS_PER_WORKER * self.workers:
                yield _result(ray, waiting.popleft())
        while waiting:
            yield _result(ray, waiting.popleft())

    def close(self) -> None:
        """Stop the cluster, if this engine started it, and disconnect."""
        self._ray = None
        self._cluster.close()

    def _connected(self) -> Any:
        """Connect to the cluster at the first call, and return the module ``ray``."""
        if self._ray is None:
            num_cpus = max(1, math.ceil(self.workers * self.remote.get("num_cpus", 1)))
            self._ray = self._cluster.enter_context(
                ray_cluster("engine=ray", num_cpus=num_cpus, address=self.address, log_to_driver=False)
            )
        return self._ray


class _Worker:
    """Actor of Ray that applies one function to many tasks."""

    def __init__(self, pickled_function: bytes, folder: str, path: list[str]) -> None:
        os.chdir(folder)
        sys.path[:] = path
        self.function: Callable[[Any], Any] = pickle.loads(pickled_function)

    def apply(self, task: Any) -> Any:
        """Process one task."""
        return self.function(task)


def _result(ray: Any, reference: Any) -> Any:
    """Wait for the result of a task."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ValueError):
            raise UserError(str(error.cause)) from error
        raise
    except ray.exceptions.RayActorError as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"engine=ray: a task was started {TRIES} times, and each time its worker died, possibly because it had too "
            f"little memory: {reason}"
        ) from error
