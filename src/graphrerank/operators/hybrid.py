"""Hybrid vector search: BM25 and cosine similarity in one score."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Ranking, top_k_by_node_order
from graphrerank.operators.bm25 import BM25

BLOCK_SCORES = 1 << 25  # scores held at once: 128 MiB of float32 per term


class HybridScores(NamedTuple):
    """Scores of the whole corpus for a block of queries, each ``[b, N]``."""

    hybrid: Tensor
    lexical: Tensor
    dense: Tensor

    def gather(self, nodes: Tensor) -> Tensor:
        """Look up the three scores of some nodes, ``[b, K]`` padded with -1, as ``[b, K, 3]`` padded with 0."""
        at = nodes.clamp(min=0)
        features = torch.stack([table.gather(1, at) for table in self], dim=-1)
        return features.masked_fill((nodes < 0).unsqueeze(-1), 0.0)


class HybridRetriever:
    r"""Rank the corpus by :math:`w_b\,\mathrm{BM25}(q, d) / \max_{d'} \mathrm{BM25}(q, d') + w_d\,\cos(q, d)`.

    Source: GraphER, section 3.1 (base retriever), with its weights 0.3 and 0.7 as defaults. The paper does not say how
    BM25 is normalised; we divide by the query's maximum over the corpus.

    Args:
        graph: The corpus with its ``embedding`` of unit vectors.
        top_k: Candidates per query.
        bm25_weight: Weight of BM25, not negative.
        dense_weight: Weight of the cosine, not negative.

    Raises:
        ValueError: If the corpus has no embedding, or an argument is out of range.
    """

    feature_names = ("base_score", "bm25_score", "dense_score")

    def __init__(
        self, graph: CorpusGraph, *, top_k: int = 100, bm25_weight: float = 0.3, dense_weight: float = 0.7
    ) -> None:
        if graph.embedding is None:
            raise ValueError("`graph` must have an embedding: encode the corpus first")
        if top_k < 1:
            raise ValueError(f"`top_k` must be a positive integer, got {top_k}")
        if min(bm25_weight, dense_weight) < 0 or bm25_weight + dense_weight == 0:
            raise ValueError(
                f"`bm25_weight` and `dense_weight` must not be negative nor both 0, got {bm25_weight}, {dense_weight}"
            )
        self.top_k = top_k
        self.bm25_weight = bm25_weight
        self.dense_weight = dense_weight
        self._bm25 = BM25(graph.texts)
        self._embedding = graph.embedding

    def retrieve(self, query_texts: Sequence[str], query_vectors: Tensor) -> Ranking:
        """Rank the corpus for each query.

        Args:
            query_texts: ``B`` texts.
            query_vectors: ``[B, d]`` unit vectors.

        Returns:
            ``[B, top_k]`` nodes and hybrid scores, with ``features [B, top_k, 3]`` as in ``feature_names``.
        """
        parts = []
        for _, table in self.score_blocks(query_texts, query_vectors):
            nodes, scores = top_k_by_node_order(table.hybrid, self.top_k)
            parts.append(Ranking(nodes, scores, table.gather(nodes)))
        return concatenate(parts)

    def score_blocks(self, query_texts: Sequence[str], query_vectors: Tensor) -> Iterator[tuple[Tensor, HybridScores]]:
        """Score the whole corpus for a few queries at a time, as many as memory allows.

        Yields:
            The block's query vectors ``[b, d]`` and its scores; one empty block when there are no queries.
        """
        rows = max(1, BLOCK_SCORES // max(1, len(self._embedding)))
        for start in range(0, max(1, len(query_texts)), rows):
            vectors = query_vectors[start : start + rows]
            lexical = self._bm25.score_all(query_texts[start : start + rows])
            lexical = lexical / lexical.amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
            dense = vectors @ self._embedding.T
            yield vectors, HybridScores(self.bm25_weight * lexical + self.dense_weight * dense, lexical, dense)


def concatenate(parts: Sequence[Ranking]) -> Ranking:
    """Put the rankings of blocks of queries, at least one and all with features, under each other."""
    return Ranking(
        torch.cat([part.nodes for part in parts]),
        torch.cat([part.scores for part in parts]),
        torch.cat([part.features for part in parts if part.features is not None]),
    )
