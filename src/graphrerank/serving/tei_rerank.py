"""``POST /rerank``: the wire format of Hugging Face's text-embeddings-inference."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from graphrerank.serving.engine import Answer
from graphrerank.serving.limits import Query
from graphrerank.serving.rerank_request import Flag, RerankJob, RerankRequest
from graphrerank.serving.rerank_response import RankedDocuments


class TeiRequest(BaseModel):
    """Body of ``POST /rerank``.

    Attributes:
        query: The query, not blank.
        texts: The documents.
        raw_scores: Whether to return the model's scores in place of probabilities.
        return_text: Whether results contain the texts.
        truncate: Ignored: a text beyond the encoder's limit is truncated.
        truncation_direction: Ignored but for its value: texts are truncated at their end.
    """

    model_config = ConfigDict(extra="forbid")

    query: Query
    texts: Annotated[list[str], Field(min_length=1, fail_fast=True)]
    raw_scores: Flag = False
    return_text: Flag = False
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"

    @model_validator(mode="after")
    def _follows_the_rules_of_documents(self, info: ValidationInfo) -> "TeiRequest":
        RerankRequest.model_validate({"query": self.query, "documents": self.texts}, context=info.context)
        return self

    @property
    def num_documents(self) -> int:
        """Number of candidates."""
        return len(self.texts)

    def to_job(self) -> RerankJob:
        """Return the part of the request that a worker needs."""
        return RerankRequest.model_construct(query=self.query, documents=list(self.texts)).to_job()


class TeiResult(BaseModel):
    """One document of an answer.

    Attributes:
        index: The text's position in the request, from 0.
        score: Its relevance score; with ``raw_scores`` the model's score.
        text: The text, if ``return_text`` is set.
    """

    index: int
    score: float
    text: str | None = None


def render_tei(request: TeiRequest, ranked: RankedDocuments, uid: str, path: str) -> Answer:
    """Answer with a list of results, best first."""
    scores = ranked.scores if request.raw_scores else ranked.relevance
    results: list[dict[str, Any]] = [
        {"index": index, "score": score} | ({"text": request.texts[index]} if request.return_text else {})
        for index, score in zip(ranked.indices, scores, strict=True)
    ]
    return Answer.of(results)
