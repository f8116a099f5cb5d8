"""Hybrid vector search: BM25 and cosine similarity in one score."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking, Retriever, top_k_by_node_order
from graphrerank.core.ranking import rank_candidates
from graphrerank.core.retriever import BASE_SCORE, TEXT_FEATURES
from graphrerank.corpus import CorpusGraph
from graphrerank.operators.bm25 import BLOCK_SCORES, LexicalIndex, lexical_index, lexical_scores
from graphrerank.operators.dense import BLOCK_VECTORS, DenseRetriever, dot_products
from graphrerank.utils.checks import UserError, check_counts


class HybridScores(NamedTuple):
    """Scores of a block of queries, of the whole corpus or, if nodes were proposed, computed on demand."""

    vectors: Tensor  # `[b, d]`, of the queries
    embedding: Tensor  # `[N, d]`
    weights: tuple[float, float]  # of BM25 and of the dot product
    lexical: Tensor  # `[b, N]`
    dense: Tensor | None = None  # `[b, N]`; None if nodes were proposed

    def gather(self, nodes: Tensor) -> Tensor:
        """Return the hybrid, BM25 and dense scores of nodes ``[b, K]`` padded with -1, as ``[b, K, 3]``."""
        column = nodes.clamp(min=0)
        lexical = self.lexical.gather(1, column)
        dense = (
            dot_products(self.embedding, column, self.vectors) if self.dense is None else self.dense.gather(1, column)
        )
        features = torch.stack([self.hybrid(lexical, dense), lexical, dense], dim=-1)
        return features.masked_fill((nodes < 0).unsqueeze(-1), 0.0)

    def hybrid(self, lexical: Tensor, dense: Tensor) -> Tensor:
        """Return the weighted sum of scores of any shape."""
        return self.weights[0] * lexical + self.weights[1] * dense


@dataclass(eq=False)
class HybridRetriever(Retriever):
    r"""Rank the corpus by :math:`w_b\,\mathrm{BM25}(q, d) / \max_{d'} \mathrm{BM25}(q, d') + w_d\,\cos(q, d)`.

    Source: GraphER, section 3.1 (base retriever). The paper does not say how BM25 is normalised; we divide by the
    query's maximum over the corpus. With ``proposals``, only that many of the best nodes by vectors and by BM25 are
    scored, and a node among neither is not found.
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
            raise UserError(f"`proposals` must be at least `top_k`, {self.top_k}, or null, got {self.proposals}")
        weights = self.bm25_weight, self.dense_weight
        if min(weights) < 0 or sum(weights) == 0:
            raise UserError(
                f"`bm25_weight` and `dense_weight` must not be negative nor both 0, got {weights[0]}, {weights[1]}"
            )
        self._graph = graph
        self._embedding = graph.encoded
        self._dense = None
        if self.proposals is not None:
            self._dense = DenseRetriever(graph, top_k=self.proposals, index=self.index, num_probes=self.num_probes)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` texts with unit vectors: ``[B, top_k]``, ``features [B, top_k, 3]``."""
        return Ranking.concatenate([ranking for ranking, _ in self.rank(queries)])

    def rank(self, queries: Queries) -> Iterator[tuple[Ranking, HybridScores]]:
        """Yield the ranking and the scores of blocks of queries that fit into memory; one block without queries."""
        for block in queries.blocks(max(1, BLOCK_SCORES // max(1, len(self._embedding)))):
            vectors = block.encoded.to(self._embedding.device)
            lexical = lexical_scores(self._bm25, block.texts).to(vectors.device)
            self._graph.pages.release()
            table = HybridScores(vectors, self._embedding, (self.bm25_weight, self.dense_weight), lexical)
            if self._dense is not None:
                near = self._dense.retrieve(block).nodes.to(lexical.device)
                likely, _ = top_k_by_node_order(self._graph.passages.mask_removed(lexical), near.shape[1])
                nodes = without_repeats(torch.sort(torch.cat([near, likely], dim=1), dim=1).values)
                yield rank_candidates(nodes, table.gather(nodes), self.top_k), table
                continue
            dense = _all_dot_products(vectors, self._embedding)
            table = table._replace(dense=dense)
            hybrid = self._graph.passages.mask_removed(table.hybrid(lexical, dense))
            nodes, scores = top_k_by_node_order(hybrid, self.top_k)
            yield Ranking(nodes, scores, table.gather(nodes)), table

    @cached_property
    def _bm25(self) -> LexicalIndex:
        return lexical_index(self._graph)


def without_repeats(ascending: Tensor) -> Tensor:
    """Replace all but the first of equal nodes of a row ``[b, M]`` by -1."""
    repeated = ascending[:, 1:] == ascending[:, :-1]
    return torch.cat([ascending[:, :1], ascending[:, 1:].masked_fill(repeated, -1)], dim=1)


def _all_dot_products(vectors: Tensor, embedding: Tensor) -> Tensor:
    """Multiply query vectors ``[b, d]`` with all node vectors: ``[b, N]``; float16 ones are read in blocks."""
    if embedding.dtype == torch.float32:
        return vectors @ embedding.T
    return torch.cat([vectors @ block.float().T for block in torch.split(embedding, BLOCK_VECTORS)], dim=1)
