"""Progress of long-running work: a bar on a terminal, otherwise periodic log lines.

Nested work advances the outermost bar. Lines go to the logger ``graphrerank.utils.progress`` at level INFO, which
commands show on standard error.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import find_spec

LOGGER = logging.getLogger("graphrerank.utils.progress")
LINE_SECONDS = 20.0  # Minimum time between two log lines for the same work.

Clock = Callable[[], float]  # Function that returns the time in seconds since an arbitrary moment.


@dataclass
class _Work:
    """Work in progress.

    Attributes:
        label: Title of the bar, and beginning of each log line.
        total: Number of steps, or 0 if unknown.
        clock: Function that returns the current time in seconds.
        show: Function that moves the bar to a number of completed steps. If None, log lines are written instead.
        done: Number of completed steps.
        is_in_step: Whether the code that runs is part of a :func:`step`, which advances the progress as a whole.
    """

    label: str
    total: int
    clock: Clock
    show: Callable[[int], None] | None = None
    done: int = 0
    is_in_step: bool = False
    _begin: float = field(init=False)
    _last_line: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self._last_line = self.clock()

    def advance_to(self, done: int) -> None:
        """Show the number of completed steps. A number below the last one is ignored."""
        if self.is_in_step:
            return
        self.done = max(done, self.done)
        if self.show is not None:
            self.show(self.done)
        elif (now := self.clock()) - self._last_line >= LINE_SECONDS:
            self._last_line = now
            LOGGER.info(progress_line(self.label, self.done, self.total, now - self._begin))


_CURRENT: ContextVar[_Work | None] = ContextVar("work", default=None)


@contextmanager
def progress_bar(label: str, total: int, *, announce: bool = False, clock: Clock = time.monotonic) -> Iterator[None]:
    """Show progress while the block runs.

    Progress is shown as a bar if standard error is a terminal and the package ``rich`` is installed, otherwise as a log
    line every 20 seconds. Inside another block, no second bar is shown, and :func:`advance` advances the outer one.

    Args:
        label: Name of the work.
        total: Number of steps, or 0 if unknown.
        announce: Whether to write a line at the beginning if no bar can be shown. By default, the first line is written
            after 20 seconds.
        clock: Function that returns the current time in seconds, from any moment on.

    Yields:
        None.
    """
    if _CURRENT.get() is not None:
        yield
        return
    with _bar(label, total) as show:
        if announce and show is None:
            LOGGER.info(progress_line(label, 0, total, 0.0))
        token = _CURRENT.set(_Work(label, total, clock, show))
        try:
            yield
        finally:
            _CURRENT.reset(token)


@contextmanager
def _bar(label: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Yield the function that moves a bar on the terminal, or None if no bar can be shown."""
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
    with bars.Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


def parts_done() -> int:
    """Return the number of completed steps of the current work, or 0 if there is none."""
    work = _CURRENT.get()
    return 0 if work is None else work.done


def advance(count: int) -> None:
    """Advance the progress of the current work, if any.

    Args:
        count: Number of steps completed since the last call.
    """
    advance_to(parts_done() + count)


def advance_to(done: int) -> None:
    """Set the number of completed steps of the current work, if any.

    Args:
        done: Number of completed steps. A number below the last one is ignored.
    """
    if (work := _CURRENT.get()) is not None:
        work.advance_to(done)


@contextmanager
def step(count: int) -> Iterator[None]:
    """Advance the progress of the current work by a number of steps when the block ends.

    Inside the block, nothing else advances the progress, such as the encoding of texts or a retriever that another
    retriever calls.

    Args:
        count: Number of steps of the work that the block completes.

    Yields:
        None.

    Example:
        >>> with progress_bar("retrieving", 100), step(64):
        ...     advance(10)  # part of the step
    """
    work = _CURRENT.get()
    if work is None or work.is_in_step:
        yield
        return
    work.is_in_step = True
    try:
        yield
    finally:
        work.is_in_step = False
    work.advance_to(work.done + count)


def progress_line(label: str, done: int, total: int, seconds: float) -> str:
    """Return a line with the progress of some work and the estimated time left.

    Args:
        label: Name of the work.
        done: Number of completed steps.
        total: Number of steps, or 0 if unknown.
        seconds: Time that the completed steps took.

    Returns:
        Line of text.

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
    """Format a duration for people.

    Args:
        seconds: Duration in seconds.

    Returns:
        Duration in seconds, minutes, or hours and minutes, rounded.

    Example:
        >>> [describe_seconds(seconds) for seconds in (0.2, 41.4, 200, 8000)]
        ['1 s', '41 s', '3 min', '2 h 13 min']
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
