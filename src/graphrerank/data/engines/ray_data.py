"""The actors of a Ray cluster as an engine."""

import math
import os
import pickle
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from graphrerank.checks import UserError, check_counts
from graphrerank.data.engines.local import Block, Work
from graphrerank.extras import optional

TRIES = 4  # of a block whose worker dies
AHEAD = 2  # blocks that wait or are worked on, for each worker


class RayEngine:
    """Works on blocks by actors of a Ray cluster; a worker that dies is started again, and only its blocks with it.

    Args:
        workers: Number of actors.
        address: Of a running cluster, ``auto`` for this machine's; None starts one here, which :meth:`close` ends.
        remote: Options of each actor, such as ``{num_cpus: 4, num_gpus: 1}``; one processor when None.
    """

    def __init__(
        self, *, workers: int = 2, address: str | None = None, remote: Mapping[str, Any] | None = None
    ) -> None:
        check_counts(workers=workers)
        self.workers = workers
        self.address = address
        self.remote = {"num_cpus": 1} if remote is None else {str(key): option for key, option in remote.items()}
        self._started = False

    def map(self, work: Work, blocks: Iterable[Block]) -> Iterator[Block]:
        """Apply work to each block and yield the results in the blocks' order.

        A ValueError says that Ray is not installed, no cluster is reached, the work raised it, or workers died.
        """
        blocks = iter(blocks)
        first = list(islice(blocks, 2))
        if len(first) < 2:  # no worker is started for one block
            yield from map(work, first)
            return
        ray = self._connect()
        settings = ([ray.put(work)], str(Path.cwd()), sys.path)  # in a list: a reference stays one
        worker = ray.remote(_Worker).options(max_restarts=-1, max_task_retries=TRIES - 1, **self.remote)
        actors = [worker.remote(*settings) for _ in range(self.workers)]
        waiting: deque[Any] = deque()
        for number, block in enumerate(chain(first, blocks)):
            waiting.append(actors[number % self.workers].apply.remote(pickle.dumps(block)))
            if len(waiting) == AHEAD * self.workers:
                yield _result(ray, waiting.popleft())
        while waiting:
            yield _result(ray, waiting.popleft())

    def close(self) -> None:
        """End the cluster, if this engine started it."""
        if self._started:
            import ray

            ray.shutdown()
            self._started = False

    def _connect(self) -> Any:
        """Start a cluster or connect to one, unless this process did before; return the module."""
        ray = optional("ray", "engine=ray")
        if not ray.is_initialized():
            processors = math.ceil(self.workers * self.remote.get("num_cpus", 1))
            own = {} if self.address else {"num_cpus": max(1, processors), "include_dashboard": False}
            try:
                ray.init(address=self.address or "local", log_to_driver=False, logging_level="WARNING", **own)
            except Exception as error:  # Ray raises it bare where a node does not start in time
                raise UserError(
                    f"engine=ray: no cluster of {self.address or 'this machine'} could be reached ({error}); on a busy "
                    "machine start one with `ray start --head`, and take engine.address=auto"
                ) from error
            self._started = True
        return ray


def _result(ray: Any, reference: Any) -> Block:
    try:
        block: Block = pickle.loads(ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ValueError):
            raise UserError(str(error.cause)) from error
        raise
    except ray.exceptions.RayActorError as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"engine=ray: {TRIES} workers died at one block, for want of memory perhaps: {reason}"
        ) from error
    return block


class _Worker:
    """The actor: it keeps the work, and applies it to a block at each call, whose arrays it may write to."""

    def __init__(self, broadcast: list[Any], folder: str, path: list[str]) -> None:
        import ray

        os.chdir(folder)
        sys.path[:] = path
        self.work: Work = ray.get(broadcast[0])

    def apply(self, block: bytes) -> bytes:
        return pickle.dumps(self.work(pickle.loads(block)))
