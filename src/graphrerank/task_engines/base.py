"""Base class of engines, and the engine that works in this process."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class TaskEngine(ABC):
    """Engine that applies a function to many independent tasks, such as the shards of a corpus.

    An engine is a context manager, which ends its workers.

    Attributes:
        workers: Number of tasks that are processed at the same time.
    """

    workers: int = 1

    @abstractmethod
    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Apply a function to each task.

        Args:
            function: Function or callable object. Engines with several processes pickle it once for each worker.
            tasks: Arguments of the function. They are read one after the other, while earlier tasks are processed.

        Yields:
            Results in the order of the tasks.
        """

    @abstractmethod
    def close(self) -> None:
        """End the workers of the engine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class LocalEngine(TaskEngine):
    """Engine that processes one task after the other in this process, when its result is read.

    Example:
        >>> list(LocalEngine().map(abs, [-1, 2]))
        [1, 2]
    """

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Apply a function to each task.

        Args:
            function: Function or callable object.
            tasks: Arguments of the function.

        Returns:
            Results in the order of the tasks.
        """
        return map(function, tasks)

    def close(self) -> None:
        """Do nothing, because there are no workers."""


LOCAL = LocalEngine()
