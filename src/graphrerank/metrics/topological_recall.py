"""Topological Recall: recall with partial credit for relevant nodes that are close to a retrieved node in the graph."""

import math

import torch
from torch import Tensor

from graphrerank.corpus import CorpusGraph
from graphrerank.utils.checks import UserError

#: Largest number of distances in memory at once, 32 MiB.
BLOCK_CELLS = 1 << 22


def topological_recall(graph: CorpusGraph, retrieved: Tensor, relevant: Tensor) -> Tensor:
    r"""Return the mean closeness of the relevant nodes to the retrieved nodes.

    .. math:: \mathrm{TR} = \frac{1}{|R|} \sum_{i \in R} \frac{1}{1 + u(i)}

    with :math:`u` of :func:`path_uncertainty`. A retrieved relevant node contributes 1, and an unreachable one
    contributes 0. Topological Recall equals recall over all retrieved nodes plus :func:`missed_topological_recall`.

    Source: FastInsight, Definition 7 and Corollary 1. *Differences from the paper:* see :func:`path_uncertainty`.

    Args:
        graph: Undirected corpus graph.
        retrieved: Retrieved nodes of each query in any order, ``[Q, K]`` int64, padded with -1.
        relevant: Relevant nodes of each query, ``[Q, R]`` int64, unique per row, padded with -1. Each query needs at
            least one.

    Returns:
        Topological Recall of each query, ``[Q]`` float64 in [0, 1].

    Raises:
        UserError: If a shape does not fit, a node is not in the graph, or a query has no relevant node or a repeated
            one.

    Example:
        >>> graph = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1]]))
        >>> topological_recall(graph, torch.tensor([[0, -1]]), torch.tensor([[0, 1, 2]]))  # 1, 1 / (1 + ln 2) and 0
        tensor([0.5302], dtype=torch.float64)
    """
    return _credit(path_uncertainty(graph, retrieved, relevant), relevant)


def missed_topological_recall(graph: CorpusGraph, retrieved: Tensor, relevant: Tensor) -> Tensor:
    r"""Return the part of Topological Recall that comes from relevant nodes that were not retrieved (MissTR).

    .. math:: \mathrm{MissTR} = \frac{1}{|R|} \sum_{i \in R \setminus N} \frac{1}{1 + u(i)}

    with :math:`u` of :func:`path_uncertainty` and :math:`N` the retrieved nodes.

    Source: FastInsight, Corollary 1.

    Args:
        graph: Undirected corpus graph.
        retrieved: Retrieved nodes of each query in any order, ``[Q, K]`` int64, padded with -1.
        relevant: Relevant nodes of each query, ``[Q, R]`` int64, unique per row, padded with -1.

    Returns:
        MissTR of each query, ``[Q]`` float64 in [0, 1], 0 if all relevant nodes were retrieved.

    Raises:
        UserError: If a shape does not fit, a node is not in the graph, or a query has no relevant node or a repeated
            one.

    Example:
        >>> graph = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1]]))
        >>> missed_topological_recall(graph, torch.tensor([[0, -1]]), torch.tensor([[0, 1, 2]]))  # 1 / (1 + ln 2) / 3
        tensor([0.1969], dtype=torch.float64)
    """
    uncertainty = path_uncertainty(graph, retrieved, relevant)
    return _credit(uncertainty.masked_fill(uncertainty == 0, torch.inf), relevant)


