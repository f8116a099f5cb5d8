"""Graphs with other edges between the same nodes: shuffled so that every node keeps its degree."""

import torch
from torch import Tensor

from graphrerank.core.graph_algebra import graph_of_nodes

ROUNDS = 20  # of swaps; in each, every edge is tried once


def shuffle_edges(
    edge_index: Tensor, edge_attr: Tensor, ptr: Tensor, *, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""Shuffle the edges of each graph of a batch, so that every node keeps its number of neighbours.

    Two edges :math:`a - b` and :math:`c - d` become :math:`a - d` and :math:`c - b`, unless that would be a self-loop
    or a second edge between two nodes. An edge and its way back stay together, and keep their weights.

    Source: Maslov and Sneppen, "Specificity and Stability in Topology of Protein Networks", 2002 (edge swaps). All
    edges, without self-loops and repeats, are swapped in pairs at once; a swap that meets an edge of before, or another
    swap's, is not done. Returns ``edge_index [2, E]`` sorted by target, then source, and ``edge_attr [E]``.
    """
    num_nodes = int(ptr[-1])
    graph = graph_of_nodes(ptr, num_nodes)
    key, pair = torch.unique(_key(edge_index, num_nodes), return_inverse=True)  # an edge and its way back
    weights = edge_attr.new_zeros(2, len(key))  # 0 for an edge that is not there
    weights[(edge_index[0] > edge_index[1]).long(), pair] = edge_attr
    first = torch.div(key, max(num_nodes, 1), rounding_mode="floor")
    ends = torch.stack([first, key - first * num_nodes])  # [2, P]
    for _ in range(ROUNDS if len(key) > 1 else 0):
        _swap(ends, weights, graph, num_nodes, generator)
    edges, weight = torch.cat([ends, ends.flip(0)], dim=1), weights.flatten()
    edges, weight = edges[:, weight > 0], weight[weight > 0]
    order = torch.argsort(edges[1] * num_nodes + edges[0])
    return edges[:, order], weight[order]


def shuffle_each_type(
    edge_index: Tensor, edge_attr: Tensor, edge_type: Tensor, ptr: Tensor, *, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Shuffle the edges of each type by themselves (:func:`shuffle_edges`): every node keeps its degree in each.

    Returns edges, weights and types, sorted by target, then source, then type.
    """
    parts = []
    for number in torch.unique(edge_type).tolist():
        of_type = edge_type == number
        shuffled, weight = shuffle_edges(edge_index[:, of_type], edge_attr[of_type], ptr, generator=generator)
        parts.append((shuffled, weight, torch.full_like(weight, number, dtype=torch.int64)))
    if not parts:
        return edge_index, edge_attr, edge_type
    edges, weights, types = (torch.cat(column, dim=-1) for column in zip(*parts, strict=True))
    order = torch.argsort(edges[1] * int(ptr[-1]) + edges[0], stable=True)
    return edges[:, order], weights[order], types[order]


def _key(ends: Tensor, num_nodes: int) -> Tensor:
    return ends.min(dim=0).values * num_nodes + ends.max(dim=0).values


def _swap(ends: Tensor, weights: Tensor, graph: Tensor, num_nodes: int, generator: torch.Generator) -> None:
    """Try one swap of every pair of ``ends [2, P]`` with another one of its graph, in place."""
    count = ends.shape[1]
    turned = torch.rand(count, generator=generator) < 0.5
    ends[:, turned], weights[:, turned] = ends.flip(0)[:, turned], weights.flip(0)[:, turned]
    shuffled = torch.randperm(count, generator=generator)
    of_graph = graph[ends[0]]
    order = shuffled[torch.argsort(of_graph[shuffled], stable=True)]
    first, second = order[: count - 1 : 2], order[1::2]
    together = of_graph[first] == of_graph[second]
    first, second = first[together], second[together]
    one, other = torch.stack([ends[0, first], ends[1, second]]), torch.stack([ends[0, second], ends[1, first]])
    proposed = torch.cat([one, other], dim=1)
    key, half = _key(proposed, num_nodes), len(first)
    _, place, times = torch.unique(key, return_inverse=True, return_counts=True)
    good = (proposed[0] != proposed[1]) & ~torch.isin(key, _key(ends, num_nodes)) & (times[place] == 1)
    done = good[:half] & good[half:]
    first, second = first[done], second[done]
    ends[1, first], ends[1, second] = ends[1, second], ends[1, first]
