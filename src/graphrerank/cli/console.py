"""Console output of commands: log records of the library, and writing to a closed pipe."""

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from graphrerank.utils.progress import LOGGER as PROGRESS_LOGGER

PACKAGE_LOGGER = logging.getLogger("graphrerank")


class ConsoleHandler(logging.Handler):
    """Logging handler that writes results to standard output, and progress, warnings and errors to standard error.

    Args:
        show_progress: Whether to write records of the progress logger.
    """

    def __init__(self, *, show_progress: bool) -> None:
        super().__init__()
        self._show_progress = show_progress

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message of a record as a line.

        The stream is looked up for each record, because a command may redirect it.

        Args:
            record: Log record.
        """
        is_progress = record.name == PROGRESS_LOGGER.name
        if is_progress and not self._show_progress:
            return
        stream = sys.stderr if is_progress or record.levelno >= logging.WARNING else sys.stdout
        print(self.format(record), file=stream, flush=True)


@contextmanager
def records_shown(*, progress: bool = True) -> Iterator[None]:
    """Yield while log records of the library at level INFO and above are written to the console.

    Args:
        progress: Whether to write records of the progress logger, too.
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
    """Text stream that discards all output after its pipe has been closed by the reader.

    ``graphrerank index DOCUMENTS --out F | head -1`` closes the pipe after the first line. The command must still write
    its files and succeed.

    Args:
        stream: Stream to write to. All other attributes and methods are delegated to this stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text.

        Args:
            text: Text to write.

        Returns:
            Number of characters.
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
        """Flush the buffer of the stream."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        """Redirect the file descriptor of the stream to the null device, so that flushing at exit does not fail."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


@contextmanager
def closed_pipes_ignored() -> Iterator[None]:
    """Yield while output to a closed pipe is discarded instead of raising BrokenPipeError."""
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
