"""Model search: the retrieved nodes ranked by the cross-encoder."""

from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class Rerank:
    """Rank the retrieved nodes by the cross-encoder's logits; none is read twice.

    Source: FastInsight, Definition 4 (model-based search) and Example 3.

    Args:
        workplace: What the pipeline's steps share.

    Raises:
        ValueError: If there is no cross-encoder.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace
        self._encoder = workplace.reader

    def run(self, state: RetrievalState) -> RetrievalState:
        """Read what is new, and rank all."""
        state = self._workplace.read(state)
        with self._workplace.clock("rerank"):
            valid = state.nodes >= 0
            scores = state.scores.clone()
            scores[valid] = self._encoder.head(state.vectors[valid]).to(scores)
            return state.ranked_by(scores)
