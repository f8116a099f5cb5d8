"""Hybrid search: combine BM25 and cosine similarity in one score."""

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
    """Scores of a block of queries.

    Attributes:
        vectors: Query vectors ``[b, d]``.
        embedding: Node vectors ``[N, d]``.
        weights: Weights of the BM25 score and of the dot product.
        lexical: Normalised BM25 scores of all nodes, ``[b, N]``.
        dense: Dot products with all nodes, ``[b, N]``. If None, they are computed when they are needed.
    """

    vectors: Tensor
    embedding: Tensor
    weights: tuple[float, float]
    lexical: Tensor
    dense: Tensor | None = None

    def gather(self, nodes: Tensor) -> Tensor:
        """Return the hybrid, BM25 and dense scores of the given nodes.

        Args:
            nodes: Node indices ``[b, K]``, padded with -1.

        Returns:
            Scores ``[b, K, 3]``, 0 for padding.
        """
        column = nodes.clamp(min=0)
        lexical = self.lexical.gather(1, column)
        dense = (
            dot_products(self.embedding, column, self.vectors) if self.dense is None else self.dense.gather(1, column)
        )
        features = torch.stack([self.hybrid(lexical, dense), lexical, dense], dim=-1)
        return features.masked_fill((nodes < 0).unsqueeze(-1), 0.0)

    def hybrid(self, lexical: Tensor, dense: Tensor) -> Tensor:
        """Return the weighted sum of BM25 and dense scores.

        Args:
            lexical: Normalised BM25 scores, of any shape.
            dense: Dot products of the same shape.

        Returns:
            Hybrid scores of the same shape.
        """
        return self.weights[0] * lexical + self.weights[1] * dense


@dataclass(eq=False)
class HybridRetriever(Retriever):
    r"""Rank the corpus by a weighted sum of BM25 and cosine similarity.

    .. math:: s(q, d) = w_b\,\frac{\mathrm{BM25}(q, d)}{\max_{d'} \mathrm{BM25}(q, d')} + w_d\,\cos(q, d)

    Source: GraphER, section 3.1 (base retriever). The paper does not say how BM25 is normalised. Here it is divided by
    the query's maximum over the corpus.

    Args:
        graph: Corpus graph with an ``embedding`` of unit vectors.

    Attributes:
        top_k: Number of candidates per query.
        bm25_weight: Weight :math:`w_b` of BM25, at least 0.
        dense_weight: Weight :math:`w_d` of the cosine similarity, at least 0.
        proposals: Number of nodes that the vector search and BM25 each propose, at least ``top_k``. Only proposed nodes
            are scored. If None, all nodes are scored.
        index: Kind of index for the vector search if ``proposals`` is set. See :class:`DenseRetriever`.
        num_probes: Number of cells of an IVF index that each search visits.
        feature_names: Names of the hybrid, BM25 and dense score of a candidate.

    Example:
        >>> graph = CorpusGraph.from_edges(["a", "b"], ["red apple", "green pear"], torch.tensor([[0, 1]]))
        >>> graph = graph.with_embedding(torch.tensor([[1.0, 0.0], [0.6, 0.8]]))
        >>> HybridRetriever(graph, top_k=2).retrieve(Queries(["q1"], ["pear"], torch.tensor([[1.0, 0.0]]))).scores
        tensor([[0.7200, 0.7000]])
    """

    graph: InitVar[CorpusGraph]
    _: KW_ONLY
    top_k: int = 100
    bm25_weight: float = 0.3
    dense_weight: float = 0.7
    proposals: int | None = None
    index: str = "flat"
    num_probes: int = 16
    feature_names: tuple[str, ...] = field(default=(BASE_SCORE, *TEXT_FEATURES), init=False)

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_counts(top_k=self.top_k, proposals=self.proposals)
        if self.proposals is not None and self.proposals < self.top_k:
            raise UserError(f"`proposals` must be null or at least `top_k`, {self.top_k}, got {self.proposals}")
        weights = self.bm25_weight, self.dense_weight
        if min(weights) < 0 or sum(weights) == 0:
            raise UserError(
                "`bm25_weight` and `dense_weight` must be at least 0, and one of them positive, "
                f"got {weights[0]} and {weights[1]}"
            )
        self._graph = graph
        self._embedding = graph.encoded
        self._dense = None
        if self.proposals is not None:
            self._dense = DenseRetriever(graph, top_k=self.proposals, index=self.index, num_probes=self.num_probes)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus by hybrid score.

        Args:
            queries: ``B`` queries with unit vectors.

        Returns:
            Ranking ``[B, top_k]`` with ``features [B, top_k, 3]``: the hybrid, BM25 and dense scores.
        """
        return Ranking.concatenate([ranking for ranking, _ in self.rank(queries)])

    def rank(self, queries: Queries) -> Iterator[tuple[Ranking, HybridScores]]:
        """Rank the corpus in blocks of queries that fit into memory.

        Args:
            queries: ``B`` queries with unit vectors.

        Yields:
            Ranking and scores of each block. There is one empty block if there are no queries.
        """
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
    """Replace repeated nodes in each row by -1.

    Args:
        ascending: Node indices ``[b, M]``, sorted along each row.

    Returns:
        Node indices ``[b, M]``. The first of equal nodes remains.
    """
    repeated = ascending[:, 1:] == ascending[:, :-1]
    return torch.cat([ascending[:, :1], ascending[:, 1:].masked_fill(repeated, -1)], dim=1)


def _all_dot_products(vectors: Tensor, embedding: Tensor) -> Tensor:
    """Multiply query vectors ``[b, d]`` with all node vectors, ``[b, N]``. Convert float16 vectors block by block."""
    if embedding.dtype == torch.float32:
        return vectors @ embedding.T
    return torch.cat([vectors @ block.float().T for block in torch.split(embedding, BLOCK_VECTORS)], dim=1)
