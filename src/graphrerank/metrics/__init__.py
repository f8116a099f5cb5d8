"""Ranking measures: pure functions of gains in rank order and of all gains of a query.

Measures of rankings take ``ranked_relevance`` ``[num_queries, depth]``, the gain of the document at each rank, 0 if not
relevant or padding; ``qrels`` ``[num_queries, max_relevant]``, all positive gains of each query in any order, padded
with 0; and the cutoff rank ``top_k``, where ranks below ``depth`` count as not relevant. They return ``[num_queries]``
float64 in [0, 1]. A ValueError is raised if shapes do not fit, a query has no relevant document or fewer than its
ranking holds, or ``top_k`` is below 1.
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
