"""Processes that are killed between two operations on files: at the same place however busy the machine is."""

import io
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.sharedctypes import RawValue
from types import FrameType
from typing import Any, NamedTuple


class End(NamedTuple):
    """How a process ended.

    Attributes:
        killed: Whether it was killed before the chosen operation; False if it needed fewer.
        operations: How many operations on files it had begun.
    """

    killed: bool
    operations: int


def run_until_file_operation(change: Callable[[], object], operation: int | None) -> End:
    """Run a function in a forked process, which kills itself (``kill -9``) before an operation on files.

    An operation is a call of a function of ``os`` or of a method of an open file, from Python.

    Args:
        change: What is run.
        operation: The number of the operation, from 1, before which the process dies; None to let it end.

    Raises:
        AssertionError: The function raised an error.
    """
    operations = RawValue("q", 0)  # shared: what the process counted is there after its end

    def count(frame: FrameType, event: str, function: Any) -> None:
        owner = getattr(function, "__self__", None) if event == "c_call" else None
        if isinstance(owner, io.IOBase) or getattr(owner, "__name__", None) in ("posix", "_io"):
            operations.value += 1
            if operations.value == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        sys.setprofile(count)
        try:
            change()
        finally:
            sys.setprofile(None)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return End(process.exitcode == -signal.SIGKILL, operations.value)
