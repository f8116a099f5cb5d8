"""Route each query to dense retrieval, to graph retrieval, or to a fusion of both."""

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

ROUTES = ("dense", "graph", "fusion")  # names of the paths; the index of a name is the number of its path
DENSE, GRAPH, FUSION = range(3)


class ComplexityScorer(Protocol):
    """Estimate the complexity of queries, which determines their path.

    Attributes:
        low: Largest complexity for which a query takes the dense path.
        high: Smallest complexity for which a query takes the graph path.
    """

    low: float
    high: float

    def score(self, texts: Sequence[str]) -> Tensor:
        """Return the complexity :math:`s(q)` of each query, ``[B]`` in [0, 1].

        Args:
            texts: Texts of ``B`` queries.
        """


class Router(Step):
    r"""Retrieve each query on a path that is chosen by its complexity.

    On the fusion path, the rankings of both other paths are fused by
    :func:`~graphrerank.operators.fusion.weighted_rank_fusion` with the weights :math:`1 - s(q)` and :math:`s(q)`.

    A router must be the first step of a pipeline. The state after it contains the rankings of the paths and the numbers
    of encoded pairs, but no vectors or features of nodes.

    Source: "EA-GraphRAG", 2026, Algorithm 1, Eqs. (2), (8) and (10).

    Args:
        resources: Resources of the pipeline.
        adapter: Estimator of the complexity, such as EA-GraphRAG's complexity adapter.
        dense: Factories of the steps of the dense path.
        graph: Factories of the steps of the graph path.
        rank_offset: Offset :math:`k` of Eq. (8). Must be positive.
        fusion_depth: Number of passages of each path to fuse (:math:`K` in lines 14 to 18 of Algorithm 1; 5 in the
            paper). If None, the budget of the pipeline.

    Raises:
        UserError: If a number is not positive, or if ``adapter.low`` is not below ``adapter.high``.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        adapter: ComplexityScorer,
        dense: Sequence[StepFactory],
        graph: Sequence[StepFactory],
        rank_offset: float = RANK_OFFSET,
        fusion_depth: int | None = None,
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
        """Retrieve the queries of each path in one batch, and restore the order of the queries.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
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
        """Return the ranking of the queries of one path, and their numbers of encoded pairs ``[b]``."""
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
    """Fuse the rankings of the dense path and the graph path with the weights :math:`1 - s(q)` and :math:`s(q)`.

    Args:
        dense: Ranking ``[B, K]`` of the dense path.
        graph: Ranking ``[B, K]`` of the graph path.
        scores: Complexities :math:`s(q)` of the queries, ``[B]`` in [0, 1].
        top_k: Number of passages to return per query.
        rank_offset: Offset that is added to each rank. Must be positive.

    Returns:
        Fused ranking ``[B, top_k]``.
    """
    weights = torch.stack([1 - scores, scores], dim=1)
    return weighted_rank_fusion([dense, graph], weights, top_k=top_k, rank_offset=rank_offset)


def choose_routes(scores: Tensor, low: float, high: float) -> Tensor:
    r"""Choose the path of each query by its complexity.

    .. math:: \mathrm{route}(q) = \begin{cases} \mathrm{graph} & s(q) \ge \tau_H \\ \mathrm{dense} & s(q) \le \tau_L \\
        \mathrm{fusion} & \text{otherwise} \end{cases}

    Source: "EA-GraphRAG", 2026, Eq. (2).

    Args:
        scores: Complexities :math:`s(q)`, ``[n]`` in [0, 1].
        low: Threshold :math:`\tau_L` of the dense path.
        high: Threshold :math:`\tau_H` of the graph path.

    Returns:
        ``[n]`` int64 indices into :data:`ROUTES`.

    Raises:
        UserError: If ``low`` is not below ``high``.

    Example:
        >>> [ROUTES[route] for route in choose_routes(torch.tensor([0.1, 0.5, 0.9]), 0.2, 0.8)]
        ['dense', 'fusion', 'graph']
    """
    if not low < high:
        raise UserError(f"`low` must be below `high`, got {low} and {high}")
    scores = scores.double()  # in float32, a threshold could be rounded to the value of a neighbouring score
    return torch.where(scores <= low, DENSE, torch.where(scores >= high, GRAPH, FUSION))


def route_shares(routes: Tensor) -> dict[str, float]:
    """Return the fraction of queries on each path.

    Args:
        routes: ``[n]`` int64 indices into :data:`ROUTES`.

    Returns:
        Fraction by name of the path.
    """
    counts = torch.bincount(routes, minlength=len(ROUTES)).tolist()
    return {name: count / max(1, len(routes)) for name, count in zip(ROUTES, counts, strict=True)}
