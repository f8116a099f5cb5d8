"""Training losses, as pure functions of scores, relevance and a mask of the real candidates.

All losses take ``[num_queries, num_candidates]`` tensors:

- ``scores``: Scores, finite where ``mask`` is True.
- ``relevance``: Relevance gains, at least 0.
- ``mask``: Boolean, True for real candidates. Padding has no effect on the loss or its gradient.

They return a scalar: the mean over the queries with at least one relevant candidate, or 0 if there are none. Losses are
in nats unless stated otherwise. They raise a ``ValueError`` for shapes, data types and settings that do not fit.

The distillation losses :func:`margin_mse` and :func:`kl_divergence` have a fourth argument ``teacher_scores`` and are
means over the queries with scores of the teacher. Their queries need no relevant candidate.
"""

from graphrerank.losses.distillation import kl_divergence, margin_mse
from graphrerank.losses.ranking import (
    binary_cross_entropy,
    divergence_from_retriever,
    lambda_loss,
    listwise_softmax_cross_entropy,
    ranknet,
    smooth_perfect_recall,
)

__all__ = [
    "binary_cross_entropy",
    "divergence_from_retriever",
    "kl_divergence",
    "lambda_loss",
    "listwise_softmax_cross_entropy",
    "margin_mse",
    "ranknet",
    "smooth_perfect_recall",
]
