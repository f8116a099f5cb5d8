"""Lists of edges: validate, sort and merge them, and connect adjacent chunks."""

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.utils.checks import UserError

#: Descriptions of edges that are dropped and counted, for warnings.
SELF_LOOPS, REPEATED_EDGES = "self-loops, which are left out", "repeated edges, which are read once"


class TypedEdges(NamedTuple):
    """Directed edges with weights and types.

    Attributes:
        pairs: Pairs (target, source), ``[M, 2]`` int64: a row of the adjacency matrix and one of its neighbours.
        weight: Weights ``[M]``, float32.
        types: Indices in :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`, ``[M]`` int64.
    """

    pairs: Tensor
    weight: Tensor
    types: Tensor


@dataclass(frozen=True)
class GuardedEdges:
    """Undirected edges that are only visible to some principals.

    Attributes:
        pairs: Ends of the edges, ``[M, 2]`` int64.
        weight: Weights ``[M]``, float32.
        types: Indices of the edge types, ``[M]`` int64.
        group: Index in ``groups`` of the principals that may see each edge, ``[M]`` int64.
        groups: Distinct lists of principals, as JSON.
    """

    pairs: Tensor
    weight: Tensor
    types: Tensor
    group: Tensor
    groups: Sequence[str]

    @property
    def columns(self) -> dict[str, Tensor]:
        """Tensors by name."""
        return {"pairs": self.pairs, "weight": self.weight, "types": self.types, "group": self.group}

    @cached_property
    def principals(self) -> list[frozenset[str]]:
        """Principals of each group."""
        return [frozenset(json.loads(names)) for names in self.groups]

    def allowed(self, principals: AbstractSet[str]) -> Tensor:
        """Return a mask ``[M]`` of the edges visible to the given principals.

        Args:
            principals: Principals of the caller.
        """
        return torch.tensor([not names.isdisjoint(principals) for names in self.principals] or [False])[self.group]

    def select(self, number: Tensor, mask: Tensor | None = None) -> "GuardedEdges":
        """Return the renumbered edges whose ends both have a new index.

        Args:
            number: New index of each node, ``[N]``, or -1.
            mask: Mask ``[M]`` of the edges to select. If None, all edges are selected.
        """
        pairs = number.cpu()[self.pairs]
        selected = (pairs >= 0).all(1) if mask is None else (pairs >= 0).all(1) & mask
        columns = (self.weight[selected], self.types[selected], self.group[selected])
        return GuardedEdges(pairs[selected], *columns, self.groups)


