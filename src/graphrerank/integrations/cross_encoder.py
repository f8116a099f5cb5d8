"""Use the reranker in place of a ``CrossEncoder`` from sentence-transformers, which need not be installed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphrerank.integrations.metadata import FindEdges, ranked
from graphrerank.rerank.graph_reranker import GraphReranker


class GraphCrossEncoder:
    """Reranker with the methods ``rank`` and ``predict`` of a ``CrossEncoder``.

    *Differences from a cross-encoder:* all documents of a query are scored together, so the score of a document depends
    on the other documents.

    Args:
        reranker: Reranker whose model needs no vectors.
        edges: Function that returns the edges among a list of texts, as pairs of positions ``(i, j)`` or as
            ``(i, j, type)``. If None, there are no edges.

    Example:
        >>> model = GraphCrossEncoder(GraphReranker.from_pretrained("base"), edges=lambda texts: [(0, 1)])
        >>> texts = ["Frank Herbert wrote the novel Dune.", "Dune was filmed in 1984.", "Bees make honey."]
        >>> [row["corpus_id"] for row in model.rank("Who wrote the novel Dune?", texts, top_k=2)]
        [0, 1]
    """

    def __init__(self, reranker: GraphReranker, *, edges: FindEdges | None = None) -> None:
        self._reranker, self._edges = reranker, edges

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **ignored: Any,
    ) -> list[dict[str, Any]]:
        """Rank the documents of a query, best first.

        Args:
            query: Text of the query.
            documents: Texts of the documents.
            top_k: Number of documents to return. If None, all documents.
            return_documents: Whether to return the texts too.
            ignored: Other arguments of ``CrossEncoder.rank``, which have no effect.

        Returns:
            One dictionary per document, with ``corpus_id`` (its position in ``documents``), ``score`` (the probability
            of relevance if the model is calibrated, otherwise the model's score) and, if ``return_documents``,
            ``text``.
        """
        edges = () if self._edges is None or not documents else self._edges(documents)
        ranking = ranked(self._reranker, query, documents, edges=edges, top_n=top_k)
        rows: list[dict[str, Any]] = [{"corpus_id": index, "score": score} for index, score in ranking]
        return [row | {"text": documents[row["corpus_id"]]} for row in rows] if return_documents else rows

    def predict(
        self, sentences: Sequence[Sequence[str]] | Sequence[str], *, convert_to_tensor: bool = False, **ignored: Any
    ) -> Any:
        """Score pairs of a query and a document. All pairs of the same query are scored together.

        Args:
            sentences: Pairs ``(query, document)``, or a single pair.
            convert_to_tensor: Whether to return a tensor instead of a NumPy array.
            ignored: Other arguments of ``CrossEncoder.predict``, which have no effect.

        Returns:
            Scores ``[num_pairs]`` (float32), or one float32 for a single pair.
        """
        if len(sentences) and isinstance(sentences[0], str):
            return self.predict([sentences], convert_to_tensor=convert_to_tensor)[0]  # type: ignore[list-item]
        indices_of: dict[str, list[int]] = {}
        for index, (query, _) in enumerate(sentences):
            indices_of.setdefault(query, []).append(index)
        scores = np.zeros(len(sentences), dtype=np.float32)
        for query, indices in indices_of.items():
            for row in self.rank(query, [sentences[index][1] for index in indices]):
                scores[indices[row["corpus_id"]]] = row["score"]
        return torch.from_numpy(scores) if convert_to_tensor else scores
