"""Answers to requests to rank documents, in Cohere's wire format."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from graphrerank.inference.explanation import DocumentExplanation
from graphrerank.serving.limits import Flag, Query
from graphrerank.serving.rerank_request import Document, RerankRequest


class EdgeEffect(BaseModel):
    """Effect of an edge on a score.

    Attributes:
        edge: The two documents that it joins.
        effect: The score with it minus the score without it.
        type: Its type; None where the model merges types.
    """

    edge: tuple[int, int]
    effect: float
    type: str | None


class Explanation(BaseModel):
    """Parts of a document's score.

    Attributes:
        base_rank: Its rank by the base score, from 1, ties by index.
        base_score: The base score: the given one, or the hybrid of BM25 and cosine.
        gcs_part: The part of Graph Cohesive Smoothing; 0 for a model without it.
        learned_part: The part of the network.
        score: The model's score, the sum of both parts.
        edges: Up to five edges whose removal changes the score most, largest change first.
        probability: Probability that the document is relevant, if the artifact is calibrated.
    """

    base_rank: int
    base_score: float
    gcs_part: float
    learned_part: float
    score: float
    edges: list[EdgeEffect]
    probability: float | None = None


class RerankResult(BaseModel):
    """One document of an answer.

    Attributes:
        index: The document's position in the request, from 0.
        relevance_score: Probability that the document is relevant, in [0, 1], if the artifact is calibrated; otherwise
            the model's score, of any size and comparable within an answer only.
        document: The document, if ``return_documents`` is set; a text as ``{"text": ...}``.
        explanation: If ``explain`` is set.
    """

    index: int
    relevance_score: float
    document: dict[str, Any] | None = None
    explanation: Explanation | None = None


class RerankResponse(BaseModel):
    """Response to a rerank request.

    Attributes:
        id: Id of the request, as in the logs.
        results: Best first by the model's score, ties by index.
        perfect_recall: If ``return_confidence`` is set, for each result the probability that no document below it, nor
            one that was not sent, is relevant.
        meta: ``api_version`` and ``billed_units`` as Cohere's clients expect them, the model's name, and, if words were
            matched, the ``language`` in which.
    """

    id: str
    results: list[RerankResult]
    perfect_recall: list[float] | None = None
    meta: dict[str, Any]


@dataclass(frozen=True)
class RankedDocuments:
    """The result of the engine: documents, best first."""

    model: str
    indices: list[int]
    relevance: list[float]
    scores: list[float]  # the model's
    explanations: list[Explanation] | None = None
    perfect_recall: list[float] | None = None  # for each rank
    language: str | None = None  # in which words were matched


def explanation_of(explanation: DocumentExplanation, probability: float | None) -> Explanation:
    """Return an explanation as it is sent."""
    return Explanation(
        base_rank=explanation.base_rank,
        base_score=explanation.base_score,
        gcs_part=explanation.gcs_part,
        learned_part=explanation.learned_part,
        score=explanation.gcs_part + explanation.learned_part,
        edges=[EdgeEffect(edge=edge.pair, effect=edge.effect, type=edge.edge_type) for edge in explanation.edges],
        probability=probability,
    )


def rerank_response(request: RerankRequest, ranked: RankedDocuments, uid: str, version: str = "2") -> dict[str, Any]:
    """Return the content of a :class:`RerankResponse`, as building models would be slow; ``version`` is Cohere's."""
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": score}
        for index, score in zip(ranked.indices, ranked.relevance, strict=True)
    ]
    if request.return_documents and request.documents is not None:
        for result in results:
            result["document"] = _as_object(request.documents[result["index"]])
    for result, explanation in zip(results, ranked.explanations or (), strict=False):
        result["explanation"] = explanation
    meta = {"api_version": {"version": version}, "billed_units": {"search_units": 1}, "model": ranked.model}
    meta |= {} if ranked.language is None else {"language": ranked.language}
    confidence = {} if ranked.perfect_recall is None else {"perfect_recall": ranked.perfect_recall}
    return {"id": uid, "results": results, **confidence, "meta": meta}


def render_rerank(request: RerankRequest, ranked: RankedDocuments, uid: str, path: str) -> dict[str, Any]:
    """Return an answer in Cohere's wire format; the path says the version."""
    return rerank_response(request, ranked, uid, version=path[2])


def _as_object(document: Document) -> Mapping[str, Any]:
    return {"text": document} if isinstance(document, str) else document


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

    def to_job(self) -> RerankRequest:
        """Return the request in Cohere's wire format."""
        return RerankRequest.model_construct(query=self.query, documents=list(self.texts))


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


def render_tei(request: TeiRequest, ranked: RankedDocuments, uid: str, path: str) -> list[dict[str, Any]]:
    """Return a list of results, best first."""
    scores = ranked.scores if request.raw_scores else ranked.relevance
    return [
        {"index": index, "score": score} | ({"text": request.texts[index]} if request.return_text else {})
        for index, score in zip(ranked.indices, scores, strict=True)
    ]
