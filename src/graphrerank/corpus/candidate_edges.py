"""Edges of the corpus graph among each query's candidates."""

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
    """Edges among the candidates of ``B`` queries, which are packed one query after the other.

    Attributes:
        edge_index: ``[2, E]`` int64 edges (source, target) in packed numbering, sorted by target.
        weight: ``[E]`` float32 weights.
        ptr: ``[B + 1]`` int64; the candidates of query ``b`` are ``ptr[b]`` to ``ptr[b + 1] - 1``.
        edge_type: ``[E]`` int64 numbers of :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`, or None where types are
            merged.
    """

    edge_index: Tensor
    weight: Tensor
    ptr: Tensor
    edge_type: Tensor | None


def candidate_edges(graph: CorpusGraph, nodes: Tensor, *, keep_types: bool = False) -> CandidateEdges:
    """Find all edges among each row's nodes: those of the corpus, and where it has entities the conceptual ones.

    Work grows with the sum of the candidates' degrees, memory never with the corpus.

    Args:
        graph: The corpus.
        nodes: ``[B, K]`` int64 node numbers, padded with -1, unique in a row.
        keep_types: Whether there is an edge for each type that joins two nodes. Otherwise there is one with the largest
            weight.

    Returns:
        The edges, sorted by target, then by the source's node number and by type. The edge ``j -> i`` carries the
        weight that is stored in row i.

    Raises:
        UserError: If a row has a node twice.
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
            f"`nodes` must hold a node once per query, got {graph.node_ids[repeated % graph.num_nodes]!r} twice "
            f"in row {repeated // graph.num_nodes}"
        )
    target, slot = row_slots(graph.indptr, packed, graph.row_stop)  # [sum of degrees] each
    wanted = row[target] * graph.num_nodes + graph.indices[slot]
    found = torch.searchsorted(key, wanted).clamp(max=max(key.numel() - 1, 0))
    hit = (key[found] == wanted).nonzero().flatten() if key.numel() else key
    edge_index = torch.stack([position[found[hit]], target[hit]])
    slot = slot[hit]
    edge_type = None
    if keep_types:
        place, weight, edge_type = graph.types_of(slot)
        edge_index = edge_index[:, place]
    else:
        weight = graph.weight[slot]
    if graph.entities is None:
        return CandidateEdges(edge_index, weight, ptr, edge_type)
    shared_index, shared_weight, _ = conceptual_edges(graph.entities, nodes)
    both, weights = torch.cat([edge_index, shared_index], dim=1), torch.cat([weight, shared_weight])
    wanted = both[1] * graph.num_nodes + packed[both[0]]
    if edge_type is not None:
        types = torch.cat([edge_type, torch.full_like(shared_index[0], ENTITY)])
        wanted = wanted * len(EDGE_TYPES) + types
    key, place = torch.unique(wanted, return_inverse=True)
    merged = both.new_empty(2, key.numel()).index_copy_(1, place, both)
    edge_type = None if edge_type is None else key % len(EDGE_TYPES)
    largest = weights.new_zeros(key.numel()).scatter_reduce_(0, place, weights, "amax")
    return CandidateEdges(merged, largest, ptr, edge_type)
