"""Exit handling: short messages for user errors, tracebacks for bugs, and exit statuses for signals."""

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
INTERRUPTED, TERMINATED = 130, 143  # exit statuses after Ctrl+C and SIGTERM, following the convention of shells


def report_error(error: BaseException, *, full: bool = False, signals: Sequence[int] = ()) -> int:
    """Print an error, and return the exit status.

    An error that was caused by a signal is reported by :func:`report_end`. For example, a C extension that is
    interrupted during its import raises ImportError.

    Args:
        error: Error that ended the command.
        full: Whether to print a traceback for user errors, too.
        signals: Signals that were received, from :func:`terminating`.

    Returns:
        Exit status.
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
    """Print one line after Ctrl+C or SIGTERM, and return the exit status.

    Args:
        signals: Signals that were received, from :func:`terminating`. Empty after Ctrl+C.

    Returns:
        Exit status.
    """
    print("terminated" if signals else "interrupted", file=sys.stderr)
    return TERMINATED if signals else INTERRUPTED


def is_users(error: BaseException) -> bool:
    """Return whether an error is a user error: one of our checks, of Hydra, or of the file system.

    Args:
        error: Error that ended the command.
    """
    if _is_of_hydra(error):
        cause = error.__cause__  # error of the constructor that Hydra called
        return cause is None or _is_of_hydra(cause) or is_users(cause)
    return isinstance(error, OSError | UserError)


def _is_of_hydra(error: BaseException) -> bool:
    """Return whether Hydra or OmegaConf raised the error, without importing them."""
    return any(kind.__name__ in ("HydraException", "OmegaConfBaseException") for kind in type(error).__mro__)


def message_of(error: BaseException) -> str:
    """Return the message of an error. If Hydra raised the error, the message of its cause is added or used instead.

    Hydra's advice to add a setting with ``+`` is removed, because commands only accept settings of ``conf``. A setting
    that is required and missing is named.

    Args:
        error: Error that ended the command.
    """
    missing = _missing_setting(error)
    if missing:
        return f"`{missing}` must be set, got nothing. Add {missing}=..., which --help describes"
    lines = [line for line in str(error).splitlines() if not line.strip().startswith("To append to your config")]
    message = "\n".join(lines) or type(error).__name__
    if not _is_of_hydra(error) or error.__cause__ is None:
        return message
    cause = message_of(error.__cause__)
    return cause if type(error).__name__ == "InstantiationException" else f"{message}\n{cause}"


def _missing_setting(error: Any) -> str:
    """Return the name of the required setting whose absence OmegaConf reports, or an empty string."""
    return str(error.full_key or "") if type(error).__name__ == "MissingMandatoryValue" else ""


def format_warning(*warning: Any, **further: Any) -> str:
    """Return a warning in Python's format, without terminal control characters.

    Args:
        *warning: Positional arguments of ``warnings.formatwarning``.
        **further: Keyword arguments of ``warnings.formatwarning``.
    """
    return printable(_formatted(*warning, **further))


@contextmanager
def terminating() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt in the main thread on SIGTERM, too, while the block runs.

    Yields:
        List to which the signal is added when it is received.
    """
    received: list[int] = []
    owner = os.getpid()

    def stop(signum: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # in a forked process, keep the default behaviour
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
