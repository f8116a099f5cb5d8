"""Normalised discounted cumulative gain at K."""

import torch
from torch import Tensor

from graphrerank.metrics._validation import check_rankings


def ndcg(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Give the discounted gain of the top K as a share of the best one reachable.

    .. math::
        \mathrm{nDCG@}K = \frac{\mathrm{DCG@}K(y)}{\mathrm{DCG@}K(y^{*})}, \qquad
        \mathrm{DCG@}K(y) = \sum_{r=1}^{K} \frac{y_r}{\log_2(1 + r)}

    where ``y`` are the gains in rank order and ``y*`` all gains of the query from the highest down.

    Source: Järvelin and Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques", 2002, in the form of
    trec_eval's ``ndcg_cut_K``: the gain is the relevance itself, not ``2 ** y - 1``.

    Arguments and errors as of all :mod:`~graphrerank.metrics` of rankings; in [0, 1].

    Example:
        >>> ndcg(torch.tensor([[0, 1]]), torch.tensor([[1]]), top_k=2)  # 1 / log2(3)
        tensor([0.6309], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    return _dcg(ranked_relevance[:, :top_k]) / _dcg(qrels.sort(dim=1, descending=True).values[:, :top_k])


def _dcg(gain: Tensor) -> Tensor:
    """Sum gains in rank order under the logarithmic discount, ``[num_queries]``."""
    rank = torch.arange(1, gain.shape[1] + 1, dtype=torch.float64, device=gain.device)
    return (gain.to(torch.float64).clamp(min=0) / torch.log2(1 + rank)).sum(dim=1)
