"""The router: each query takes the dense path, the graph path, or the fusion of both."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking
from graphrerank.operators.fusion import RANK_OFFSET, weighted_rank_fusion
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step, StepFactory
from graphrerank.utils.checks import UserError, check_counts, check_positive

ROUTES = ("dense", "graph", "fusion")  # the order of columns everywhere
DENSE, GRAPH, FUSION = range(3)


class ComplexityScorer(Protocol):
    """Scores how much a query needs the graph, with the thresholds of the paths."""

    low: float  # up to this score a query takes the dense path
    high: float  # from this score on a query takes the graph path

    def score(self, texts: Sequence[str]) -> Tensor:
        """Return s(q) of each query: ``[B]`` in [0, 1]."""


class Router(Step):
    r"""Retrieve each query on the path that an adapter chooses, one batch per path.

    A query of the fusion path takes both other paths, whose rankings are fused by
    :func:`~graphrerank.operators.fusion.weighted_rank_fusion` with the weights :math:`1 - s(q)` and :math:`s(q)`.

    Source: "EA-GraphRAG", 2026, Algorithm 1, Eqs. (2), (8) and (10). The router is a first step: it passes on the
    rankings of the paths and the number of encoded pairs, but no vectors or features of nodes.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        adapter: ComplexityScorer,  # EA-GraphRAG's complexity adapter, or another
        dense: Sequence[StepFactory],  # of the dense path
        graph: Sequence[StepFactory],  # of the graph path
        rank_offset: float = RANK_OFFSET,  # `k` of Eq. (8), positive
        fusion_depth: int | None = None,  # `K` of lines 14 to 18: passages that are fused; the paper: 5; None: budget
    ) -> None:
        check_counts(fusion_depth=fusion_depth)
        check_positive(rank_offset=rank_offset)
        if not adapter.low < adapter.high:
            raise UserError(f"`adapter` must have `low` below `high`, got {adapter.low} and {adapter.high}")
        self.rank_offset, self.fusion_depth = rank_offset, fusion_depth
        self._resources = resources
        self._adapter = adapter
        self._dense = resources.build(dense, "dense")
        self._graph = resources.build(graph, "graph")

    def run(self, state: RetrievalState) -> RetrievalState:
        """Score the queries, retrieve path by path, and restore the order of the queries."""
        device = state.nodes.device
        with self._resources.clock("route"):
            complexity = self._adapter.score(state.queries.texts).to(device)
            routes = choose_routes(complexity, self._adapter.low, self._adapter.high)
        shape = (len(state.queries), self._resources.budget)
        nodes = torch.full(shape, -1, dtype=torch.int64, device=device)
        scores = torch.full(shape, -torch.inf, device=device)
        num_encodings = state.num_encodings.clone()
        for route in sorted(set(routes.tolist())):
            rows = (routes == route).nonzero().flatten()
            ranking, path_encodings = self._retrieve(route, state.queries.select(rows), complexity[rows])
            ranking = ranking.padded(self._resources.budget)
            nodes[rows], scores[rows] = ranking.nodes, ranking.scores
            num_encodings[rows] += path_encodings
        width = int((nodes >= 0).sum(1).max()) if len(nodes) else 0
        routed = state.with_ranking(nodes[:, :width], scores[:, :width])
        return replace(routed, num_encodings=num_encodings, routes=routes)

    def _retrieve(self, route: int, queries: Queries, complexity: Tensor) -> tuple[Ranking, Tensor]:
        """Retrieve the queries of one path; return their ranking and the number of encoded pairs ``[b]``."""
        if route != FUSION:
            end = self._follow(self._graph if route == GRAPH else self._dense, queries)
            return end.ranking, end.num_encodings
        dense, graph = self._follow(self._dense, queries), self._follow(self._graph, queries)
        with self._resources.clock("fuse"):
            depth = min(self.fusion_depth or self._resources.budget, self._resources.budget)
            first, second = dense.top(depth).ranking, graph.top(depth).ranking
            fused = fuse_paths(first, second, complexity, top_k=depth, rank_offset=self.rank_offset)
        return fused, dense.num_encodings + graph.num_encodings

    def _follow(self, steps: Sequence[Step], queries: Queries) -> RetrievalState:
        state = RetrievalState.start(queries, self._resources.graph.device)
        for step in steps:
            state = step.run(state)
        return state.top(self._resources.budget)


def fuse_paths(
    dense: Ranking, graph: Ranking, scores: Tensor, *, top_k: int, rank_offset: float = RANK_OFFSET
) -> Ranking:
    """Fuse the rankings of both paths, weighted by the queries' complexity s(q), ``[B]`` in [0, 1]."""
    weights = torch.stack([1 - scores, scores], dim=1)
    return weighted_rank_fusion([dense, graph], weights, top_k=top_k, rank_offset=rank_offset)


def choose_routes(scores: Tensor, low: float, high: float) -> Tensor:
    r"""Choose each query's path by its score.

    .. math:: \mathrm{route}(q) = \mathrm{graph}\ (s \ge \tau_H),\ \mathrm{dense}\ (s \le \tau_L),\ \mathrm{fusion}

    Source: "EA-GraphRAG", 2026, Eq. (2).

    Scores ``[n]`` are s(q) in [0, 1]. Returns ``[n]`` int64 numbers of :data:`ROUTES`.

    Example:
        >>> [ROUTES[route] for route in choose_routes(torch.tensor([0.1, 0.5, 0.9]), 0.2, 0.8)]
        ['dense', 'fusion', 'graph']
    """
    if not low < high:
        raise UserError(f"`low` must be below `high`, got {low} and {high}")
    scores = scores.double()  # a threshold is a double, and would be rounded to a neighbouring score
    return torch.where(scores <= low, DENSE, torch.where(scores >= high, GRAPH, FUSION))


def route_shares(routes: Tensor) -> dict[str, float]:
    """Return the share of the queries on each path, given ``routes [n]``, int64 numbers of :data:`ROUTES`."""
    counts = torch.bincount(routes, minlength=len(ROUTES)).tolist()
    return {name: count / max(1, len(routes)) for name, count in zip(ROUTES, counts, strict=True)}
