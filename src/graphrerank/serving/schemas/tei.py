"""Requests and responses of ``POST /rerank``, in the format of TEI (Text Embeddings Inference)."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

from graphrerank.serving.schemas.requests import Flag, Positive, Query
from graphrerank.serving.schemas.rerank import RankedDocuments, RerankRequest, render_rerank


class TeiRequest(BaseModel):
    """Body of ``POST /rerank``."""

    model_config = ConfigDict(extra="forbid")

    query: Query = Field(description="Text of the query. Must not be blank.")
    texts: Annotated[list[str | None], Field(min_length=1, fail_fast=True)] = Field(
        description="Documents to rank. Texts that are blank or null rank last."
    )
    raw_scores: Flag = Field(
        default=False, description="Whether to return the model's scores instead of probabilities."
    )
    return_text: Flag = Field(default=False, description="Whether results include the texts.")
    top_n: Positive | None = Field(
        default=None, description="Number of results, which some clients of TEI send. null returns all texts."
    )
    truncate: bool | None = Field(default=None, description="Ignored. Long texts are always truncated.")
    truncation_direction: Literal["right", "Right"] = Field(
        default="right", description="End at which texts are truncated. Only `right` is supported."
    )
    _job: RerankRequest = PrivateAttr()

    @model_validator(mode="after")
    def _follows_the_rules_of_documents(self, info: ValidationInfo) -> "TeiRequest":
        request = {"query": self.query, "documents": self.texts, "top_n": self.top_n}
        self._job = RerankRequest.model_validate(request, context=info.context)
        return self

    def to_job(self) -> RerankRequest:
        """Return the request in the format of Cohere."""
        return self._job


class TeiResult(BaseModel):
    """Document of a response."""

    index: int = Field(description="0-based position of the text in the request.")
    score: float = Field(description="Relevance score, or the model's score with `raw_scores`.")
    text: str | None = Field(default=None, description="Text of the document. Only with `return_text`.")


def render_tei(
    request: TeiRequest | RerankRequest, ranked: RankedDocuments, uid: str, path: str
) -> list[dict[str, Any]] | dict[str, Any]:
    """Return a list of results, best first, or the result of :func:`render_rerank` for a request with ``documents``.

    Args:
        request: Request to respond to.
        ranked: Result of the engine.
        uid: Id of the request.
        path: Path of the request.
    """
    if isinstance(request, RerankRequest):
        return render_rerank(request, ranked, uid)
    scores = ranked.scores if request.raw_scores else ranked.relevance
    return [
        {"index": index, "score": score} | ({"text": request.texts[index] or ""} if request.return_text else {})
        for index, score in zip(ranked.indices, scores, strict=True)
    ]
