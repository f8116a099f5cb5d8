"""Clocks that tests set, so that none sleeps."""

import asyncio
from collections.abc import Coroutine
from typing import Any

READING_SECONDS = 1e-5


class Clock:
    """A clock that a test moves. It also moves by ten microseconds whenever it is read, so that all work takes time.

    Args:
        now: Its first time in seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        self.now += READING_SECONDS
        return self.now

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers follow a clock; it looks at the clock when something else wakes it."""

    def __init__(self, clock: Clock) -> None:
        self._test_clock = clock
        super().__init__()

    def time(self) -> float:
        """Return the time of the clock."""
        return self._test_clock()


def run_with_clock(coroutine: Coroutine[Any, Any, Any], clock: Clock) -> Any:
    """Run a coroutine, and return its result."""
    with asyncio.Runner(loop_factory=lambda: ClockedLoop(clock)) as runner:
        return runner.run(coroutine)
