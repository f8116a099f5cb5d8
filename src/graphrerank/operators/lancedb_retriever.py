"""Candidates from a LanceDB table, by vectors and full text."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.checks import check_choice, check_counts, check_not_negative
from graphrerank.extras import require_extra
from graphrerank.files import sole_use
from graphrerank.graphs import CorpusGraph, Queries, Ranking, top_k_by_node_order
from graphrerank.graphs.content_hash import content_hash
from graphrerank.graphs.retriever import BASE_SCORE, TEXT_FEATURES
from graphrerank.operators.dot_ranking import DotRanking
from graphrerank.operators.vector_store import Nodes, Vectors, fill_store, search_store
from graphrerank.passwords import check_no_password

FORMAT = 1  # raise it when the same corpus would give another table
TABLE = "passages"
TRAINED_VECTORS = 64  # at least, per cell of an IVF index
CONTENT = b"graphrerank.content"  # of the schema: what the table was made from
BROKEN = (OSError, RuntimeError, ValueError)  # by LanceDB, of a table that it cannot read or write


class LanceStore:
    """A table with columns ``node``, ``id``, ``text`` and ``vector``.

    Args:
        uri: A folder for this table alone, or an address of an object store (``s3://bucket/folder``).
        content: Hash of the corpus.
        num_nodes: Its passages.
        dim: Length of the vectors.
        half: Whether vectors are kept as float16.
        index: ``flat`` for exact search, or ``ivf``: cells of vectors of 8 bits a number.
        num_probes: IVF: cells that a search visits.
        full_text: Whether :meth:`search_texts` is needed.

    Raises:
        ValueError: If LanceDB is not installed.
    """

    def __init__(
        self,
        uri: str | Path,
        *,
        content: str,
        num_nodes: int,
        dim: int,
        half: bool,
        index: str,
        num_probes: int,
        full_text: bool,
    ) -> None:
        require_extra("lancedb", "retriever=lancedb")
        self.where = str(uri)
        self._content = f"{FORMAT}:{content}".encode()
        self._num_nodes, self._dim, self._half = num_nodes, dim, half
        self._index, self._num_probes, self._full_text = index, num_probes, full_text

    def alone(self) -> AbstractContextManager[None]:
        """Wait until no other process of this machine fills the folder; of an object store nothing is known."""
        return nullcontext() if "://" in self.where else sole_use(Path(self.where), wait=True)

    def count(self) -> int:
        """As of :class:`~graphrerank.operators.vector_store.VectorStore`."""
        with self._named():
            if TABLE not in self._tables():
                return 0
            schema = self._table.schema
            count = int(self._table.count_rows())
        if not schema.equals(self._schema, check_metadata=True):
            raise ValueError(
                f"{self.where}: holds another corpus, or vectors of another encoder; prepare this one elsewhere, with "
                "`path` (retriever.path=DIR)"
            )
        return count

    @property
    def is_finished(self) -> bool:
        """Whether all passages and indexes are there."""
        return self.count() == self._num_nodes and not self._missing_indexes()

    def add(self, start: int, node_ids: Sequence[str], texts: Sequence[str], vectors: Vectors) -> None:
        """As of :class:`~graphrerank.operators.vector_store.VectorStore`; one commit of the table."""
        import pyarrow as pa

        dtype = np.float16 if self._half else np.float32
        columns = {
            "node": np.arange(start, start + len(node_ids), dtype=np.int64),
            "id": [_valid(text) for text in node_ids],
            "text": [_valid(text) for text in texts],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(dtype).reshape(-1)), self._dim),
        }
        with self._named():
            if TABLE not in self._tables():
                self._database.create_table(TABLE, schema=self._schema)
            self._table.add(pa.table(columns, schema=self._schema))

    def finish(self) -> None:
        """As of :class:`~graphrerank.operators.vector_store.VectorStore`."""
        from lancedb.index import FTS, IvfSq

        with self._named():
            for column in self._missing_indexes():
                if column == "text":
                    self._table.create_index("text", config=FTS())
                else:
                    cells = max(1, min(int(self._num_nodes**0.5), self._num_nodes // TRAINED_VECTORS))
                    config = IvfSq(distance_type="dot", num_partitions=cells, sample_rate=TRAINED_VECTORS)
                    self._table.create_index("vector", config=config)

    def nearest(self, vectors: Vectors, depth: int) -> Nodes:
        """As of :class:`~graphrerank.operators.vector_store.VectorStore`."""
        found = np.full((len(vectors), depth), -1, dtype=np.int64)
        with self._named():
            for row, vector in zip(found, vectors, strict=True):
                query = self._table.search(vector, query_type="vector", vector_column_name="vector")
                query = query.distance_type("dot").select(["node", "_distance"]).limit(depth)
                query = query.bypass_vector_index() if self._index == "flat" else query.nprobes(self._num_probes)
                nodes = query.to_arrow()["node"].to_numpy()
                row[: len(nodes)] = nodes
        return found

    def search_texts(self, texts: Sequence[str], depth: int) -> tuple[Nodes, npt.NDArray[np.float32]]:
        """Search by words: nodes ``[B, depth]``, padded with -1, and LanceDB's BM25 scores, padded with 0."""
        from lancedb.query import MatchQuery

        found = np.full((len(texts), depth), -1, dtype=np.int64)
        scores = np.zeros(found.shape, dtype=np.float32)
        with self._named():
            for row, text in enumerate(texts):
                query = self._table.search(MatchQuery(_valid(text), "text"), query_type="fts")
                table = query.select(["node", "_score"]).limit(depth).to_arrow()
                found[row, : len(table)] = table["node"].to_numpy()
                scores[row, : len(table)] = table["_score"].to_numpy()
        return found, scores

    def _missing_indexes(self) -> list[str]:
        wanted = ["text"] * self._full_text + ["vector"] * (self._index == "ivf")
        held = {index.columns[0] for index in self._table.list_indices()}
        return [column for column in wanted if column not in held]

    @cached_property
    def _database(self) -> Any:
        import lancedb  # heavy: only when something is searched

        return lancedb.connect(self.where)

    @cached_property
    def _table(self) -> Any:
        return self._database.open_table(TABLE)

    def _tables(self) -> list[str]:
        return list(self._database.list_tables().tables)

    @cached_property
    def _schema(self) -> Any:
        import pyarrow as pa

        vector = pa.list_(pa.float16() if self._half else pa.float32(), self._dim)
        columns = [("node", pa.int64()), ("id", pa.string()), ("text", pa.string()), ("vector", vector)]
        return pa.schema(columns, metadata={CONTENT: self._content})

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the table in LanceDB's errors."""
        try:
            yield
        except BROKEN as error:
            raise ValueError(f"{self.where}: LanceDB cannot read or write the table: {error}") from error


def _valid(text: str) -> str:
    """Return a text in which a lone surrogate, which Arrow's UTF-8 does not have, is a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


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
