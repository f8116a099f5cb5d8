"""Retrieve candidates by vector search in a Qdrant collection."""

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from graphrerank.core.retriever import BASE_SCORE
from graphrerank.corpus import CorpusGraph
from graphrerank.operators.vector_store import FORMAT, Nodes, Vectors, VectorStoreRetriever
from graphrerank.utils.checks import UserError, check_counts
from graphrerank.utils.redaction import check_no_password

#: Field in the payload of the first point that identifies the corpus of the collection.
CONTENT_PAYLOAD = "graphrerank"
#: Environment variable with the API key of the server.
API_KEY = "QDRANT_API_KEY"
#: Timeout of a request, in seconds.
TIMEOUT_S = 60


@dataclass(eq=False)
class QdrantRetriever(VectorStoreRetriever):
    r"""Rank the corpus by the dot product :math:`v_q \cdot v_n`, with candidates from Qdrant.

    Ties are broken by node index. With ``index="flat"``, the rankings equal those of
    :class:`~graphrerank.operators.dense.DenseRetriever`. The points of a collection are the passages, with their ``id``
    in the payload. The API key of the server is read from the environment variable ``QDRANT_API_KEY``.

    Args:
        graph: Corpus graph with an ``embedding``.

    Attributes:
        url: URL of the server. None if ``path`` is used.
        path: Folder of the client's local mode, which is meant for experiments. It keeps the vectors in the memory of a
            single process. None if ``url`` is used.
        collection: Name of the collection. If None, each corpus and encoder has its own collection.
        ef_search: Size of the candidate queue of an HNSW search. Values below ``top_k`` are raised to it.
        feature_names: Names of the features of a candidate, which both equal the dot product.

    Example:
        .. code-block:: python

            graph = dataset.graph.with_embedding(vectors)
            retriever = QdrantRetriever(graph, url="http://localhost:6333", top_k=100)
            ranking = retriever.retrieve(Queries(ids, texts, query_vectors))
    """

    _: KW_ONLY
    url: str | None = "http://localhost:6333"
    path: str | Path | None = None
    collection: str | None = None
    ef_search: int = 128
    feature_names: tuple[str, ...] = field(default=(BASE_SCORE, "dense_score"), init=False)

    extra, indexes = "qdrant", ("flat", "hnsw")

    def __post_init__(self, graph: CorpusGraph) -> None:
        super().__post_init__(graph)
        check_counts(ef_search=self.ef_search)
        if (self.url is None) == (self.path is None):
            raise UserError(
                f"either `url` or `path` must be set and the other null, got {self.url!r} and {self.path!r}"
            )
        check_no_password(url=self.url or "")

    @property
    def where(self) -> str:
        """Name of the collection and its server, for messages."""
        return f"collection {self._collection!r} of Qdrant at {self.url or self.path}"

    def count(self) -> int:
        """Return the number of passages in the collection, 0 if it does not exist.

        Raises:
            UserError: If the collection contains another corpus or cannot be reached.
        """
        with self._named():
            if not self._client.collection_exists(self._collection):
                return 0
            vectors = self._client.get_collection(self._collection).config.params.vectors
            count = int(self._client.count(self._collection, exact=True).count)
            first = self._client.retrieve(self._collection, ids=[0], with_payload=True) if count else []
        fits = getattr(vectors, "size", None) == self._dim and str(getattr(vectors, "distance", "")) == "Dot"
        if not fits or (count and not (first and (first[0].payload or {}).get(CONTENT_PAYLOAD) == self._stamp)):
            raise self._other_corpus("collection", "NAME")
        return count

    def add(self, start: int, node_ids: Sequence[str], texts: Sequence[str], vectors: Vectors) -> None:
        """Store consecutive passages. Adding the same points from two processes is safe.

        Args:
            start: Index of the first passage.
            node_ids: Ids of ``n`` passages.
            texts: Texts of the passages.
            vectors: Vectors of the passages, ``[n, d]``.
        """
        from qdrant_client import models

        payloads: list[dict[str, Any]] = [{"id": node_id} for node_id in node_ids]
        if start == 0:
            payloads[0][CONTENT_PAYLOAD] = self._stamp
        numbers = list(range(start, start + len(node_ids)))
        points = models.Batch(ids=numbers, vectors=vectors.tolist(), payloads=payloads)
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

    def nearest(self, vectors: Vectors, depth: int) -> Nodes:
        """Return the passages with the largest dot products.

        Args:
            vectors: Query vectors ``[B, d]``.
            depth: Number of passages per query.
        """
        from qdrant_client import models

        params = None  # local mode has no index and always searches exactly
        if self.url is not None:
            params = models.SearchParams(exact=self.index == "flat", hnsw_ef=max(self.ef_search, depth))
        subset = None
        if self._nodes is not None:
            subset = models.Filter(must=[models.HasIdCondition(has_id=self._nodes.tolist())])
        requests = [
            models.QueryRequest(query=vector.tolist(), limit=depth, params=params, filter=subset, with_payload=False)
            for vector in vectors
        ]
        with self._named():
            answers = self._client.query_batch_points(self._collection, requests=requests)
        nodes = np.full((len(vectors), depth), -1, dtype=np.int64)
        for row, answer in zip(nodes, answers, strict=True):
            row[: len(answer.points)] = [point.id for point in answer.points]
        return nodes

    @property
    def _stamp(self) -> str:
        return f"{FORMAT}:{self._content}"

    @property
    def _dim(self) -> int:
        return self._embedding.shape[1]

    @property
    def _collection(self) -> str:
        return self.collection or f"graphrerank-{self._content[:32]}"

    @cached_property
    def _client(self) -> Any:
        from qdrant_client import QdrantClient

        if self.url is None:
            return QdrantClient(path=str(self.path))
        key = os.environ.get(API_KEY)
        return QdrantClient(url=self.url, api_key=key, timeout=TIMEOUT_S, check_compatibility=False)
