"""Training losses: pure functions of scores, relevance and a mask of real candidates.

All take ``[num_queries, num_candidates]`` tensors:

- ``scores``, finite where ``mask`` is True;
- ``relevance``, gains of at least 0;
- ``mask``, True for a real candidate; other slots have no effect.

They return a scalar, the mean over the queries with a relevant candidate in nats, 0 if there is none. A shape, a dtype
or a setting out of range is a ValueError.
"""

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
    "lambda_loss",
    "listwise_softmax_cross_entropy",
    "ranknet",
    "smooth_perfect_recall",
]
