"""Progress of long work: one bar on a terminal, else a line in the log from time to time.

What is inside of a block advances the bar that is there. Lines go to the logger ``graphrerank.utils.progress``, at the
level INFO; commands show them on standard error.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import find_spec

LOGGER = logging.getLogger("graphrerank.utils.progress")
LINE_SECONDS = 20.0  # between two lines of the same work

Clock = Callable[[], float]  # seconds since any moment


@dataclass
class _Work:
    """Work that has begun.

    Attributes:
        label: Title of the bar, and beginning of each line.
        total: Number of parts; 0 if that is unknown.
        clock: Tells the time.
        show: Shows how many parts are done, on a bar. None writes lines.
        done: Number of parts that are done.
    """

    label: str
    total: int
    clock: Clock
    show: Callable[[int], None] | None = None
    done: int = 0
    _begin: float = field(init=False)
    _shown: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self._shown = self.clock()

    def advance_to(self, done: int) -> None:
        """Show that some parts are done; the number never goes back."""
        self.done = max(done, self.done)
        if self.show is not None:
            self.show(self.done)
        elif (now := self.clock()) - self._shown >= LINE_SECONDS:
            self._shown = now
            LOGGER.info(progress_line(self.label, self.done, self.total, now - self._begin))


_CURRENT: ContextVar[_Work | None] = ContextVar("work", default=None)


@contextmanager
def progress_bar(label: str, total: int, *, clock: Clock = time.monotonic) -> Iterator[None]:
    """Show progress while the block runs: a bar on standard error if that is a terminal, else a line every 20 seconds.

    Nothing is shown of work within other work that is shown: it advances the outer one. Without the package ``rich``,
    as in a bare installation, lines take the place of the bar.

    Args:
        label: Name of the work.
        total: Number of its parts; 0 if that is unknown.
        clock: Returns the time in seconds, from any moment on.
    """
    if _CURRENT.get() is not None:
        yield
        return
    with _bar(label, total) as show:
        token = _CURRENT.set(_Work(label, total, clock, show))
        try:
            yield
        finally:
            _CURRENT.reset(token)


@contextmanager
def _bar(label: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Show a bar on a terminal; yields the function that moves it, or None if there is no bar."""
    if find_spec("rich") is None:
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = *bars.Progress.get_default_columns(), bars.MofNCompleteColumn()
    with bars.Progress(*columns, console=console, transient=True, expand=True) as shown:
        task = shown.add_task(label, total=total)
        yield lambda done: shown.update(task, completed=done)


def parts_done() -> int:
    """Return how many parts of the work that is shown are done; 0 if there is none."""
    work = _CURRENT.get()
    return 0 if work is None else work.done


def advance(count: int) -> None:
    """Advance the work that is shown, if there is some, by a number of parts."""
    advance_to(parts_done() + count)


def advance_to(done: int) -> None:
    """Advance the work that is shown, if there is some, to a number of parts; it never goes back."""
    if (work := _CURRENT.get()) is not None:
        work.advance_to(done)


def progress_line(label: str, done: int, total: int, seconds: float) -> str:
    """Return a line that says how far some work is, and about how long the rest takes.

    Args:
        label: Name of the work.
        done: Number of parts that are done.
        total: Number of all parts; 0 if that is unknown.
        seconds: Time that these parts took.

    Example:
        >>> progress_line("reading pairs", 500, 2000, 60.0)
        'reading pairs: 500 of 2,000 (25%), about 3 min left'
        >>> progress_line("reading pairs", 500, 0, 60.0)
        'reading pairs: 500'
    """
    if not total:
        return f"{label}: {done:,}"
    left = f", about {describe_seconds(seconds * (total - done) / done)} left" if done else ""
    return f"{label}: {done:,} of {total:,} ({100 * done // total}%){left}"


def describe_seconds(seconds: float) -> str:
    """Write a duration as people say it.

    Example:
        >>> [describe_seconds(seconds) for seconds in (0.2, 41.4, 200, 8000)]
        ['1 s', '41 s', '3 min', '2 h 13 min']
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
