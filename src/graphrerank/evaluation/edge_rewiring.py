"""Shuffle the edges of graphs without changing the degree of any node."""

import torch
from torch import Tensor

from graphrerank.core.graph_algebra import graph_of_nodes

ROUNDS = 20  # number of rounds of swaps; in each round, one swap is tried per edge


def shuffle_edges(
    edge_index: Tensor, edge_attr: Tensor, ptr: Tensor, *, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""Shuffle the edges of each graph in a batch. Every node keeps its number of neighbours.

    Two edges :math:`a - b` and :math:`c - d` become :math:`a - d` and :math:`c - b`, unless the swap would create a
    self-loop or a second edge between two nodes. The two directions of an edge are swapped together and keep their
    weights.

    Source: Maslov and Sneppen, "Specificity and Stability in Topology of Protein Networks", 2002 (edge swaps).
    *Differences from the paper:* all edges are swapped in random pairs at once. A swap is skipped if one of its new
    edges existed before or is also created by another swap of the same round.

    Args:
        edge_index: ``[2, E]`` directed edges without self-loops and repeated edges.
        edge_attr: ``[E]`` positive edge weights.
        ptr: ``[B + 1]`` index of the first node of each graph, followed by the number of nodes.
        generator: Random number generator.

    Returns:
        Shuffled edges ``[2, E]``, sorted by target and then by source, and their weights ``[E]``.
    """
    num_nodes = int(ptr[-1])
    graph = graph_of_nodes(ptr, num_nodes)
    key, pair = torch.unique(_key(edge_index, num_nodes), return_inverse=True)  # both directions of an edge are a pair
    weights = edge_attr.new_zeros(2, len(key))  # 0 for a direction without an edge
    weights[(edge_index[0] > edge_index[1]).long(), pair] = edge_attr
    first = torch.div(key, max(num_nodes, 1), rounding_mode="floor")
    ends = torch.stack([first, key - first * num_nodes])  # [2, P]
    for _ in range(ROUNDS if len(key) > 1 else 0):
        _swap(ends, weights, graph, num_nodes, generator)
    edges = torch.cat([ends, ends.flip(0)], dim=1)
    weight = weights.flatten()
    is_edge = weight > 0
    edges = edges[:, is_edge]
    order = torch.argsort(edges[1] * num_nodes + edges[0])
    return edges[:, order], weight[is_edge][order]


def shuffle_each_type(
    edge_index: Tensor, edge_attr: Tensor, edge_type: Tensor, ptr: Tensor, *, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Shuffle the edges of each type separately. Every node keeps its degree in each type.

    Args:
        edge_index: ``[2, E]`` directed edges.
        edge_attr: ``[E]`` positive edge weights.
        edge_type: ``[E]`` int64 edge types.
        ptr: ``[B + 1]`` index of the first node of each graph, followed by the number of nodes.
        generator: Random number generator.

    Returns:
        Edges ``[2, E]``, weights ``[E]`` and types ``[E]``, sorted by target, then by source, then by type.
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
    """Try to swap each edge of ``ends [2, P]`` with another edge of the same graph, in place."""
    count = ends.shape[1]
    is_reversed = torch.rand(count, generator=generator) < 0.5
    ends[:, is_reversed] = ends.flip(0)[:, is_reversed]
    weights[:, is_reversed] = weights.flip(0)[:, is_reversed]
    shuffled = torch.randperm(count, generator=generator)
    graph_of_edge = graph[ends[0]]
    order = shuffled[torch.argsort(graph_of_edge[shuffled], stable=True)]
    first, second = order[: count - 1 : 2], order[1::2]
    are_in_one_graph = graph_of_edge[first] == graph_of_edge[second]
    first, second = first[are_in_one_graph], second[are_in_one_graph]
    first_proposed = torch.stack([ends[0, first], ends[1, second]])
    second_proposed = torch.stack([ends[0, second], ends[1, first]])
    proposed = torch.cat([first_proposed, second_proposed], dim=1)
    key = _key(proposed, num_nodes)
    _, inverse, num_proposals = torch.unique(key, return_inverse=True, return_counts=True)
    is_new = ~torch.isin(key, _key(ends, num_nodes)) & (num_proposals[inverse] == 1)
    is_allowed = is_new & (proposed[0] != proposed[1])
    can_swap = is_allowed[: len(first)] & is_allowed[len(first) :]
    first, second = first[can_swap], second[can_swap]
    ends[1, first], ends[1, second] = ends[1, second], ends[1, first]
