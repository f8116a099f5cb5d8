"""Use the reranker as a component of Haystack. Install it with ``pip install graphrerank[haystack]``."""

from dataclasses import replace
from typing import Any

from graphrerank.installation.extras import importing
from graphrerank.integrations.metadata import CHUNK_ID, DOC_ID, ranked
from graphrerank.rerank.graph_reranker import GraphReranker

with importing("haystack", __name__):
    from haystack import Document, component

SPLITTER_KEYS = {"source_id": DOC_ID, "split_id": CHUNK_ID}  # metadata written by Haystack's DocumentSplitter


@component
class GraphRerankRanker:
    """Haystack component that reranks the documents of a retriever, in a pipeline or on its own.

    The retriever's scores are used, and a document without one gets the lowest score of the others. Edges come from the
    metadata: documents that share one of their ``entities`` are connected, and so are neighbouring chunks of a document
    (``doc_id`` with ``chunk_id``, or the ``source_id`` with ``split_id`` of Haystack's splitter).

    Args:
        checkpoint: Checkpoint for :meth:`GraphReranker.from_pretrained`. Its model must not need vectors.
        top_k: Number of documents to return. If None, all documents.
        device: Device of the model. If None, the CPU.
        distances: Whether the scores of the documents are distances, where lower is better. If None, they are not, and
            a warning reports scores that increase along the list.
    """

    def __init__(
        self,
        checkpoint: str = "base",
        *,
        top_k: int | None = None,
        device: str | None = None,
        distances: bool | None = None,
    ) -> None:
        # attributes with the names of the arguments are serialised by Haystack
        self.checkpoint, self.top_k, self.device, self.distances = checkpoint, top_k, device, distances
        self._reranker: GraphReranker | None = None

    def warm_up(self) -> None:
        """Load the checkpoint if it is not loaded yet."""
        if self._reranker is None:
            self._reranker = GraphReranker.from_pretrained(self.checkpoint, device=self.device)

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """Rank documents, best first. Documents without text come last.

        Args:
            query: Text of the query.
            documents: Documents to rank.
            top_k: Number of documents to return. If None, the component's ``top_k`` is used.

        Returns:
            A dictionary whose entry ``documents`` has copies of the documents. Their ``score`` is the probability of
            relevance if the model is calibrated, otherwise the model's score.

        Raises:
            ValueError: If the query is blank.
        """
        self.warm_up()
        assert self._reranker is not None
        ranking = ranked(
            self._reranker,
            query,
            [document.content for document in documents],
            [_with_chunks(document.meta) for document in documents],
            scores=[document.score for document in documents],
            distances=self.distances,
            top_n=self.top_k if top_k is None else top_k,
        )
        return {"documents": [replace(documents[index], score=score) for index, score in ranking]}


def _with_chunks(meta: dict[str, Any]) -> dict[str, Any]:
    """Return metadata that also has the chunk keys of this library if Haystack's splitter wrote its own."""
    if all(key in meta for key in SPLITTER_KEYS):
        return {**{ours: meta[theirs] for theirs, ours in SPLITTER_KEYS.items()}, **meta}
    return meta
