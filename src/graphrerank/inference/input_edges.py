"""The edges among one query's candidates, in all accepted forms."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor

from graphrerank.graphs import conceptual_edges
from graphrerank.graphs.adjacency import adjacency_edges
from graphrerank.graphs.edge_types import ADJACENCY, EDGE_TYPES, ENTITY, OTHER, edge_type_of
from graphrerank.graphs.entity_incidence import entity_incidence
from graphrerank.inference.arrays import Numbers, to_floats, to_integers
from graphrerank.inference.rerank_input import RerankInput

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-9, 1e9  # sums of such weights, and their shares, stay within float32
Numbered = tuple[Tensor, Sequence[str] | None, Numbers | None]  # [M, 2] int64, M types, [M] weights


def input_edges(given: RerankInput) -> tuple[Tensor, Tensor, Tensor]:
    """List directed edges, parallel ones too: ``[M, 2]`` int64 pairs (target, source), weights and types ``[M]``.

    Types are numbers of :data:`~graphrerank.graphs.edge_types.EDGE_TYPES`. An edge that leaves the passages, joins one
    with itself, or has a weight out of range is a ValueError that names argument and place.

    Example:
        >>> given = RerankInput("q", ["a", "b", "c"], edges=[(0, 2)], edge_weights=[3], edge_types=["citation"])
        >>> [part.tolist() for part in input_edges(given)]
        [[[0, 2], [2, 0]], [3.0, 3.0], [0, 0]]
    """
    none = torch.zeros(0, dtype=torch.int64)
    pairs, weights, types = [none.reshape(0, 2)], [none.float()], [none]
    for undirected, weight, edge_type in filter(None, (_own_edges(given), _contextual_edges(given))):
        pairs += [undirected, undirected.flip(1)]
        weights += [weight, weight]
        types += [edge_type, edge_type]
    if given.entities is not None:
        incidence = entity_incidence(given.entities)
        edge_index, weight, _ = conceptual_edges(incidence, torch.arange(given.num_passages).unsqueeze(0))
        pairs.append(edge_index.flip(0).T)
        weights.append(weight)
        types.append(torch.full_like(edge_index[0], ENTITY))
    return torch.cat(pairs), torch.cat(weights), torch.cat(types)


def _own_edges(given: RerankInput) -> tuple[Tensor, Tensor, Tensor] | None:
    numbered = _numbered_edges(given)
    if numbered is None:
        return None
    edges, edge_types, edge_weights = numbered
    last, pairs = given.num_passages - 1, edges.numpy()  # whose checks of so few numbers are the quicker ones
    if pairs.min(initial=0) < 0 or pairs.max(initial=0) > last:
        _refuse(edges, ((edges < 0) | (edges > last)).any(1), f"join passages 0 to {last}")
    if (pairs[:, 0] == pairs[:, 1]).any():
        _refuse(edges, edges[:, 0] == edges[:, 1], "join two different passages")
    edge_type = _types_of(edge_types, len(edges))
    if edge_weights is None:
        return edges, torch.ones(len(edges)), edge_type
    weight = to_floats("edge_weights", edge_weights, (len(edges),))
    bad = (weight < SMALLEST_WEIGHT) | (weight > LARGEST_WEIGHT)
    if bad.any():
        place = int(bad.nonzero()[0])
        raise ValueError(
            f"`edge_weights` must lie in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}], "
            f"got {weight[place].item():g} at place {place}"
        )
    return edges, weight, edge_type


def _types_of(names: Sequence[str] | None, count: int) -> Tensor:
    """Return the number of each edge's type, ``[M]``."""
    if names is None:
        return torch.full((count,), OTHER)
    came = type(names).__name__ if isinstance(names, str) or not hasattr(names, "__len__") else len(names)
    if came != count:
        raise ValueError(f"`edge_types` must have one name per edge ({count}), got {came}")
    for place, name in enumerate(names):
        if not isinstance(name, str):
            raise ValueError(f"`edge_types` must hold names, got {type(name).__name__} at place {place}")
    number = {name: edge_type_of(name) for name in set(names)}
    return torch.tensor([number[name] for name in names], dtype=torch.int64)


def _refuse(edges: Tensor, bad: Tensor, needed: str) -> None:
    place = int(bad.nonzero()[0])
    raise ValueError(f"`edges` must each {needed}, got {edges[place].tolist()} at place {place}")


def _contextual_edges(given: RerankInput) -> tuple[Tensor, Tensor, Tensor] | None:
    if given.doc_ids is None or given.chunk_ids is None:
        return None
    chunk_ids = to_integers("chunk_ids", given.chunk_ids, (given.num_passages,)).tolist()
    edges = adjacency_edges(list(given.doc_ids), chunk_ids)
    return edges, torch.ones(len(edges)), torch.full((len(edges),), ADJACENCY)


def _numbered_edges(given: RerankInput) -> Numbered | None:
    """Return the caller's edges as numbered pairs, with types and weights if there are any; None for no edges."""
    types, weights, edges = given.edge_types, given.edge_weights, cast("Any", given.edges)
    if given.edge_index is not None:
        index = to_integers("edge_index", cast("Any", given.edge_index), (2, None))
        loops = (index[0] == index[1]).nonzero()
        if len(loops) and (types is not None or weights is not None):
            raise ValueError(
                f"`edge_index` with weights or types must have no self-loop, got one at place {loops[0, 0]}"
            )
        return index.T[index[0] != index[1]].contiguous(), types, weights
    if edges is None:
        return None
    number = {} if given.ids is None else {name: place for place, name in enumerate(given.ids)}
    if hasattr(edges, "nodes") and hasattr(edges, "edges"):
        return _from_graph(given, number)
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
            edges = _numbers_of(edges, number)
    return to_integers("edges", edges, (None, 2)), types, weights


def _from_graph(given: RerankInput, number: Mapping[Any, int]) -> Numbered:
    """Take the edges of a networkx graph among the passages; the graph may be the whole corpus's."""
    if given.ids is None:
        raise ValueError("`edges` as a graph needs `ids`, the passages' nodes in it, got none")
    if given.edge_types is not None or given.edge_weights is not None:
        raise ValueError("`edge_types` and `edge_weights` of a graph are its edges' `type` and `weight`, got others")
    graph: Any = given.edges
    found = [edge for edge in graph.subgraph(list(number)).edges(data=True) if edge[0] != edge[1]]
    pairs = [(number[source], number[target]) for source, target, _ in found]
    types, weights = ([attributes.get(name) for *_, attributes in found] for name in ("type", "weight"))
    return (
        torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
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


def _numbers_of(edges: Sequence[Any], number: Mapping[Any, int]) -> list[list[int]]:
    if not number:
        raise ValueError(f"`edges` between ids need `ids`, got none for {edges[0]!r}; or number the passages from 0")
    for place, edge in enumerate(edges):
        if not isinstance(edge, list | tuple) or len(edge) != 2:
            raise ValueError(f"`edges` must be pairs, got {edge!r} at place {place}")
        for end in edge:
            if end not in number:
                raise ValueError(f"`edges` must join passages of `ids`, got {end!r} at place {place}")
    return [[number[end] for end in edge] for edge in edges]
