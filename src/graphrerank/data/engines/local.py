"""Engines, which work on the blocks of a corpus, and the one of this process."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy.typing as npt

Block = Mapping[str, Sequence[str] | npt.NDArray[Any]]  # named lists of strings, and arrays
Work = Callable[[Block], Block]  # an object that can be pickled; each worker has one copy, which keeps what it loads


class Engine(Protocol):
    """Anything that applies work to the blocks of a corpus."""

    workers: int  # blocks that are worked on at once

    def map(self, work: Work, blocks: Iterable[Block]) -> Iterator[Block]:
        """Apply ``work`` to each block and yield the results in the blocks' order."""

    def close(self) -> None:
        """End what the engine started."""


class LocalEngine:
    """Works on one block after the other in this process, when its result is read."""

    workers = 1

    def map(self, work: Work, blocks: Iterable[Block]) -> Iterator[Block]:
        """Apply work to each block lazily."""
        return map(work, blocks)

    def close(self) -> None:
        """Nothing was started."""


LOCAL = LocalEngine()
