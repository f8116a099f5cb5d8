"""G-Retriever: the cheapest subgraph that connects the best retrieved nodes, a prize-collecting Steiner tree."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphrerank.installation.extras import optional
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step
from graphrerank.utils.checks import UserError, check_not_negative, check_positive


class SteinerTree(Step):
    r"""Replace the retrieved nodes by a connected subgraph with large node prizes and few edges.

    .. math:: \max_{S\ \mathrm{connected}}\ \sum_{n \in S} p(n) - \kappa\,|E_S|, \qquad p(n) = S_k - r_n + p_k

    with :math:`r_n` the 1-based rank of a seed among :math:`S_k` retrieved ones, :math:`p_k` the ``last_prize``, 0 for
    other nodes, and :math:`\kappa` the ``edge_cost``; solved to within a factor of 2 by ``pcst_fast`` (Goemans and
    Williamson's algorithm). The nodes of the subgraph are ranked by their dot product with the query.

    Source: He et al., *G-Retriever*, 2024, section 5.3, with its edge cost of 0.5; FastInsight, section 6. Their
    formula is :math:`k - i`, by which the last seed is worth nothing if ranks begin at 1 (``last_prize=0``);
    G-Retriever's published code gives :math:`k, k - 1, \ldots, 1`, the default here. *Where we differ:* G-Retriever
    gives the subgraph to a language model, unranked, and gives prizes to edges whose texts resemble the query; edges of
    a corpus graph have at most a type, so that all of one type would share a negligible prize.

    The pipeline's graph is undirected, lists its edges, and has an embedding.
    """

    def __init__(self, resources: Resources, *, edge_cost: float = 0.5, last_prize: float = 1.0) -> None:
        check_positive(edge_cost=edge_cost)
        check_not_negative(last_prize=last_prize)
        graph = resources.graph
        if graph.entities is not None:
            raise UserError("`graph` must list its edges for a Steiner tree, got edges of shared entities")
        self._solve = optional("pcst_fast", "a Steiner tree").pcst_fast
        self._resources, self._embedding = resources, graph.encoded
        graph = graph.with_rows_in_order()
        source = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree.cpu())
        target = graph.indices.cpu()
        is_first = source < target  # one direction of each edge
        self._edges = torch.stack([source[is_first], target[is_first]], dim=1).numpy()
        self._costs = np.full(len(self._edges), float(edge_cost))
        self._num_nodes, self._last_prize = graph.num_nodes, last_prize

    def run(self, state: RetrievalState) -> RetrievalState:
        """Find the subgraph of each query, and rank its nodes."""
        with self._resources.clock("graph"):
            trees = self.subgraphs(state.nodes)
            nodes = pad_sequence(trees, batch_first=True, padding_value=-1).to(state.nodes) if trees else state.nodes
            vectors = state.queries.encoded.to(nodes.device).unsqueeze(1)
            scores = (self._embedding[nodes.clamp(min=0)] * vectors).sum(-1)
            return state.with_ranking(nodes, scores).ranked_by(scores).top(self._resources.budget)

    def subgraphs(self, seeds: Tensor) -> list[Tensor]:
        """Find the nodes of each subgraph, ascending, on the CPU; seeds ``[B, S]`` are best first, padded with -1."""
        return [self._subgraph(row[row >= 0]) for row in seeds.cpu()]

    def _subgraph(self, seeds: Tensor) -> Tensor:
        if len(seeds) < 2 or not len(self._edges):
            return seeds[:1]  # one node is the best subgraph
        prizes = np.zeros(self._num_nodes)
        prizes[seeds.numpy()] = np.arange(len(seeds) - 1, -1, -1) + self._last_prize
        vertices, _ = self._solve(self._edges, prizes, self._costs, -1, 1, "gw", 0)  # no root, one tree
        nodes = torch.unique(torch.from_numpy(vertices.astype(np.int64)))
        if len(nodes) < len(vertices):
            remedy = "pip uninstall pcst-fast, then pip install pcst-fast2"
            raise UserError(f"`pcst_fast` returned a node several times, as 1.0 does under numpy 2: {remedy}")
        return nodes
