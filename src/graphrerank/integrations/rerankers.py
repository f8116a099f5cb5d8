"""The reranker as a ranker of the library ``rerankers``; ``pip install rerankers``."""

from collections.abc import Sequence

from graphrerank.extras import importing
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.integrations.metadata import Edge, input_from_metadata

with importing("rerankers", __name__):
    from rerankers.documents import Document
    from rerankers.models.ranker import BaseRanker
    from rerankers.results import RankedResults, Result
    from rerankers.utils import prep_docs


class GraphRanker(BaseRanker):
    """Ranks documents; their metadata are read as of LangChain's documents (``score``, ``entities``, ``doc_id``...).

    Args:
        reranker: The reranker; it must not need vectors.

    Example:
        >>> ranker = GraphRanker(GraphReranker.from_pretrained("attack"))
        >>> ranker.rank("spreads through USB sticks", ["a cake recipe", "infected USB sticks"]).top_k(1)[0].doc_id
        1
    """

    def __init__(self, reranker: GraphReranker) -> None:
        self._reranker = reranker
        self.verbose = 0

    def rank(
        self,
        query: str,
        docs: str | Document | Sequence[str] | Sequence[Document],
        doc_ids: Sequence[str] | Sequence[int] | None = None,
        metadata: Sequence[dict[str, object]] | None = None,
        *,
        edges: Sequence[Edge] = (),
    ) -> RankedResults:
        """Rank documents, with probabilities of relevance if the model is calibrated, else its scores.

        ``edges`` are pairs of places among ``docs``, or pairs with a type.

        Raises:
            ValueError: If the query is blank, or metadata or edges have another form.
        """
        single = isinstance(docs, str | Document)
        if not single and not docs:
            return RankedResults([], query, has_scores=True)
        documents = prep_docs(docs if single else list(docs), doc_ids, metadata)
        given = input_from_metadata(query, [d.text for d in documents], [d.metadata for d in documents], edges=edges)
        ranking = self._reranker.rerank_batch([given])[0]
        rows = zip(ranking.ids, ranking.relevance.tolist(), strict=True)
        results = [Result(documents[place], score, rank) for rank, (place, score) in enumerate(rows, start=1)]
        return RankedResults(results, query, has_scores=True)

    def score(self, query: str, doc: str) -> float:
        """Score a document on its own."""
        return float(self.rank(query, [doc])[0].score)
