"""Requests and responses of ``POST /inspect``, which the service's page uses."""

from typing import Any

from pydantic import BaseModel, Field

from graphrerank.serving.prices import Work, work_of
from graphrerank.serving.schemas.explanation import Explanation
from graphrerank.serving.schemas.requests import Flag
from graphrerank.serving.schemas.search import CorpusRequest
from graphrerank.serving.work_estimates import EXPLAIN, explain_counts

SYSTEM = "ours"  # name of the ranking of the pipeline's last step


class InspectRequest(CorpusRequest):
    """Body of ``POST /inspect``."""

    explain: Flag = Field(
        default=False, description="Whether to measure which edges change the score of each passage most."
    )
    record: Flag = Field(
        default=False,
        description="Whether the ranking `ours` is shown to a person. If the service logs feedback, it is then logged "
        "like the results of `POST /search`, and `POST /feedback` accepts the `id` of the response.",
    )

    def work(self) -> Work:
        """Return the estimated work to search step by step and to explain an expected number of edges."""
        work = super().work()
        counts = {name: 2 * count for name, count in work.counts.items()}
        counts |= explain_counts(100, 300) if self.explain else {}
        return work_of(counts, encoded_chars=work.encoded_chars, kind=EXPLAIN if self.explain else work.kind)


class InspectedNode(BaseModel):
    """Passage of a ranking."""

    doc_id: str = Field(description="Id of the passage.")
    text: str = Field(description="First 4,000 characters of the passage.")
    explanation: Explanation | None = Field(
        default=None, description="Terms of the score, if the last step is a graph reranker. Only with `explain`."
    )


class InspectedRanking(BaseModel):
    """Ranking of passages."""

    name: str = Field(
        description="`retriever`, the class of a step, `ours` for the last step, or the name of a compared pipeline."
    )
    nodes: list[int] = Field(description="Positions in `nodes` of the response, best first.")
    scores: list[float | None] = Field(
        description="Scores, comparable only within a ranking. null for a passage without a finite score."
    )
    probabilities: list[float] | None = Field(
        default=None, description="Probabilities of relevance by a calibrated graph reranker, as in `SearchResult`."
    )


class InspectResponse(BaseModel):
    """Response of ``POST /inspect``."""

    id: str = Field(description="Id of the request, which is also in the logs.")
    nodes: list[InspectedNode] = Field(
        description="Passages of all rankings, starting with those of the pipeline's last step."
    )
    edges: list[tuple[int, int, float, str]] = Field(
        description="Undirected edges `[i, j, weight, type]` among `nodes`, where `i` is less than `j`."
    )
    rankings: list[InspectedRanking] = Field(
        description="Ranking after each step, followed by the rankings of the compared pipelines."
    )
    milliseconds: dict[str, float] = Field(
        description="Duration of each stage in milliseconds, without the compared pipelines."
    )
    meta: dict[str, Any] = Field(description="Same as in `SearchResponse`, and `model`, the name of the reranker.")

    @property
    def _results(self) -> list[tuple[str, float]]:
        """Ids and scores of the ranking of the last step, without passages that have no finite score."""
        last = next((ranking for ranking in self.rankings if ranking.name == SYSTEM), None)
        if last is None:
            return []
        scored = zip(last.nodes, last.scores, strict=True)
        return [(self.nodes[node].doc_id, score) for node, score in scored if score is not None]

    @property
    def ids(self) -> list[str]:
        """Ids of the results, for the feedback log."""
        return [doc_id for doc_id, _ in self._results]

    @property
    def scores(self) -> list[float]:
        """Scores of the results, for the feedback log."""
        return [score for _, score in self._results]
