"""Packed batches of candidate graphs: the candidates of each query and the edges among them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.core.model_inputs import ModelInputs
from graphrerank.utils.checks import UserError


@dataclass  # not frozen, because Lightning's precision plugins assign the converted tensors to a copy
class CandidateGraphs:
    """Packed batch of candidate graphs, one per query. The nodes of graph ``g`` are ``ptr[g]:ptr[g + 1]``.

    Treat a batch as immutable, and change copies with ``dataclasses.replace``.

    Attributes:
        x: Scores of the retriever, ``[N, F]`` float32. Column 0 is the base score.
        edge_index: Edges ``[2, E]`` int64 within the packed batch, sorted by target, with an edge ``j -> i`` for each
            neighbour j of i.
        edge_attr: Edge weights ``[E]``, float32.
        ptr: Boundaries of the graphs, ``[B + 1]`` int64.
        nodes: Index of each candidate in the corpus, ``[N]`` int64. None if there is no corpus.
        inputs: Further inputs of the model by name: ``query_vectors [B, d]``, ``node_vectors [N, d]``, ``degree [N]``
            int64 (number of neighbours of each candidate in the whole corpus), ``pair_vectors [N, h]``
            (cross-encoder vectors of query and candidate), and ``token_states [T, h]`` with ``token_ptr [N + 1]`` int64
            (states of the tokens of each pair, those of candidate ``n`` in ``token_ptr[n]:token_ptr[n + 1]``).
        relevance: Relevance gain of each candidate, ``[N]`` float32. None if unknown.
        gains: Gains of all relevant passages of each query, including those that are not candidates, ``[B, R]``
            float32, padded with 0. None if unknown.
        query_index: Index of each query in its data set, ``[B]`` int64. None if there is no data set.
        edge_type: Index of the type of each edge in ``EDGE_TYPES``, ``[E]`` int64, with one edge per type that connects
            two nodes. None if the types are merged into one edge with the largest weight.
        teacher_scores: Score of each candidate by the teacher of a distillation, ``[N]`` float32, NaN for candidates
            that it has not scored. None without a teacher.
    """

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor
    ptr: Tensor
    nodes: Tensor | None = None
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    relevance: Tensor | None = None
    gains: Tensor | None = None
    query_index: Tensor | None = None
    edge_type: Tensor | None = None
    teacher_scores: Tensor | None = None

    @property
    def num_graphs(self) -> int:
        """Number of queries in the batch."""
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Number of candidates of all queries."""
        return self.x.shape[0]

    def to(self, *args: Any, **kwargs: Any) -> "CandidateGraphs":
        """Return the batch with every tensor moved or converted.

        Args:
            args: Positional arguments of ``torch.Tensor.to``.
            kwargs: Keyword arguments of ``torch.Tensor.to``.
        """
        return self._each(lambda tensor: tensor.to(*args, **kwargs))

    def pin_memory(self) -> "CandidateGraphs":
        """Return the batch in pinned memory, for asynchronous copies to a GPU. A ``DataLoader`` calls this method."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "CandidateGraphs":
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        changed = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **changed, inputs={name: change(tensor) for name, tensor in self.inputs.items()})

    def select_edges(self, mask: Tensor) -> "CandidateGraphs":
        """Return the batch with a subset of its edges.

        Args:
            mask: Boolean mask ``[E]`` of the edges to select, or their positions.
        """
        return replace(
            self,
            edge_index=self.edge_index[:, mask],
            edge_attr=self.edge_attr[mask],
            edge_type=None if self.edge_type is None else self.edge_type[mask],
        )

    def select_nodes(self, mask: Tensor) -> "CandidateGraphs":
        """Return the batch with a subset of its candidates and the edges among them.

        Args:
            mask: Boolean mask ``[N]`` of the candidates to select.

        Raises:
            UserError: If the batch has states of tokens, which cannot be selected by candidate.
        """
        if "token_states" in self.inputs:
            raise UserError("candidates of a batch with `token_states` cannot be selected; disable the augmentation")
        edges = self.select_edges(mask[self.edge_index].all(0))
        num_selected = mask.long().cumsum(0)  # up to and including each candidate
        inputs_per_candidate = {"degree", "node_vectors", "pair_vectors"}
        return replace(
            edges,
            x=self.x[mask],
            edge_index=num_selected[edges.edge_index] - 1,
            ptr=torch.cat([num_selected.new_zeros(1), num_selected])[self.ptr],
            nodes=None if self.nodes is None else self.nodes[mask],
            inputs={
                name: tensor[mask] if name in inputs_per_candidate else tensor for name, tensor in self.inputs.items()
            },
            relevance=None if self.relevance is None else self.relevance[mask],
            teacher_scores=None if self.teacher_scores is None else self.teacher_scores[mask],
        )

    def model_inputs(self, inputs: ModelInputs) -> tuple[Tensor, ...]:
        """Return the arguments of a model's ``forward``.

        Args:
            inputs: Inputs that the model declares.

        Returns:
            Tensors in the order of ``inputs.names``.

        Raises:
            UserError: If the batch lacks an input.
        """
        base = {
            "base_features": self.x,
            "edge_index": self.edge_index,
            "edge_weight": self.edge_attr,
            "ptr": self.ptr,
            **dict.fromkeys(inputs.unread, self.x.new_zeros(0, 0)),
        }
        if self.edge_type is not None:
            base["edge_type"] = self.edge_type
        available = {**self.inputs, **base}
        if missing := [name for name in inputs.names if name not in available]:
            raise UserError(f"the model needs the input {missing[0]!r}, but the batch only has {sorted(available)}")
        return tuple(available[name] for name in inputs.names)

    def to_padded(self, node_scores: Tensor, *, fill: float) -> Tensor:
        """Arrange one number per node in a padded matrix with one row per query.

        Args:
            node_scores: Numbers ``[N]``.
            fill: Value of the padding.

        Returns:
            Matrix ``[B, K]``, with ``K`` the number of nodes of the largest graph.
        """
        graph, slot, width = self._cells
        return node_scores.new_full((self.num_graphs, width), fill).index_put((graph, slot), node_scores)

    @cached_property
    def _cells(self) -> tuple[Tensor, Tensor, int]:
        """Row and column of each node in a padded matrix, and the width of the matrix."""
        graph = graph_of_nodes(self.ptr, self.num_nodes)
        width = int(self.ptr.diff().max()) if self.num_graphs else 0
        return graph, torch.arange(self.num_nodes, device=self.ptr.device) - self.ptr[graph], width

    def order(self, scores: Tensor) -> Tensor:
        """Rank the nodes of each graph by score, with ties broken by corpus index.

        Args:
            scores: Scores ``[N]``, which must not be NaN.

        Returns:
            Positions of the nodes in the packed batch, ``[B, K]``, best first, padded with -1.

        Raises:
            UserError: If a score is NaN.
        """
        if torch.isnan(scores).any():
            raise UserError("`scores` must not contain NaN")
        order = torch.arange(self.num_nodes, device=scores.device)
        if self.nodes is not None:
            order = torch.argsort(self.nodes, stable=True)
        order = order[torch.argsort(scores[order], descending=True, stable=True)]
        order = order[torch.argsort(self._cells[0][order], stable=True)]  # group by graph again
        return self.to_padded(order, fill=-1)
