"""One progress bar on the terminal for work that has parts: what is inside advances the bar that is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any


@dataclass
class _Bar:
    """A bar on the screen."""

    progress: Any  # of rich
    task: Any
    done: int = 0

    def move_to(self, done: int) -> None:
        self.done = max(self.done, done)
        self.progress.update(self.task, completed=self.done)


_SHOWN: ContextVar[_Bar | None] = ContextVar("progress_bar", default=None)


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[None]:
    """Show a bar of ``total`` parts while the block runs, on a terminal; none if there is one already.

    The bar is on standard error, and gone when the block ends. Without the package ``rich``, as in a bare installation,
    there is none.
    """
    if _SHOWN.get() is not None or find_spec("rich") is None:
        yield
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, expand=True, disable=not console.is_terminal) as progress:
        token = _SHOWN.set(_Bar(progress, progress.add_task(label, total=total)))
        try:
            yield
        finally:
            _SHOWN.reset(token)


def parts_done() -> int:
    """Return how many parts of the bar that is shown are done; 0 without a bar."""
    bar = _SHOWN.get()
    return 0 if bar is None else bar.done


def advance(count: int) -> None:
    """Say that so many more parts are done, if a bar is shown."""
    if (bar := _SHOWN.get()) is not None:
        bar.move_to(bar.done + count)


def advance_to(done: int) -> None:
    """Say that at least so many parts are done, if a bar is shown: what counted itself is not counted twice."""
    if (bar := _SHOWN.get()) is not None:
        bar.move_to(done)
