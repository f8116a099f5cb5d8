"""The reranker of facts in Graphiti's memory of agents; ``pip install graphrerank[graphiti]``."""

import asyncio

from graphrerank.extras import importing
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.integrations.cross_encoder import FindEdges, GraphCrossEncoder

with importing("graphiti", __name__):
    from graphiti_core.cross_encoder.client import CrossEncoderClient


class GraphitiReranker(CrossEncoderClient):
    """Ranks facts: ``Graphiti(..., cross_encoder=GraphitiReranker(reranker))``.

    Graphiti hands over texts alone. Which of them are joined, and by what, is asked of ``edges``: facts that share an
    entity, say, or that follow each other in time, from the fact's ``EntityEdge``.

    Args:
        reranker: The reranker; it must not need vectors.
        edges: As of :class:`~graphrerank.integrations.cross_encoder.GraphCrossEncoder`.
    """

    def __init__(self, reranker: GraphReranker, *, edges: FindEdges | None = None) -> None:
        self._encoder = GraphCrossEncoder(reranker, edges=edges)

    async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
        """Rank passages in a thread.

        Returns:
            Passages and their probabilities of relevance (scores, if the model is not calibrated), best first.

        Raises:
            ValueError: If the query is blank.
        """
        rows = await asyncio.to_thread(self._encoder.rank, query, passages, return_documents=True)
        return [(row["text"], row["score"]) for row in rows]
