"""LambdaLoss: pairs of candidates, weighted by what they mean for nDCG."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from graphrerank.checks import check_counts, check_positive
from graphrerank.losses._padding import blank_padding, mean_over_queries


def lambda_loss(
    scores: Tensor,
    relevance: Tensor,
    mask: Tensor,
    *,
    sigma: float = 1.0,
    mu: float = 10.0,
    top_k: int | None = None,
) -> Tensor:
    r"""NDCG-Loss2++: RankNet's pairs, each weighted by how much nDCG depends on its order in the current ranking.

    .. math::
        \ell = \sum_{y_i > y_j} (\rho_{ij} + \mu\,\delta_{ij})\,|G_i - G_j|
               \log_2\left(1 + e^{-\sigma (s_i - s_j)}\right)

        \rho_{ij} = \left|\frac{1}{D_{r_i}} - \frac{1}{D_{r_j}}\right|, \quad
        \delta_{ij} = \left|\frac{1}{D_{|r_i - r_j|}} - \frac{1}{D_{|r_i - r_j| + 1}}\right|, \quad
        D_r = \log_2(1 + r), \quad G_i = \frac{y_i}{\mathrm{maxDCG}}

    where ``r_i`` is candidate i's rank, from 1, under the current scores; ranks, and so weights, carry no gradient.

    Source: Wang et al., "The LambdaLoss Framework for Ranking Metric Optimization", 2018, the loss named NDCG-Loss2++.
    With ``mu = 0`` it is the loss of LambdaRank in the same paper. Where we differ: the gain is linear, as in
    ``metrics.ndcg`` (the paper: ``2 ** y - 1``; the same for 0 and 1), and we average the queries. ``top_k`` is ours:
    it takes ``maxDCG`` at ``top_k``, counts ``1 / D`` as 0 below that rank inside ``rho``, and drops the pairs that lie
    below it altogether.

    Equal scores are ranked in the order of the candidates. Memory grows with ``num_queries * num_candidates ** 2``.

    ``sigma``, above 0, is the steepness of the logistic; ``mu``, at least 0, the weight of ``delta`` against ``rho``;
    ``top_k`` None optimises nDCG over the whole list. Other arguments, result and errors as of all
    :mod:`~graphrerank.losses`; in bits.

    Example:
        >>> scores = torch.tensor([[1.0, 2.0, 9.0]])
        >>> mask = torch.tensor([[True, True, False]])
        >>> lambda_loss(scores, torch.tensor([[1, 0, 0]]), mask, mu=0.0)  # (1 - 1 / log2(3)) * log2(1 + e)
        tensor(0.6993)
    """
    check_positive(sigma=sigma)
    if not (math.isfinite(mu) and mu >= 0):
        raise ValueError(f"`mu` must be a finite number of at least 0, got {mu}")
    check_counts(top_k=top_k)
    scores, relevance = blank_padding(scores, relevance, mask)
    cutoff = scores.shape[1] if top_k is None else top_k

    rank = _rank(scores.detach(), mask)
    kept = rank <= cutoff
    discount = torch.where(kept, _discount(rank), 0.0)
    rho = (discount[:, :, None] - discount[:, None, :]).abs()  # [num_queries, i, j], as all that follows
    # Distance 0 is a candidate beside itself, never a pair: 1 keeps it finite.
    distance = (rank[:, :, None] - rank[:, None, :]).abs().clamp(min=1)
    delta = _discount(distance) - _discount(distance + 1)

    gain = relevance / _max_dcg(relevance, cutoff)[:, None]
    preferred = (relevance[:, :, None] > relevance[:, None, :]) & mask[:, None, :]
    preferred &= kept[:, :, None] | kept[:, None, :]
    weight = torch.where(preferred, (rho + mu * delta) * (gain[:, :, None] - gain[:, None, :]), 0.0)
    per_pair = -F.logsigmoid(sigma * (scores[:, :, None] - scores[:, None, :])) / math.log(2.0)
    return mean_over_queries((weight * per_pair).sum(dim=(1, 2)), relevance)


def _rank(scores: Tensor, mask: Tensor) -> Tensor:
    """Give each candidate its rank from 1, padding last; of the dtype of ``scores``."""
    order = scores.masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True, stable=True)
    return order.argsort(dim=1).to(scores.dtype) + 1


def _discount(rank: Tensor) -> Tensor:
    """Give ``1 / D`` of a rank counted from 1."""
    return 1.0 / torch.log2(1.0 + rank)


def _max_dcg(relevance: Tensor, top_k: int) -> Tensor:
    """Give each query its best DCG at ``top_k``, ``[num_queries]``; 1 where nothing is relevant."""
    ideal = relevance.sort(dim=1, descending=True).values[:, :top_k]
    rank = torch.arange(1, ideal.shape[1] + 1, dtype=ideal.dtype, device=ideal.device)
    max_dcg = (ideal * _discount(rank)).sum(dim=1)
    return torch.where(max_dcg > 0, max_dcg, 1.0)
