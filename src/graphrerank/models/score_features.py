"""Features of a candidate without embeddings: its scores, its ranks and its place in the graph.

- Everything is normalised within the candidate list, so that base scores of any scale and any encoder will do.
- Computed inside the model, from the retriever's scores and the edges: an exported model needs nothing more.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphrerank.core.graph_algebra import graph_of_nodes, scatter_max, scatter_sum
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.operators.gcs import graph_cohesive_smoothing, num_smoothing_steps
from graphrerank.utils.checks import UserError

PAIR_EVIDENCE = ("covered_beyond_both", "covered_beyond_own")


def min_max_by_graph(values: Tensor, graph: Tensor, num_graphs: int, rounding: float = 0.0) -> Tensor:
    """Scale each column to [0, 1] within each graph; a column that is constant within a graph becomes 0 there.

    Differences of up to ``rounding`` are not stretched: equal sums may differ by the order of their terms.
    """
    high = scatter_max(values, graph, num_graphs).index_select(0, graph)
    low = -scatter_max(-values, graph, num_graphs).index_select(0, graph)
    return (values - low) / torch.where(high - low > rounding, high - low, torch.ones_like(high))


def rank_by_graph(scores: Tensor, graph: Tensor, ptr: Tensor) -> Tensor:
    """Rank nodes ``[N]`` within their graph, 1 for the highest score, ties by node order."""
    by_score = torch.argsort(scores, descending=True, stable=True)
    order = by_score[torch.argsort(graph[by_score], stable=True)]
    rank = torch.arange(order.numel(), device=order.device) - ptr[graph[order]] + 1
    return torch.empty_like(order).scatter_(0, order, rank)


def pair_evidence(words: Tensor, edge_index: Tensor) -> Tensor:
    """Measure how much of the query the two ends of each edge j -> i cover together: ``[E, 2]``, ``PAIR_EVIDENCE``.

    ``words`` are ``[N, W]``, the share of each word that a candidate holds; beyond the better end, and beyond i.
    """
    of_source, of_target = words.index_select(0, edge_index[0]), words.index_select(0, edge_index[1])
    together = torch.maximum(of_source, of_target).sum(1)
    target = of_target.sum(1)
    return torch.stack([together - torch.maximum(of_source.sum(1), target), together - target], dim=1)


class ScoreFeatures(nn.Module):
    """Turn a retriever's scores and the candidate graph into features, without parameters.

    Columns: the ``num_scores`` min-max scaled scores; GCS of the scaled base score; reciprocal rank; log of the rank;
    log of the degree; best and mean base score among the neighbours; the largest share of each other score among the
    neighbours. With types of edges, all columns that depend on edges follow for the edges of each type.

    With words, the last ``num_words`` scores are shares of the query's weight, 0 where a candidate does not hold the
    word. Further columns depend on edges: the share that a candidate covers together with its neighbours, scaled as
    scores are; and, with ``pairs``, the largest :func:`pair_evidence` over its edges.
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
            raise UserError(f"`num_words` must lie in [0, `num_scores`) = [0, {num_scores}), got {num_words}")
        self.num_scores = num_scores - num_words  # that are no words
        self.num_words = num_words
        self.pairs = pairs and num_words > 0
        self.num_edge_types = num_edge_types
        self.restart_prob = restart_prob
        self.num_steps = num_smoothing_steps(restart_prob)
        self.num_columns = len(self.names([""] * self.num_scores))

    def names(self, score_names: Sequence[str]) -> list[str]:
        """Name the columns, in order, given the names of the retriever's scores."""
        scores = score_names[: self.num_scores]
        best = (f"best_neighbour_{name}" for name in scores)
        of_words = ["covered_with_neighbours"] if self.num_words else []
        of_pairs = PAIR_EVIDENCE if self.pairs else ()
        from_edges = ["log_degree", f"mean_neighbour_{scores[0]}", *best, *of_words, *of_pairs]
        types = EDGE_TYPES[: self.num_edge_types]
        of_types = [f"{name}_{edge_type}" for edge_type in types for name in ("gcs", *from_edges)]
        return [*scores, "gcs", "reciprocal_rank", "log_rank", *from_edges, *of_types]

    def columns_of_pairs(self, num_pair_scores: int) -> list[int]:
        """Number the columns that are 0 where the last ``num_pair_scores`` scores, words aside, are."""
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
        """Compute the features ``[N, num_columns]`` of a packed batch; GCS follows the scores that are no words."""
        num_nodes = base_features.shape[0]
        graph = graph_of_nodes(ptr, num_nodes)
        words = base_features[:, self.num_scores :]
        scores = min_max_by_graph(base_features[:, : self.num_scores], graph, ptr.numel() - 1)
        rank = rank_by_graph(base_features[:, 0], graph, ptr).to(scores.dtype)
        ranks = torch.stack([1 / rank, torch.log(rank) / 5], dim=1)
        evidence = pair_evidence(words, edge_index) if self.pairs else edge_weight
        joined = self._from_edges(scores, words, edge_index, edge_weight, evidence, graph, ptr.numel() - 1)
        features = torch.cat([scores, joined[:, :1], ranks, joined[:, 1:]], dim=1)
        if self.num_edge_types == 0:
            return features
        assert edge_type is not None
        copies = self.num_edge_types  # of the graph, one for each type
        of_types = self._from_edges(
            scores.repeat_interleave(copies, dim=0),
            words.repeat_interleave(copies, dim=0),
            edge_index * copies + edge_type,
            edge_weight,
            evidence,
            graph.repeat_interleave(copies),
            ptr.numel() - 1,
        )
        return torch.cat([features, of_types.reshape(num_nodes, copies * of_types.shape[1])], dim=1)

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
