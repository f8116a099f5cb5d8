"""Fusion of several rankings by rank: of pipelines, and of the scores of candidates."""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs, Ranking
from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.operators.ppr import PPR
from graphrerank.utils.checks import UserError, check_counts, check_positive

#: Constant :math:`k` of reciprocal rank fusion in the original paper.
RANK_OFFSET = 60.0


def weighted_rank_fusion(
    rankings: Sequence[Ranking], weights: Tensor, *, top_k: int, rank_offset: float = RANK_OFFSET
) -> Ranking:
    r"""Merge several rankings into one by weighted reciprocal rank fusion.

    .. math:: \mathrm{RRF}(c) = \sum_l w_l(q)\,\frac{1}{k + r_l(c)}

    with 1-based ranks. A ranking that does not contain the node adds nothing to its score. Ties are broken by node
    index.

    Source: "EA-GraphRAG", 2026, Eqs. (8) and (9), where the dense ranking has weight :math:`1 - s(q)` and the graph
    ranking has weight :math:`s(q)`. The paper does not specify :math:`k`. The default of 60 is from Cormack et al.,
    "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", 2009.

    Args:
        rankings: ``L`` rankings of the same ``B`` queries, of any depth, without duplicate nodes.
        weights: Non-negative weight of each ranking for each query, ``[B, L]``.
        top_k: Number of nodes to return per query.
        rank_offset: Constant :math:`k`, a positive number. Larger values flatten the differences between ranks.

    Returns:
        Ranking ``[B, top_k]``, padded if the rankings contain fewer nodes. A node that only appears in rankings of
        weight 0 comes last, with a score of 0.

    Raises:
        UserError: If there is no ranking, if the shape of ``weights`` does not fit the rankings, or if a number is out
            of range.

    Example:
        >>> dense = Ranking(torch.tensor([[7, 8]]), torch.tensor([[0.9, 0.8]]))
        >>> graph = Ranking(torch.tensor([[8, 9]]), torch.tensor([[0.3, 0.1]]))
        >>> weighted_rank_fusion([dense, graph], torch.tensor([[0.25, 0.75]]), top_k=3).nodes
        tensor([[8, 9, 7]])
    """
    if not rankings:
        raise UserError("`rankings` must contain at least one ranking, got none")
    lengths = [len(ranking) for ranking in rankings]
    if {*lengths} != {len(weights)} or weights.shape[1:] != (len(rankings),):
        raise UserError(
            f"`weights` must have shape [B, {len(rankings)}], and each ranking B queries, got weights of shape "
            f"{list(weights.shape)} and rankings of {lengths} queries"
        )
    if not (weights >= 0).all():
        raise UserError(f"`weights` must not be negative, got {weights.min().item()}")
    check_counts(top_k=top_k)
    check_positive(rank_offset=rank_offset)
    nodes = torch.cat([ranking.nodes for ranking in rankings], dim=1)  # [B, W]
    shares = []
    for ranking, weight in zip(rankings, weights.float().unbind(1), strict=True):
        rank = torch.arange(1, ranking.nodes.shape[1] + 1, device=nodes.device)
        shares.append(weight.to(nodes.device).unsqueeze(1) / (rank_offset + rank))
    order = torch.argsort(nodes, dim=1, stable=True)
    nodes, share = nodes.gather(1, order), torch.cat(shares, dim=1).gather(1, order)
    is_first = torch.ones_like(nodes, dtype=torch.bool)
    is_first[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
    group = is_first.long().cumsum(1) - 1
    fused = torch.zeros_like(share).scatter_add_(1, group, share)
    scores = fused.gather(1, group).masked_fill(~is_first | (nodes < 0), -torch.inf)
    best = torch.argsort(scores, dim=1, descending=True, stable=True)[
        :, :top_k
    ]  # nodes are sorted, so ties go by index
    scores = scores.gather(1, best)
    return Ranking(nodes.gather(1, best).masked_fill(scores == -torch.inf, -1), scores).padded(top_k)


class RankFusion:
    r"""Score candidates by reciprocal rank fusion of their score columns and of personalized PageRank.

    .. math:: s_i = \sum_{l} \frac{1}{k + r_l(i)}

    over the ranks by each column of ``x`` after the first, and by PageRank from the base scores in the first column. It
    needs no training. Ties have the mean of their ranks.

    Source: Cormack et al., "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", 2009.

    Args:
        restart_prob: Restart probability of PageRank, in (0, 1].
        rank_offset: Constant :math:`k`, a positive number.

    Raises:
        UserError: If a number is out of range.

    Example:
        >>> scores = torch.tensor([[0.9, 2.0, 0.8], [0.5, 3.0, 0.9], [0.1, 0.0, 0.0]])  # base, BM25, dense
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> graphs = CandidateGraphs(scores, edges, torch.ones(2), torch.tensor([0, 3]))
        >>> RankFusion(restart_prob=0.5).score(graphs)
        tensor([0.0487, 0.0489, 0.0476])
    """

    def __init__(self, *, restart_prob: float = 0.5, rank_offset: float = RANK_OFFSET) -> None:
        check_positive(rank_offset=rank_offset)
        self.rank_offset = rank_offset
        self._pagerank = PPR(restart_prob=restart_prob)

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates.

        Args:
            graphs: Candidate graphs. The first column of ``x`` is the base score, and the others are fused.

        Returns:
            Scores ``[N]``.
        """
        columns = [*graphs.x[:, 1:].unbind(1), self._pagerank.score(graphs)]
        fused = [1 / (self.rank_offset + ranks_in_graphs(column, graphs.ptr)) for column in columns]
        return torch.stack(fused).sum(0)


def ranks_in_graphs(scores: Tensor, ptr: Tensor) -> Tensor:
    """Rank the nodes of each packed graph by score.

    Args:
        scores: Scores ``[N]``.
        ptr: Boundaries of the graphs, ``[B + 1]``.

    Returns:
        Ranks ``[N]`` from 1, the highest score first. Equal scores have the mean of their ranks.

    Example:
        >>> ranks_in_graphs(torch.tensor([0.1, 0.5, 0.5, 9.0]), torch.tensor([0, 3, 4]))
        tensor([3.0000, 1.5000, 1.5000, 1.0000])
    """
    graph = graph_of_nodes(ptr, len(scores))
    by_score = torch.argsort(scores, descending=True, stable=True)
    order = by_score[torch.argsort(graph[by_score], stable=True)]
    position = torch.arange(len(scores), device=scores.device)
    sorted_graph, sorted_scores = graph[order], scores[order]
    starts_group = torch.ones(len(scores), dtype=torch.bool, device=scores.device)
    starts_group[1:] = (sorted_graph[1:] != sorted_graph[:-1]) | (sorted_scores[1:] != sorted_scores[:-1])
    group = starts_group.long().cumsum(0) - 1
    rank = (position - ptr[sorted_graph] + 1).float()
    count = torch.bincount(group).float()
    mean = torch.zeros_like(count).index_add_(0, group, rank) / count
    return torch.empty_like(rank).scatter_(0, order, mean[group])
