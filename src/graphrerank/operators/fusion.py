"""Rankings put together by ranks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphrerank.graphs import Ranking

RANK_OFFSET = 60.0  # of reciprocal rank fusion as it was published


def weighted_rank_fusion(
    rankings: Sequence[Ranking], weights: Tensor, *, top_k: int, rank_offset: float = RANK_OFFSET
) -> Ranking:
    r"""Rank the nodes of several rankings by weighted reciprocal rank fusion.

    .. math:: \mathrm{RRF}(c) = \sum_l w_l(q)\,\frac{1}{k + r_l(c)}

    with 1-based ranks; a ranking that does not hold a node adds nothing to it.

    Source: "EA-GraphRAG", 2026, Eqs. (8) and (9), where the dense ranking weighs :math:`1 - s(q)` and that of the graph
    :math:`s(q)`. The paper gives no :math:`k`; 60 is that of Cormack et al., "Reciprocal Rank Fusion outperforms
    Condorcet and individual Rank Learning Methods", 2009. Ties go by node number.

    Args:
        rankings: ``L`` of the same ``B`` queries, of any depth; each holds a node of a query once.
        weights: ``[B, L]``, not negative.
        top_k: Nodes to keep per query, at least 1.
        rank_offset: :math:`k`, positive.

    Returns:
        ``[B, top_k]``; a node whose rankings all weigh 0 comes last, with a score of 0.

    Raises:
        ValueError: If there is no ranking, shapes do not fit, a weight is negative, or a number is out of range.

    Example:
        >>> dense = Ranking(torch.tensor([[7, 8]]), torch.tensor([[0.9, 0.8]]))
        >>> graph = Ranking(torch.tensor([[8, 9]]), torch.tensor([[0.3, 0.1]]))
        >>> weighted_rank_fusion([dense, graph], torch.tensor([[0.25, 0.75]]), top_k=3).nodes
        tensor([[8, 9, 7]])
    """
    if not rankings:
        raise ValueError("`rankings` must hold a ranking, got none")
    if any(len(ranking) != len(weights) for ranking in rankings) or weights.shape[1:] != (len(rankings),):
        lengths = [len(ranking) for ranking in rankings]
        raise ValueError(
            f"`weights` must be [B, {len(rankings)}] for rankings of B queries, got {list(weights.shape)} for rankings "
            f"of {lengths} queries"
        )
    if not (weights >= 0).all():
        raise ValueError(f"`weights` must not be negative, got {weights.min().item()}")
    if top_k < 1:
        raise ValueError(f"`top_k` must be a positive integer, got {top_k}")
    if not rank_offset > 0:
        raise ValueError(f"`rank_offset` must be positive, got {rank_offset}")
    nodes = torch.cat([ranking.nodes for ranking in rankings], dim=1)  # [B, W]
    shares = []
    for ranking, weight in zip(rankings, weights.float().unbind(1), strict=True):
        rank = torch.arange(1, ranking.nodes.shape[1] + 1, device=nodes.device)
        shares.append(weight.to(nodes.device).unsqueeze(1) / (rank_offset + rank))
    order = torch.argsort(nodes, dim=1, stable=True)
    nodes, share = nodes.gather(1, order), torch.cat(shares, dim=1).gather(1, order)
    first = torch.ones_like(nodes, dtype=torch.bool)
    first[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
    group = first.long().cumsum(1) - 1
    fused = torch.zeros_like(share).scatter_add_(1, group, share)
    scores = fused.gather(1, group).masked_fill(~first | (nodes < 0), -torch.inf)
    best = torch.argsort(scores, dim=1, descending=True, stable=True)[:, :top_k]  # nodes ascend: ties by number
    scores = scores.gather(1, best)
    nodes = nodes.gather(1, best).masked_fill(scores == -torch.inf, -1)
    behind = (0, top_k - nodes.shape[1])
    pad = torch.nn.functional.pad
    return Ranking(pad(nodes, behind, value=-1), pad(scores, behind, value=-torch.inf))
