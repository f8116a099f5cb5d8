"""The reranker as a component of Haystack; ``pip install graphrerank[haystack]``."""

from dataclasses import replace
from typing import Any

from graphrerank.installation.extras import importing
from graphrerank.integrations.metadata import CHUNK_ID, DOC_ID, ranked
from graphrerank.rerank.graph_reranker import GraphReranker

with importing("haystack", __name__):
    from haystack import Document, component

SPLITTER_KEYS = {"source_id": DOC_ID, "split_id": CHUNK_ID}  # of Haystack's DocumentSplitter, whose chunks are joined


@component
class GraphRerankRanker:
    """Ranks the documents of a Haystack retriever, in a pipeline or alone.

    The retriever's scores are used if all documents have one, of the metadata ``entities`` (documents that share some
    are joined), and ``doc_id`` with ``chunk_id`` or the splitter's ``source_id`` with ``split_id`` (neighbouring chunks
    are joined). The model of the ``checkpoint`` (:meth:`GraphReranker.from_pretrained`) must not need vectors; it runs
    on ``device``, None for the CPU. ``top_k`` documents are kept, None for all.
    """

    def __init__(self, checkpoint: str = "base", *, top_k: int | None = None, device: str | None = None) -> None:
        self.checkpoint, self.top_k, self.device = checkpoint, top_k, device  # which Haystack writes to its files
        self._reranker: GraphReranker | None = None

    def warm_up(self) -> None:
        """Load the checkpoint, once."""
        if self._reranker is None:
            self._reranker = GraphReranker.from_pretrained(self.checkpoint, device=self.device)

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """Rank documents; the component's ``top_k`` holds when None.

        Returns ``documents``, copies, best first, whose ``score`` is the probability of relevance if the model is
        calibrated, else the model's score. A ValueError if the query is blank; documents without a text come last.
        """
        self.warm_up()
        assert self._reranker is not None
        found = ranked(
            self._reranker,
            query,
            [document.content for document in documents],
            [_with_chunks(document.meta) for document in documents],
            scores=[document.score for document in documents],
            top_n=self.top_k if top_k is None else top_k,
        )
        return {"documents": [replace(documents[index], score=score) for index, score in found]}


def _with_chunks(meta: dict[str, Any]) -> dict[str, Any]:
    """Add the metadata that name a chunk to those of Haystack's splitter."""
    if all(key in meta for key in SPLITTER_KEYS):
        return {**{ours: meta[theirs] for theirs, ours in SPLITTER_KEYS.items()}, **meta}
    return meta
