"""Vector-graph search: the best neighbours of the retrieved nodes join them."""

import torch

from graphrerank.operators import semantic_topological_expansion
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class STeX:
    """Add the next batch of nodes along the graph (:func:`semantic_topological_expansion`).

    Source: FastInsight, Algorithm 1, lines 4 to 6, and Algorithm 3. *Where we differ:* where the retrieved nodes have
    no other neighbour, Algorithm 1 would never end; there the batch comes from the rest of the vector search.

    Args:
        workplace: What the pipeline's steps share.
        batch: Most nodes to add per query; never beyond the budget.
        structure_weight: Weight of the structural score against a similarity of weight 1, not negative.

    Raises:
        ValueError: If an argument is out of range, or the corpus has no embedding.
    """

    def __init__(self, workplace: Workplace, *, batch: int = 10, structure_weight: float = 1.0) -> None:
        if batch < 1:
            raise ValueError(f"`batch` must be a positive integer, got {batch}")
        if not structure_weight >= 0:
            raise ValueError(f"`structure_weight` must not be negative, got {structure_weight}")
        if workplace.graph.embedding is None:
            raise ValueError("`graph` must have an embedding: encode the corpus first")
        self.batch = batch
        self.structure_weight = structure_weight
        self._workplace = workplace

    def run(self, state: RetrievalState) -> RetrievalState:
        """Add up to ``batch`` nodes."""
        with self._workplace.clock("graph"):
            limit = self._workplace.room(state).clamp(max=self.batch)
            found = semantic_topological_expansion(
                self._workplace.graph,
                state.ranking,
                state.queries.encoded.to(state.scores.device),
                top_k=self.batch,
                structure_weight=self.structure_weight,
            ).nodes
            reached = (found >= 0).any(1)
            slot = torch.arange(self.batch, device=found.device)
            along = found.masked_fill(slot >= limit.unsqueeze(1), -1)
            others = state.next_of_pool(limit.masked_fill(reached, 0))
            return state.add(torch.cat([along, others], dim=1), from_graph=reached)
