"""The rows of edges that a change of a corpus writes: those of new passages, and again those of their neighbours."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import EDGE_TYPES, ENTITY, OTHER
from graphrerank.graphs.sparse_rows import row_slots

MENTIONS, CHOSE = 1, 4  # marks of the row's own passage; of its neighbour they are twice as large
ALL_MARKS = (MENTIONS, 2 * MENTIONS, CHOSE, 2 * CHOSE)
MENTIONED, CHOSEN = 3 * MENTIONS, 3 * CHOSE  # by either


@dataclass(frozen=True)
class Origins:
    """Where the ``E`` edges of a corpus come from.

    Attributes:
        stated: ``[E, T]`` float32, weights in each type, but those by mentions and shared entities.
        marks: ``[E]`` uint8, of :data:`ALL_MARKS`: whether the row's passage mentions or chose its neighbour, and
            whether it is mentioned or was chosen by it.
        shared: ``[E]`` float32, the weight by shared entities; 0 where neither chose the other.
        mention_type: The type of edges by mentions.
    """

    stated: Tensor
    marks: Tensor
    shared: Tensor
    mention_type: int | None


class Marks(NamedTuple):
    """How marks change, each row a pair (passage, the one that it mentions or chose).

    Attributes:
        pairs: ``[C, 2]`` int64.
        mark: ``[C]`` uint8, :data:`MENTIONS` or :data:`CHOSE`.
        is_set: ``[C]`` bool, whether it is set; else it is cleared.
        weight: ``[C]`` float32, the weight by shared entities where it is set to :data:`CHOSE`.
    """

    pairs: Tensor
    mark: Tensor
    is_set: Tensor
    weight: Tensor

    @classmethod
    def of(cls, pairs: Tensor, mark: int, *, is_set: bool, weight: Tensor | None = None) -> "Marks":
        """Set or clear one mark."""
        count = len(pairs)
        weights = torch.zeros(count) if weight is None else weight
        return cls(pairs, torch.full((count,), mark, dtype=torch.uint8), torch.full((count,), is_set), weights)

    @classmethod
    def joined(cls, *several: "Marks") -> "Marks":
        """Join changes."""
        return cls(*(torch.cat(column) for column in zip(*several, strict=True)))


NO_MARKS = Marks.of(torch.zeros(0, 2, dtype=torch.int64), MENTIONS, is_set=True)


class EdgeRows(NamedTuple):
    """Rows that follow the edges of a corpus: first those of new passages.

    Attributes:
        indices: ``[E']`` int64, neighbours, ascending within a row.
        weight: ``[E']`` float32.
        weight_by_type: ``[E', T]`` float32; None if the corpus has no types, and no new edge has one.
        stop: ``[num_new]`` int64, where each row of a new passage ends.
        moved: ``[R, 3]`` int64, (node, start, stop) of each row that does not begin where the one before ends.
        origins: Of these edges; None if those of the corpus are not known.
    """

    indices: Tensor
    weight: Tensor
    weight_by_type: Tensor | None
    stop: Tensor
    moved: Tensor
    origins: Origins | None


def rows_of_edges(
    graph: CorpusGraph,
    num_new: int,
    pairs: Tensor,
    weight: Tensor,
    types: Tensor,
    removed: Tensor,
    *,
    end: int,
    origins: Origins | None = None,
    marks: Marks = NO_MARKS,
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
        origins: Where the edges of the corpus come from, if it is known.
        marks: How mentions and choices change, of passages that are not removed; needs ``origins``.
    """
    first = graph.num_nodes
    _, slot = row_slots(graph.indptr, removed, graph.row_stop)
    ends = torch.cat([pairs.flatten(), marks.pairs.flatten(), graph.indices[slot]])
    touched = torch.unique(ends[ends < first])
    touched = touched[~torch.isin(touched, removed)]
    origin, slot = row_slots(graph.indptr, touched, graph.row_stop)
    kept = ~torch.isin(graph.indices[slot], removed)
    origin, slot = origin[kept], slot[kept]
    both = torch.cat([pairs, pairs.flip(1), marks.pairs, marks.pairs.flip(1)])
    node = both[:, 0].contiguous()
    row_of_node = torch.where(node < first, num_new + torch.searchsorted(touched, node), node - first)
    row, neighbour = torch.cat([num_new + origin, row_of_node]), torch.cat([graph.indices[slot], both[:, 1]])
    key, edge = torch.unique(row * (first + num_new) + neighbour, return_inverse=True)
    stated = _stated(graph, slot, origins, weight, types, len(both), edge, len(key))
    found = None
    if origins is not None:
        found = _marked(origins, slot, marks, edge, stated, 2 * len(pairs))
        is_kept = (stated > 0).any(1) | (found.marks > 0)
        key, stated = key[is_kept], stated[is_kept]
        found = Origins(stated, found.marks[is_kept], found.shared[is_kept], found.mention_type)
    row, neighbour = torch.div(key, first + num_new, rounding_mode="floor"), key % (first + num_new)
    nodes = torch.cat([torch.arange(first, first + num_new), touched])
    stop = end + torch.bincount(row, minlength=len(nodes)).cumsum(0)
    start = torch.cat([torch.tensor([end]), stop])[:-1]
    by_type = stated if found is None else weights_by_type(found)
    has_types = graph.weight_by_type is not None or bool((types != OTHER).any())
    is_elsewhere = torch.arange(len(nodes)) >= num_new
    is_elsewhere[:num_new][:1] = int(graph.indptr[-1]) != end  # else it begins where the row before ends
    moved = torch.stack([nodes, start, stop], dim=1)[is_elsewhere]
    emptied = torch.stack([removed, torch.full_like(removed, end), torch.full_like(removed, end)], dim=1)
    return EdgeRows(
        indices=neighbour,
        weight=by_type.max(1).values,
        weight_by_type=by_type if has_types else None,
        stop=stop[:num_new],
        moved=torch.cat([moved, emptied]),
        origins=found,
    )


def weights_by_type(origins: Origins) -> Tensor:
    """Return the weights in each type of all edges together, ``[E, T]``."""
    table = origins.stated.clone()
    if (mention := origins.mention_type) is not None:
        table[:, mention] = torch.maximum(table[:, mention], ((origins.marks & MENTIONED) > 0).float())
    table[:, ENTITY] = torch.maximum(table[:, ENTITY], origins.shared)
    return table


def as_other(weight: Tensor) -> Tensor:
    """Lay out weights ``[n]`` of edges without a type by type: ``[n, T]``."""
    table = weight.new_zeros(len(weight), len(EDGE_TYPES))
    table[:, OTHER] = weight
    return table


def _stated(
    graph: CorpusGraph,
    slot: Tensor,
    origins: Origins | None,
    weight: Tensor,
    types: Tensor,
    num_ends: int,
    edge: Tensor,
    num_edges: int,
) -> Tensor:
    """Lay out weights of old edges and of new ones, ``[num_edges, T]``; of parallel ones of a type the largest."""
    table = graph.weight_by_type if origins is None else origins.stated
    old = as_other(graph.weight[slot]) if table is None else table[slot]
    new = torch.zeros(num_ends, len(EDGE_TYPES))
    place = torch.arange(2 * len(weight))
    new[place, types.repeat(2)] = weight.repeat(2)
    index = edge[:, None].expand(-1, len(EDGE_TYPES))
    return torch.zeros(num_edges, len(EDGE_TYPES)).scatter_reduce_(0, index, torch.cat([old, new]), "amax")


def _marked(origins: Origins, slot: Tensor, marks: Marks, edge: Tensor, stated: Tensor, num_stated: int) -> Origins:
    """Combine marks and weights by shared entities of old edges with their changes, ``[num_edges]`` each."""
    num_edges, num_old = len(stated), len(slot)
    old_place, new_place = edge[:num_old], edge[num_old + num_stated :]
    ends = torch.cat([marks.mark, 2 * marks.mark])
    is_set, weight = marks.is_set.repeat(2), marks.weight.repeat(2)
    held = torch.zeros(num_edges, dtype=torch.uint8)
    held[old_place] = origins.marks[slot]
    for mark in ALL_MARKS:
        of_mark = ends == mark
        held[new_place[of_mark & ~is_set]] &= 0xFF ^ mark
        held[new_place[of_mark & is_set]] |= mark
    shared = torch.zeros(num_edges)
    shared[old_place] = origins.shared[slot]
    chosen = is_set & ((ends & CHOSEN) > 0)
    newest = torch.zeros(num_edges).scatter_reduce_(0, new_place[chosen], weight[chosen], "amax")
    shared = torch.where(newest > 0, newest, shared)
    shared[(held & CHOSEN) == 0] = 0
    return Origins(stated, held, shared, origins.mention_type)


def origins_of(
    graph: CorpusGraph, stated: tuple[Tensor, Tensor, Tensor], marks: Marks, mention_type: int | None
) -> Origins:
    """Tell the edges of a corpus in memory by where they come from.

    Args:
        graph: The corpus, with all edges.
        stated: Pairs ``[M, 2]``, weights and types of those that do not come from mentions and shared entities; further
            ones of types that these do not have may be in the graph.
        marks: All mentions and choices.
        mention_type: The type of edges by mentions.
    """
    num_nodes = graph.num_nodes
    row = torch.repeat_interleave(torch.arange(num_nodes), graph.degree)
    keys = row * num_nodes + graph.indices
    table = as_other(graph.weight) if graph.weight_by_type is None else graph.weight_by_type.clone()
    derived = {kind for kind in (mention_type, ENTITY) if kind is not None}
    pairs, weight, types = stated
    for kind in derived:
        own = types == kind
        both = torch.cat([pairs[own], pairs[own].flip(1)])
        place = torch.searchsorted(keys, both[:, 0] * num_nodes + both[:, 1])
        table[:, kind] = torch.zeros(len(keys)).scatter_reduce_(0, place, weight[own].repeat(2), "amax")
    both = torch.cat([marks.pairs, marks.pairs.flip(1)])
    place = torch.searchsorted(keys, both[:, 0] * num_nodes + both[:, 1])
    nothing = Origins(torch.zeros(0, len(EDGE_TYPES)), torch.zeros(0, dtype=torch.uint8), torch.zeros(0), mention_type)
    return _marked(nothing, torch.zeros(0, dtype=torch.int64), marks, place, table, 0)
