"""Graph search as in GAR: batches taken alternately from the vector search and from the best nodes' neighbours."""

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.graphs.sparse_rows import pad_rows, positions_in_rows
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources


class AlternateFrontier:
    """Add a batch of nodes, alternately from the frontier and from the vector search.

    The frontier is all neighbours of retrieved nodes that are not retrieved, ranked by the best score among the
    retrieved nodes that each is a neighbour of; ties are broken by node index. If one source is exhausted, the batch
    comes from the other.

    Source: MacAvaney et al., *Adaptive Re-Ranking with a Corpus Graph*, 2022, Algorithm 1; FastInsight, section 4.1.1
    (budget 100, batch 10). *Where we differ:* the rest of the vector search is not appended to the scored nodes.

    Args:
        batch: Maximum number of nodes to add per query, within the budget.
    """

    def __init__(self, resources: Resources, *, batch: int = 10) -> None:
        check_counts(batch=batch)
        self.batch = batch
        self._resources = resources

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add up to ``batch`` nodes; the retrieved ones must be scored."""
        with self._resources.clock("graph"):
            limit = self._resources.remaining(state).clamp(max=self.batch)
            frontier, pool = self._frontier(state, limit), state.next_in_pool(limit)
            is_graph_turn = ~state.from_graph | ~(pool >= 0).any(1)
            from_graph = is_graph_turn & (frontier >= 0).any(1)
            nodes = [frontier.masked_fill(~from_graph[:, None], -1), pool.masked_fill(from_graph[:, None], -1)]
            return state.add(torch.cat(nodes, dim=1), from_graph=from_graph)

    def _frontier(self, state: RetrievalState, limit: Tensor) -> Tensor:
        """Return the best ``limit [B]`` nodes of each frontier, padded with -1."""
        num_nodes = self._resources.graph.num_nodes
        row, column = torch.nonzero(state.nodes >= 0, as_tuple=True)
        origin, neighbour = self._resources.graph.neighbours(state.nodes[row, column])
        key, position = torch.unique(row[origin] * num_nodes + neighbour, return_inverse=True)
        best = state.scores.new_full(key.shape, -torch.inf)
        best.scatter_reduce_(0, position, state.scores[row, column][origin], "amax")
        is_new = ~torch.isin(key, row * num_nodes + state.nodes[row, column])
        key, best = key[is_new], best[is_new]  # by row and node index
        order = torch.argsort(best, descending=True, stable=True)
        order = order[torch.argsort(key[order] // num_nodes, stable=True)]
        owner, node = key[order] // num_nodes, key[order] % num_nodes
        within = positions_in_rows(owner) < limit[owner]
        return pad_rows(owner[within], node[within], len(state.nodes), fill=-1)
