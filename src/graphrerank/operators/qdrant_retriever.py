"""Candidates from a Qdrant server, by vectors."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphrerank.checks import check_choice, check_counts
from graphrerank.extras import require_extra
from graphrerank.graphs import CorpusGraph, Queries, Ranking
from graphrerank.graphs.content_hash import content_hash
from graphrerank.graphs.retriever import BASE_SCORE
from graphrerank.operators.dot_ranking import DotRanking
from graphrerank.operators.vector_store import Nodes, Vectors, fill_store, search_store
from graphrerank.passwords import check_no_password

FORMAT = 1  # raise it when the same corpus would give other points
CONTENT = "graphrerank"  # in the first point's payload: what the collection was made from
API_KEY = "QDRANT_API_KEY"  # environment variable of the server's key
TIMEOUT_S = 60


class QdrantStore:
    """A collection whose points are the passages, numbered as in the corpus, with ``id`` in their payload.

    Args:
        url: Address of the server; None for ``path``.
        path: Folder of the client's local mode, which compares all vectors in one process's memory; None for ``url``.
        collection: Its name.
        content: Hash of the corpus.
        dim: Length of the vectors.
        half: Whether vectors are kept as float16.
        index: ``flat`` for exact search, or ``hnsw``, Qdrant's own index.
        ef_search: HNSW: points kept open in a search.

    Raises:
        ValueError: If Qdrant's client is not installed.
    """

    def __init__(
        self,
        *,
        url: str | None,
        path: str | Path | None,
        collection: str,
        content: str,
        dim: int,
        half: bool,
        index: str,
        ef_search: int,
    ) -> None:
        require_extra("qdrant", "retriever=qdrant")
        self.where = f"collection {collection!r} of Qdrant at {url or path}"
        self._url, self._path, self._collection = url, path, collection
        self._content = f"{FORMAT}:{content}"
        self._dim, self._half, self._index, self._ef_search = dim, half, index, ef_search

    def count(self) -> int:
        """As of :class:`~graphrerank.operators.vector_store.VectorStore`."""
        with self._named():
            if not self._client.collection_exists(self._collection):
                return 0
            vectors = self._client.get_collection(self._collection).config.params.vectors
            count = int(self._client.count(self._collection, exact=True).count)
            first = self._client.retrieve(self._collection, ids=[0], with_payload=True) if count else []
        fits = getattr(vectors, "size", None) == self._dim and str(getattr(vectors, "distance", "")) == "Dot"
        if not fits or (count and not (first and (first[0].payload or {}).get(CONTENT) == self._content)):
            raise ValueError(
                f"{self.where}: holds another corpus, or vectors of another encoder; name another `collection` "
                "(retriever.collection=NAME)"
            )
        return count

    def add(self, start: int, node_ids: Sequence[str], texts: Sequence[str], vectors: Vectors) -> None:
        """As of :class:`~graphrerank.operators.vector_store.VectorStore`; two that add the same points do no harm."""
        from qdrant_client import models

        payloads: list[dict[str, Any]] = [{"id": node_id} for node_id in node_ids]
        if start == 0:
            payloads[0][CONTENT] = self._content
        points = models.Batch(
            ids=list(range(start, start + len(node_ids))), vectors=vectors.tolist(), payloads=payloads
        )
        with self._named():
            if not self._client.collection_exists(self._collection):
                settings = models.VectorParams(
                    size=self._dim,
                    distance=models.Distance.DOT,
                    datatype=models.Datatype.FLOAT16 if self._half else models.Datatype.FLOAT32,
                    on_disk=True,
                )
                self._client.create_collection(self._collection, vectors_config=settings)
            self._client.upsert(self._collection, points=points, wait=True)

    def finish(self) -> None:
        """Nothing: the server builds its index by itself, and searches what is not indexed yet exactly."""

    def nearest(self, vectors: Vectors, depth: int) -> Nodes:
        """As of :class:`~graphrerank.operators.vector_store.VectorStore`."""
        from qdrant_client import models

        params = None  # local mode always compares all
        if self._url is not None:
            params = models.SearchParams(exact=self._index == "flat", hnsw_ef=max(self._ef_search, depth))
        requests = [
            models.QueryRequest(query=vector.tolist(), limit=depth, params=params, with_payload=False)
            for vector in vectors
        ]
        with self._named():
            answers = self._client.query_batch_points(self._collection, requests=requests)
        found = np.full((len(vectors), depth), -1, dtype=np.int64)
        for row, answer in zip(found, answers, strict=True):
            row[: len(answer.points)] = [point.id for point in answer.points]
        return found

    @cached_property
    def _client(self) -> Any:
        from qdrant_client import QdrantClient

        if self._url is None:
            return QdrantClient(path=str(self._path))
        return QdrantClient(
            url=self._url, api_key=os.environ.get(API_KEY), timeout=TIMEOUT_S, check_compatibility=False
        )

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the collection in Qdrant's errors."""
        from qdrant_client.http.exceptions import ApiException

        try:
            yield
        except (ApiException, OSError, RuntimeError, ValueError) as error:
            raise ValueError(f"{self.where}: cannot be reached, read or written: {error}") from error


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
