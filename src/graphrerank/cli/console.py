"""Standard streams of commands: log records of the library, and output whose reader has gone."""

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

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


class PipeOutput:
    """Text stream that discards what is written after the reader of its pipe has gone.

    ``graphrerank index DOCUMENTS --out F | head -1`` closes the pipe after the first line. The command still completes
    its work and succeeds: what it writes into files does not depend on who reads its messages.

    Args:
        stream: Stream to write to. All other methods and attributes are those of this stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, and return its length.

        Args:
            text: Text to write.
        """
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._discard()
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts without adding line ends.

        Args:
            lines: Texts to write.
        """
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        """Let the file descriptor of the stream point to the null device, so that nothing fails at exit either."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


@contextmanager
def closed_pipes_ignored() -> Iterator[None]:
    """Discard output whose reader has gone, instead of raising BrokenPipeError, while the block runs."""
    streams = sys.stdout, sys.stderr
    outputs: list[Any] = [PipeOutput(stream) for stream in streams]
    sys.stdout, sys.stderr = outputs
    try:
        yield
    finally:
        for output in outputs:
            output.flush()
        if [sys.stdout, sys.stderr] == outputs:
            sys.stdout, sys.stderr = streams
