"""Evaluation measures, as pure functions.

Ranking measures take these arguments:

- ``ranked_relevance``: Gain of the document at each rank, ``[num_queries, depth]``, 0 for irrelevant documents and
  padding.
- ``qrels``: Positive gains of all relevant documents of each query in any order, ``[num_queries, max_relevant]``,
  padded with 0.
- ``top_k``: Cutoff rank. Ranks beyond ``depth`` are treated as irrelevant.

They return one float64 value in [0, 1] per query, ``[num_queries]``. They raise a ``ValueError`` if the shapes do not
fit, if a query has no relevant document or fewer than its ranking contains, or if ``top_k`` is below 1.

:mod:`graphrerank.metrics.torchmetrics_classes` has a class of torchmetrics for every measure. It is imported on its
own, because torchmetrics takes seconds to import.
"""

from graphrerank.metrics.calibration import area_under_roc, brier_score, expected_calibration_error, reliability_bins
from graphrerank.metrics.ranking import (
    Measure,
    capped_recall,
    ndcg,
    parse_measure,
    perfect_recall,
    recall,
    reciprocal_rank,
)
from graphrerank.metrics.topological_recall import missed_topological_recall, path_uncertainty, topological_recall

__all__ = [
    "Measure",
    "area_under_roc",
    "brier_score",
    "capped_recall",
    "expected_calibration_error",
    "missed_topological_recall",
    "ndcg",
    "parse_measure",
    "path_uncertainty",
    "perfect_recall",
    "recall",
    "reciprocal_rank",
    "reliability_bins",
    "topological_recall",
]
