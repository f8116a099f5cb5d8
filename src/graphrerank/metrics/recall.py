"""Recall at K, plain and capped."""

import torch
from torch import Tensor

from graphrerank.metrics._validation import check_rankings


def recall(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Give the share of a query's relevant documents that are in its top K.

    .. math:: \mathrm{R@}K = \frac{|R \cap \mathrm{top}_K|}{|R|}

    Source: trec_eval's ``recall_K``. Not the R@K of "EA-GraphRAG", which is a hit rate (1 if any is found).

    Arguments and errors as of all :mod:`~graphrerank.metrics` of rankings; in [0, 1]; at most ``K / |R|``.

    Example:
        >>> recall(torch.tensor([[1, 0, 1]]), torch.tensor([[1, 1, 1, 1]]), top_k=3)
        tensor([0.5000], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    return _num_found(ranked_relevance, top_k) / (qrels > 0).sum(dim=1)


def capped_recall(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Give the share found of the relevant documents that the top K has room for.

    .. math:: \mathrm{CR@}K = \frac{|R \cap \mathrm{top}_K|}{\min(K, |R|)}

    Source: Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models",
    2021, where it is called capped recall.

    Arguments and errors as of all :mod:`~graphrerank.metrics` of rankings; in [0, 1].

    Example:
        >>> capped_recall(torch.tensor([[1, 1, 1]]), torch.tensor([[1, 1, 1, 1]]), top_k=2)
        tensor([1.], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    return _num_found(ranked_relevance, top_k) / (qrels > 0).sum(dim=1).clamp(max=top_k)


def _num_found(ranked_relevance: Tensor, top_k: int) -> Tensor:
    """Count the relevant documents in the top K, ``[num_queries]``, float64."""
    return (ranked_relevance[:, :top_k] > 0).sum(dim=1).to(torch.float64)
