"""Use the reranker in LanceDB's hybrid, vector and full-text searches.

Install it with ``pip install graphrerank[lancedb]``.
"""

from collections import Counter

from graphrerank.installation.extras import importing
from graphrerank.integrations.metadata import FindEdges, ranked
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.utils.checks import UserError

with importing("lancedb", __name__):
    import pyarrow as pa
    from lancedb.rerankers import Reranker

RELEVANCE, DISTANCE, SCORE_COLUMN, ROW_COLUMN = "_relevance_score", "_distance", "_score", "_rowid"  # LanceDB's columns
RANK_OFFSET = 60  # constant added to ranks in LanceDB's reciprocal rank fusion


class GraphRerankReranker(Reranker):
    """Reranker for LanceDB searches.

    The model gets the scores of the search. For a hybrid search, these are the reciprocal rank fusion of both result
    lists, which is LanceDB's default ranking. The table must have row ids.

    Args:
        reranker: Reranker whose model needs no vectors.
        column: Name of the column with the texts.
        edges: Function that returns the edges among a list of texts, as in
            :class:`~graphrerank.integrations.cross_encoder.GraphCrossEncoder`. If None, there are no edges.

    Example:
        ``table.search(query, query_type="hybrid").rerank(GraphRerankReranker(reranker))``
    """

    def __init__(self, reranker: GraphReranker, *, column: str = "text", edges: FindEdges | None = None) -> None:
        super().__init__()
        self._reranker, self._column, self._edges = reranker, column, edges

    def rerank_hybrid(self, query: str, vector_results: pa.Table, fts_results: pa.Table) -> pa.Table:
        """Rank the union of the rows of both searches, best first.

        Args:
            query: Text of the query.
            vector_results: Rows of the vector search.
            fts_results: Rows of the full-text search.

        Returns:
            The ranked rows, with the column ``_relevance_score``.

        Raises:
            ValueError: If the table has no column of texts.
        """
        fused: Counter[int] = Counter()
        for results in (vector_results, fts_results):
            for rank, row in enumerate(results[ROW_COLUMN].to_pylist() if len(results) else [], start=1):
                fused[row] += 1 / (RANK_OFFSET + rank)  # type: ignore[assignment]
        table = self.merge_results(vector_results, fts_results)
        return self._ranked(query, table, [fused[row] for row in table[ROW_COLUMN].to_pylist()] if len(table) else [])

    def rerank_vector(self, query: str, vector_results: pa.Table) -> pa.Table:
        """Rank the rows of a vector search, best first.

        Args:
            query: Text of the query.
            vector_results: Rows of the vector search.

        Returns:
            The ranked rows, with the column ``_relevance_score``.
        """
        return self._ranked(query, vector_results, [-distance for distance in vector_results[DISTANCE].to_pylist()])

    def rerank_fts(self, query: str, fts_results: pa.Table) -> pa.Table:
        """Rank the rows of a full-text search, best first.

        Args:
            query: Text of the query.
            fts_results: Rows of the full-text search.

        Returns:
            The ranked rows, with the column ``_relevance_score``.
        """
        return self._ranked(query, fts_results, fts_results[SCORE_COLUMN].to_pylist())

    def _ranked(self, query: str, table: pa.Table, scores: list[float]) -> pa.Table:
        if not len(table):
            return self._handle_empty_results(table)
        if self._column not in table.column_names:
            raise UserError(f"`column` must be one of {table.column_names}, got {self._column!r}")
        texts = table[self._column].to_pylist()
        edges = () if self._edges is None else self._edges(texts)
        order, relevance = zip(
            *ranked(self._reranker, query, texts, scores=scores, distances=False, edges=edges), strict=True
        )
        best = table.take(order).append_column(RELEVANCE, pa.array(relevance, type=pa.float32()))
        return self._keep_relevance_score(best)
