"""Augmentation of edges' types, so that a model does not learn what one corpus happens to use a type for."""

from dataclasses import replace

import torch

from graphrerank.checks import check_share
from graphrerank.data.query_draws import QueryDraws
from graphrerank.graphs import CandidateGraphs
from graphrerank.graphs.algebra import graph_index
from graphrerank.graphs.edge_lists import merge_parallel_of_types
from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER


class TypeAugmentation:
    """Merge, swap and drop the types of whole queries at random.

    Args:
        type_merge: Probability in [0, 1] that all edges of a query are merged, and are ``other``.
        type_swap: Probability in [0, 1] that the types of a query trade places, in any order.
        type_dropout: Probability in [0, 1] that a query's edges of one type are hidden, for each type.

    Raises:
        ValueError: If a probability is out of range.
    """

    def __init__(self, *, type_merge: float = 0.0, type_swap: float = 0.0, type_dropout: float = 0.0) -> None:
        check_share(type_merge=type_merge, type_swap=type_swap, type_dropout=type_dropout)
        self.type_merge = type_merge
        self.type_swap = type_swap
        self.type_dropout = type_dropout

    def __call__(self, graphs: CandidateGraphs, draws: QueryDraws) -> CandidateGraphs:
        """Return a changed copy of a batch.

        Raises:
            ValueError: If something is to be changed and the batch's types are merged.
        """
        if not (self.type_merge or self.type_swap or self.type_dropout):
            return graphs
        if graphs.edge_type is None:
            raise ValueError(
                "`type_merge`, `type_swap` and `type_dropout` need edges that keep their type: a model of "
                "`num_edge_types` (features=scores_match_typed)"
            )
        num_types = len(EDGE_TYPES)
        merged = draws.uniform() < self.type_merge
        swapped = draws.uniform() < self.type_swap
        order = torch.argsort(draws.uniform(num_types), dim=1)
        becomes = torch.where(swapped.unsqueeze(1), order, torch.arange(num_types))  # [B, T], for types as they were
        dropped = draws.uniform(num_types) < self.type_dropout  # [B, T], for types as they are
        dropped &= ~merged.unsqueeze(1)
        graph = graph_index(graphs.ptr)
        of_edge = graph[graphs.edge_index[1]]
        edge_type = becomes[of_edge, graphs.edge_type].masked_fill(merged[of_edge], OTHER)
        kept = ~dropped[of_edge, edge_type]
        pairs, weight, edge_type = merge_parallel_of_types(
            graphs.edge_index[:, kept].flip(0).T, graphs.edge_attr[kept], edge_type[kept], graphs.num_nodes
        )
        return replace(graphs, edge_index=pairs.T.flip(0), edge_attr=weight, edge_type=edge_type)
