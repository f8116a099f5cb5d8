"""``POST /search``: requests and answers."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from graphrerank.corpus.filters import check_filter
from graphrerank.corpus.relations import valid_at
from graphrerank.serving.prices import Work, work_of
from graphrerank.serving.schemas.requests import CallerRequest, Flag, Positive, Probability, QueryRequest


def _check_time(given: str) -> str:
    valid_at(given, ())
    return given


def _check_filter(given: dict[str, Any]) -> dict[str, Any]:
    check_filter(given)
    return given


class CorpusRequest(QueryRequest, CallerRequest):
    """A request that searches the corpus.

    Attributes:
        query: The query, not blank.
        principals: Those of the caller, where the service trusts what requests say of themselves.
        filter: Conditions on metadata; passages that do not meet them are as if they did not exist.
        as_of: Time in ISO 8601: passages that were valid then, by `valid_from` and `valid_to`; now by default, when a
            passage that another one supersedes ranks below it.
    """

    filter: Annotated[dict[str, Any], AfterValidator(_check_filter)] = Field(default={})
    as_of: Annotated[str, AfterValidator(_check_time)] | None = None

    def work(self) -> Work:
        """Estimate the work to search the passages that the caller may see and that meet the filter."""
        work = super().work()
        if not self.filter and self.as_of is None:
            return work
        return work_of({**work.counts, "filters": 1}, encoded_chars=work.encoded_chars, kind="filtered")


class SearchRequest(CorpusRequest):
    """Body of ``POST /search``.

    Attributes:
        query: The query, not blank.
        filter: Conditions on metadata; passages that do not meet them are as if they did not exist.
        as_of: Time in ISO 8601: passages that were valid then, by `valid_from` and `valid_to`; now by default, when a
            passage that another one supersedes ranks below it.
        top_n: Number of results; fewer if the pipeline finds fewer.
        return_documents: Whether results contain titles and texts.
        min_probability: Leave out what is relevant with less than this probability; the artifact must be calibrated.
        min_perfect_recall: As few results as hold all that is relevant with at least this probability, else ``top_n``;
            the artifact must have a ``list_confidence``.
        return_confidence: Whether the response has ``perfect_recall``; the artifact must have a ``list_confidence``.
        user: Who asks, of whom a log of feedback keeps a pseudonym; ignored where the service knows callers.
    """

    top_n: Positive = 10
    user: Annotated[str, Field(max_length=1000)] | None = None
    return_documents: Flag = False
    min_probability: Probability | None = None
    min_perfect_recall: Probability | None = None
    return_confidence: Flag = False


class SearchResult(BaseModel):
    """One passage."""

    #: Id of the passage.
    doc_id: str
    #: Score of the pipeline's last step, of any scale. Comparable within a response only.
    score: float
    #: Probability of relevance, if the last step is calibrated and not all scores are equal.
    probability: float | None = None
    #: Pairs `[relation, doc_id]` with other candidates. A relation is `supersedes`, `superseded_by` or `contradicts`.
    relations: list[tuple[str, str]] | None = None
    #: Text of the passage, and its title if it has one. Only with `return_documents`.
    document: dict[str, str] | None = None


class SearchResponse(BaseModel):
    """Response of ``POST /search``."""

    #: Id of the request, as in the logs.
    id: str
    #: Results, best first.
    results: list[SearchResult]
    #: Probability, for each result, that nothing relevant is below it or was not found. Only with `return_confidence`.
    perfect_recall: list[float] | None = None
    #: `index`, the version of the corpus if everybody may see all of it, and `language`, in which words are matched.
    meta: dict[str, Any]

    @property
    def ids(self) -> list[str]:
        """Ids of the results."""
        return [result.doc_id for result in self.results]

    @property
    def scores(self) -> list[float]:
        """Scores of the results."""
        return [result.score for result in self.results]

    def picked(self, other: "SearchResponse", picks: Sequence[tuple[int, int]]) -> "SearchResponse":
        """Return a response with results of this one (0) and another one (1), by place."""
        lists = (self.results, other.results)
        return self.model_copy(update={"results": [lists[which][place] for which, place in picks]})
