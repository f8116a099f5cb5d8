"""G-Retriever: rank a connected subgraph around the best retrieved nodes, found as a prize-collecting Steiner tree."""

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

    with :math:`r_n` the 1-based rank of a seed among :math:`S_k` retrieved ones, :math:`p_k` the ``last_prize``, and
    :math:`\kappa` the ``edge_cost``. Other nodes have no prize. ``pcst_fast`` solves the problem to within a factor of
    2 with the algorithm of Goemans and Williamson. The nodes of the subgraph are ranked by their dot product with the
    query.

    Source: He et al., *G-Retriever*, 2024, section 5.3, with its edge cost of 0.5; FastInsight, section 6. The paper's
    prize is :math:`k - i`, which is 0 for the last seed if ranks begin at 1 (``last_prize=0``). G-Retriever's published
    code has the prizes :math:`k, k - 1, \ldots, 1`, which are the default here.

    *Differences from the paper:* G-Retriever gives the unranked subgraph to a language model, and gives prizes to edges
    whose texts are similar to the query. Edges of a corpus graph have at most a type, so all edges of a type would
    share a negligible prize.
    """

    def __init__(self, resources: Resources, *, edge_cost: float = 0.5, last_prize: float = 1.0) -> None:
        """Create the step.

        Args:
            resources: Resources of the pipeline. The graph must be undirected with explicit edges and node vectors.
            edge_cost: Cost of an edge, above 0.
            last_prize: Prize of the last seed, at least 0.

        Raises:
            UserError: If an argument is outside its range, or the edges of the graph are implied by shared entities.
        """
        check_positive(edge_cost=edge_cost)
        check_not_negative(last_prize=last_prize)
        graph = resources.graph
        if graph.entities is not None:
            raise UserError("`graph` must have explicit edges for a Steiner tree, got edges between shared entities")
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
        """Find the subgraph of each query, and rank its nodes.

        Args:
            state: State of the pipeline.

        Returns:
            State with the new ranking.

        Raises:
            UserError: If the installed ``pcst_fast`` returns wrong results.
        """
        with self._resources.clock("graph"):
            trees = self.subgraphs(state.nodes)
            nodes = pad_sequence(trees, batch_first=True, padding_value=-1).to(state.nodes) if trees else state.nodes
            vectors = state.queries.encoded.to(nodes.device).unsqueeze(1)
            scores = (self._embedding[nodes.clamp(min=0)] * vectors).sum(-1)
            return state.with_ranking(nodes, scores).ranked_by(scores).top(self._resources.budget)

    def subgraphs(self, seeds: Tensor) -> list[Tensor]:
        """Find the nodes of each query's subgraph.

        Args:
            seeds: Seeds ``[B, S]``, best first and padded with -1.

        Returns:
            Nodes of each subgraph on the CPU, ascending.

        Raises:
            UserError: If the installed ``pcst_fast`` returns wrong results.
        """
        return [self._subgraph(row[row >= 0]) for row in seeds.cpu()]

    def _subgraph(self, seeds: Tensor) -> Tensor:
        if len(seeds) < 2 or not len(self._edges):
            return seeds[:1]  # a single node is the best subgraph
        prizes = np.zeros(self._num_nodes)
        prizes[seeds.numpy()] = np.arange(len(seeds) - 1, -1, -1) + self._last_prize
        vertices, _ = self._solve(self._edges, prizes, self._costs, -1, 1, "gw", 0)  # no root, one tree
        nodes = torch.unique(torch.from_numpy(vertices.astype(np.int64)))
        if len(nodes) < len(vertices):
            remedy = "Run `pip uninstall pcst-fast` and then `pip install pcst-fast2`."
            raise UserError(f"`pcst_fast` returned duplicate nodes, as version 1.0 does with numpy 2. {remedy}")
        return nodes
