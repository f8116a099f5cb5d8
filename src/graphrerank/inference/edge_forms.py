"""The forms in which callers have edges: numbered pairs, pairs of ids, PyG's ``[2, M]``, a networkx graph."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER
from graphrerank.inference.arrays import Numbers, to_integers
from graphrerank.inference.rerank_input import RerankInput

Numbered = tuple[Tensor, Sequence[str] | None, Numbers | None]  # [M, 2] int64, M types, [M] weights


def numbered_edges(given: RerankInput) -> Numbered | None:
    """Return the caller's own edges as numbered pairs, with types and weights where there are any; None for no edges.

    Raises:
        ValueError: If a form is unclear, an id is unknown, or there are no ids for a graph over ids.

    Example:
        >>> given = RerankInput("q", ["a", "b"], edges=[("x", "y")], ids=["x", "y"])
        >>> numbered_edges(given)[0]
        tensor([[0, 1]])
    """
    if given.edge_index is not None:
        return _from_edge_index(given)
    edges: Any = given.edges
    if edges is None:
        return None
    if hasattr(edges, "nodes") and hasattr(edges, "edges"):
        return _from_graph(given)
    if isinstance(edges, Tensor) and tuple(edges.shape) == (2, 2):
        raise ValueError(
            "`edges` must not be a tensor of shape [2, 2], which could be pairs or PyG's [2, M]: give "
            "`edge_index=edges`, or `edges=edges.tolist()` for pairs"
        )
    if isinstance(edges, Tensor) and edges.dim() == 2 and edges.shape[0] == 2 and edges.shape[1] != 2:
        raise ValueError(f"`edges` must be of shape [any, 2], got {list(edges.shape)}; PyG's form is `edge_index`")
    if not hasattr(edges, "dtype"):
        edges = list(edges)
        if _name_ids(edges):
            edges = _numbers_of(edges, given)
    return to_integers("edges", edges, (None, 2)), given.edge_types, given.edge_weights


def _from_edge_index(given: RerankInput) -> Numbered:
    index = to_integers("edge_index", given.edge_index, (2, None))  # type: ignore[arg-type]
    kept = index[0] != index[1]
    if not bool(kept.all()) and (given.edge_types is not None or given.edge_weights is not None):
        place = int((~kept).nonzero()[0])
        raise ValueError(f"`edge_index` with weights or types must have no self-loop, got one at place {place}")
    return index.T[kept].contiguous(), given.edge_types, given.edge_weights


def _from_graph(given: RerankInput) -> Numbered:
    """Take the edges of a networkx graph among the passages; the graph may be the whole corpus's."""
    if given.ids is None:
        raise ValueError("`edges` as a graph needs `ids`, the passages' nodes in it, got none")
    if given.edge_types is not None or given.edge_weights is not None:
        raise ValueError("`edge_types` and `edge_weights` of a graph are its edges' `type` and `weight`, got others")
    number = _number_of(given)
    found = []
    graph: Any = given.edges
    for source, target, attributes in graph.subgraph(list(number)).edges(data=True):
        if source != target:
            found.append((number[source], number[target], attributes))
    pairs = torch.tensor([pair[:2] for pair in found], dtype=torch.int64).reshape(-1, 2)
    types = [attributes.get("type") for *_, attributes in found]
    weights = [attributes.get("weight") for *_, attributes in found]
    return (
        pairs,
        [EDGE_TYPES[OTHER] if name is None else name for name in types],
        [1.0 if weight is None else weight for weight in weights],
    )


def _name_ids(edges: Sequence[Any]) -> bool:
    """Return whether pairs hold ids rather than numbers of passages: integers are always numbers."""
    try:
        kinds = set(map(type, chain.from_iterable(edges)))
    except TypeError:  # no pairs, which is refused as numbers
        return False
    return not all(issubclass(kind, float | Tensor) or hasattr(kind, "__index__") for kind in kinds)


def _numbers_of(edges: Sequence[Any], given: RerankInput) -> list[list[int]]:
    if given.ids is None:
        raise ValueError(f"`edges` between ids need `ids`, got none for {edges[0]!r}; or number the passages from 0")
    number = _number_of(given)
    for place, edge in enumerate(edges):
        if not isinstance(edge, list | tuple) or len(edge) != 2:
            raise ValueError(f"`edges` must be pairs, got {edge!r} at place {place}")
        for end in edge:
            if end not in number:
                raise ValueError(f"`edges` must join passages of `ids`, got {end!r} at place {place}")
    return [[number[end] for end in edge] for edge in edges]


def _number_of(given: RerankInput) -> dict[Any, int]:
    assert given.ids is not None
    return {name: place for place, name in enumerate(given.ids)}
