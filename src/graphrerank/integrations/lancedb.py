"""The reranker in LanceDB's hybrid, vector and full-text searches; ``pip install graphrerank[lancedb]``."""

from collections import Counter

from graphrerank.installation.extras import importing
from graphrerank.integrations.metadata import FindEdges, ranked
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.utils.checks import UserError

with importing("lancedb", __name__):
    import pyarrow as pa
    from lancedb.rerankers import Reranker

RELEVANCE, DISTANCE, SCORE_COLUMN, ROW_COLUMN = "_relevance_score", "_distance", "_score", "_rowid"  # LanceDB's columns
RANK_OFFSET = 60  # of LanceDB's reciprocal rank fusion


class GraphRerankReranker(Reranker):
    """Ranks what LanceDB found: ``table.search(query, query_type="hybrid").rerank(GraphRerankReranker(reranker))``.

    The scores that the model reads are those of the search, and of a hybrid search the reciprocal rank fusion of both
    lists, as LanceDB ranks without a reranker. The table must have row ids and a ``column`` of texts. The reranker must
    not need vectors; ``edges`` as of :class:`~graphrerank.integrations.cross_encoder.GraphCrossEncoder`.
    """

    def __init__(self, reranker: GraphReranker, *, column: str = "text", edges: FindEdges | None = None) -> None:
        super().__init__()
        self._reranker, self._column, self._edges = reranker, column, edges

    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        """Rank the union of both searches' rows, best first, with a column ``_relevance_score``."""
        fused: Counter[int] = Counter()
        for found in (vector_results, fts_results):
            for rank, row in enumerate(found[ROW_COLUMN].to_pylist() if len(found) else [], start=1):
                fused[row] += 1 / (RANK_OFFSET + rank)  # type: ignore[assignment]
        table = self.merge_results(vector_results, fts_results)
        return self._ranked(query, table, [fused[row] for row in table[ROW_COLUMN].to_pylist()] if len(table) else [])

    def rerank_vector(self, query: str, vector_results: pa.Table) -> pa.Table:
        """Rank the rows of a search by vectors; as :meth:`rerank_hybrid`."""
        return self._ranked(query, vector_results, [-distance for distance in vector_results[DISTANCE].to_pylist()])

    def rerank_fts(self, query: str, fts_results: pa.Table) -> pa.Table:
        """Rank the rows of a full-text search; as :meth:`rerank_hybrid`."""
        return self._ranked(query, fts_results, fts_results[SCORE_COLUMN].to_pylist())

    def _ranked(self, query: str, table: pa.Table, scores: list[float]) -> pa.Table:
        if not len(table):
            return self._handle_empty_results(table)
        if self._column not in table.column_names:
            raise UserError(f"`column` must be one of {table.column_names}, got {self._column!r}")
        texts = table[self._column].to_pylist()
        edges = () if self._edges is None else self._edges(texts)
        order, relevance = zip(*ranked(self._reranker, query, texts, scores=scores, edges=edges), strict=True)
        best = table.take(order).append_column(RELEVANCE, pa.array(relevance, type=pa.float32()))
        return self._keep_relevance_score(best)
