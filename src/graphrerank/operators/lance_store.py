"""Passages in a LanceDB table: vectors and full text in one, embedded, in a folder or an object store."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphrerank.extras import require_extra
from graphrerank.files import sole_use
from graphrerank.operators.vector_store import Nodes, Vectors

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
