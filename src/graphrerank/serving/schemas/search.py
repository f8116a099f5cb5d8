"""Requests and responses of ``POST /search``."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from graphrerank.corpus.filters import check_filter
from graphrerank.corpus.relations import valid_at
from graphrerank.serving.prices import Work, work_of
from graphrerank.serving.schemas.requests import CallerRequest, Flag, Positive, Probability, QueryRequest


def _check_time(time: str) -> str:
    valid_at(time, ())
    return time


def _check_filter(conditions: dict[str, Any]) -> dict[str, Any]:
    check_filter(conditions)
    return conditions


class CorpusRequest(QueryRequest, CallerRequest):
    """Request that searches the corpus."""

    filter: Annotated[dict[str, Any], AfterValidator(_check_filter)] = Field(
        default={},
        description="Conditions on metadata. Passages that do not match are excluded and do not influence the results.",
    )
    as_of: Annotated[str, AfterValidator(_check_time)] | None = Field(
        default=None,
        description="Time in ISO 8601. Only passages that were valid at this time, by their `valid_from` and "
        "`valid_to`, are searched. null is now, and then a superseded passage also ranks below the one that supersedes "
        "it.",
    )

    def work(self) -> Work:
        """Return the estimated work to search, including the filter."""
        work = super().work()
        if not self.filter and self.as_of is None:
            return work
        return work_of({**work.counts, "filters": 1}, encoded_chars=work.encoded_chars, kind="filtered")


class SearchRequest(CorpusRequest):
    """Body of ``POST /search``."""

    top_n: Positive = Field(
        default=10, description="Number of results. There are fewer if the pipeline finds fewer passages."
    )
    user: Annotated[str, Field(max_length=1000)] | None = Field(
        default=None,
        description="User of the request, of whom a feedback log stores a pseudonym. Ignored if the service "
        "authenticates callers.",
    )
    return_documents: Flag = Field(default=False, description="Whether results include titles and texts.")
    min_probability: Probability | None = Field(
        default=None,
        description="Omit results whose probability of relevance is below this value. Requires a calibrated artifact.",
    )
    min_perfect_recall: Probability | None = Field(
        default=None,
        description="Return as few results as contain all relevant passages with at least this probability, or `top_n` "
        "if there is no such number. Requires an artifact with a `list_confidence`.",
    )
    return_confidence: Flag = Field(
        default=False,
        description="Whether to return `perfect_recall`. Requires an artifact with a `list_confidence`.",
    )


class SearchResult(BaseModel):
    """Passage of a response."""

    doc_id: str = Field(description="Id of the passage.")
    score: float = Field(
        description="Score of the pipeline's last step on any scale. Comparable only within a response."
    )
    probability: float | None = Field(
        default=None,
        description="Probability of relevance, if the last step is calibrated and the scores are not all equal.",
    )
    relations: list[tuple[str, str]] | None = Field(
        default=None,
        description="Pairs `[relation, doc_id]` with other candidates. A relation is `supersedes`, `superseded_by` or "
        "`contradicts`.",
    )
    document: dict[str, str] | None = Field(
        default=None, description="`text` of the passage, and its `title` if it has one. Only with `return_documents`."
    )


class SearchResponse(BaseModel):
    """Response of ``POST /search``."""

    id: str = Field(description="Id of the request, which is also in the logs.")
    results: list[SearchResult] = Field(description="Results, best first.")
    perfect_recall: list[float] | None = Field(
        default=None,
        description="For each result, the probability that no relevant passage ranks below it or was not retrieved. "
        "Only with `return_confidence`.",
    )
    meta: dict[str, Any] = Field(
        description="`language` of word matching, and `index`, the version of the corpus, if everybody may see the "
        "whole corpus."
    )

    @property
    def ids(self) -> list[str]:
        """Ids of the results."""
        return [result.doc_id for result in self.results]

    @property
    def scores(self) -> list[float]:
        """Scores of the results."""
        return [result.score for result in self.results]

    def picked(self, other: "SearchResponse", picks: Sequence[tuple[int, int]]) -> "SearchResponse":
        """Return a response that combines results of this response and of another one.

        Args:
            other: Other response.
            picks: Pairs of a source (0 for this response, 1 for the other one) and a position in its results.
        """
        lists = (self.results, other.results)
        return self.model_copy(update={"results": [lists[source][position] for source, position in picks]})
