"""Edges of a data set, source by source."""

from collections.abc import Sequence
from time import perf_counter

import torch
from torch import Tensor

from graphrerank.graphs.edge_types import OTHER


class EdgesBySource:
    """Collects edges, with the time since the source before."""

    def __init__(self) -> None:
        self._edges: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._seconds: dict[str, float] = {}
        self._since = perf_counter()

    def add(self, source: str, pairs: Tensor, weight: Tensor | None = None, edge_type: Tensor | int = OTHER) -> None:
        """Add pairs ``[M, 2]`` with weights ``[M]``, 1 when None, and their types."""
        weight = torch.ones(len(pairs)) if weight is None else weight
        self._edges[source] = (pairs, weight, torch.as_tensor(edge_type).expand(len(pairs)))
        self._seconds[source], self._since = perf_counter() - self._since, perf_counter()

    def has(self, edge_type: int) -> bool:
        """Return whether some edge is of a type."""
        return any(bool((types == edge_type).any()) for _, _, types in self._edges.values())

    def joined(self, *, without: Sequence[str] = ()) -> tuple[Tensor, Tensor, Tensor]:
        """Return pairs, weights and types of all sources but some."""
        edges = [edges for source, edges in self._edges.items() if source not in without]
        pairs, weight, edge_type = (torch.cat(parts) for parts in zip(*edges, strict=True))
        return pairs, weight, edge_type

    def counts(self) -> dict[str, int]:
        """Count the different pairs of each source."""
        return {
            source: len(torch.unique(pairs.sort(dim=1).values, dim=0)) for source, (pairs, _, _) in self._edges.items()
        }

    def costs(self, num_nodes: int) -> str:
        """Describe the edges and milliseconds that each source gave a passage."""
        return "; ".join(
            f"{source} {count / num_nodes:.2f} edges and {1000 * self._seconds[source] / num_nodes:.3f} ms a passage"
            for source, count in self.counts().items()
        )
