"""Hybrid vector search: BM25 and cosine similarity in one score."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.graphs import CorpusGraph, Queries, Ranking, top_k_by_node_order
from graphrerank.graphs.retriever import BASE_SCORE, TEXT_FEATURES
from graphrerank.operators.bm25 import LexicalIndex, lexical_index

BLOCK_SCORES = 1 << 25  # scores held at once: 128 MiB of float32 per term
BLOCK_VECTORS = 1 << 14  # float16 vectors converted at once


class HybridScores(NamedTuple):
    """Scores of the whole corpus for a block of queries, each ``[b, N]``."""

    hybrid: Tensor
    lexical: Tensor
    dense: Tensor

    def gather(self, nodes: Tensor) -> Tensor:
        """Return the three scores of nodes ``[b, K]`` padded with -1, as ``[b, K, 3]`` padded with 0."""
        column = nodes.clamp(min=0)
        features = torch.stack([table.gather(1, column) for table in self], dim=-1)
        return features.masked_fill((nodes < 0).unsqueeze(-1), 0.0)


class HybridRetriever:
    r"""Rank the corpus by :math:`w_b\,\mathrm{BM25}(q, d) / \max_{d'} \mathrm{BM25}(q, d') + w_d\,\cos(q, d)`.

    Source: GraphER, section 3.1 (base retriever), with its weights 0.3 and 0.7 as defaults. The paper does not say how
    BM25 is normalised; we divide by the query's maximum over the corpus. The corpus is indexed at the first query.

    Args:
        graph: The corpus with its ``embedding`` of unit vectors.
        top_k: Candidates per query.
        bm25_weight: Weight of BM25, not negative.
        dense_weight: Weight of the cosine, not negative.

    Raises:
        ValueError: If the corpus has no embedding, or an argument is out of range.
    """

    feature_names: tuple[str, ...] = (BASE_SCORE, *TEXT_FEATURES)

    def __init__(
        self, graph: CorpusGraph, *, top_k: int = 100, bm25_weight: float = 0.3, dense_weight: float = 0.7
    ) -> None:
        check_counts(top_k=top_k)
        if min(bm25_weight, dense_weight) < 0 or bm25_weight + dense_weight == 0:
            raise ValueError(
                f"`bm25_weight` and `dense_weight` must not be negative nor both 0, got {bm25_weight}, {dense_weight}"
            )
        self.top_k = top_k
        self.bm25_weight = bm25_weight
        self.dense_weight = dense_weight
        self._graph = graph
        self._embedding = graph.encoded

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` texts, which need unit vectors.

        Returns:
            ``[B, top_k]`` nodes and hybrid scores, with ``features [B, top_k, 3]`` as in ``feature_names``.
        """
        rankings = []
        for _, table in self.score_blocks(queries):
            nodes, scores = top_k_by_node_order(table.hybrid, self.top_k)
            rankings.append(Ranking(nodes, scores, table.gather(nodes)))
        return Ranking.concatenate(rankings)

    def score_blocks(self, queries: Queries) -> Iterator[tuple[Tensor, HybridScores]]:
        """Score the whole corpus for blocks of queries that fit into memory.

        Yields the block's query vectors ``[b, d]`` and its scores; one empty block if there are no queries.
        """
        rows = max(1, BLOCK_SCORES // max(1, len(self._embedding)))
        for block in queries.blocks(rows):
            vectors = block.encoded.to(self._embedding.device)
            lexical = lexical_scores(self._bm25, block.texts).to(vectors.device)
            dense = dot_products(vectors, self._embedding)
            yield vectors, HybridScores(self.bm25_weight * lexical + self.dense_weight * dense, lexical, dense)

    @cached_property
    def _bm25(self) -> LexicalIndex:
        return lexical_index(self._graph)


def dot_products(vectors: Tensor, embedding: Tensor) -> Tensor:
    """Multiply query vectors ``[b, d]`` with all node vectors: ``[b, N]``; float16 ones are read in blocks."""
    if embedding.dtype == torch.float32:
        return vectors @ embedding.T
    return torch.cat([vectors @ block.float().T for block in torch.split(embedding, BLOCK_VECTORS)], dim=1)


def lexical_scores(bm25: LexicalIndex, query_texts: Sequence[str]) -> Tensor:
    """Score the whole corpus by BM25, divided by each query's maximum: ``[b, N]`` in [0, 1]."""
    scores = bm25.score_all(query_texts)
    return scores / scores.amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
