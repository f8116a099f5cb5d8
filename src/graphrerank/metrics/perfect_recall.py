"""Perfect recall at K."""

import torch
from torch import Tensor

from graphrerank.metrics._validation import check_rankings


def perfect_recall(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Return whether all relevant documents of a query are in its top K.

    .. math:: \mathrm{PR@}K = [\,R \subseteq \mathrm{top}_K\,]

    Source: "GraphER: An Efficient Graph-Based Enrichment and Reranking Method for Retrieval-Augmented Generation",
    "Metrics". A query with more than K relevant documents is always 0.

    Arguments and errors as of all :mod:`~graphrerank.metrics` of rankings; 0 or 1.

    Example:
        >>> ranked_relevance = torch.tensor([[1, 0, 1], [1, 0, 1]])
        >>> perfect_recall(ranked_relevance, torch.tensor([[1, 1, 0], [1, 1, 1]]), top_k=3)
        tensor([1., 0.], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    num_found = (ranked_relevance[:, :top_k] > 0).sum(dim=1)
    return (num_found == (qrels > 0).sum(dim=1)).to(torch.float64)
