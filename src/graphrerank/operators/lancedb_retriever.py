"""Retrieve candidates by vector search and full-text search in a LanceDB table."""

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

#: Name of the table in its folder.
TABLE = "passages"
#: Minimum number of training vectors per cell of an IVF index.
TRAINED_VECTORS = 64
#: Key in the metadata of the schema that identifies the corpus of the table.
CONTENT_METADATA = b"graphrerank.content"


@dataclass(eq=False)
class LanceDBRetriever(VectorStoreRetriever):
    r"""Rank the corpus by a weighted sum of BM25 and cosine similarity, with candidates from LanceDB.

    .. math:: w_b\,\frac{s(q, d)}{\max_{d'} s(q, d')} + w_d\,v_q \cdot v_d

    with :math:`s` the BM25 score of LanceDB. The vector search and the full-text search each propose ``proposals``
    passages. A passage that the full-text search did not return has :math:`s = 0`. With ``bm25_weight=0``, only the
    vector search is used. If ``index`` is also ``flat``, the rankings equal those of
    :class:`~graphrerank.operators.dense.DenseRetriever`.

    Source: GraphER, section 3.1, as for :class:`~graphrerank.operators.hybrid.HybridRetriever`. *Differences:* LanceDB
    stems words, and it uses the word frequencies of the whole corpus even if a subset is searched.

    Args:
        graph: Corpus graph with an ``embedding`` of unit vectors.

    Attributes:
        path: Folder or address (``s3://...``) of the table. If None, the table is stored in a folder below ``cache``.
        cache: Folder of tables, one for each corpus and encoder. Ignored if ``path`` is set.
        bm25_weight: Weight :math:`w_b` of the full-text score, at least 0. 0 disables the full-text search.
        dense_weight: Weight :math:`w_d` of the dot product, at least 0.
        proposals: Number of passages from each of the two searches, at least ``top_k``.
        num_probes: Number of cells of an IVF index that each search visits. Such an index stores 8 bits per dimension.
        batch: Number of passages per commit.
        feature_names: Names of the score, the BM25 score and the dot product of a candidate. Without a full-text
            search, names of the score and the dot product.

    Example:
        .. code-block:: python

            graph = dataset.graph.with_embedding(vectors)
            retriever = LanceDBRetriever(graph, path="passages.lance", top_k=100)
            ranking = retriever.retrieve(Queries(ids, texts, query_vectors))
    """

    _: KW_ONLY
    path: str | Path | None = None
    cache: str | Path | None = None
    bm25_weight: float = 0.3
    dense_weight: float = 0.7
    proposals: int = 500
    num_probes: int = 16
    batch: int = 1 << 15
    feature_names: tuple[str, ...] = field(init=False)

    extra, indexes = "lancedb", ("flat", "ivf")

    def __post_init__(self, graph: CorpusGraph) -> None:
        super().__post_init__(graph)
        check_counts(proposals=self.proposals, num_probes=self.num_probes)
        check_not_negative(bm25_weight=self.bm25_weight, dense_weight=self.dense_weight)
        if self.bm25_weight + self.dense_weight == 0:
            raise UserError("`bm25_weight` or `dense_weight` must be positive, got 0 and 0")
        if self.bm25_weight and self.proposals < self.top_k:
            raise UserError(f"`proposals` must be at least `top_k`, {self.top_k}, got {self.proposals}")
        if self.path is None and self.cache is None:
            raise UserError("`path` (folder of the table) or `cache` (folder of all tables) must be set, got neither")
        check_no_password(path=str(self.path))
        self.feature_names = (BASE_SCORE, *(TEXT_FEATURES if self.bm25_weight else ("dense_score",)))
        if self.bm25_weight:
            self._ranking = DotRanking(self._embedding, self.proposals)

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus by the weighted sum.

        Args:
            queries: ``B`` queries with unit vectors.

        Returns:
            Ranking ``[B, top_k]`` with ``features [B, top_k, F]``, named by ``feature_names``.

        Raises:
            UserError: If the table cannot be reached or contains another corpus.
        """
        near = super().retrieve(queries)
        if not self.bm25_weight:
            return near
        matches, score = (
            torch.from_numpy(array).to(near.nodes.device) for array in self.search_texts(queries.texts, self.proposals)
        )
        score = score / score.amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        nodes = torch.sort(torch.cat([near.nodes, matches], dim=1), dim=1).values
        lexical = score.new_zeros(nodes.shape).scatter_add_(1, torch.searchsorted(nodes, matches), score)
        nodes = without_repeats(nodes)
        dense = dot_products(self._embedding, nodes.clamp(min=0), queries.encoded.to(nodes.device))
        features = torch.stack([self.bm25_weight * lexical + self.dense_weight * dense, lexical, dense], dim=-1)
        return rank_candidates(nodes, features.masked_fill((nodes < 0).unsqueeze(-1), 0.0), self.top_k)

    @property
    def where(self) -> str:
        """Folder or address of the table."""
        return str(self.path if self.cache is None or self.path is not None else Path(self.cache) / self._content[:32])

    def fill(self) -> None:
        """Add the passages that the table lacks, and create its indexes.

        Only one process on a machine fills a local table at a time.

        Raises:
            UserError: If the table contains another corpus or cannot be written.
        """
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
        """Return the number of passages in the table, 0 if it does not exist.

        Raises:
            UserError: If the table contains another corpus or cannot be reached.
        """
        with self._named():
            if not self._exists():
                return 0
            schema = self._table.schema
            count = int(self._table.count_rows())
        if not schema.equals(self._schema, check_metadata=True):
            raise self._other_corpus("path", "DIR")
        return count

    def add(self, start: int, node_ids: Sequence[str], texts: Sequence[str], vectors: Vectors) -> None:
        """Store consecutive passages in one commit.

        Args:
            start: Index of the first passage.
            node_ids: Ids of ``n`` passages.
            texts: Texts of the passages.
            vectors: Vectors of the passages, ``[n, d]``.
        """
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
        """Return the passages with the largest dot products.

        Args:
            vectors: Query vectors ``[B, d]``.
            depth: Number of passages per query.
        """
        nearest = np.full((len(vectors), depth), -1, dtype=np.int64)
        with self._named():
            for row, vector in zip(nearest, vectors, strict=True):
                query = self._table.search(vector, query_type="vector", vector_column_name="vector")
                query = self._within(query.distance_type("dot").select(["node", "_distance"]).limit(depth))
                query = query.bypass_vector_index() if self.index == "flat" else query.nprobes(self.num_probes)
                nodes = query.to_arrow()["node"].to_numpy()
                row[: len(nodes)] = nodes
        return nearest

    def search_texts(self, texts: Sequence[str], depth: int) -> tuple[Nodes, npt.NDArray[np.float32]]:
        """Search the passages by full text.

        Args:
            texts: ``B`` queries.
            depth: Number of passages per query.

        Returns:
            Passage indices ``[B, depth]``, padded with -1, and BM25 scores of LanceDB, padded with 0.

        Raises:
            UserError: If the table cannot be reached.
        """
        from lancedb.query import MatchQuery

        nodes = np.full((len(texts), depth), -1, dtype=np.int64)
        scores = np.zeros(nodes.shape, dtype=np.float32)
        with self._named():
            for row, text in enumerate(texts):
                query = self._table.search(MatchQuery(_valid(text), "text"), query_type="fts")
                table = self._within(query.select(["node", "_score"]).limit(depth)).to_arrow()
                nodes[row, : len(table)] = table["node"].to_numpy()
                scores[row, : len(table)] = table["_score"].to_numpy()
        return self._in_part(nodes), scores

    def _within(self, query: Any) -> Any:
        """Restrict a search to the subset of the corpus, if any."""
        if self._nodes is None:
            return query
        return query.where(f"node IN ({','.join(map(str, self._nodes.tolist()))})", prefilter=True)

    def _missing_indexes(self) -> list[str]:
        required = ["text"] * (self.bm25_weight > 0) + ["vector"] * (self.index == "ivf")
        existing = {index.columns[0] for index in self._table.list_indices()}
        return [column for column in required if column not in existing]

    @cached_property
    def _database(self) -> Any:
        import lancedb  # heavy import, so only when it is needed

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
        return pa.schema(columns, metadata={CONTENT_METADATA: f"{FORMAT}:{self._content}".encode()})


def _valid(text: str) -> str:
    """Replace lone surrogates, which the UTF-8 of Arrow does not allow, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
