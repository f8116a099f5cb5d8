"""Candidates from a LanceDB table, by vectors and full text."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphrerank.core import Queries, Ranking
from graphrerank.core.ranking import rank_candidates
from graphrerank.core.retriever import BASE_SCORE, TEXT_FEATURES
from graphrerank.corpus import CorpusGraph
from graphrerank.operators.dense import DotRanking, dot_products
from graphrerank.operators.hybrid import without_repeats
from graphrerank.operators.vector_store import FORMAT, Nodes, Vectors, VectorStoreRetriever
from graphrerank.utils.checks import UserError, check_counts, check_not_negative
from graphrerank.utils.files import sole_use
from graphrerank.utils.redaction import check_no_password

TABLE = "passages"
TRAINED_VECTORS = 64  # at least, per cell of an IVF index
CONTENT = b"graphrerank.content"  # of the schema: the corpus of the table


@dataclass(eq=False)
class LanceDBRetriever(VectorStoreRetriever):
    r"""Rank by :math:`w_b\,s(q, d) / \max_{d'} s(q, d') + w_d\,v_q \cdot v_d`, with LanceDB's BM25 score :math:`s`.

    The best ``proposals`` by vectors and as many by full text are scored; one that the full text did not propose has
    :math:`s = 0`. With ``bm25_weight=0`` that is vector search alone, and with ``index=flat`` its rankings are those of
    :class:`~graphrerank.operators.dense.DenseRetriever`.

    Source: as :class:`~graphrerank.operators.hybrid.HybridRetriever`. *Where we differ:* LanceDB's words are stemmed,
    and of a part of a corpus their frequencies are those in the whole.
    """

    _: KW_ONLY
    path: str | Path | None = None  # folder or address (`s3://...`) of the table alone; None: below `cache`
    cache: str | Path | None = None  # folder of tables, one for each corpus and encoder
    bm25_weight: float = 0.3  # not negative; 0: no full text
    dense_weight: float = 0.7  # not negative
    proposals: int = 500  # passages by each of the two searches, at least `top_k`
    num_probes: int = 16  # IVF (vectors of 8 bits a number in cells): cells that a search visits
    batch: int = 1 << 15  # passages of a commit
    feature_names: tuple[str, ...] = field(init=False)

    extra, indexes = "lancedb", ("flat", "ivf")

    def __post_init__(self, graph: CorpusGraph) -> None:
        super().__post_init__(graph)
        check_counts(proposals=self.proposals, num_probes=self.num_probes)
        check_not_negative(bm25_weight=self.bm25_weight, dense_weight=self.dense_weight)
        if self.bm25_weight + self.dense_weight == 0:
            raise UserError("`bm25_weight` and `dense_weight` must not both be 0, got 0 and 0")
        if self.bm25_weight and self.proposals < self.top_k:
            raise UserError(f"`proposals` must be at least `top_k`, {self.top_k}, got {self.proposals}")
        if self.path is None and self.cache is None:
            raise UserError("`path` or `cache` must be given, the folder of the table or of tables; got neither")
        check_no_password(path=str(self.path))
        self.feature_names = (BASE_SCORE, *(TEXT_FEATURES if self.bm25_weight else ("dense_score",)))
        if self.bm25_weight:
            self._ranking = DotRanking(self._embedding, self.proposals)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` texts with unit vectors: ``[B, top_k]``, ``features [B, top_k, F]``."""
        near = super().retrieve(queries)
        if not self.bm25_weight:
            return near
        found, score = (
            torch.from_numpy(part).to(near.nodes.device) for part in self.search_texts(queries.texts, self.proposals)
        )
        score = score / score.amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        nodes = torch.sort(torch.cat([near.nodes, found], dim=1), dim=1).values
        lexical = score.new_zeros(nodes.shape).scatter_add_(1, torch.searchsorted(nodes, found), score)
        nodes = without_repeats(nodes)
        dense = dot_products(self._embedding, nodes.clamp(min=0), queries.encoded.to(nodes.device))
        features = torch.stack([self.bm25_weight * lexical + self.dense_weight * dense, lexical, dense], dim=-1)
        return rank_candidates(nodes, features.masked_fill((nodes < 0).unsqueeze(-1), 0.0), self.top_k)

    @property
    def where(self) -> str:
        """Folder or address of the table."""
        return str(self.path if self.cache is None or self.path is not None else Path(self.cache) / self._content[:32])

    def fill(self) -> None:
        """See :class:`VectorStoreRetriever`. Includes the indexes; one process of this machine fills a folder."""
        from lancedb.index import FTS, IvfSq

        num_nodes = self._graph.num_nodes
        if self.count() == num_nodes and not (num_nodes and self._missing_indexes()):
            return
        with nullcontext() if "://" in self.where else sole_use(Path(self.where), wait=True):
            super().fill()
            with self._named():
                for column in self._missing_indexes() if num_nodes else ():
                    config = FTS()
                    if column == "vector":
                        cells = max(1, min(int(num_nodes**0.5), num_nodes // TRAINED_VECTORS))
                        config = IvfSq(distance_type="dot", num_partitions=cells, sample_rate=TRAINED_VECTORS)
                    self._table.create_index(column, config=config)

    def count(self) -> int:
        """See :class:`VectorStoreRetriever`."""
        with self._named():
            if not self._exists():
                return 0
            schema = self._table.schema
            count = int(self._table.count_rows())
        if not schema.equals(self._schema, check_metadata=True):
            raise UserError(
                f"{self.where}: holds another corpus, or vectors of another encoder; prepare this one elsewhere, with "
                "`path` (retriever.path=DIR)"
            )
        return count

    def add(self, start: int, node_ids: Sequence[str], texts: Sequence[str], vectors: Vectors) -> None:
        """See :class:`VectorStoreRetriever`; one commit of the table."""
        import pyarrow as pa

        dtype = np.float16 if self._half else np.float32
        columns = {
            "node": np.arange(start, start + len(node_ids), dtype=np.int64),
            "id": [_valid(text) for text in node_ids],
            "text": [_valid(text) for text in texts],
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.astype(dtype).reshape(-1)), self._embedding.shape[1]
            ),
        }
        with self._named():
            if not self._exists():
                self._database.create_table(TABLE, schema=self._schema)
            self._table.add(pa.table(columns, schema=self._schema))

    def nearest(self, vectors: Vectors, depth: int) -> Nodes:
        """See :class:`VectorStoreRetriever`."""
        found = np.full((len(vectors), depth), -1, dtype=np.int64)
        with self._named():
            for row, vector in zip(found, vectors, strict=True):
                query = self._table.search(vector, query_type="vector", vector_column_name="vector")
                query = self._within(query.distance_type("dot").select(["node", "_distance"]).limit(depth))
                query = query.bypass_vector_index() if self.index == "flat" else query.nprobes(self.num_probes)
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
                table = self._within(query.select(["node", "_score"]).limit(depth)).to_arrow()
                found[row, : len(table)] = table["node"].to_numpy()
                scores[row, : len(table)] = table["_score"].to_numpy()
        return self._in_part(found), scores

    def _within(self, query: Any) -> Any:
        """Restrict a search to the part of the corpus."""
        if self._nodes is None:
            return query
        return query.where(f"node IN ({','.join(map(str, self._nodes.tolist()))})", prefilter=True)

    def _missing_indexes(self) -> list[str]:
        wanted = ["text"] * (self.bm25_weight > 0) + ["vector"] * (self.index == "ivf")
        held = {index.columns[0] for index in self._table.list_indices()}
        return [column for column in wanted if column not in held]

    @cached_property
    def _database(self) -> Any:
        import lancedb  # heavy: only when something is searched

        return lancedb.connect(self.where)

    @cached_property
    def _table(self) -> Any:
        return self._database.open_table(TABLE)

    def _exists(self) -> bool:
        return TABLE in self._database.list_tables().tables

    @cached_property
    def _schema(self) -> Any:
        import pyarrow as pa

        vector = pa.list_(pa.float16() if self._half else pa.float32(), self._embedding.shape[1])
        columns = [("node", pa.int64()), ("id", pa.string()), ("text", pa.string()), ("vector", vector)]
        return pa.schema(columns, metadata={CONTENT: f"{FORMAT}:{self._content}".encode()})


def _valid(text: str) -> str:
    """Return a text in which a lone surrogate, which Arrow's UTF-8 does not have, is a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
