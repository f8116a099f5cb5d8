"""One progress bar on the terminal for work that has parts: what is inside advances the bar that is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_SHOWN: ContextVar["Progress | None"] = ContextVar("progress_bar", default=None)


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[None]:
    """Show a bar of ``total`` parts on standard error while the block runs, on a terminal.

    There is none if another one is shown, or without the package ``rich``, as in a bare installation.
    """
    if _SHOWN.get() is not None or find_spec("rich") is None:
        yield
        return
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True)
    columns = *bars.Progress.get_default_columns(), bars.MofNCompleteColumn()
    shown = bars.Progress(*columns, console=console, transient=True, expand=True, disable=not console.is_terminal)
    with shown:
        shown.add_task(label, total=total)
        token = _SHOWN.set(shown)
        try:
            yield
        finally:
            _SHOWN.reset(token)


def parts_done() -> int:
    """Return how many parts of the bar that is shown are done; 0 without a bar."""
    bar = _SHOWN.get()
    return 0 if bar is None else int(bar.tasks[0].completed)


def advance(count: int) -> None:
    """Advance the bar that is shown, if there is one, by a number of parts."""
    advance_to(parts_done() + count)


def advance_to(done: int) -> None:
    """Advance the bar that is shown, if there is one, to a number of parts; it never goes back."""
    if (bar := _SHOWN.get()) is not None:
        bar.update(bar.task_ids[0], completed=max(done, parts_done()))
