"""Measure the peak resident memory of the process."""

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

RESET = Path("/proc/self/clear_refs")  # on Linux, writing 5 resets the peak of resident memory
STATUS = Path("/proc/self/status")

Result = TypeVar("Result")
_highest_before_reset = 0.0  # MiB


def peak_memory_mib() -> float:
    """Return the peak resident memory of this process so far.

    Returns:
        Memory in MiB. It is not affected by the resets of :func:`with_peak_memory`.
    """
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10  # ru_maxrss is in bytes on macOS, in KiB on Linux
    return max(_highest_before_reset, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


def with_peak_memory(work: Callable[[], Result]) -> tuple[Result, float | None]:
    """Call a function and measure the peak resident memory of the process during the call.

    Args:
        work: Function without arguments.

    Returns:
        Result of the function, and the memory in MiB. The memory is None on systems that cannot reset the peak (all
        systems except Linux).
    """
    global _highest_before_reset
    _highest_before_reset = peak_memory_mib()
    try:
        RESET.write_text("5")
    except OSError:
        return work(), None
    result = work()
    peaks = [int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
    _highest_before_reset = max(_highest_before_reset, *peaks)
    return result, next(iter(peaks), None)
