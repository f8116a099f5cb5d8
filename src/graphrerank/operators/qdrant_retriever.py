"""Candidates from a Qdrant server, by vectors."""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from graphrerank.checks import check_choice, check_counts
from graphrerank.graphs import CorpusGraph, Queries, Ranking
from graphrerank.graphs.content_hash import content_hash
from graphrerank.graphs.retriever import BASE_SCORE
from graphrerank.operators.dot_ranking import DotRanking
from graphrerank.operators.qdrant_store import QdrantStore
from graphrerank.operators.vector_store import fill_store, search_store
from graphrerank.passwords import check_no_password

INDEXES = ("flat", "hnsw")


@dataclass(eq=False)
class QdrantRetriever:
    r"""Rank the corpus by :math:`v_q \cdot v_n`, proposed by Qdrant, ties broken by node index.

    With ``index=flat`` the rankings are those of ``DenseRetriever``: Qdrant compares all
    vectors, and scores are computed from the corpus's own.

    The collection is filled at the first query, unless it is there; a stopped one goes on where it was. It is bound to
    the passages, their order and their vectors: a collection made from others is a ValueError that names it. A key of
    the server is read from ``QDRANT_API_KEY``.
    """

    graph: InitVar[CorpusGraph]  # with its `embedding`
    _: KW_ONLY
    top_k: int = 100  # candidates per query
    url: str | None = "http://localhost:6333"  # of the server; None for `path`
    path: str | Path | None = None  # folder of the client's local mode, for trials: one process, in its memory
    collection: str | None = None  # its name; None: one for each corpus and encoder
    index: str = "flat"  # exact; or `hnsw`, Qdrant's own index
    ef_search: int = 128  # HNSW: points kept open in a search, at least `top_k`
    batch: int = 1024  # passages sent at once
    feature_names: tuple[str, ...] = field(default=(BASE_SCORE, "dense_score"), init=False)

    def __post_init__(self, graph: CorpusGraph) -> None:
        check_counts(top_k=self.top_k, ef_search=self.ef_search, batch=self.batch)
        check_choice(INDEXES, index=self.index)
        if (self.url is None) == (self.path is None):
            raise ValueError(
                f"either `url` or `path` must be given, the other null; got {self.url!r} and {self.path!r}"
            )
        if self.url is not None:
            check_no_password(url=self.url)
        self._graph, self._embedding = graph, graph.encoded
        self._ranking = DotRanking(self._embedding, self.top_k)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` queries, which need vectors.

        Returns:
            ``[B, top_k]`` nodes and dot products, with ``features [B, top_k, 2]`` as in ``feature_names``.
        """
        return search_store(self._store, self._ranking, queries, is_exact=self.index == "flat")

    @cached_property
    def _store(self) -> QdrantStore:
        content = content_hash(self._graph)
        store = QdrantStore(
            url=self.url, path=self.path, collection=self.collection or f"graphrerank-{content[:32]}",
            content=content, dim=self._embedding.shape[1], half=self._embedding.dtype == torch.float16,
            index=self.index, ef_search=self.ef_search,
        )  # fmt: skip
        fill_store(store, self._graph, batch=self.batch)
        return store
