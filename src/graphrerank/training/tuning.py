"""Tuning of the restart probabilities of GCS and PPR on validation queries."""

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
    """Choose the restart probabilities of GCS and PPR on a split.

    Args:
        prepared: Data set with the candidates of its queries.
        split: Split whose queries and judgements decide, such as ``val``.
        given: Probabilities by operator, ``gcs`` or ``ppr``, that are not tuned. Missing operators, and those with
            None, are tuned. If None, both are.

    Returns:
        Restart probability of each operator.
    """
    build = {"gcs": lambda p: GCS(restart_prob=p).score, "ppr": lambda p: PPR(restart_prob=p).score}
    return {name: (given or {}).get(name) or tune_restart_prob(prepared, split, build[name]) for name in build}


def tune_restart_prob(
    prepared: PreparedDataset, split: str, build: Callable[[float], Scorer], *, measure: str = "PR@10"
) -> float:
    """Search a grid for the restart probability with the best mean of a measure on a split.

    Source: GraphER, appendix A.3 (grid 0.1 to 0.9 on one training set). *Differences from the paper:* each data set is
    tuned on its own validation split.

    Args:
        prepared: Data set with the candidates of its queries.
        split: Split whose queries and judgements decide.
        build: Returns a scorer for a restart probability.
        measure: Name of the measure to maximise.

    Returns:
        The best restart probability; the smallest one if several are equally good.
    """
    means = []
    for restart_prob in RESTART_GRID:
        system = System("tuned", build(restart_prob))
        (scores,) = measure_queries(prepared, split, system, measures=[measure]).values()
        means.append(float(scores.nanmean()))
    return RESTART_GRID[means.index(max(means))]
