"""The reranker as a document compressor of LangChain; ``pip install graphrerank[langchain]``."""

from collections.abc import Callable, Sequence

from graphrerank.installation.extras import importing
from graphrerank.integrations.metadata import InputEdge, ranked
from graphrerank.rerank.graph_reranker import GraphReranker

with importing("langchain", __name__):
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from pydantic import ConfigDict


class GraphRerankCompressor(BaseDocumentCompressor):
    """Ranks the documents of a LangChain retriever, in a ``ContextualCompressionRetriever`` or alone.

    Metadata keys: ``score`` (the retriever's), ``entities`` (documents that share some are joined), and ``doc_id`` with
    ``chunk_id`` (neighbouring chunks are joined).
    The reranker must not need vectors. ``top_n`` documents are kept, None for all. ``edges`` returns the edges among
    documents, pairs of indices ``(i, j)`` or ``(i, j, type)``; None for those of the metadata.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    reranker: GraphReranker
    top_n: int | None = None
    edges: Callable[[Sequence[Document]], Sequence[InputEdge]] | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> Sequence[Document]:
        """Return copies, best first, with ``relevance_score``, a probability if calibrated, in their metadata."""
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
