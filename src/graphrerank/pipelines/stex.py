"""Vector-graph search: add the best neighbours of the retrieved nodes."""

import torch

from graphrerank.checks import check_counts, check_not_negative
from graphrerank.operators.stex import semantic_topological_expansion
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources


class STeX:
    """Add the next batch of nodes along the graph (:func:`semantic_topological_expansion`).

    Source: FastInsight, Algorithm 1, lines 4 to 6, and Algorithm 3. *Where we differ:* if the retrieved nodes have no
    other neighbour, Algorithm 1 would never end; we take the batch from the rest of the vector search.

    Args:
        batch: Maximum number of nodes to add per query, within the budget.
        structure_weight: Weight of the structural score relative to the similarity's weight of 1, not negative.

    Raises:
        ValueError: If an argument is out of range, or the corpus has no embedding.
    """

    def __init__(self, resources: Resources, *, batch: int = 10, structure_weight: float = 1.0) -> None:
        check_counts(batch=batch)
        check_not_negative(structure_weight=structure_weight)
        _ = resources.graph.encoded
        self.batch = batch
        self.structure_weight = structure_weight
        self._resources = resources

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add up to ``batch`` nodes."""
        with self._resources.clock("graph"):
            limit = self._resources.remaining(state).clamp(max=self.batch)
            neighbours = semantic_topological_expansion(
                self._resources.graph,
                state.ranking,
                state.queries.encoded.to(state.scores.device),
                top_k=self.batch,
                structure_weight=self.structure_weight,
            ).nodes
            from_graph = (neighbours >= 0).any(1)
            position = torch.arange(self.batch, device=neighbours.device)
            neighbours = neighbours.masked_fill(position >= limit.unsqueeze(1), -1)
            others = state.next_in_pool(limit.masked_fill(from_graph, 0))
            return state.add(torch.cat([neighbours, others], dim=1), from_graph=from_graph)
