"""The reranker as a document compressor of LangChain; ``pip install graphrerank[langchain]``."""

from collections.abc import Callable, Sequence

from graphrerank.extras import importing
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.integrations.metadata import Edge, ranked

with importing("langchain", __name__):
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from pydantic import ConfigDict


class GraphRerankCompressor(BaseDocumentCompressor):
    """Ranks the documents of a LangChain retriever, in a ``ContextualCompressionRetriever`` or alone.

    Metadata keys: ``score`` (the retriever's), ``entities`` (documents that share some are joined), and ``doc_id`` with
    ``chunk_id`` (neighbouring chunks are joined).

    Attributes:
        reranker: The reranker; it must not need vectors.
        top_n: Number of documents to keep; None for all.
        edges: Returns the edges among documents, pairs of indices ``(i, j)`` or ``(i, j, type)``; None for those of the
            metadata.

    Example:
        >>> from langchain_core.documents import Document
        >>> from graphrerank import GraphReranker
        >>> compressor = GraphRerankCompressor(reranker=GraphReranker.from_pretrained("attack"), top_n=1)
        >>> documents = [Document("a cake recipe"), Document("infected USB sticks")]
        >>> compressor.compress_documents(documents, "spreads through USB sticks")[0].page_content
        'infected USB sticks'
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    reranker: GraphReranker
    top_n: int | None = None
    edges: Callable[[Sequence[Document]], Sequence[Edge]] | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> Sequence[Document]:
        """Rank documents.

        Args:
            documents: The documents.
            query: The query.
            callbacks: Not used.

        Returns:
            Copies, best first, with ``relevance_score`` in their metadata: the probability of relevance if the model is
            calibrated, else its score.

        Raises:
            ValueError: If the query is blank, or metadata have another form.
        """
        found = ranked(
            self.reranker,
            query,
            [document.page_content for document in documents],
            [document.metadata for document in documents],
            edges=() if self.edges is None else self.edges(documents),
            top_n=self.top_n,
        )
        return [
            documents[index].model_copy(update={"metadata": {**documents[index].metadata, "relevance_score": score}})
            for index, score in found
        ]
