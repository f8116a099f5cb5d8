"""Edges of the corpus graph among the candidates of each query."""

from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.core.sparse_rows import row_slots
from graphrerank.corpus.corpus_graph import CorpusGraph
from graphrerank.corpus.edge_types import EDGE_TYPES, ENTITY
from graphrerank.corpus.entity_incidence import conceptual_edges
from graphrerank.utils.checks import UserError


class CandidateEdges(NamedTuple):
    """Edges among the candidates of ``B`` queries in a packed batch.

    Attributes:
        edge_index: Edges (source, target) in packed numbering, ``[2, E]`` int64, sorted by target.
        weight: Weights ``[E]``, float32.
        ptr: Boundaries of the queries, ``[B + 1]`` int64. The candidates of query ``b`` are ``ptr[b]:ptr[b + 1]``.
        edge_type: Indices in :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`, ``[E]`` int64. None if the types are
            merged.
    """

    edge_index: Tensor
    weight: Tensor
    ptr: Tensor
    edge_type: Tensor | None


def candidate_edges(graph: CorpusGraph, nodes: Tensor, *, keep_types: bool = False) -> CandidateEdges:
    """Find all edges among the candidates of each query, including the conceptual edges of a corpus with entities.

    Time grows with the sum of the degrees of the candidates. Memory does not grow with the corpus.

    Args:
        graph: Corpus graph.
        nodes: Candidates ``[B, K]``, int64, unique per row, padded with -1.
        keep_types: Whether to return one edge per type that connects two nodes. Otherwise, one edge with the largest
            weight.

    Returns:
        Edges, sorted by target, then by source node and by type. The edge ``j -> i`` has the weight stored in row i.

    Raises:
        UserError: If a row contains a node twice.
    """
    valid = nodes >= 0
    ptr = torch.zeros(nodes.shape[0] + 1, dtype=torch.int64, device=nodes.device)
    ptr[1:] = valid.sum(1).cumsum(0)
    packed = nodes[valid]
    row = graph_of_nodes(ptr, len(packed))
    key, position = torch.sort(row * graph.num_nodes + packed)
    if (key[1:] == key[:-1]).any():
        repeated = int(key[1:][key[1:] == key[:-1]][0])
        raise UserError(
            f"`nodes` must be unique per query, got {graph.node_ids[repeated % graph.num_nodes]!r} twice "
            f"in row {repeated // graph.num_nodes}"
        )
    target, slot = row_slots(graph.indptr, packed, graph.row_stop)  # [sum of degrees] each
    wanted = row[target] * graph.num_nodes + graph.indices[slot]
    match = torch.searchsorted(key, wanted).clamp(max=max(key.numel() - 1, 0))
    hit = (key[match] == wanted).nonzero().flatten() if key.numel() else key
    edge_index = torch.stack([position[match[hit]], target[hit]])
    slot = slot[hit]
    edge_type = None
    if keep_types:
        index, weight, edge_type = graph.types_of(slot)
        edge_index = edge_index[:, index]
    else:
        weight = graph.weight[slot]
    if graph.entities is None:
        return CandidateEdges(edge_index, weight, ptr, edge_type)
    shared_index, shared_weight, _ = conceptual_edges(graph.entities, nodes)
    both = torch.cat([edge_index, shared_index], dim=1)
    weights = torch.cat([weight, shared_weight])
    edge_key = both[1] * graph.num_nodes + packed[both[0]]  # equal for parallel edges
    if edge_type is not None:
        types = torch.cat([edge_type, torch.full_like(shared_index[0], ENTITY)])
        edge_key = edge_key * len(EDGE_TYPES) + types
    key, group = torch.unique(edge_key, return_inverse=True)
    merged = both.new_empty(2, key.numel()).index_copy_(1, group, both)
    edge_type = None if edge_type is None else key % len(EDGE_TYPES)
    largest = weights.new_zeros(key.numel()).scatter_reduce_(0, group, weights, "amax")
    return CandidateEdges(merged, largest, ptr, edge_type)
