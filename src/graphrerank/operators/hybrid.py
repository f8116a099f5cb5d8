"""Hybrid vector search: BM25 and cosine similarity in one score."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.graphs import CorpusGraph, Queries, Ranking, top_k_by_node_order
from graphrerank.graphs.retriever import BASE_SCORE, TEXT_FEATURES
from graphrerank.operators.bm25 import BLOCK_SCORES, LexicalIndex, lexical_index, lexical_scores
from graphrerank.operators.dense import BLOCK_VECTORS, DenseRetriever


class HybridScores(NamedTuple):
    """Scores of the whole corpus for a block of queries, each ``[b, N]``."""

    hybrid: Tensor
    lexical: Tensor
    dense: Tensor

    def top(self, top_k: int) -> tuple[Tensor, Tensor]:
        """Rank by the hybrid score: nodes ``[b, top_k]`` and scores, as :func:`top_k_by_node_order`."""
        return top_k_by_node_order(self.hybrid, top_k)

    def gather(self, nodes: Tensor) -> Tensor:
        """Return the three scores of nodes ``[b, K]`` padded with -1, as ``[b, K, 3]`` padded with 0."""
        column = nodes.clamp(min=0)
        features = torch.stack([table.gather(1, column) for table in self], dim=-1)
        return features.masked_fill((nodes < 0).unsqueeze(-1), 0.0)


class ProposedScores(NamedTuple):
    """Scores of proposed nodes, and of any others on demand; as :class:`HybridScores`."""

    proposed: Tensor  # `[b, P]` int64, ascending, each once; padded with -1 anywhere
    lexical: Tensor  # `[b, N]`
    vectors: Tensor  # `[b, d]`
    embedding: Tensor  # `[N, d]`
    weights: tuple[float, float]  # of BM25 and of the dot product

    def top(self, top_k: int) -> tuple[Tensor, Tensor]:
        """Rank the proposed nodes by the hybrid score."""
        hybrid = self.gather(self.proposed)[..., 0].masked_fill(self.proposed < 0, -torch.inf)
        column, scores = top_k_by_node_order(hybrid, top_k)
        return self.proposed.gather(1, column.clamp(min=0)).masked_fill(column < 0, -1), scores

    def gather(self, nodes: Tensor) -> Tensor:
        """Return the hybrid, BM25 and dense scores of nodes ``[b, K]`` padded with -1, as ``[b, K, 3]``."""
        column = nodes.clamp(min=0)
        lexical = self.lexical.gather(1, column)
        dense = torch.zeros_like(lexical)
        for row, found, vector in zip(dense, column, self.vectors, strict=True):
            row[:] = (self.embedding[found].float() * vector).sum(1)
        hybrid = self.weights[0] * lexical + self.weights[1] * dense
        return torch.stack([hybrid, lexical, dense], dim=-1).masked_fill((nodes < 0).unsqueeze(-1), 0.0)


@dataclass(eq=False)
class HybridRetriever:
    r"""Rank the corpus by :math:`w_b\,\mathrm{BM25}(q, d) / \max_{d'} \mathrm{BM25}(q, d') + w_d\,\cos(q, d)`.

    Source: GraphER, section 3.1 (base retriever), with its weights 0.3 and 0.7 as defaults. The paper does not say how
    BM25 is normalised; we divide by the query's maximum over the corpus. The corpus is indexed at the first query.

    With ``proposals``, only that many of the best nodes by vectors and by BM25 are scored. A node among neither is not
    found, though its sum might be; the scores of those found are the same.
    """

    graph: InitVar[CorpusGraph]  # with its `embedding` of unit vectors
    _: KW_ONLY
    top_k: int = 100  # candidates per query
    bm25_weight: float = 0.3  # not negative
    dense_weight: float = 0.7  # of the cosine, not negative
    proposals: int | None = None  # nodes scored by each of the two searches, at least `top_k`; None for all nodes
    index: str = "flat"  # of the search by vectors for proposals, as of `DenseRetriever`: `flat`, `ivf` or `hnsw`
    num_probes: int = 16  # IVF: cells that a search visits
    feature_names: tuple[str, ...] = field(default=(BASE_SCORE, *TEXT_FEATURES), init=False)

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_counts(top_k=self.top_k, proposals=self.proposals)
        if self.proposals is not None and self.proposals < self.top_k:
            raise ValueError(f"`proposals` must be at least `top_k`, {self.top_k}, or null, got {self.proposals}")
        weights = self.bm25_weight, self.dense_weight
        if min(weights) < 0 or sum(weights) == 0:
            raise ValueError(
                f"`bm25_weight` and `dense_weight` must not be negative nor both 0, got {weights[0]}, {weights[1]}"
            )
        self._graph = graph
        self._embedding = graph.encoded
        self._dense = None
        if self.proposals is not None:
            self._dense = DenseRetriever(graph, top_k=self.proposals, index=self.index, num_probes=self.num_probes)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` texts with unit vectors: ``[B, top_k]``, ``features [B, top_k, 3]``."""
        rankings = []
        for _, table in self.score_blocks(queries):
            nodes, scores = table.top(self.top_k)
            rankings.append(Ranking(nodes, scores, table.gather(nodes)))
        return Ranking.concatenate(rankings)

    def score_blocks(self, queries: Queries) -> Iterator[tuple[Tensor, HybridScores | ProposedScores]]:
        """Score the whole corpus, or the proposed nodes, for blocks of queries that fit into memory.

        Yields the block's query vectors ``[b, d]`` and its scores; one empty block if there are no queries.
        """
        for block in queries.blocks(max(1, BLOCK_SCORES // max(1, len(self._embedding)))):
            vectors = block.encoded.to(self._embedding.device)
            lexical = lexical_scores(self._bm25, block.texts).to(vectors.device)
            self._graph.pages.release()
            if self._dense is not None:
                near = self._dense.retrieve(block).nodes.to(lexical.device)
                yield vectors, self._proposed(near, lexical, vectors)
                continue
            dense = _dot_products(vectors, self._embedding)
            hybrid = self._graph.passages.mask_removed(self.bm25_weight * lexical + self.dense_weight * dense)
            yield vectors, HybridScores(hybrid, lexical, dense)

    def _proposed(self, near: Tensor, lexical: Tensor, vectors: Tensor) -> ProposedScores:
        likely, _ = top_k_by_node_order(self._graph.passages.mask_removed(lexical), near.shape[1])
        proposed = torch.sort(torch.cat([near, likely], dim=1), dim=1).values
        proposed[:, 1:] = proposed[:, 1:].masked_fill(proposed[:, 1:] == proposed[:, :-1], -1)
        return ProposedScores(proposed, lexical, vectors, self._embedding, (self.bm25_weight, self.dense_weight))

    @cached_property
    def _bm25(self) -> LexicalIndex:
        return lexical_index(self._graph)


def _dot_products(vectors: Tensor, embedding: Tensor) -> Tensor:
    """Multiply query vectors ``[b, d]`` with all node vectors: ``[b, N]``; float16 ones are read in blocks."""
    if embedding.dtype == torch.float32:
        return vectors @ embedding.T
    return torch.cat([vectors @ block.float().T for block in torch.split(embedding, BLOCK_VECTORS)], dim=1)
