"""Candidates from a LanceDB table, by vectors and full text."""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.checks import check_choice, check_counts, check_not_negative
from graphrerank.graphs import CorpusGraph, Queries, Ranking, top_k_by_node_order
from graphrerank.graphs.content_hash import content_hash
from graphrerank.graphs.retriever import BASE_SCORE, TEXT_FEATURES
from graphrerank.operators.dot_ranking import DotRanking
from graphrerank.operators.lance_store import LanceStore
from graphrerank.operators.vector_store import fill_store, search_store
from graphrerank.passwords import check_no_password

INDEXES = ("flat", "ivf")


@dataclass(eq=False)
class LanceDBRetriever:
    r"""Rank by :math:`w_b\,s(q, d) / \max_{d'} s(q, d') + w_d\,v_q \cdot v_d`, with LanceDB's BM25 score :math:`s`.

    The best ``proposals`` by vectors and as many by full text are scored; one that the full text did not propose has
    :math:`s = 0`. With ``bm25_weight=0`` that is vector search alone, and with ``index=flat`` its rankings are those of
    :class:`~graphrerank.operators.dense.DenseRetriever`: LanceDB compares all vectors, and scores are computed from the
    corpus's own.

    Source: as :class:`~graphrerank.operators.hybrid.HybridRetriever`. *Where we differ:* LanceDB's words are stemmed.

    The table is filled at the first query, unless it is there; a stopped one goes on where it was. It is bound to the
    passages, their order and their vectors: a table made from others is a ValueError that names it.
    """

    graph: InitVar[CorpusGraph]  # with its `embedding`, of unit vectors
    _: KW_ONLY
    top_k: int = 100  # candidates per query
    path: str | Path | None = None  # folder or address (`s3://...`) of the table alone; None: below `cache`
    cache: str | Path | None = None  # folder of tables, one for each corpus and encoder
    bm25_weight: float = 0.3  # not negative; 0: no full text
    dense_weight: float = 0.7  # not negative
    proposals: int = 500  # passages by each of the two searches, at least `top_k`
    index: str = "flat"  # exact; or `ivf`: cells of vectors of 8 bits a number
    num_probes: int = 16  # IVF: cells that a search visits
    batch: int = 1 << 15  # passages of a commit
    feature_names: tuple[str, ...] = field(init=False)

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_counts(top_k=self.top_k, proposals=self.proposals, num_probes=self.num_probes, batch=self.batch)
        check_choice(INDEXES, index=self.index)
        check_not_negative(bm25_weight=self.bm25_weight, dense_weight=self.dense_weight)
        if self.bm25_weight + self.dense_weight == 0:
            raise ValueError("`bm25_weight` and `dense_weight` must not both be 0, got 0 and 0")
        if self.bm25_weight and self.proposals < self.top_k:
            raise ValueError(f"`proposals` must be at least `top_k`, {self.top_k}, got {self.proposals}")
        if self.path is None and self.cache is None:
            raise ValueError("`path` or `cache` must be given, the folder of the table or of tables; got neither")
        check_no_password(path=str(self.path))
        self.feature_names = (BASE_SCORE, *(TEXT_FEATURES if self.bm25_weight else ("dense_score",)))
        self._graph, self._embedding = graph, graph.encoded
        depth = self.proposals if self.bm25_weight else self.top_k
        self._ranking = DotRanking(self._embedding, depth)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` texts with unit vectors.

        Returns:
            ``[B, top_k]`` nodes and scores, with ``features [B, top_k, F]`` as in ``feature_names``.
        """
        near = search_store(self._store, self._ranking, queries, is_exact=self.index == "flat")
        if not self.bm25_weight:
            return near
        found, score = map(torch.from_numpy, self._store.search_texts(queries.texts, self.proposals))
        found, score = found.to(near.nodes.device), score.to(near.nodes.device)
        score = score / score.amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        rows = [self._merge(*row) for row in zip(near.nodes, found, score, queries.encoded, strict=True)]
        if not rows:
            none = near.scores[:, : self.top_k]
            return Ranking(near.nodes[:, : self.top_k], none, none.new_zeros(*none.shape, len(self.feature_names)))
        return Ranking.concatenate(rows)

    def _merge(self, near: Tensor, found: Tensor, score: Tensor, vector: Tensor) -> Ranking:
        """Rank what one query's searches found, padded with -1: by vectors, and by words with a score."""
        nodes = torch.unique(torch.cat([near, found]))
        nodes = nodes[nodes >= 0]
        lexical = score.new_zeros(len(nodes))
        lexical[torch.searchsorted(nodes, found[found >= 0])] = score[found >= 0]
        dense = (self._embedding[nodes].float() * vector.to(nodes.device)).sum(1)
        hybrid = self.bm25_weight * lexical + self.dense_weight * dense
        column, scores = top_k_by_node_order(hybrid[None], self.top_k)
        features = torch.stack([hybrid, lexical, dense], dim=-1)[column.clamp(min=0)]
        return Ranking(
            nodes[column.clamp(min=0)].masked_fill(column < 0, -1),
            scores,
            features.masked_fill(column[..., None] < 0, 0.0),
        )

    @cached_property
    def _store(self) -> LanceStore:
        content = content_hash(self._graph)
        num_nodes, dim = self._embedding.shape
        store = LanceStore(
            Path(self.cache) / content[:32] if self.path is None and self.cache is not None else str(self.path),
            content=content, num_nodes=num_nodes, dim=dim, half=self._embedding.dtype == torch.float16,
            index=self.index, num_probes=self.num_probes, full_text=self.bm25_weight > 0,
        )  # fmt: skip
        if not store.is_finished:
            with store.alone():
                fill_store(store, self._graph, batch=self.batch)
        return store
