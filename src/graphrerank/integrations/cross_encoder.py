"""The reranker in the form of sentence-transformers' ``CrossEncoder``, for code that calls one; nothing to install."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphrerank.integrations.metadata import FindEdges, ranked
from graphrerank.rerank.graph_reranker import GraphReranker


class GraphCrossEncoder:
    """Ranks documents by the calls ``rank`` and ``predict`` of a ``CrossEncoder``.

    *Where we differ:* the documents of a query are scored together, so that a document's score depends on the others.
    The reranker must not need vectors. ``edges`` returns the edges among texts, pairs of positions ``(i, j)`` or
    ``(i, j, type)``; None for no edges.
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
        """Rank the documents of a query, best first; other settings of a ``CrossEncoder`` are ignored.

        Each has a ``corpus_id`` (its position among the documents) and a ``score``, the probability of relevance if the
        model is calibrated, and perhaps the ``text``.
        """
        edges = () if self._edges is None or not documents else self._edges(documents)
        found = ranked(self._reranker, query, documents, edges=edges, top_n=top_k)
        rows: list[dict[str, Any]] = [{"corpus_id": index, "score": score} for index, score in found]
        return [row | {"text": documents[row["corpus_id"]]} for row in rows] if return_documents else rows

    def predict(
        self, sentences: Sequence[Sequence[str]] | Sequence[str], *, convert_to_tensor: bool = False, **ignored: Any
    ) -> Any:
        """Score pairs of a query and a document, ``[n]`` float32; the pairs of one query are scored together.

        A single pair has one float32. The result is a NumPy array or, with ``convert_to_tensor``, a tensor.
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
