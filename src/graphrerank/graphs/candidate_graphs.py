"""Query-time graphs: for a whole batch of rankings, the corpus edges among each query's candidates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.graphs.algebra import graph_of_nodes
from graphrerank.graphs.corpus_graph import CorpusGraph
from graphrerank.graphs.edge_types import EDGE_TYPES, ENTITY
from graphrerank.graphs.entity_incidence import conceptual_edges
from graphrerank.graphs.model_inputs import ModelInputs
from graphrerank.graphs.sparse_rows import row_slots


@dataclass(frozen=True)
class CandidateGraphs:
    """A packed batch of candidate graphs, one per query; graph ``g`` owns the nodes ``ptr[g]:ptr[g + 1]``.

    ``inputs`` is what else models read: ``query_vectors [B, d]`` and ``node_vectors [N, d]``; ``degree [N]`` int64,
    each candidate's neighbours in the whole corpus; ``pair_vectors [N, h]``, a cross-encoder's vector of each candidate
    with its query.
    """

    x: Tensor  # `[N, F]` float32, the retriever's scores; column 0 is the base ranking's
    edge_index: Tensor  # `[2, E]` int64 within the packed batch, sorted by target; `j -> i` for each neighbour j of i
    edge_attr: Tensor  # `[E]` float32, edge weights
    ptr: Tensor  # `[B + 1]` int64
    nodes: Tensor | None = None  # `[N]` int64, each candidate's number in the corpus; None for candidates of no corpus
    inputs: Mapping[str, Tensor] = field(default_factory=dict)  # by name
    relevance: Tensor | None = None  # `[N]` float32 gains; None where unknown
    gains: Tensor | None = None  # `[B, R]` float32, gains of each query, also of other passages; padded with 0
    query_index: Tensor | None = None  # `[B]` int64, each query's number in its data set; None for queries of none
    # `[E]` int64, numbers of `EDGE_TYPES`: one edge for each type that joins two nodes. None where types are merged:
    # one edge, with the largest weight
    edge_type: Tensor | None = None

    @property
    def num_graphs(self) -> int:
        """Number of queries in the batch."""
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Candidates of all queries together."""
        return self.x.shape[0]

    def to(self, *args: Any, **kwargs: Any) -> "CandidateGraphs":
        """Move every tensor, as ``Tensor.to`` does."""
        return self._each(lambda tensor: tensor.to(*args, **kwargs))

    def pin_memory(self) -> "CandidateGraphs":
        """Copy every tensor to memory from which a GPU reads while others compute (a ``DataLoader`` calls this)."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "CandidateGraphs":
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        changed = {name: change(value) for name, value in held.items() if isinstance(value, Tensor)}
        return replace(self, **changed, inputs={name: change(tensor) for name, tensor in self.inputs.items()})

    def select_edges(self, kept: Tensor) -> "CandidateGraphs":
        """Return the batch with some of its edges, by a mask ``[E]`` or by their positions."""
        return replace(
            self,
            edge_index=self.edge_index[:, kept],
            edge_attr=self.edge_attr[kept],
            edge_type=None if self.edge_type is None else self.edge_type[kept],
        )

    def select_nodes(self, kept: Tensor) -> "CandidateGraphs":
        """Return the batch with some of its candidates, by a mask ``[N]``, and the edges among them."""
        edges = self.select_edges(kept[self.edge_index].all(0))
        place = kept.long().cumsum(0)
        rows = {"degree", "node_vectors", "pair_vectors"}
        return replace(
            edges,
            x=self.x[kept],
            edge_index=place[edges.edge_index] - 1,
            ptr=torch.cat([place.new_zeros(1), place])[self.ptr],
            nodes=None if self.nodes is None else self.nodes[kept],
            inputs={name: tensor[kept] if name in rows else tensor for name, tensor in self.inputs.items()},
            relevance=None if self.relevance is None else self.relevance[kept],
        )

    def model_inputs(self, inputs: ModelInputs) -> tuple[Tensor, ...]:
        """Return the arguments of a model's ``forward``; a ValueError if the batch was made without one of them."""
        base = {
            "base_features": self.x,
            "edge_index": self.edge_index,
            "edge_weight": self.edge_attr,
            "ptr": self.ptr,
            **dict.fromkeys(inputs.unread, self.x.new_zeros(0, 0)),
        }
        if self.edge_type is not None:
            base["edge_type"] = self.edge_type
        held = {**self.inputs, **base}
        if missing := [name for name in inputs.names if name not in held]:
            raise UserError(f"the batch must have {missing[0]!r} for a model that reads it, has {sorted(held)}")
        return tuple(held[name] for name in inputs.names)

    def to_padded(self, node_scores: Tensor, *, fill: float) -> Tensor:
        """Lay out one number per node, ``[N]``, as ``[B, K]`` with ``K`` the largest graph's size."""
        graph, slot, width = self._cells
        return node_scores.new_full((self.num_graphs, width), fill).index_put((graph, slot), node_scores)

    @cached_property
    def _cells(self) -> tuple[Tensor, Tensor, int]:
        """Row and column of each node in a padded matrix, and its width."""
        graph = graph_of_nodes(self.ptr, self.num_nodes)
        width = int(self.ptr.diff().max()) if self.num_graphs else 0
        return graph, torch.arange(self.num_nodes, device=self.ptr.device) - self.ptr[graph], width

    def order(self, scores: Tensor) -> Tensor:
        """Rank each graph's nodes by scores ``[N]``, ties by node number: positions ``[B, K]``, padded with -1."""
        if torch.isnan(scores).any():
            raise UserError("`scores` must not hold NaN")
        place = torch.arange(self.num_nodes, device=scores.device)
        order = place if self.nodes is None else torch.argsort(self.nodes, stable=True)
        order = order[torch.argsort(scores[order], descending=True, stable=True)]
        order = order[torch.argsort(self._cells[0][order], stable=True)]  # by graph, aligned with the packing
        return self.to_padded(order, fill=-1)


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
