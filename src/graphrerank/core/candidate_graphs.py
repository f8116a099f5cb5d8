"""Packed batches of query-time graphs: each query's candidates and the edges among them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.core.model_inputs import ModelInputs
from graphrerank.utils.checks import UserError


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

    def select_edges(self, mask: Tensor) -> "CandidateGraphs":
        """Return the batch with some of its edges, by a mask ``[E]`` or by their positions."""
        return replace(
            self,
            edge_index=self.edge_index[:, mask],
            edge_attr=self.edge_attr[mask],
            edge_type=None if self.edge_type is None else self.edge_type[mask],
        )

    def select_nodes(self, mask: Tensor) -> "CandidateGraphs":
        """Return the batch with some of its candidates, by a mask ``[N]``, and the edges among them."""
        edges = self.select_edges(mask[self.edge_index].all(0))
        place = mask.long().cumsum(0)
        rows = {"degree", "node_vectors", "pair_vectors"}
        return replace(
            edges,
            x=self.x[mask],
            edge_index=place[edges.edge_index] - 1,
            ptr=torch.cat([place.new_zeros(1), place])[self.ptr],
            nodes=None if self.nodes is None else self.nodes[mask],
            inputs={name: tensor[mask] if name in rows else tensor for name, tensor in self.inputs.items()},
            relevance=None if self.relevance is None else self.relevance[mask],
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