def merge_parallel(edges: Tensor, weight: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Sort edges, and merge parallel edges into one with the largest weight.

    Args:
        edges: Edges ``[M, 2]``.
        weight: Weights ``[M]``.
        num_nodes: Number of nodes.

    Returns:
        Distinct edges ``[M', 2]`` and their weights ``[M']``.

    Example:
        >>> merge_parallel(torch.tensor([[1, 0], [0, 1], [1, 0]]), torch.tensor([1.0, 2.0, 3.0]), 2)
        (tensor([[0, 1],
                [1, 0]]), tensor([2., 3.]))
    """
    key, order = torch.sort(edges[:, 0] * num_nodes + edges[:, 1], stable=True)
    is_new = torch.ones_like(key, dtype=torch.bool)
    is_new[1:] = key[1:] != key[:-1]
    if bool(is_new.all()):
        return edges[order], weight[order]
    first = order[is_new]
    largest = weight.new_zeros(len(first)).scatter_reduce_(0, is_new.cumsum(0) - 1, weight[order], "amax")
    return edges[first], largest


def merge_parallel_of_types(edges: Tensor, weight: Tensor, edge_type: Tensor, num_nodes: int) -> TypedEdges:
    """Sort edges, and merge parallel edges of the same type into one with the largest weight.

    Args:
        edges: Edges ``[M, 2]``.
        weight: Weights ``[M]``.
        edge_type: Indices of the edge types, ``[M]``.
        num_nodes: Number of nodes.

    Returns:
        Distinct edges with weights and types.
    """
    num_types = len(EDGE_TYPES)
    typed = torch.stack([edges[:, 0], edges[:, 1] * num_types + edge_type], dim=1)
    merged, largest = merge_parallel(typed, weight, num_nodes * num_types)
    second = torch.div(merged[:, 1], num_types, rounding_mode="floor")
    return TypedEdges(torch.stack([merged[:, 0], second], dim=1), largest, merged[:, 1] - second * num_types)


def lay_out_types(edges: Tensor, weight: Tensor, types: Tensor, merged: Tensor, num_nodes: int) -> Tensor:
    """Arrange the weights of edges by merged edge and type.

    Args:
        edges: Edges ``[M, 2]``.
        weight: Weights ``[M]``.
        types: Indices of the edge types, ``[M]``.
        merged: Distinct edges of :func:`merge_parallel`, ``[E, 2]``.
        num_nodes: Number of nodes.

    Returns:
        Weights ``[E, T]``, 0 if an edge does not have a type.
    """
    slot = torch.searchsorted(merged[:, 0] * num_nodes + merged[:, 1], edges[:, 0] * num_nodes + edges[:, 1])
    table = weight.new_zeros(len(merged) * len(EDGE_TYPES))
    table.scatter_reduce_(0, slot * len(EDGE_TYPES) + types, weight, "amax")
    return table.reshape(len(merged), len(EDGE_TYPES))


def check_edges(num_nodes: int, edges: Tensor, weight: Tensor, types: Tensor) -> None:
    """Check that edges fit a graph.

    Args:
        num_nodes: Number of nodes.
        edges: Edges ``[M, 2]``.
        weight: Weights ``[M]``.
        types: Indices of the edge types, ``[M]``.

    Raises:
        UserError: If an edge has an invalid node, equal ends, an invalid weight or an invalid type.
    """
    for bad, needed in (
        (((edges < 0) | (edges >= num_nodes)).any(1), f"join nodes 0 to {num_nodes - 1}"),
        (edges[:, 0] == edges[:, 1], "join two different nodes"),
        (~(weight > 0) | torch.isinf(weight), "have a positive, finite weight"),
        ((types < 0) | (types >= len(EDGE_TYPES)), f"be of a type from 0 to {len(EDGE_TYPES) - 1}"),
    ):
        if bad.any():
            first = int(bad.nonzero()[0])
            raise UserError(
                f"`edges` must each {needed}, got {edges[first].tolist()} with weight {weight[first].item()} "
                f"at row {first}"
            )


def count_repeated(edges: Tensor, kinds: Tensor) -> int:
    """Return the number of edges that repeat an earlier edge of the same kind and direction.

    Args:
        edges: Edges ``[M, 2]``.
        kinds: Kind of each edge, ``[M]``.

    Example:
        >>> count_repeated(torch.tensor([[0, 1], [0, 1], [0, 1], [1, 0]]), torch.tensor([0, 0, 1, 0]))
        1
    """
    if not len(edges):
        return 0
    key = (edges[:, 0] * (edges.max() + 1) + edges[:, 1]) * (kinds.max() + 1) + kinds
    return len(key) - len(torch.unique(key))


def adjacency_edges(doc_ids: Sequence[str], chunk_ids: Sequence[int]) -> Tensor:
    """Connect consecutive chunks of the same document.

    Source: GraphER, section 2.1 (contextual proximity).

    Args:
        doc_ids: Id of the document of each chunk.
        chunk_ids: Number of each chunk within its document.

    Returns:
        Sorted pairs (earlier chunk, later chunk), ``[M, 2]`` int64.

    Raises:
        UserError: If the lengths differ, or a number is repeated within a document.

    Example:
        >>> adjacency_edges(["a", "a", "b", "a"], [1, 0, 0, 3])
        tensor([[1, 0]])
    """
    if len(doc_ids) != len(chunk_ids):
        raise UserError(
            f"`doc_ids` and `chunk_ids` must have one entry per chunk, got {len(doc_ids)} and {len(chunk_ids)}"
        )
    node_of: dict[tuple[str, int], int] = {}
    for node, chunk_key in enumerate(zip(doc_ids, chunk_ids, strict=True)):
        if node_of.setdefault(chunk_key, node) != node:
            doc, chunk = chunk_key
            raise UserError(f"`chunk_ids` must be unique within a document, got {chunk} twice in {doc!r}")
    pairs = [(node, node_of[doc, chunk + 1]) for (doc, chunk), node in node_of.items() if (doc, chunk + 1) in node_of]
    return torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)
