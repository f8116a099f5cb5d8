"""Features of candidates without embeddings: scores, ranks and the position in the candidate graph.

- All features are normalised within a candidate list, so base scores of any scale and any encoder can be used.
- They are computed inside the model from the scores of the retriever and the edges. An exported model needs nothing
  else.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphrerank.core.graph_algebra import graph_of_nodes, scatter_max, scatter_sum
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.operators.gcs import graph_cohesive_smoothing, num_smoothing_steps
from graphrerank.utils.checks import UserError

#: Names of the columns of :func:`pair_evidence`.
PAIR_EVIDENCE = ("covered_beyond_both", "covered_beyond_own")


def min_max_by_graph(values: Tensor, graph: Tensor, num_graphs: int, rounding: float = 0.0) -> Tensor:
    """Scale each column to [0, 1] within each graph. A column that is constant within a graph becomes 0 there.

    Args:
        values: Columns ``[N, C]``, or a single column ``[N]``.
        graph: Index of the graph of each node, ``[N]``.
        num_graphs: Number of graphs.
        rounding: Largest range that is treated as constant, because sums in different orders may differ by rounding.

    Returns:
        Scaled columns of the same shape.
    """
    high = scatter_max(values, graph, num_graphs).index_select(0, graph)
    low = -scatter_max(-values, graph, num_graphs).index_select(0, graph)
    return (values - low) / torch.where(high - low > rounding, high - low, torch.ones_like(high))


def rank_by_graph(scores: Tensor, graph: Tensor, ptr: Tensor) -> Tensor:
    """Rank the nodes of each graph, 1 for the highest score. Nodes with equal scores share the mean of their ranks.

    The ranks do not depend on the order of the nodes.

    Args:
        scores: Scores ``[N]``.
        graph: Index of the graph of each node, ``[N]``.
        ptr: Boundaries of the graphs, ``[B + 1]``.

    Returns:
        Ranks ``[N]`` of the type of ``scores``.

    Example:
        >>> rank_by_graph(torch.tensor([0.5, 0.9, 0.5, 0.1]), torch.zeros(4, dtype=torch.int64), torch.tensor([0, 4]))
        tensor([2.5000, 1.0000, 2.5000, 4.0000])
    """
    by_score = torch.argsort(scores, descending=True, stable=True)
    order = by_score[torch.argsort(graph[by_score], stable=True)]
    position = torch.arange(order.numel(), device=order.device)
    ordered_scores, ordered_graph = scores[order], graph[order]
    previous = (position - 1).clamp(min=0)  # the first node is compared with itself, so that no size depends on data
    is_lower = (ordered_scores != ordered_scores[previous]) | (ordered_graph != ordered_graph[previous])
    tie = is_lower.long().cumsum(0)
    rank = (position - ptr[ordered_graph] + 1).to(scores.dtype)
    num_ties = order.numel() + 1
    mean = scatter_sum(rank, tie, num_ties) / scatter_sum(torch.ones_like(rank), tie, num_ties).clamp(min=1)
    return torch.zeros_like(rank).scatter(0, order, mean[tie])


def pair_evidence(words: Tensor, edge_index: Tensor) -> Tensor:
    """Measure how much of the query the two ends of each edge ``j -> i`` cover together.

    The first column is the coverage beyond that of the better end. The second is the coverage beyond that of node
    ``i``.

    Args:
        words: Share of each query word that a candidate contains, ``[N, W]``.
        edge_index: Edges ``[2, E]``.

    Returns:
        Columns ``[E, 2]``, named by ``PAIR_EVIDENCE``.
    """
    source_words = words.index_select(0, edge_index[0])
    target_words = words.index_select(0, edge_index[1])
    together = torch.maximum(source_words, target_words).sum(1)
    target = target_words.sum(1)
    better_end = torch.maximum(source_words.sum(1), target)
    return torch.stack([together - better_end, together - target], dim=1)


class ScoreFeatures(nn.Module):
    """Compute features from the scores of the retriever and the candidate graph. The module has no parameters.

    The columns are the ``num_scores`` scores without the words, scaled to [0, 1]; GCS of the scaled base score; the
    reciprocal rank; the logarithm of the rank; the logarithm of the degree; the mean base score among the neighbours;
    and the maximum of each score among the neighbours. With edge types, all columns that depend on edges are repeated
    for the edges of each type.

    With words, the last ``num_words`` scores are the shares of the query's weight that a candidate covers, one per
    query word. They add further columns that depend on edges: the share that a candidate covers together with its
    neighbours, scaled to [0, 1]; and with ``pairs``, the maximum of :func:`pair_evidence` over its edges.

    Args:
        num_scores: Number of scores of a candidate, including words. The first is the base score.
        num_words: Number of scores at the end that are shares of query words.
        pairs: Whether to add the columns of :func:`pair_evidence`. Ignored without words.
        restart_prob: Weight of a node's own score in each step of GCS, in (0, 1].
        num_edge_types: Number of edge types for which columns are repeated, or 0.

    Raises:
        UserError: If ``num_words`` is negative or not below ``num_scores``.

    Example:
        >>> features = ScoreFeatures(num_scores=2)
        >>> features.names(["base_score", "bm25_score"])[:4]
        ['base_score', 'bm25_score', 'gcs', 'reciprocal_rank']
    """

    def __init__(
        self,
        *,
        num_scores: int,
        num_words: int = 0,
        pairs: bool = True,
        restart_prob: float = 0.5,
        num_edge_types: int = 0,
    ) -> None:
        super().__init__()
        if not 0 <= num_words < num_scores:
            raise UserError(f"`num_words` must be at least 0 and below `num_scores` = {num_scores}, got {num_words}")
        self.num_scores = num_scores - num_words  # without words
        self.num_words = num_words
        self.pairs = pairs and num_words > 0
        self.num_edge_types = num_edge_types
        self.restart_prob = restart_prob
        self.num_steps = num_smoothing_steps(restart_prob)
        self.num_columns = len(self.names([""] * self.num_scores))

    def names(self, score_names: Sequence[str]) -> list[str]:
        """Return the names of the columns.

        Args:
            score_names: Names of the scores of the retriever.
        """
        scores = score_names[: self.num_scores]
        edge_names = ["log_degree", f"mean_neighbour_{scores[0]}", *(f"best_neighbour_{name}" for name in scores)]
        if self.num_words:
            edge_names.append("covered_with_neighbours")
        if self.pairs:
            edge_names.extend(PAIR_EVIDENCE)
        edge_types = EDGE_TYPES[: self.num_edge_types]
        type_names = [f"{name}_{edge_type}" for edge_type in edge_types for name in ("gcs", *edge_names)]
        return [*scores, "gcs", "reciprocal_rank", "log_rank", *edge_names, *type_names]

    def columns_of_pairs(self, num_pair_scores: int) -> list[int]:
        """Return the indices of the columns that are 0 whenever the cross-encoder's scores are 0.

        Args:
            num_pair_scores: Number of cross-encoder scores, which are the last scores before the words.
        """
        mark = "\0"
        names = self.names([*[""] * (self.num_scores - num_pair_scores), *[mark] * num_pair_scores])
        return [index for index, name in enumerate(names) if mark in name]

    def forward(
        self,
        base_features: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor,
        ptr: Tensor,
        edge_type: Tensor | None = None,
    ) -> Tensor:
        """Compute the features of a packed batch.

        Args:
            base_features: Scores of the retriever, ``[N, num_scores]``.
            edge_index: Edges ``[2, E]`` in any order.
            edge_weight: Weights of the edges, ``[E]``.
            ptr: Boundaries of the graphs, ``[B + 1]``.
            edge_type: Edge types ``[E]``. Required if ``num_edge_types`` is not 0.

        Returns:
            Features ``[N, num_columns]``, named by :meth:`names`.
        """
        num_nodes = base_features.shape[0]
        graph = graph_of_nodes(ptr, num_nodes)
        words = base_features[:, self.num_scores :]
        scores = min_max_by_graph(base_features[:, : self.num_scores], graph, ptr.numel() - 1)
        rank = rank_by_graph(base_features[:, 0], graph, ptr)
        ranks = torch.stack([1 / rank, torch.log(rank) / 5], dim=1)
        evidence = pair_evidence(words, edge_index) if self.pairs else edge_weight
        edge_columns = self._from_edges(scores, words, edge_index, edge_weight, evidence, graph, ptr.numel() - 1)
        features = torch.cat([scores, edge_columns[:, :1], ranks, edge_columns[:, 1:]], dim=1)  # GCS before the ranks
        if self.num_edge_types == 0:
            return features
        assert edge_type is not None
        copies = self.num_edge_types  # one copy of the graph per edge type
        type_columns = self._from_edges(
            scores.repeat_interleave(copies, dim=0),
            words.repeat_interleave(copies, dim=0),
            edge_index * copies + edge_type,
            edge_weight,
            evidence,
            graph.repeat_interleave(copies),
            ptr.numel() - 1,
        )
        return torch.cat([features, type_columns.reshape(num_nodes, copies * type_columns.shape[1])], dim=1)

    def _from_edges(
        self,
        scores: Tensor,
        words: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor,
        evidence: Tensor,
        graph: Tensor,
        num_graphs: int,
    ) -> Tensor:
        """Compute the columns that depend on edges."""
        num_nodes = scores.shape[0]
        gcs = graph_cohesive_smoothing(scores[:, 0], edge_index, edge_weight, self.restart_prob, self.num_steps)
        source, target = edge_index[0], edge_index[1]
        degree = scatter_sum(torch.ones_like(edge_weight), target, num_nodes)
        total = scatter_sum(scores[:, 0].index_select(0, source), target, num_nodes)
        best = scatter_max(scores.index_select(0, source), target, num_nodes)
        columns = torch.stack([gcs, torch.log1p(degree) / 3, total / degree.clamp(min=1)], dim=1)
        columns = torch.cat([columns, best], dim=1)
        if self.num_words > 0:
            around = scatter_max(words.index_select(0, source), target, num_nodes)
            covered = torch.maximum(words, around).sum(1, keepdim=True)
            columns = torch.cat([columns, min_max_by_graph(covered, graph, num_graphs, 1e-5)], dim=1)
        if self.pairs:
            columns = torch.cat([columns, scatter_max(evidence, target, num_nodes)], dim=1)
        return columns
