"""Edges of the corpus graph among each query's candidates."""

import torch
from torch import Tensor

from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.core.sparse_rows import row_slots
from graphrerank.corpus.corpus_graph import CorpusGraph
from graphrerank.corpus.edge_types import EDGE_TYPES, ENTITY
from graphrerank.corpus.entity_incidence import conceptual_edges
from graphrerank.utils.checks import UserError


def candidate_edges(
    graph: CorpusGraph, nodes: Tensor, *, keep_types: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Find all edges among each row's nodes: those of the corpus, and where it has entities the conceptual ones.

    Work grows with the sum of the candidates' degrees, memory never with the corpus.

    ``nodes`` are ``[B, K]`` int64, padded with -1, unique in a row. There is an edge for each type that joins two nodes
    if ``keep_types``, else one with the largest weight. Returns ``edge_index [2, E]`` in packed numbering, sorted by
    target, then by source's node number and type; ``edge_weight [E]``, where the edge ``j -> i`` carries the weight
    stored in row i; ``ptr [B + 1]``; and ``edge_type [E]`` int64 or None.
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
        return edge_index, weight, ptr, edge_type
    shared_index, shared_weight, _ = conceptual_edges(graph.entities, nodes)
    both, weights = torch.cat([edge_index, shared_index], dim=1), torch.cat([weight, shared_weight])
    wanted = both[1] * graph.num_nodes + packed[both[0]]
    if edge_type is not None:
        types = torch.cat([edge_type, torch.full_like(shared_index[0], ENTITY)])
        wanted = wanted * len(EDGE_TYPES) + types
    key, place = torch.unique(wanted, return_inverse=True)
    merged = both.new_empty(2, key.numel()).index_copy_(1, place, both)
    edge_type = None if edge_type is None else key % len(EDGE_TYPES)
    return merged, weights.new_zeros(key.numel()).scatter_reduce_(0, place, weights, "amax"), ptr, edge_type
