"""The reranker as a model of MTEB, for its reranking tasks; ``pip install graphrerank[mteb]``."""

from typing import Any

from graphrerank.checks import UserError
from graphrerank.extras import importing
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.integrations.metadata import FindEdges, input_from_metadata

with importing("mteb", __name__):
    from mteb.models.model_meta import ModelMeta

BATCH = 32  # queries in one pass of the model


class GraphRerankSearch:
    """MTEB's ``SearchProtocol``: ranks the documents that a task lists for each query (``top_ranked``), in no order.

    The reranker must not need vectors. ``edges`` returns the edges among documents, by their ids: pairs of positions
    ``(i, j)`` or ``(i, j, type)``.
    """

    def __init__(self, reranker: GraphReranker, *, edges: FindEdges | None = None) -> None:
        self._reranker, self._edges = reranker, edges
        self._texts: dict[str, str] = {}

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Describe the model to MTEB."""
        return ModelMeta.create_empty({"name": f"graphrerank/{self._reranker.name}", "revision": "local"})

    def index(self, corpus: Any, **ignored: Any) -> None:
        """Keep the texts of a corpus, rows with ``id``, ``text`` and perhaps ``title``, which comes before the text."""
        self._texts = {row["id"]: " ".join(filter(None, (row.get("title"), row["text"]))) for row in corpus}

    def search(
        self, queries: Any, *, top_k: int, top_ranked: dict[str, list[str]] | None = None, **ignored: Any
    ) -> dict[str, dict[str, float]]:
        """Score what is listed for each query: probabilities, if the model is calibrated, of the best ``top_k``."""
        if top_ranked is None:
            raise UserError("`top_ranked` must be given: a reranker scores what a task lists, it does not search")
        listed = [(row["id"], row["text"]) for row in queries if row["id"] in top_ranked]
        found: dict[str, dict[str, float]] = {row["id"]: {} for row in queries}
        for start in range(0, len(listed), BATCH):
            batch = listed[start : start + BATCH]
            inputs = [self._input(query, text, top_ranked[query], top_k) for query, text in batch]
            for (query, _), ranking in zip(batch, self._reranker.rerank_batch(inputs), strict=True):
                scores = ranking.relevance.tolist()
                found[query] = {top_ranked[query][i]: score for i, score in zip(ranking.ids, scores, strict=True)}
        return found

    def _input(self, query: str, text: str, documents: list[str], top_k: int) -> RerankInput:
        if unknown := [document for document in documents if document not in self._texts]:
            raise UserError(f"`top_ranked` must name documents of the corpus, got {unknown[0]!r} for query {query!r}")
        texts, edges = [self._texts[document] for document in documents], self._edges(documents) if self._edges else ()
        return input_from_metadata(text, texts, [{}] * len(documents), edges=edges, top_n=top_k)
