"""Graph model search: rank the retrieved nodes by the cross-encoder's head on vectors smoothed over their edges."""

from graphrerank.checks import check_share
from graphrerank.graphs import candidate_edges
from graphrerank.operators.granker import smooth_vectors
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources


class GRanker:
    """Rank the retrieved nodes by the head's score of their smoothed vectors (:func:`smooth_vectors`).

    A trained head of the pipeline replaces the cross-encoder's and includes its own smoothing.

    Source: FastInsight, Algorithm 2. *Where we differ:* its line 1 encodes all retrieved nodes each time; we keep the
    vectors, so that each pair is encoded once.

    Args:
        smoothing: Weight in [0, 1] of the neighbours' vectors; 0 ranks as :class:`Rerank`.

    Raises:
        ValueError: If there is no cross-encoder, or ``smoothing`` is out of range.
    """

    def __init__(self, resources: Resources, *, smoothing: float = 0.2) -> None:
        check_share(smoothing=smoothing)
        self.smoothing = smoothing
        self._resources = resources
        self._encoder = resources.cross_encoder
        self._degree = resources.graph.num_neighbours

    def run(self, state: RetrievalState) -> RetrievalState:
        """Encode new pairs, smooth, and rank all nodes."""
        state = self._resources.encode_pairs(state)
        valid = state.nodes >= 0
        with self._resources.clock("graph"):
            edge_index, _, _, _ = candidate_edges(self._resources.graph, state.nodes)
            degree, vectors = self._degree[state.nodes[valid]], state.vectors[valid]
        with self._resources.clock("rerank"):
            if self._resources.head is not None:
                logits = self._resources.head.score(vectors, edge_index, degree)
            else:
                logits = self._encoder.head(smooth_vectors(vectors, edge_index, degree, self.smoothing))
            scores = state.scores.clone()
            scores[valid] = logits.to(scores)
            return state.ranked_by(scores)
