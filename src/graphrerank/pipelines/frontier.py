"""Graph search as in GAR: batches of the vector search and of the best nodes' neighbours, in turns."""

import torch
from torch import Tensor

from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class AlternateFrontier:
    """Add the next batch: of the frontier if the last one came from the vector search, else of the vector search.

    The frontier is all neighbours of retrieved nodes that are not retrieved; one stands as high as the best score among
    the retrieved nodes it is a neighbour of, ties by node number. A turn that finds nothing falls to the other side.

    Source: MacAvaney et al., *Adaptive Re-Ranking with a Corpus Graph*, 2022, Algorithm 1; FastInsight, section 4.1.1
    (budget 100, batch 10). *Where we differ:* what is left of the vector search is not put behind the scored nodes.

    Args:
        workplace: What the pipeline's steps share.
        batch: Most nodes to add per query; never beyond the budget.

    Raises:
        ValueError: If ``batch`` is below 1.
    """

    def __init__(self, workplace: Workplace, *, batch: int = 10) -> None:
        if batch < 1:
            raise ValueError(f"`batch` must be a positive integer, got {batch}")
        self.batch = batch
        self._workplace = workplace

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add up to ``batch`` nodes; the retrieved ones must be scored."""
        with self._workplace.clock("graph"):
            limit = self._workplace.room(state).clamp(max=self.batch)
            frontier, pool = self._frontier(state, limit), state.next_of_pool(limit)
            turn = ~state.from_graph | ~(pool >= 0).any(1)
            from_graph = turn & (frontier >= 0).any(1)
            nodes = [frontier.masked_fill(~from_graph[:, None], -1), pool.masked_fill(from_graph[:, None], -1)]
            return state.add(torch.cat(nodes, dim=1), from_graph=from_graph)

    def _frontier(self, state: RetrievalState, limit: Tensor) -> Tensor:
        """Find the best of the frontier: ``[B, batch]``, at most ``limit [B]`` of a row not -1."""
        num_nodes = self._workplace.graph.num_nodes
        row, column = torch.nonzero(state.nodes >= 0, as_tuple=True)
        origin, neighbour = self._workplace.graph.neighbours(state.nodes[row, column])
        key, place = torch.unique(row[origin] * num_nodes + neighbour, return_inverse=True)
        best = state.scores.new_full(key.shape, -torch.inf)
        best.scatter_reduce_(0, place, state.scores[row, column][origin], "amax")
        fresh = ~torch.isin(key, row * num_nodes + state.nodes[row, column])
        key, best = key[fresh], best[fresh]  # by row and node number
        order = torch.argsort(best, descending=True, stable=True)
        owner = torch.div(key, num_nodes, rounding_mode="floor")
        order = order[torch.argsort(owner[order], stable=True)]
        owner, node = owner[order], key[order] % num_nodes
        slot = torch.arange(len(order), device=order.device) - torch.searchsorted(owner, owner)
        kept = slot < limit[owner]
        found = torch.full((len(state.nodes), self.batch), -1, device=order.device)
        return found.index_put((owner[kept], slot[kept]), node[kept])
