"""How a command ends: the message of a user's error, the traceback of ours, and the exit status after a signal."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from graphrerank.utils.checks import UserError
from graphrerank.utils.safe_loading import printable

_formatted = warnings.formatwarning
INTERRUPTED, TERMINATED = 130, 143  # exit statuses after Ctrl+C and SIGTERM, as shells give them


def report_error(error: BaseException, *, full: bool = False, signals: Sequence[int] = ()) -> int:
    """Print an error, and return the exit status: one message for a user's, else (or for ``full``) the traceback.

    An error that a signal caused is reported as by :func:`report_end`: a C extension that is interrupted while it is
    imported raises ImportError.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__
    if signals or cause is not None:
        return report_end(signals)
    if full or not is_users(error):
        print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    else:
        print(printable(message_of(error)), file=sys.stderr)
    return 1


def report_end(signals: Sequence[int]) -> int:
    """Print one line after Ctrl+C or SIGTERM (:func:`terminating`), and return the exit status."""
    print("terminated" if signals else "interrupted", file=sys.stderr)
    return TERMINATED if signals else INTERRUPTED


def is_users(error: BaseException) -> bool:
    """Return whether an error is about what the user gave: of our checks, of Hydra, or of the file system."""
    if _is_of_hydra(error):
        cause = error.__cause__  # of what it builds
        return cause is None or _is_of_hydra(cause) or is_users(cause)
    return isinstance(error, OSError | UserError)


def _is_of_hydra(error: BaseException) -> bool:
    """Return whether Hydra or OmegaConf raised an error, without importing them."""
    return any(kind.__name__ in ("HydraException", "OmegaConfBaseException") for kind in type(error).__mro__)


def message_of(error: BaseException) -> str:
    """Return the message of an error, and that of its cause where Hydra only says that it failed.

    Hydra's advice to add a setting with ``+`` is left out: no job has settings that ``conf`` has not.
    """
    lines = [line for line in str(error).splitlines() if not line.strip().startswith("To append to your config")]
    message = "\n".join(lines) or type(error).__name__
    if not _is_of_hydra(error) or error.__cause__ is None:
        return message
    cause = message_of(error.__cause__)
    return cause if type(error).__name__ == "InstantiationException" else f"{message}\n{cause}"


def format_warning(*warning: Any, **further: Any) -> str:
    """Format a warning as Python does, without characters that control the terminal."""
    return printable(_formatted(*warning, **further))


@contextmanager
def terminating() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt in the main thread on SIGTERM too; the list holds the signal once it came."""
    received: list[int] = []
    owner = os.getpid()

    def stop(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked process
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        received.append(signum)
        raise KeyboardInterrupt

    try:
        before: Any = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread
        yield received
        return
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)
