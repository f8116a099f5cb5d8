"""``POST /rerank``: requests and answers in the wire format of TEI (Text Embeddings Inference)."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

from graphrerank.serving.schemas.requests import Flag, Query
from graphrerank.serving.schemas.rerank import RankedDocuments, RerankRequest, render_rerank


class TeiRequest(BaseModel):
    """Body of ``POST /rerank``.

    Attributes:
        query: The query, not blank.
        texts: The documents.
        raw_scores: Whether to return the model's scores in place of probabilities.
        return_text: Whether results contain the texts.
        truncate: Ignored: long texts are always truncated.
        truncation_direction: Ignored but for its value: texts are truncated at their end.
    """

    model_config = ConfigDict(extra="forbid")

    query: Query
    texts: Annotated[list[str], Field(min_length=1, fail_fast=True)]
    raw_scores: Flag = False
    return_text: Flag = False
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"
    _job: RerankRequest = PrivateAttr()

    @model_validator(mode="after")
    def _follows_the_rules_of_documents(self, info: ValidationInfo) -> "TeiRequest":
        given = {"query": self.query, "documents": self.texts}
        self._job = RerankRequest.model_validate(given, context=info.context)
        return self

    def to_job(self) -> RerankRequest:
        """Return the request in Cohere's wire format."""
        return self._job


class TeiResult(BaseModel):
    """One document of an answer."""

    #: Position of the text in the request, from 0.
    index: int
    #: Relevance score, or with `raw_scores` the model's score.
    score: float
    #: The text. Only with `return_text`.
    text: str | None = None


def render_tei(
    request: TeiRequest | RerankRequest, ranked: RankedDocuments, uid: str, path: str
) -> list[dict[str, Any]] | dict[str, Any]:
    """Return a list of results, best first; of a request with ``documents`` what :func:`render_rerank` returns."""
    if isinstance(request, RerankRequest):
        return render_rerank(request, ranked, uid)
    scores = ranked.scores if request.raw_scores else ranked.relevance
    return [
        {"index": index, "score": score} | ({"text": request.texts[index]} if request.return_text else {})
        for index, score in zip(ranked.indices, scores, strict=True)
    ]
