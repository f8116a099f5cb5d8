"""Use the reranker as a document compressor of LangChain. Install it with ``pip install graphrerank[langchain]``."""

from collections.abc import Callable, Sequence

from graphrerank.installation.extras import importing
from graphrerank.integrations.metadata import InputEdge, ranked
from graphrerank.rerank.graph_reranker import GraphReranker

with importing("langchain", __name__):
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from pydantic import ConfigDict


class GraphRerankCompressor(BaseDocumentCompressor):
    """LangChain document compressor that reranks the documents of a retriever.

    Use it in a ``ContextualCompressionRetriever`` or on its own. The metadata may have ``score`` (the retriever's
    score) or ``distance``, ``entities`` (documents that share one are connected) and ``doc_id`` with ``chunk_id``
    (neighbouring chunks are connected).

    Attributes:
        reranker: Reranker whose model needs no vectors.
        top_n: Number of documents to return. If None, all documents.
        distances: Whether ``score`` is a distance, where lower is better, as ``similarity_search_with_score`` of FAISS
            or Chroma returns it. If None, it is not, and a warning reports scores that increase along the list.
        edges: Function that returns additional edges among the documents, as pairs of positions ``(i, j)`` or as
            ``(i, j, type)``. If None, edges come from the metadata only.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    reranker: GraphReranker
    top_n: int | None = None
    distances: bool | None = None
    edges: Callable[[Sequence[Document]], Sequence[InputEdge]] | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks = None
    ) -> Sequence[Document]:
        """Return ranked copies of the documents, best first.

        The metadata of each copy has ``relevance_score``, the probability of relevance if the model is calibrated,
        otherwise the model's score.

        Args:
            documents: Documents to rank.
            query: Text of the query.
            callbacks: LangChain callbacks, which are not used.
        """
        ranking = ranked(
            self.reranker,
            query,
            [document.page_content for document in documents],
            [document.metadata for document in documents],
            distances=self.distances,
            edges=() if self.edges is None else self.edges(documents),
            top_n=self.top_n,
        )
        return [
            documents[index].model_copy(update={"metadata": {**documents[index].metadata, "relevance_score": score}})
            for index, score in ranking
        ]
