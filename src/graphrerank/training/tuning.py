"""Tuning of the restart probabilities of GCS and PPR on the validation split."""

from collections.abc import Callable, Mapping

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.reranking import measure_queries
from graphrerank.evaluation.systems import Scorer, System
from graphrerank.operators.gcs import GCS
from graphrerank.operators.ppr import PPR

RESTART_GRID = tuple(round(0.1 * step, 1) for step in range(1, 10))


def tune_restart_probs(
    prepared: PreparedDataset, split: str, given: Mapping[str, float | None] | None = None
) -> dict[str, float]:
    """Tune the restart probabilities of GCS and PPR on a split.

    Args:
        prepared: Data set with the candidates of its queries.
        split: Split to tune on, such as ``val``.
        given: Fixed probabilities by operator (``gcs``, ``ppr``). An operator that is missing or None is tuned. If
            None, both operators are tuned.

    Returns:
        Restart probability by operator.
    """
    build = {"gcs": lambda p: GCS(restart_prob=p).score, "ppr": lambda p: PPR(restart_prob=p).score}
    return {name: (given or {}).get(name) or tune_restart_prob(prepared, split, build[name]) for name in build}


def tune_restart_prob(
    prepared: PreparedDataset, split: str, build: Callable[[float], Scorer], *, measure: str = "PR@10"
) -> float:
    """Return the restart probability with the highest mean of a measure on a split, by grid search over 0.1 to 0.9.

    Source: GraphER, appendix A.3 (grid 0.1 to 0.9 on one training set). *Differences from the paper:* each data set is
    tuned on its own validation split.

    Args:
        prepared: Data set with the candidates of its queries.
        split: Split to tune on.
        build: Function that returns the scorer for a restart probability.
        measure: Name of the measure to maximise.

    Returns:
        The best restart probability. Ties are resolved in favour of the smallest one.
    """
    means = []
    for restart_prob in RESTART_GRID:
        system = System("tuned", build(restart_prob))
        (scores,) = measure_queries(prepared, split, system, measures=[measure]).values()
        means.append(float(scores.nanmean()))
    return RESTART_GRID[means.index(max(means))]
