"""Graph search by a prize-collecting Steiner tree: the cheapest subgraph that connects the best seeds."""

import numpy as np
import torch
from torch import Tensor

from graphrerank.checks import check_not_negative, check_positive
from graphrerank.graphs import CorpusGraph


class PrizeCollectingSteinerTree:
    r"""Find a connected subgraph with large node prizes and few edges.

    .. math:: \max_{S\ \mathrm{connected}}\ \sum_{n \in S} p(n) - \kappa\,|E_S|, \qquad p(n) = S_k - r_n + p_k

    with :math:`r_n` the 1-based rank of a seed among :math:`S_k` seeds, :math:`p_k` the ``last_prize``, 0 for other
    nodes, and :math:`\kappa` the ``edge_cost``; solved to within a factor of 2 by ``pcst_fast`` (Goemans and
    Williamson's algorithm).

    Source: He et al., *G-Retriever*, 2024, section 5.3, with its edge cost of 0.5; FastInsight, section 6. Their
    formula is :math:`k - i`, by which the last seed is worth nothing if ranks begin at 1 (``last_prize=0``);
    G-Retriever's published code gives :math:`k, k - 1, \ldots, 1`, the default here. *Where we differ:* edges have no
    prize. In G-Retriever an edge's text is compared with the query, and edges of equal likeness share a prize; those of
    a corpus graph have a type for a text at most, so that all edges of a type would share one prize of at most
    :math:`k`, which is next to nothing beside their cost.

    Args:
        graph: The corpus, undirected, without shared entities, whose edges are not listed.
        edge_cost: Cost of an edge, positive.
        last_prize: Of the last seed, not negative; each earlier one is worth 1 more.

    Raises:
        ValueError: If ``edge_cost`` is not positive or ``last_prize`` negative, the corpus joins passages by shared
            entities, or ``pcst_fast`` is not installed.
    """

    def __init__(self, graph: CorpusGraph, *, edge_cost: float = 0.5, last_prize: float = 1.0) -> None:
        check_positive(edge_cost=edge_cost)
        check_not_negative(last_prize=last_prize)
        if graph.entities is not None:
            raise ValueError("`graph` must list its edges for a Steiner tree, got edges of shared entities")
        try:
            from pcst_fast import pcst_fast
        except ImportError as error:
            raise ValueError("a Steiner tree needs the package `pcst_fast`: pip install graphrerank[pcst]") from error
        self._solve = pcst_fast
        graph = graph.with_rows_in_order()
        source = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree.cpu())
        target = graph.indices.cpu()
        is_first = source < target  # one direction of each edge
        self._edges = torch.stack([source[is_first], target[is_first]], dim=1).numpy()
        self._costs = np.full(len(self._edges), float(edge_cost))
        self._num_nodes, self._last_prize = graph.num_nodes, last_prize

    def expand(self, seeds: Tensor) -> list[Tensor]:
        """Find the subgraph of each query: its nodes, ascending; empty for a query without seeds.

        ``seeds`` are ``[B, S]`` int64, best first, padded with -1.
        """
        return [self._subgraph(row[row >= 0].cpu()).to(seeds.device) for row in seeds]

    def _subgraph(self, seeds: Tensor) -> Tensor:
        if len(seeds) < 2 or not len(self._edges):
            return seeds[:1]  # one node is the best subgraph
        prizes = np.zeros(self._num_nodes)
        prizes[seeds.numpy()] = np.arange(len(seeds) - 1, -1, -1) + self._last_prize
        vertices, _ = self._solve(self._edges, prizes, self._costs, -1, 1, "gw", 0)  # no root, one tree
        nodes = torch.unique(torch.from_numpy(vertices.astype(np.int64)))
        if len(nodes) < len(vertices):
            raise ValueError(
                "`pcst_fast` returned a node several times, as pcst-fast 1.0 does under numpy 2: pip uninstall "
                "pcst-fast, then pip install pcst-fast2"
            )
        return nodes
