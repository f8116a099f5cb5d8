"""The rows of edges that a change of a corpus writes: those of new passages, and again those of their neighbours."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_lists import lay_out_types, merge_parallel
from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER
from graphrerank.graphs.sparse_rows import row_slots


class EdgeRows(NamedTuple):
    """Rows that follow the edges of a corpus: first those of new passages.

    Attributes:
        indices: ``[E']`` int64, neighbours, ascending within a row.
        weight: ``[E']`` float32.
        weight_by_type: ``[E', T]`` float32; None if the corpus has no types, and no new edge has one.
        stop: ``[num_new]`` int64, where each row of a new passage ends.
        moved: ``[R, 3]`` int64, (node, start, stop) of each row that does not begin where the one before ends.
    """

    indices: Tensor
    weight: Tensor
    weight_by_type: Tensor | None
    stop: Tensor
    moved: Tensor


def rows_of_edges(
    graph: CorpusGraph, num_new: int, pairs: Tensor, weight: Tensor, types: Tensor, removed: Tensor, *, end: int
) -> EdgeRows:
    """Write rows of edges anew, at the cost of the rows that change.

    Args:
        graph: The corpus, of ``N`` passages.
        num_new: Number of passages that follow.
        pairs: ``[M, 2]`` int64, new edges, each of a new passage and not of a removed one.
        weight: ``[M]``, positive.
        types: ``[M]`` int64, of :data:`~graphrerank.graphs.edge_types.EDGE_TYPES`.
        removed: ``[r]`` int64, passages that are removed, whose rows become empty.
        end: Number of edges on disk, which is where these follow.
    """
    first = graph.num_nodes
    both, weights, kinds = torch.cat([pairs, pairs.flip(1)]), weight.repeat(2), types.repeat(2)
    merged, largest = merge_parallel(both, weights, first + num_new)
    node = merged[:, 0].contiguous()
    _, slot = row_slots(graph.indptr, removed, graph.row_stop)
    touched = torch.unique(torch.cat([node[node < first], graph.indices[slot]]))
    touched = touched[~torch.isin(touched, removed)]
    origin, slot = row_slots(graph.indptr, touched, graph.row_stop)
    kept = ~torch.isin(graph.indices[slot], removed)
    origin, slot = origin[kept], slot[kept]
    row = torch.where(node < first, num_new + torch.searchsorted(touched, node), node - first)
    row, neighbour = torch.cat([row, num_new + origin]), torch.cat([merged[:, 1], graph.indices[slot]])
    order = torch.from_numpy(np.lexsort((neighbour.numpy(), row.numpy())))
    nodes = torch.cat([torch.arange(first, first + num_new), touched])
    stop = end + torch.bincount(row, minlength=len(nodes)).cumsum(0)
    start = torch.cat([torch.tensor([end]), stop])[:-1]
    table = None
    if graph.weight_by_type is not None or bool((types != OTHER).any()):
        new = lay_out_types(both, weights, kinds, merged, first + num_new)
        old = as_other(graph.weight[slot]) if graph.weight_by_type is None else graph.weight_by_type[slot]
        table = torch.cat([new, old])[order]
    is_elsewhere = torch.arange(len(nodes)) >= num_new
    is_elsewhere[:num_new][:1] = int(graph.indptr[-1]) != end  # else it begins where the row before ends
    moved = torch.stack([nodes, start, stop], dim=1)[is_elsewhere]
    emptied = torch.stack([removed, torch.full_like(removed, end), torch.full_like(removed, end)], dim=1)
    return EdgeRows(
        indices=neighbour[order],
        weight=torch.cat([largest, graph.weight[slot]])[order],
        weight_by_type=table,
        stop=stop[:num_new],
        moved=torch.cat([moved, emptied]),
    )


def as_other(weight: Tensor) -> Tensor:
    """Lay out weights ``[n]`` of edges without a type by type: ``[n, T]``."""
    table = weight.new_zeros(len(weight), len(EDGE_TYPES))
    table[:, OTHER] = weight
    return table
