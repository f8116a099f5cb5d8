"""Lexical search alone, as a retriever."""

from functools import cached_property
from typing import Any

from graphrerank.graphs import CorpusGraph, Queries, Ranking, top_k_by_node_order
from graphrerank.graphs.retriever import BASE_SCORE
from graphrerank.operators import hybrid
from graphrerank.operators.bm25 import BM25
from graphrerank.operators.hybrid import concatenate, lexical_scores


class BM25Retriever:
    """Rank the corpus by BM25, divided by the query's maximum over the corpus; no vectors are read.

    Nodes that share no word with the query score 0 and follow in node order, so that every query, an empty one too, has
    ``top_k`` candidates. The corpus is indexed at the first query.

    Args:
        graph: The corpus.
        top_k: Candidates per query.
        k1: Saturation of term frequency.
        b: Length normalisation in [0, 1].

    Raises:
        ValueError: If ``top_k`` is below 1.
    """

    feature_names: tuple[str, ...] = (BASE_SCORE, "bm25_score")

    def __init__(self, graph: CorpusGraph, *, top_k: int = 100, k1: float = 1.5, b: float = 0.75) -> None:
        if top_k < 1:
            raise ValueError(f"`top_k` must be a positive integer, got {top_k}")
        self.top_k = top_k
        self.k1 = k1
        self.b = b
        self._texts = graph.texts

    @staticmethod
    def needs_vectors(**_: Any) -> bool:
        """Tell that no vectors are read."""
        return False

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each query.

        Args:
            queries: ``B`` texts.

        Returns:
            ``[B, top_k]`` nodes and scores in [0, 1], with ``features [B, top_k, 2]`` as in ``feature_names``.
        """
        rows = max(1, hybrid.BLOCK_SCORES // max(1, len(self._texts)))
        parts = []
        for start in range(0, max(1, len(queries)), rows):
            nodes, scores = top_k_by_node_order(
                lexical_scores(self._bm25, queries.block(start, start + rows).texts), self.top_k
            )
            listed = scores.masked_fill(nodes < 0, 0.0).unsqueeze(-1)
            parts.append(Ranking(nodes, scores, listed.expand(-1, -1, 2)))
        return concatenate(parts)

    @cached_property
    def _bm25(self) -> BM25:
        return BM25(self._texts, k1=self.k1, b=self.b)
