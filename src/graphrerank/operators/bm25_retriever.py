"""Lexical search as a retriever."""

from functools import cached_property
from typing import Any

from graphrerank.checks import check_counts
from graphrerank.graphs import CorpusGraph, Queries, Ranking, top_k_by_node_order
from graphrerank.graphs.retriever import BASE_SCORE
from graphrerank.operators import hybrid
from graphrerank.operators.bm25 import LexicalIndex, lexical_index
from graphrerank.operators.hybrid import lexical_scores


class BM25Retriever:
    """Rank the corpus by BM25, divided by the query's maximum over the corpus; no vectors are read.

    Nodes that share no word with the query have score 0 and follow in node order, so every query has ``top_k``
    candidates, even an empty one. The corpus is indexed at the first query.

    Args:
        k1: Saturation of term frequency.
        b: Length normalisation in [0, 1].
    """

    feature_names: tuple[str, ...] = (BASE_SCORE, "bm25_score")

    def __init__(self, graph: CorpusGraph, *, top_k: int = 100, k1: float = 1.5, b: float = 0.75) -> None:
        check_counts(top_k=top_k)
        self.top_k = top_k
        self.k1 = k1
        self.b = b
        self._graph = graph

    @staticmethod
    def needs_vectors(**_: Any) -> bool:
        """Return False, as no vectors are read."""
        return False

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` texts.

        Returns:
            ``[B, top_k]`` nodes and scores in [0, 1], with ``features [B, top_k, 2]`` as in ``feature_names``.
        """
        rows = max(1, hybrid.BLOCK_SCORES // max(1, self._graph.num_nodes))
        rankings = []
        for block in queries.blocks(rows):
            nodes, scores = top_k_by_node_order(
                self._graph.passages.mask_removed(lexical_scores(self._bm25, block.texts)), self.top_k
            )
            features = scores.masked_fill(nodes < 0, 0.0).unsqueeze(-1).expand(-1, -1, 2)
            rankings.append(Ranking(nodes, scores, features))
            self._graph.pages.release()
        return Ranking.concatenate(rankings)

    @cached_property
    def _bm25(self) -> LexicalIndex:
        return lexical_index(self._graph, k1=self.k1, b=self.b)
