"""Time rivals side by side: in turns, so that a busy machine slows all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping

WARM_UP = 3


def median_seconds(rivals: Mapping[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Run the rivals in turns (A B A B ...) and return each one's median time in seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(WARM_UP + repeats):
        for name, run in rivals.items():
            start = time.perf_counter()
            run()
            if turn >= WARM_UP:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
