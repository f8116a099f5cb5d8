"""The paths that a query can take, and how its score chooses among them."""

import torch
from torch import Tensor

from graphrerank.checks import UserError

ROUTES = ("dense", "graph", "fusion")  # the order of columns everywhere
DENSE, GRAPH, FUSION = range(3)


def choose_routes(scores: Tensor, low: float, high: float) -> Tensor:
    r"""Choose each query's path by its score.

    .. math:: \mathrm{route}(q) = \mathrm{graph}\ (s \ge \tau_H),\ \mathrm{dense}\ (s \le \tau_L),\ \mathrm{fusion}

    Source: "EA-GraphRAG", 2026, Eq. (2).

    Scores ``[n]`` are s(q) in [0, 1]; with ``low`` (:math:`\tau_L`) below 0 nothing is dense, with ``high``
    (:math:`\tau_H`) above 1 nothing is of the graph alone. Returns ``[n]`` int64 numbers of :data:`ROUTES`.

    Example:
        >>> [ROUTES[route] for route in choose_routes(torch.tensor([0.1, 0.5, 0.9]), 0.2, 0.8)]
        ['dense', 'fusion', 'graph']
    """
    if not low < high:
        raise UserError(f"`low` must be below `high`, got {low} and {high}")
    scores = scores.double()  # a threshold is a double, and would be rounded to a neighbouring score
    return torch.where(scores <= low, DENSE, torch.where(scores >= high, GRAPH, FUSION))


def route_shares(routes: Tensor) -> dict[str, float]:
    """Return the share of the queries on each path, given ``routes [n]``, int64 numbers of :data:`ROUTES`.

    Example:
        >>> route_shares(torch.tensor([0, 2, 0, 1]))
        {'dense': 0.5, 'graph': 0.25, 'fusion': 0.25}
    """
    counts = torch.bincount(routes, minlength=len(ROUTES)).tolist()
    return {name: count / max(1, len(routes)) for name, count in zip(ROUTES, counts, strict=True)}
