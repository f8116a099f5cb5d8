"""The reranker as a document compressor of LangChain; ``pip install graphrerank[langchain]``."""

from collections.abc import Callable, Sequence

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict

from graphrerank.inference import GraphReranker
from graphrerank.integrations.metadata import input_from_metadata


class GraphRerankCompressor(BaseDocumentCompressor):
    """Ranks what a retriever of LangChain found, for a ``ContextualCompressionRetriever`` or on its own.

    Of a document's metadata it reads ``score`` (the retriever's), ``entities`` (documents that share some are joined),
    and ``doc_id`` with ``chunk_id`` (neighbouring chunks are joined).

    Attributes:
        reranker: The reranker; one that reads no vectors.
        top_n: How many documents to keep; None for all.
        edges: Tells which documents are joined, as pairs of places; None for what the metadata tell.

    Example:
        >>> from langchain_core.documents import Document
        >>> from graphrerank import GraphReranker
        >>> compressor = GraphRerankCompressor(reranker=GraphReranker.from_pretrained("attack"), top_n=1)
        >>> found = [Document("a cake recipe"), Document("infected USB sticks")]
        >>> compressor.compress_documents(found, "spreads through USB sticks")[0].page_content
        'infected USB sticks'
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    reranker: GraphReranker
    top_n: int | None = None
    edges: Callable[[Sequence[Document]], Sequence[tuple[int, int]]] | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> Sequence[Document]:
        """Rank documents.

        Args:
            documents: What was found.
            query: The query.
            callbacks: Not used.

        Returns:
            Copies, best first, with ``relevance_score`` in their metadata: the probability that they are relevant where
            the model is calibrated, else its score.

        Raises:
            ValueError: If the query is empty, or metadata are of another form.
        """
        if not documents:
            return []
        given = input_from_metadata(
            query,
            [document.page_content for document in documents],
            [document.metadata for document in documents],
            edges=() if self.edges is None else self.edges(documents),
            top_n=self.top_n,
        )
        ranking = self.reranker.rerank_batch([given])[0]
        return [
            documents[place].model_copy(update={"metadata": {**documents[place].metadata, "relevance_score": score}})
            for place, score in zip(ranking.ids, ranking.relevance.tolist(), strict=True)
        ]
