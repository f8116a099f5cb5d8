"""Choose a frozen operator's one knob on a split that is not the test split."""

from collections.abc import Callable, Sequence

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.reranking import measure_queries
from graphrerank.evaluation.system import Scorer, System

RESTART_GRID = tuple(round(0.1 * step, 1) for step in range(1, 10))


def tune_restart_prob(
    prepared: PreparedDataset,
    split: str,
    build: Callable[[float], Scorer],
    *,
    grid: Sequence[float] = RESTART_GRID,
    measure: str = "PR@10",
) -> float:
    """Search a grid for the restart probability with the best mean of a measure on a split; the first of equals wins.

    Source: GraphER, appendix A.3 (grid 0.1 to 0.9 on one training set). We search each data set's validation split.
    """
    means = []
    for restart_prob in grid:
        (values,) = measure_queries(prepared, split, System("tuned", build(restart_prob)), measures=[measure]).values()
        means.append(float(values.nanmean()))
    return grid[means.index(max(means))]
