"""The edges among one query's candidates, however they were given."""

import torch
from torch import Tensor

from graphrerank.data.enrichment import adjacency_edges, entity_incidence
from graphrerank.graphs import conceptual_edges
from graphrerank.inference.arrays import to_floats, to_integers
from graphrerank.inference.rerank_input import RerankInput

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-9, 1e9  # sums of such weights, and their shares, stay within float32


def input_edges(given: RerankInput) -> tuple[Tensor, Tensor]:
    """List directed edges, parallel ones too.

    Returns:
        ``[M, 2]`` int64 pairs (target, source) and ``[M]`` float32 weights.

    Raises:
        ValueError: Naming argument and place, if an edge leaves the passages, joins one with itself, or has a weight
            out of range; or if a document has a chunk number twice.

    Example:
        >>> edges, weight = input_edges(RerankInput("q", ["a", "b", "c"], edges=[(0, 2)], edge_weights=[3]))
        >>> edges.tolist(), weight.tolist()
        ([[0, 2], [2, 0]], [3.0, 3.0])
    """
    pairs, weights = [torch.zeros(0, 2, dtype=torch.int64)], [torch.zeros(0)]
    for undirected, weight in filter(None, (_own_edges(given), _contextual_edges(given))):
        pairs += [undirected, undirected.flip(1)]
        weights += [weight, weight]
    if given.entities is not None:
        incidence = entity_incidence(given.entities)
        edge_index, weight, _ = conceptual_edges(incidence, torch.arange(given.num_passages).unsqueeze(0))
        pairs.append(edge_index.flip(0).T)
        weights.append(weight)
    return torch.cat(pairs), torch.cat(weights)


def _own_edges(given: RerankInput) -> tuple[Tensor, Tensor] | None:
    if given.edges is None:
        return None
    edges = to_integers("edges", given.edges, (None, 2))
    last, pairs = given.num_passages - 1, edges.numpy()  # whose checks of so few numbers are the quicker ones
    if pairs.min(initial=0) < 0 or pairs.max(initial=0) > last:
        _refuse(edges, ((edges < 0) | (edges > last)).any(1), f"join passages 0 to {last}")
    if (pairs[:, 0] == pairs[:, 1]).any():
        _refuse(edges, edges[:, 0] == edges[:, 1], "join two different passages")
    if given.edge_weights is None:
        return edges, torch.ones(len(edges))
    weight = to_floats("edge_weights", given.edge_weights, (len(edges),))
    bad = (weight < SMALLEST_WEIGHT) | (weight > LARGEST_WEIGHT)
    if bad.any():
        place = int(bad.nonzero()[0])
        raise ValueError(
            f"`edge_weights` must lie in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}], "
            f"got {weight[place].item():g} at place {place}"
        )
    return edges, weight


def _refuse(edges: Tensor, bad: Tensor, needed: str) -> None:
    place = int(bad.nonzero()[0])
    raise ValueError(f"`edges` must each {needed}, got {edges[place].tolist()} at place {place}")


def _contextual_edges(given: RerankInput) -> tuple[Tensor, Tensor] | None:
    if given.doc_ids is None or given.chunk_ids is None:
        return None
    chunk_ids = to_integers("chunk_ids", given.chunk_ids, (given.num_passages,)).tolist()
    edges = adjacency_edges(list(given.doc_ids), chunk_ids)
    return edges, torch.ones(len(edges))