def path_uncertainty(graph: CorpusGraph, retrieved: Tensor, relevant: Tensor) -> Tensor:
    r"""Return the uncertainty of the path from each relevant node to the nearest retrieved node.

    .. math:: u(i) = \min_{j \in N} \sum_{k \in SP(j, i),\ k \neq i} \ln(1 + \deg k)

    with :math:`N` the retrieved nodes and :math:`SP(j, i)` the nodes of a path with the fewest edges, including both
    ends. The degree is that of the whole graph, ``graph.num_neighbours``. A retrieved node has :math:`u = 0`.

    Source: FastInsight, Definition 7. *Differences from the paper:* if several paths have the fewest edges, the paper
    does not say which one to use. This function uses the one with the smallest :math:`u`.

    All queries are processed at once, with one search from each relevant node. A search stops when no longer path can
    be better, so it rarely leaves the neighbourhood of the retrieved nodes.

    Args:
        graph: Undirected corpus graph.
        retrieved: Retrieved nodes of each query in any order, ``[Q, K]`` int64, padded with -1.
        relevant: Relevant nodes of each query, ``[Q, R]`` int64, unique per row, padded with -1.

    Returns:
        Uncertainty ``[Q, R]``, float64. It is inf for padding and for nodes without a path to a retrieved node.

    Raises:
        UserError: If a shape does not fit, a node is not in the graph, or a query has no relevant node or a repeated
            one.

    Example:
        >>> graph = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1]]))
        >>> path_uncertainty(graph, torch.tensor([[0, -1]]), torch.tensor([[0, 1, 2]]))  # ln 2 for node 1
        tensor([[0.0000, 0.6931,    inf]], dtype=torch.float64)
    """
    _check(graph, retrieved, relevant)
    result = torch.full(relevant.shape, torch.inf, dtype=torch.float64, device=relevant.device)
    row, column = torch.nonzero(relevant >= 0, as_tuple=True)
    size = max(1, BLOCK_CELLS // max(1, graph.num_nodes))
    for block in torch.split(torch.arange(row.numel(), device=row.device), size):
        rows, columns = row[block], column[block]
        result[rows, columns] = _search(graph, retrieved[rows], relevant[rows, columns])
    return result


def _search(graph: CorpusGraph, retrieved: Tensor, start: Tensor) -> Tensor:
    """Return the uncertainty ``[S]`` of the paths from ``start [S]`` to the nearest of ``retrieved [S, K]``."""
    num_nodes, searches = graph.num_nodes, torch.arange(start.numel(), device=start.device)
    cost = torch.log1p(graph.num_neighbours.double())  # cost of a node on a path
    wanted = torch.zeros(start.numel() * num_nodes, dtype=torch.bool, device=start.device)
    search, column = torch.nonzero(retrieved >= 0, as_tuple=True)
    wanted[search * num_nodes + retrieved[search, column]] = True
    frontier = searches * num_nodes + start  # index of each (search, node) in a flat matrix
    distance = torch.full(wanted.shape, torch.inf, dtype=torch.float64, device=start.device)
    distance[frontier] = 0.0
    best = torch.full(start.shape, torch.inf, dtype=torch.float64, device=start.device)
    best[wanted[frontier]] = 0.0
    while frontier.numel():
        search = torch.div(frontier, num_nodes, rounding_mode="floor")
        # Stop or continue a search as a whole. Without some of its nodes, it would reach others by longer paths.
        nearest = torch.full_like(best, torch.inf).scatter_reduce_(0, search, distance[frontier], "amin")
        frontier = frontier[(nearest + math.log(2) < best)[search]]  # each further node adds at least ln 2
        search = torch.div(frontier, num_nodes, rounding_mode="floor")
        origin, neighbour = graph.neighbours(frontier - search * num_nodes)
        cell = search[origin] * num_nodes + neighbour
        reached = distance[frontier][origin] + cost[neighbour]
        is_new = torch.isinf(distance[cell])
        cell, reached = cell[is_new], reached[is_new]
        distance.scatter_reduce_(0, cell, reached, "amin")
        frontier = torch.unique(cell)
        ends = frontier[wanted[frontier]]
        best.scatter_reduce_(0, torch.div(ends, num_nodes, rounding_mode="floor"), distance[ends], "amin")
    return best


def _credit(uncertainty: Tensor, relevant: Tensor) -> Tensor:
    return (1 / (1 + uncertainty)).sum(1) / (relevant >= 0).sum(1)


def _check(graph: CorpusGraph, retrieved: Tensor, relevant: Tensor) -> None:
    for name, nodes in (("retrieved", retrieved), ("relevant", relevant)):
        if nodes.ndim != 2 or len(nodes) != len(retrieved):
            raise UserError(
                f"`{name}` must have shape [{len(retrieved)}, ...], with one row per query, got {list(nodes.shape)}"
            )
        if nodes.numel() and not (int(nodes.min()) >= -1 and int(nodes.max()) < graph.num_nodes):
            raise UserError(
                f"`{name}` must be node indices from 0 to {graph.num_nodes - 1} or -1, got {int(nodes.min())} to "
                f"{int(nodes.max())}"
            )
    ascending = torch.sort(relevant, dim=1).values
    repeated = ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any(1)
    if (bad := repeated | ~(relevant >= 0).any(1)).any():
        row = int(bad.nonzero()[0])
        raise UserError(
            f"`relevant` must contain at least one node per query and no node twice, got {relevant[row].tolist()}"
        )
