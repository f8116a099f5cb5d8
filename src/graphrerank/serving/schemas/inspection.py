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

    doc_id: str
    text: str  # at most 4,000 characters of it
    explanation: Explanation | None = None  # of what a graph reranker has read as the last step, if asked for


class InspectedRanking(BaseModel):
    """A ranking of the passages."""

    name: str  # `retriever`, the class of a step, `ours` for the last one, or the pipeline's name
    nodes: list[int]  # positions in the answer's `nodes`, best first
    scores: list[float | None]  # comparable within a ranking only; null for those that have none
    probabilities: list[float] | None = None  # of relevance, for a calibrated graph reranker; as of `SearchResult`


class InspectResponse(BaseModel):
    """Response of ``POST /inspect``."""

    id: str  # of the request, as in the logs
    nodes: list[InspectedNode]  # of all rankings, those of the pipeline's last step first
    edges: list[tuple[int, int, float, str]]  # undirected, `[i, j, weight, type]` with `i` below `j`
    rankings: list[InspectedRanking]  # after each step, and by the pipelines to compare with
    milliseconds: dict[str, float]  # of each stage; not of comparisons
    # as of `SearchResponse`, and `model`, the name of the reranker
    meta: dict[str, Any]
