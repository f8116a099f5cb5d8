"""The reranker as a similarity pipeline of txtai, for its ``Reranker`` or on its own; ``pip install txtai``."""

from collections.abc import Sequence
from typing import Any

from graphrerank.extras import importing
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.integrations.cross_encoder import FindEdges, GraphCrossEncoder

with importing("txtai", __name__):
    from txtai.pipeline import Pipeline


class GraphSimilarity(Pipeline):
    """Scores texts by their relevance to a query.

    Args:
        reranker: The reranker; it must not need vectors.
        edges: As of :class:`~graphrerank.integrations.cross_encoder.GraphCrossEncoder`.

    Example:
        >>> similarity = GraphSimilarity(GraphReranker.from_pretrained("attack"))
        >>> similarity("spreads through USB sticks", ["a cake recipe", "infected USB sticks"])[0][0]
        1
    """

    def __init__(self, reranker: GraphReranker, *, edges: FindEdges | None = None) -> None:
        self._encoder = GraphCrossEncoder(reranker, edges=edges)

    def __call__(self, query: str | Sequence[str], texts: Sequence[str], **ignored: Any) -> list[Any]:
        """Score texts.

        Returns:
            ``(place, score)`` of each text, best first; for a list of queries one such list each.

        Raises:
            ValueError: If a query is blank, or a text is no text.
        """
        if not isinstance(query, str):
            return [self(one, texts) for one in query]
        return [(row["corpus_id"], row["score"]) for row in self._encoder.rank(query, texts)]
