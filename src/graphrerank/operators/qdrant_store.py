"""Passages in a collection of Qdrant, a server for vectors."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from graphrerank.extras import require_extra
from graphrerank.operators.vector_store import Nodes, Vectors

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
