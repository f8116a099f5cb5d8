"""Graphs with other edges between the same nodes: shuffled so that every node keeps its degree."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.graphs.algebra import graph_index
from graphrerank.graphs.corpus_graph import CorpusGraph

ROUNDS = 20  # of swaps; in each, every edge is tried once


@dataclass
class _Pairs:
    """Edges as pairs of joined nodes, ``[P]`` each; a weight of 0 is an edge that is not there."""

    source: Tensor
    target: Tensor
    forward: Tensor
    backward: Tensor

    def key(self, num_nodes: int) -> Tensor:
        return torch.minimum(self.source, self.target) * num_nodes + torch.maximum(self.source, self.target)


def shuffle_edges(
    edge_index: Tensor, edge_attr: Tensor, ptr: Tensor, *, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""Shuffle the edges of each graph of a batch, so that every node keeps its number of neighbours.

    Two edges :math:`a - b` and :math:`c - d` become :math:`a - d` and :math:`c - b`, unless that would be a self-loop
    or a second edge between two nodes. An edge and its way back stay together, and keep their weights.

    Source: Maslov and Sneppen, "Specificity and Stability in Topology of Protein Networks", 2002 (edge swaps). All
    edges are swapped in pairs at once; a swap that meets an edge of before, or another swap's, is not done.

    Edges are within the packed batch, without self-loops and repeats, their weights positive. Returns ``edge_index
    [2, E]`` sorted by target, then source, and ``edge_attr [E]``.

    Example:
        >>> ring = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])
        >>> edges, _ = shuffle_edges(ring, torch.ones(8), torch.tensor([0, 4]), generator=torch.Generator())
        >>> torch.bincount(edges[1])
        tensor([2, 2, 2, 2])
    """
    num_nodes = int(ptr[-1])
    pairs = _pairs(edge_index, edge_attr, num_nodes)
    graph = graph_index(ptr)
    for _ in range(ROUNDS if len(pairs.source) > 1 else 0):
        _swap(pairs, graph, num_nodes, generator)
    source = torch.cat([pairs.source, pairs.target])
    target = torch.cat([pairs.target, pairs.source])
    weight = torch.cat([pairs.forward, pairs.backward])
    source, target, weight = source[weight > 0], target[weight > 0], weight[weight > 0]
    order = torch.argsort(target * num_nodes + source)
    return torch.stack([source[order], target[order]]), weight[order]


def shuffled_graph(graph: CorpusGraph, *, seed: int = 0) -> CorpusGraph:
    """Return the same passages with shuffled edges: each with as many of each type (:func:`shuffle_each_type`).

    Raises:
        ValueError: If passages are joined by the entities that they share, which cannot be swapped edge by edge.
    """
    if graph.entities is not None:
        raise ValueError("`graph` must have edges alone to be shuffled, got one that joins passages by entities")
    edges, weight, edge_type = (part.cpu() for part in graph.typed_edges())
    generator, ptr = torch.Generator().manual_seed(seed), torch.tensor([0, graph.num_nodes])
    edge_index, weight, edge_type = shuffle_each_type(edges.T.flip(0), weight, edge_type, ptr, generator=generator)
    return graph.with_only(edge_index.flip(0).T, weight, edge_type)


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


def _pairs(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> _Pairs:
    """Join each edge with its way back."""
    low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
    key, pair_index = torch.unique(low * num_nodes + high, return_inverse=True)
    weights = edge_attr.new_zeros(2, key.numel())
    weights[(edge_index[0] > edge_index[1]).long(), pair_index] = edge_attr
    source = torch.div(key, max(num_nodes, 1), rounding_mode="floor")
    return _Pairs(source, key - source * num_nodes, weights[0], weights[1])


def _swap(pairs: _Pairs, graph: Tensor, num_nodes: int, generator: torch.Generator) -> None:
    """Try one swap of every edge with another one of its graph, in place."""
    count = len(pairs.source)
    turned = torch.rand(count, generator=generator) < 0.5
    pairs.source, pairs.target = (
        torch.where(turned, pairs.target, pairs.source),
        torch.where(turned, pairs.source, pairs.target),
    )
    pairs.forward, pairs.backward = (
        torch.where(turned, pairs.backward, pairs.forward),
        torch.where(turned, pairs.forward, pairs.backward),
    )
    shuffled = torch.randperm(count, generator=generator)
    of_graph = graph[pairs.source]
    order = shuffled[torch.argsort(of_graph[shuffled], stable=True)]
    first, second = order[: count - 1 : 2], order[1::2]
    together = of_graph[first] == of_graph[second]
    first, second = first[together], second[together]
    proposed = _Pairs(
        torch.cat([pairs.source[first], pairs.source[second]]),
        torch.cat([pairs.target[second], pairs.target[first]]),
        pairs.forward,
        pairs.backward,
    )
    key, half = proposed.key(num_nodes), len(first)
    _, pair_index, times = torch.unique(key, return_inverse=True, return_counts=True)
    good = (proposed.source != proposed.target) & ~torch.isin(key, pairs.key(num_nodes)) & (times[pair_index] == 1)
    done = good[:half] & good[half:]
    first, second = first[done], second[done]
    pairs.target[first], pairs.target[second] = pairs.target[second], pairs.target[first]
