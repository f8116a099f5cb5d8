"""Graph model search: the retrieved nodes ranked by the cross-encoder's head on vectors smoothed over their edges."""

from graphrerank.graphs import candidate_edges
from graphrerank.operators import smooth_vectors
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class GRanker:
    """Rank the retrieved nodes by the head's score of their smoothed vectors (:func:`smooth_vectors`).

    A pipeline's trained head takes the place of the cross-encoder's, and of ``smoothing``: it smooths by itself.

    Source: FastInsight, Algorithm 2. *Where we differ:* its line 1 reads all retrieved nodes each time; we keep the
    vectors, so that a node is read once per query.

    Args:
        workplace: What the pipeline's steps share.
        smoothing: Weight in [0, 1] of the neighbours' vectors; 0 ranks as :class:`Rerank`.

    Raises:
        ValueError: If there is no cross-encoder, or ``smoothing`` is out of range.
    """

    def __init__(self, workplace: Workplace, *, smoothing: float = 0.2) -> None:
        if not 0.0 <= smoothing <= 1.0:
            raise ValueError(f"`smoothing` must lie in [0, 1], got {smoothing}")
        self.smoothing = smoothing
        self._workplace = workplace
        self._encoder = workplace.reader
        self._degree = workplace.graph.num_neighbours

    def run(self, state: RetrievalState) -> RetrievalState:
        """Read what is new, smooth, and rank all."""
        state = self._workplace.read(state)
        valid = state.nodes >= 0
        with self._workplace.clock("graph"):
            edge_index, _, _ = candidate_edges(self._workplace.graph, state.nodes)
            degree, vectors = self._degree[state.nodes[valid]], state.vectors[valid]
        with self._workplace.clock("rerank"):
            if self._workplace.head is not None:
                logits = self._workplace.head.score(vectors, edge_index, degree)
            else:
                logits = self._encoder.head(smooth_vectors(vectors, edge_index, degree, self.smoothing))
            scores = state.scores.clone()
            scores[valid] = logits.to(scores)
            return state.ranked_by(scores)
