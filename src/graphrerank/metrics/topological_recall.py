"""Topological Recall: recall with partial credit for relevant nodes that are near a retrieved one in the graph."""

import math

import torch
from torch import Tensor

from graphrerank.corpus import CorpusGraph
from graphrerank.utils.checks import UserError

BLOCK_CELLS = 1 << 22  # distances held at once, 32 MiB


def topological_recall(graph: CorpusGraph, retrieved: Tensor, relevant: Tensor) -> Tensor:
    r"""Average over the relevant nodes how near they are to the retrieved ones.

    .. math:: \mathrm{TR} = \frac{1}{|R|} \sum_{i \in R} \frac{1}{1 + u(i)}

    with :math:`u` of :func:`path_uncertainty`: a retrieved node counts 1, an unreachable one 0. Equal to recall over
    all retrieved nodes plus :func:`missed_topological_recall`.

    Source: FastInsight, Definition 7 and Corollary 1. *Where we differ:* see :func:`path_uncertainty`.

    Args:
        graph: The corpus, undirected.
        retrieved: ``[Q, K]`` int64 retrieved nodes of each query in any order, padded with -1.
        relevant: ``[Q, R]`` int64 relevant nodes of each query, each once, padded with -1; one at least.

    Returns:
        ``[Q]`` float64, in [0, 1].

    Example:
        >>> graph = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1]]))
        >>> topological_recall(graph, torch.tensor([[0, -1]]), torch.tensor([[0, 1, 2]]))  # 1, 1 / (1 + ln 2) and 0
        tensor([0.5302], dtype=torch.float64)
    """
    return _credit(path_uncertainty(graph, retrieved, relevant), relevant)


def missed_topological_recall(graph: CorpusGraph, retrieved: Tensor, relevant: Tensor) -> Tensor:
    r"""Give the part of Topological Recall that comes from relevant nodes that were not retrieved: MissTR.

    .. math:: \mathrm{MissTR} = \frac{1}{|R|} \sum_{i \in R \setminus N} \frac{1}{1 + u(i)}

    Source: FastInsight, Corollary 1. Arguments and result as of :func:`topological_recall`; 0 where all are found.
    """
    uncertainty = path_uncertainty(graph, retrieved, relevant)
    return _credit(uncertainty.masked_fill(uncertainty == 0, torch.inf), relevant)


def path_uncertainty(graph: CorpusGraph, retrieved: Tensor, relevant: Tensor) -> Tensor:
    r"""Measure how far each relevant node is from the nearest retrieved one, in summed log degrees.

    .. math:: u(i) = \min_{j \in N} \sum_{k \in SP(j, i),\ k \neq i} \ln(1 + \deg k)

    with :math:`N` the retrieved nodes and :math:`SP(j, i)` the nodes of the path of fewest edges, both ends among them;
    the degree, ``graph.num_neighbours``, is that of the whole graph. A retrieved node has :math:`u = 0`.

    Source: FastInsight, Definition 7. *Where we differ:* where several paths have the fewest edges, the paper does not
    say which is meant; we take the one of least :math:`u`.

    All queries run at once, one search from each relevant node; a search ends where no longer path can be better, so
    that it seldom leaves the neighbourhood of the retrieved nodes. Arguments as of :func:`topological_recall`.

    Returns:
        ``[Q, R]`` float64; inf where no path leads to a retrieved node, and where padded.

    Raises:
        ValueError: If a shape does not fit, a node is not in the graph, or a query has no relevant node or one twice.
    """
    _check(graph, retrieved, relevant)
    result = torch.full(relevant.shape, torch.inf, dtype=torch.float64, device=relevant.device)
    row, column = torch.nonzero(relevant >= 0, as_tuple=True)
    size = max(1, BLOCK_CELLS // max(1, graph.num_nodes))
    for part in torch.split(torch.arange(row.numel(), device=row.device), size):
        rows, columns = row[part], column[part]
        result[rows, columns] = _search(graph, retrieved[rows], relevant[rows, columns])
    return result


def _search(graph: CorpusGraph, retrieved: Tensor, start: Tensor) -> Tensor:
    """Search from some nodes, ``[S]``, to the nearest of the retrieved ones, ``[S, K]``; returns ``[S]``."""
    num_nodes, searches = graph.num_nodes, torch.arange(start.numel(), device=start.device)
    cost = torch.log1p(graph.num_neighbours.double())  # of passing through a node
    wanted = torch.zeros(start.numel() * num_nodes, dtype=torch.bool, device=start.device)
    search, column = torch.nonzero(retrieved >= 0, as_tuple=True)
    wanted[search * num_nodes + retrieved[search, column]] = True
    frontier = searches * num_nodes + start  # cells (search, node)
    distance = torch.full(wanted.shape, torch.inf, dtype=torch.float64, device=start.device)
    distance[frontier] = 0.0
    best = torch.full(start.shape, torch.inf, dtype=torch.float64, device=start.device)
    best[wanted[frontier]] = 0.0
    while frontier.numel():
        search = torch.div(frontier, num_nodes, rounding_mode="floor")
        # a search goes on as a whole: without some of its nodes, others would be reached by longer paths
        nearest = torch.full_like(best, torch.inf).scatter_reduce_(0, search, distance[frontier], "amin")
        frontier = frontier[(nearest + math.log(2) < best)[search]]  # a further node costs ln 2 or more
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
            raise UserError(f"`{name}` must be [{len(retrieved)}, ...], one row a query, got {list(nodes.shape)}")
        if nodes.numel() and not (int(nodes.min()) >= -1 and int(nodes.max()) < graph.num_nodes):
            raise UserError(
                f"`{name}` must number nodes 0 to {graph.num_nodes - 1} or be -1, got {int(nodes.min())} to "
                f"{int(nodes.max())}"
            )
    ascending = torch.sort(relevant, dim=1).values
    repeated = ((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)).any(1)
    if (bad := repeated | ~(relevant >= 0).any(1)).any():
        row = int(bad.nonzero()[0])
        raise UserError(f"`relevant` must hold a node of every query, each once, got {relevant[row].tolist()}")
