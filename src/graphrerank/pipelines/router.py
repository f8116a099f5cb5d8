"""The router: each query takes the dense path, the graph path, or the fusion of both."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from graphrerank.graphs import Queries, Ranking
from graphrerank.graphs.routes import FUSION, GRAPH, choose_routes
from graphrerank.operators import weighted_rank_fusion
from graphrerank.operators.fusion import RANK_OFFSET
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Step, StepFactory, Workplace


class ComplexityScorer(Protocol):
    """Tells how much a query needs the graph, and from where on it takes which path.

    Attributes:
        low: Up to this score a query takes the dense path.
        high: From this score on it takes the graph path.
    """

    low: float
    high: float

    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries: s(q), ``[B]`` in [0, 1]."""


class Router:
    r"""Retrieve each query on the path that the adapter chooses for it; the three groups are three batches.

    A query of the fusion path takes both others, and their rankings are put together by
    :func:`~graphrerank.operators.weighted_rank_fusion` with the weights :math:`1 - s(q)` and :math:`s(q)`.

    Source: "EA-GraphRAG", 2026, Algorithm 1, Eqs. (2), (8) and (10). It is a first step. Of what the paths find the
    ranking goes on and how many pairs were read; what they knew of nodes beside does not.

    Args:
        workplace: What the pipeline's steps share, and those of the paths.
        adapter: Scores queries, as ``graphrerank.inference.AdapterScorer``.
        dense: Steps of the dense path.
        graph: Steps of the graph path.
        rank_offset: :math:`k` of Eq. (8), positive.

    Raises:
        ValueError: If a path has no step, a step cannot be built, ``rank_offset`` is not positive, or the adapter's
            thresholds are not in order.
    """

    def __init__(
        self,
        workplace: Workplace,
        *,
        adapter: ComplexityScorer,
        dense: Sequence[StepFactory],
        graph: Sequence[StepFactory],
        rank_offset: float = RANK_OFFSET,
    ) -> None:
        for name, steps in (("dense", dense), ("graph", graph)):
            if not steps:
                raise ValueError(f"`{name}` must hold a step, got none")
        if not rank_offset > 0:
            raise ValueError(f"`rank_offset` must be positive, got {rank_offset}")
        if not adapter.low < adapter.high:
            raise ValueError(f"`adapter` must have `low` below `high`, got {adapter.low} and {adapter.high}")
        self.rank_offset = rank_offset
        self._workplace = workplace
        self._adapter = adapter
        self._dense = [build(workplace) for build in dense]
        self._graph = [build(workplace) for build in graph]

    def run(self, state: RetrievalState) -> RetrievalState:
        """Score the queries, retrieve group by group, and put the results back in order."""
        device = state.nodes.device
        with self._workplace.clock("route"):
            scores = self._adapter.score(state.queries.texts).to(device)
            routes = choose_routes(scores, self._adapter.low, self._adapter.high)
        shape = (len(state.queries), self._workplace.budget)
        nodes = torch.full(shape, -1, dtype=torch.int64, device=device)
        found = torch.full(shape, -torch.inf, device=device)
        read = torch.zeros_like(state.num_encodings)
        for route in sorted(set(routes.tolist())):
            rows = (routes == route).nonzero().flatten()
            ranking, num_encodings = self._retrieve(route, state.queries.select(rows), scores[rows])
            width = ranking.nodes.shape[1]
            nodes[rows, :width], found[rows, :width] = ranking.nodes, ranking.scores
            read[rows] = num_encodings
        width = int((nodes >= 0).sum(1).max()) if len(nodes) else 0
        routed = state.with_ranking(nodes[:, :width], found[:, :width])
        return replace(routed, num_encodings=state.num_encodings + read, routes=routes)

    def _retrieve(self, route: int, queries: Queries, scores: Tensor) -> tuple[Ranking, Tensor]:
        """Retrieve one group: its ranking, and ``[b]`` pairs read."""
        if route != FUSION:
            end = self._follow(self._graph if route == GRAPH else self._dense, queries)
            return end.ranking, end.num_encodings
        dense, graph = self._follow(self._dense, queries), self._follow(self._graph, queries)
        with self._workplace.clock("fuse"):
            budget, offset = self._workplace.budget, self.rank_offset
            fused = fuse_paths(dense.ranking, graph.ranking, scores, top_k=budget, rank_offset=offset)
        return fused, dense.num_encodings + graph.num_encodings

    def _follow(self, steps: Sequence[Step], queries: Queries) -> RetrievalState:
        state = RetrievalState.start(queries, self._workplace.graph.device)
        for step in steps:
            state = step.run(state)
        return state.top(self._workplace.budget)


def fuse_paths(
    dense: Ranking, graph: Ranking, scores: Tensor, *, top_k: int, rank_offset: float = RANK_OFFSET
) -> Ranking:
    """Fuse the rankings of both paths by the queries' scores.

    Source: "EA-GraphRAG", 2026, Eqs. (8) and (9).

    Args:
        dense: ``[B, K]``.
        graph: ``[B, K']``.
        scores: ``[B]``, s(q) in [0, 1].
        top_k: Nodes to keep.
        rank_offset: :math:`k`.
    """
    weights = torch.stack([1 - scores, scores], dim=1)
    return weighted_rank_fusion([dense, graph], weights, top_k=top_k, rank_offset=rank_offset)
