"""Use the reranker as a model of MTEB, for its reranking tasks.

Install it with ``pip install graphrerank[mteb]``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphrerank.installation.extras import importing
from graphrerank.integrations.metadata import InputEdge, input_from_metadata
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.utils.checks import UserError

with importing("mteb", __name__):
    from mteb.models.model_meta import ModelMeta

BATCH_QUERIES = 32  # number of queries that are scored together


class GraphRerankSearch:
    """Model of MTEB's ``SearchProtocol``. It ranks the documents that a task lists for each query.

    The listed documents have no order and no scores, so the reranker sees texts and edges only.

    Args:
        reranker: Reranker whose model needs no vectors.
        edges: Function from the ids of a query's documents to the edges among them: pairs of positions ``(i, j)`` or
            ``(i, j, type)``. If None, there are no edges.

    Example:
        Rerank the documents of a task of MTEB, with edges from ``links``::

            model = GraphRerankSearch(GraphReranker.from_pretrained("base"), edges=links)
            mteb.evaluate(model, mteb.get_tasks(["AskUbuntuDupQuestions"]))
    """

    def __init__(
        self, reranker: GraphReranker, *, edges: Callable[[Sequence[str]], Sequence[InputEdge]] | None = None
    ) -> None:
        self._reranker, self._edges = reranker, edges
        self._texts: dict[str, str] = {}

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Description of the model for MTEB."""
        return ModelMeta.create_empty({"name": f"graphrerank/{self._reranker.name}", "revision": "local"})

    def index(self, corpus: Any, **ignored: Any) -> None:
        """Store the texts of a corpus.

        Args:
            corpus: Rows with ``id``, ``text`` and optionally ``title``, which is put before the text.
            **ignored: Further arguments of MTEB.
        """
        self._texts = {row["id"]: " ".join(filter(None, (row.get("title"), row["text"]))) for row in corpus}

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, list[str]] | None = None, **ignored: Any
    ) -> dict[str, dict[str, float]]:
        """Score the documents that the task lists for each query.

        Args:
            queries: Rows with ``id`` and ``text``.
            top_k: Number of documents per query to return.
            top_ranked: Ids of the documents of each query. Queries without documents have an empty result.
            **ignored: Further arguments of MTEB.

        Returns:
            Scores of the best ``top_k`` documents by query and document id. They are probabilities of relevance if the
            model is calibrated.

        Raises:
            UserError: If ``top_ranked`` is None, or if it names a document that is not in the corpus.
        """
        if top_ranked is None:
            raise UserError("`top_ranked` must be given: a reranker scores the documents of a task and does not search")
        listed = [(row["id"], row["text"]) for row in queries if row["id"] in top_ranked]
        results: dict[str, dict[str, float]] = {row["id"]: {} for row in queries}
        for start in range(0, len(listed), BATCH_QUERIES):
            batch = listed[start : start + BATCH_QUERIES]
            inputs = [self._input(query_id, text, top_ranked[query_id], top_k) for query_id, text in batch]
            for (query_id, _), ranking in zip(batch, self._reranker.rerank_batch(inputs), strict=True):
                documents, scores = top_ranked[query_id], ranking.relevance.tolist()
                results[query_id] = {documents[i]: score for i, score in zip(ranking.ids, scores, strict=True)}
        return results

    def _input(self, query_id: str, text: str, documents: list[str], top_k: int) -> RerankInput:
        if unknown := [document for document in documents if document not in self._texts]:
            raise UserError(
                f"`top_ranked` must name documents of the corpus, got {unknown[0]!r} for query {query_id!r}"
            )
        texts = [self._texts[document] for document in documents]
        edges = self._edges(documents) if self._edges else ()
        return input_from_metadata(text, texts, [{}] * len(documents), edges=edges, top_n=top_k)
