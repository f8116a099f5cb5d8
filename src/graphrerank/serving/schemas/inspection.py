"""``POST /inspect``: requests and answers, which the service's page shows."""

from typing import Any

from pydantic import BaseModel

from graphrerank.serving.prices import Work, work_of
from graphrerank.serving.schemas.explanation import Explanation
from graphrerank.serving.schemas.requests import Flag
from graphrerank.serving.schemas.search import CorpusRequest
from graphrerank.serving.work_estimates import EXPLAIN, explain_counts


class InspectRequest(CorpusRequest):
    """Body of ``POST /inspect``.

    Attributes:
        query: The query, not blank.
        filter: Conditions on metadata; passages that do not meet them are as if they did not exist.
        as_of: Time in ISO 8601: passages that were valid then, by `valid_from` and `valid_to`; now by default, when a
            passage that another one supersedes ranks below it.
        explain: Whether to measure which edges change each passage's score most.
    """

    explain: Flag = False

    def work(self) -> Work:
        """Estimate the work to search step by step, and to explain edges, which are known only then."""
        work = super().work()
        counts = {name: 2 * count for name, count in work.counts.items()}
        counts |= explain_counts(100, 300) if self.explain else {}
        return work_of(counts, encoded_chars=work.encoded_chars, kind=EXPLAIN if self.explain else work.kind)


class InspectedNode(BaseModel):
    """A passage that a ranking holds."""

    #: Id of the passage.
    doc_id: str
    #: The first 4,000 characters of the passage.
    text: str
    #: Parts of the score of a graph reranker that is the last step. Only with `explain`.
    explanation: Explanation | None = None


class InspectedRanking(BaseModel):
    """A ranking of the passages."""

    #: `retriever`, the class of a step, `ours` for the last step, or the name of a compared pipeline.
    name: str
    #: Positions in the answer's `nodes`, best first.
    nodes: list[int]
    #: Scores, comparable within a ranking only. Null for passages without a finite score.
    scores: list[float | None]
    #: Probabilities of relevance by a calibrated graph reranker, as in `SearchResult`.
    probabilities: list[float] | None = None


class InspectResponse(BaseModel):
    """Response of ``POST /inspect``."""

    #: Id of the request, as in the logs.
    id: str
    #: Passages of all rankings, those of the pipeline's last step first.
    nodes: list[InspectedNode]
    #: Undirected edges `[i, j, weight, type]` among `nodes`, with `i` below `j`.
    edges: list[tuple[int, int, float, str]]
    #: Rankings after each step, and those of the compared pipelines.
    rankings: list[InspectedRanking]
    #: Milliseconds of each stage, without the compared pipelines.
    milliseconds: dict[str, float]
    #: As in `SearchResponse`, and `model`, the name of the reranker.
    meta: dict[str, Any]
