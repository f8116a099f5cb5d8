"""Model search: rank the retrieved nodes by the cross-encoder."""

from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources


class Rerank:
    """Rank the retrieved nodes by the cross-encoder's logits; each pair is encoded once.

    Source: FastInsight, Definition 4 (model-based search) and Example 3.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._encoder = resources.cross_encoder

    def run(self, state: RetrievalState) -> RetrievalState:
        """Encode new pairs, and rank all nodes."""
        state = self._resources.encode_pairs(state)
        with self._resources.clock("rerank"):
            valid = state.nodes >= 0
            scores = state.scores.clone()
            scores[valid] = self._encoder.head(state.vectors[valid]).to(scores)
            return state.ranked_by(scores)
