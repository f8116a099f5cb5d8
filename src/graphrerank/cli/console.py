"""Log records of the library on the console, as commands show them."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from graphrerank.utils.progress import LOGGER as PROGRESS_LOGGER

PACKAGE_LOGGER = logging.getLogger("graphrerank")


class ConsoleHandler(logging.Handler):
    """Write messages plainly: results to standard output; progress, warnings and errors to standard error.

    Args:
        show_progress: Whether to show lines of progress.
    """

    def __init__(self, *, show_progress: bool) -> None:
        super().__init__()
        self._show_progress = show_progress

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message of a record as a line.

        Args:
            record: Record of a logger. The stream is looked up for each record, because a command may redirect it.
        """
        is_progress = record.name == PROGRESS_LOGGER.name
        if is_progress and not self._show_progress:
            return
        stream = sys.stderr if is_progress or record.levelno >= logging.WARNING else sys.stdout
        print(self.format(record), file=stream, flush=True)


@contextmanager
def records_shown(*, progress: bool = True) -> Iterator[None]:
    """Show the library's log records from the level INFO on the console while the block runs.

    Args:
        progress: Whether to show lines of progress too.
    """
    handler, level = ConsoleHandler(show_progress=progress), PACKAGE_LOGGER.level
    PACKAGE_LOGGER.addHandler(handler)
    PACKAGE_LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        PACKAGE_LOGGER.removeHandler(handler)
        PACKAGE_LOGGER.setLevel(level)
