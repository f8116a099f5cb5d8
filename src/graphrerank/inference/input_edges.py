"""The edges among one query's candidates, however they were given."""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphrerank.graphs import conceptual_edges
from graphrerank.graphs.adjacency import adjacency_edges
from graphrerank.graphs.edge_types import ADJACENCY, ENTITY, OTHER, edge_type_of
from graphrerank.graphs.incidence import entity_incidence
from graphrerank.inference.arrays import to_floats, to_integers
from graphrerank.inference.edge_forms import numbered_edges
from graphrerank.inference.rerank_input import RerankInput

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-9, 1e9  # sums of such weights, and their shares, stay within float32


def input_edges(given: RerankInput) -> tuple[Tensor, Tensor, Tensor]:
    """List directed edges, parallel ones too.

    Returns:
        ``[M, 2]`` int64 pairs (target, source), ``[M]`` float32 weights, and ``[M]`` int64 types, numbers of
        :data:`~graphrerank.graphs.edge_types.EDGE_TYPES`.

    Raises:
        ValueError: Naming argument and place, if an edge leaves the passages, joins one with itself, has a weight out
            of range or a type that is no text; or if a document has a chunk number twice.

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
    numbered = numbered_edges(given)
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
