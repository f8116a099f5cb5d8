"""Time several functions in turn, so that a busy machine slows all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping

WARM_UP = 3


def median_seconds(peers: Mapping[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Run the peers in turns (A B A B ...) and return the median time of each in seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for turn in range(WARM_UP + repeats):
        for name, run in peers.items():
            start = time.perf_counter()
            run()
            if turn >= WARM_UP:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
