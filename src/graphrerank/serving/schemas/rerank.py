"""Requests and responses of ``POST /v1/rerank`` and ``POST /v2/rerank``, in the format of Cohere."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from graphrerank.rerank.arrays import MAX_MAGNITUDE
from graphrerank.rerank.edge_forms import parse_edges
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.serving.prices import Work
from graphrerank.serving.schemas.edges import NUMBERED_EDGES, listed_edges
from graphrerank.serving.schemas.explanation import Explanation
from graphrerank.serving.schemas.requests import (
    EngineRequest,
    Flag,
    Positive,
    Probability,
    Query,
    check_most,
    limits_of,
)
from graphrerank.serving.work_estimates import rerank_work
from graphrerank.text.languages import AUTO, LANGUAGES
from graphrerank.text.tokenizer import WordTokenizer
from graphrerank.utils.checks import UserError

Score = Annotated[float, Field(ge=-MAX_MAGNITUDE, le=MAX_MAGNITUDE, allow_inf_nan=False, strict=True)]
Vector = Annotated[list[Score], Field(min_length=1, fail_fast=True)]
# checked by RerankInput, which repairs single bad items in the same way everywhere
AnyScore = Annotated[float, Field(strict=True)] | None
Names = Annotated[
    list[Any] | None, WithJsonSchema({"type": ["array", "null"], "items": {"type": ["string", "integer", "null"]}})
]
ChunkNumber = Annotated[int, Field(ge=-(2**53), le=2**53, strict=True)]
Document = str | dict[str, Any] | None
NO_USAGE = {"prompt_tokens": 0, "total_tokens": 0}


class RerankRequest(EngineRequest):
    """Body of ``POST /v1/rerank`` and ``POST /v2/rerank``.

    The fields ``model``, ``priority``, ``max_chunks_per_doc`` and ``truncation`` are accepted for compatibility and
    ignored. A service has one model and one queue, ranks each document as a whole, and truncates texts at the limit of
    the encoder.
    """

    query: Query = Field(description="Text of the query. Must not be blank.")
    documents: Annotated[list[Document], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None,
        description="Documents to rank: strings, or objects with a text. Documents that are blank or null rank last. "
        "null ranks by `scores` alone.",
    )
    scores: Annotated[list[AnyScore], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None,
        description="One base score per document on any scale, where higher is better, so negate distances. A score "
        "that is null or not finite becomes the lowest finite one (infinity the highest). null uses BM25 among the "
        "documents, combined with the cosine similarity if there are vectors.",
    )
    edges: Annotated[list[Any] | None, PlainValidator(listed_edges), NUMBERED_EDGES] = Field(
        default=None,
        description="Undirected edges `[i, j]`, `[i, j, weight]`, `[i, j, type]`, `[i, j, weight, type]` or `[i, j, "
        '{"weight": ..., "type": ...}]` between documents at 0-based positions. Weights are in [1e-9, 1e9] and default '
        "to 1. Types are `reference`, `entity`, `adjacency`, `similarity` and `other` (the default), or a synonym "
        "listed by `GET /info`. A model that does not distinguish edge types merges edges.",
    )
    entities: Annotated[list[Names], Field(fail_fast=True)] | None = Field(
        default=None,
        description="Names of entities for each document: strings or integers, where null is left out. Documents "
        "that share an entity are connected.",
    )
    doc_ids: Annotated[list[str | None], Field(fail_fast=True)] | None = Field(
        default=None,
        description="Name of the source document of each chunk. Together with `chunk_ids`, neighbouring chunks are "
        "connected. null for a document that is not a chunk.",
    )
    chunk_ids: Annotated[list[ChunkNumber | None], Field(fail_fast=True)] | None = Field(
        default=None,
        description="Number of each chunk within its source document. null for a document that is not a chunk.",
    )
    query_vector: Vector | None = Field(
        default=None,
        description="Vector of the query. Together with `vectors`, replaces the vectors of the service's encoder.",
    )
    vectors: Annotated[list[Vector], Field(fail_fast=True)] | None = Field(
        default=None, description="Vector of each document, from the same encoder as `query_vector`."
    )
    cross_encoder_scores: Annotated[list[AnyScore], Field(fail_fast=True)] | None = Field(
        default=None,
        description="Cross-encoder score of each document, or null if it was not scored. Only used by models with "
        "`features=scores_match_typed_cross_encoder`, which also work without these scores.",
    )
    top_n: Positive | None = Field(default=None, description="Number of results. null returns all documents.")
    top_k: Positive | None = Field(
        default=None,
        description="Same as `top_n`, under Voyage's name. The response then also has Voyage's `data` and `usage`.",
    )
    min_probability: Probability | None = Field(
        default=None,
        description="Omit results whose probability of relevance is below this value. Requires a calibrated artifact.",
    )
    min_perfect_recall: Probability | None = Field(
        default=None,
        description="Return as few results as contain all relevant documents with at least this probability. Requires "
        "an artifact with a `list_confidence`.",
    )
    return_documents: Flag = Field(default=False, description="Whether results include the documents.")
    rank_fields: Annotated[list[str], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None,
        description="Fields of documents that are objects. Their values are joined by line breaks. null is `text`.",
    )
    max_tokens_per_doc: Positive | None = Field(
        default=None,
        description="Number of words after which a document is truncated. null uses the whole document. The encoder "
        "has its own limit.",
    )
    max_doc_length: Positive | None = Field(
        default=None, description="Same as `max_tokens_per_doc`, under Jina's name."
    )
    language: str | None = Field(
        default=None,
        description="Language of word matching. null is the service's setting, which defaults to the language of the "
        "documents.",
    )
    explain: Flag = Field(default=False, description="Whether results explain their scores.")
    return_confidence: Flag = Field(
        default=False,
        description="Whether to return `perfect_recall`. Requires an artifact with a `list_confidence`.",
    )
    model: str | None = Field(default=None, description="Ignored.")
    max_chunks_per_doc: int | None = Field(default=None, description="Ignored.")
    priority: int | None = Field(default=None, description="Ignored.")
    truncation: bool | None = Field(default=None, description="Ignored.")
    user: str | None = Field(
        default=None, description="User of the request. A feedback log stores only a pseudonym of the user."
    )
    stream: Literal[False] | None = Field(default=None, description="Ignored. true is rejected.")
    _passages: list[str] | None = PrivateAttr(None)

    def work(self) -> Work:
        """Return the estimated work to rank the documents.

        Raises:
            ValueError: If fields are inconsistent.
        """
        return rerank_work(self._whole, explain=self.explain, cut=self._num_words is not None)

    def texts_to_encode(self) -> tuple[list[str], list[str]]:
        """Return the queries and the passages to encode, which are none if the request has vectors."""
        inputs = self.candidates
        needs_none = inputs.vectors is not None or inputs.passages is None
        return ([], []) if needs_none else ([inputs.query], [*(inputs.passages or ())])

    @cached_property
    def candidates(self) -> RerankInput:
        """Input of the reranker, with truncated documents."""
        num_words = self._num_words
        passages = self._whole.passages
        if num_words is None or passages is None:
            return self._whole
        spans = WordTokenizer().spans(passages)
        stops = [words[num_words - 1][1] if len(words) > num_words else None for words in spans]
        return replace(self._whole, passages=[text[:stop] for text, stop in zip(passages, stops, strict=True)])

    @property
    def texts(self) -> Sequence[str] | None:
        """Texts of the documents, or None for a request without documents."""
        return self._passages

    @property
    def _num_words(self) -> int | None:
        return self.max_tokens_per_doc or self.max_doc_length

    @property
    def bad_items(self) -> Counter[str]:
        """Number of problematic items, keyed by how they were handled (:class:`RerankInput`)."""
        return self._whole.bad_items

    @cached_property
    def _whole(self) -> RerankInput:
        """Input of the reranker before documents are truncated."""
        return RerankInput(
            self.query,
            self._passages,
            edges=parse_edges(self.edges or (), len(self.documents or self.scores or ())),
            language=self.language or AUTO,
            **{name: getattr(self, name) for name in AS_GIVEN},
        )

    @field_validator("documents", "scores", "cross_encoder_scores", "rank_fields", "entities", mode="before")
    @classmethod
    def _not_too_many(cls, entries: Any, info: ValidationInfo) -> Any:
        limits = limits_of(info)
        name = str(info.field_name)
        if isinstance(entries, list):
            check_most(limits.fields if name == "rank_fields" else limits.documents, len(entries), name)
            if name == "entities":
                count = sum(len(names) for names in entries if isinstance(names, list))
                if count > limits.entities:
                    raise UserError(f"`entities` must have at most {limits.entities} names, got {count}")
        return entries

    @field_validator("language")
    @classmethod
    def _a_known_language(cls, language: str | None) -> str | None:
        if language not in (None, AUTO, *LANGUAGES):
            raise UserError(f"`language` must be {AUTO} or one of {list(LANGUAGES)}")
        return language

    @model_validator(mode="after")
    def _within_limits(self, info: ValidationInfo) -> "RerankRequest":
        if self.documents is None and self.scores is None:
            raise UserError("`documents` or `scores` must be set, got neither")
        if self.max_tokens_per_doc is not None and self.max_doc_length is not None:
            raise UserError("`max_tokens_per_doc` and `max_doc_length` have the same meaning, set only one of them")
        if self.top_k is not None:
            if self.top_n not in (None, self.top_k):
                raise UserError("`top_n` and `top_k` have the same meaning, set only one of them")
            self.top_n = self.top_k
        limits = limits_of(info)
        if self.documents is not None:
            self._passages = [_text(document, self.rank_fields, i) for i, document in enumerate(self.documents)]
        lengths = [len(text.strip()) for text in self._passages or ()]
        limit = limits.text_chars
        for index, length in enumerate(lengths):
            if length > limit:
                raise UserError(f"`documents` must each have at most {limit} characters, got {length} at index {index}")
        num_chars = len(self.query) + sum(lengths)
        limit = limits.request_chars
        if num_chars > limit:
            raise UserError(f"`query` and `documents` must have at most {limit} characters together, got {num_chars}")
        return self


def _text(document: Document, rank_fields: list[str] | None, index: int) -> str:
    """Return the text of a document to rank, after checking that the whole document can be sent back.

    A document or a field that is null is blank.
    """
    if document is None:
        return ""
    names = rank_fields or ["text"]
    if isinstance(document, dict):
        for field, name in enumerate(names):
            if not (isinstance(text := document.get(name), str) or (text is None and name in document)):
                needed = "the string `text`" if rank_fields is None else f"a string for `rank_fields[{field}]`"
                raise UserError(f"`documents` must be strings or objects with {needed}, got none at index {index}")
    try:
        whole = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False, allow_nan=False)
        whole.encode()
    except ValueError as error:
        raise UserError(
            f"`documents` must contain valid Unicode and finite numbers, got other content at index {index}"
        ) from error
    return document if isinstance(document, str) else "\n".join(document[name] or "" for name in names)


# fields that are passed to the reranker unchanged
AS_GIVEN = RerankInput.__dataclass_fields__.keys() & RerankRequest.model_fields.keys() - {"query", "edges", "language"}


class RerankResult(BaseModel):
    """Document of a response."""

    index: int = Field(description="0-based position of the document in the request.")
    relevance_score: float | None = Field(
        description="Probability of relevance. For a single document or documents with equal scores, it is computed "
        "from their texts, and null without texts. 0 for blank documents. The model's score if the artifact is not "
        "calibrated."
    )
    document: dict[str, Any] | None = Field(
        default=None, description='The document, where a string becomes `{"text": ...}`. Only with `return_documents`.'
    )
    explanation: Explanation | None = Field(default=None, description="Terms of the score. Only with `explain`.")


class Usage(BaseModel):
    """Number of billed tokens, which is always 0 because the service counts none."""

    prompt_tokens: int = Field(default=0, description="Always 0.")
    total_tokens: int = Field(default=0, description="Always 0.")


class TextResult(BaseModel):
    """Document of a response."""

    index: int = Field(description="0-based position of the document in the request.")
    relevance_score: float | None = Field(description="As in `POST /v2/rerank`.")
    document: str | None = Field(default=None, description="Text of the document. Only with `return_documents`.")


class RerankResponse(BaseModel):
    """Response of ``POST /v1/rerank`` and ``POST /v2/rerank``."""

    id: str = Field(description="Id of the request, which is also in the logs.")
    results: list[RerankResult] = Field(
        description="Results by the model's score, best first. Ties are ranked by index."
    )
    perfect_recall: list[float] | None = Field(
        default=None,
        description="For each result, the probability that no relevant document ranks below it or is missing from the "
        "request. Only with `return_confidence`.",
    )
    meta: dict[str, Any] = Field(
        description="`api_version` and `billed_units` as in Cohere's format, `warnings` of problematic items, the name "
        "of the `model`, and the `language` of word matching."
    )
    data: list[TextResult] | None = Field(
        default=None, description="The results under Voyage's name, with documents as texts. Only with `top_k`."
    )
    usage: Usage | None = Field(default=None, description="Number of billed tokens. Only with `top_k`.")


@dataclass(frozen=True)
class RankedDocuments:
    """Result of the engine: the documents of a request, best first.

    Attributes:
        model: Name of the model.
        indices: Positions of the documents in the request.
        relevance: Probability of relevance of each document, or its score if the model is not calibrated. A list of
            None if the probabilities are unknown.
        scores: Score of each document by the model.
        explanations: Terms of each score. None if they were not requested.
        perfect_recall: Probability, for each rank, that no relevant document is below it. None if it was not requested.
        language: Language of word matching. None if no words were matched.
    """

    model: str
    indices: list[int]
    relevance: list[float] | list[None]
    scores: list[float]
    explanations: list[Explanation] | None = None
    perfect_recall: list[float] | None = None
    language: str | None = None

    @property
    def ids(self) -> list[str]:
        """Positions of the documents in the request, as strings."""
        return list(map(str, self.indices))

    def picked(self, other: "RankedDocuments", picks: Sequence[tuple[int, int]]) -> "RankedDocuments":
        """Return a result that combines documents of this result and of another one.

        Args:
            other: Other result.
            picks: Pairs of a source (0 for this result, 1 for the other one) and a position in its documents.
        """
        changed: dict[str, Any] = {}
        for name in ("indices", "relevance", "scores", "explanations"):
            lists = (getattr(self, name), getattr(other, name))
            changed[name] = lists[0] and [lists[source][position] for source, position in picks]
        return replace(self, **changed)


def render_rerank(
    request: RerankRequest, ranked: RankedDocuments, uid: str, path: str = "/v2/rerank"
) -> dict[str, Any]:
    """Return the content of a :class:`RerankResponse` as a dictionary, because building models would be slow.

    Args:
        request: Request to respond to.
        ranked: Result of the engine.
        uid: Id of the request.
        path: Path of the request, which contains the version of the API.
    """
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": score}
        for index, score in zip(ranked.indices, ranked.relevance, strict=True)
    ]
    if request.return_documents and request.documents is not None:
        for result in results:
            document = request.documents[result["index"]]
            result["document"] = document if isinstance(document, dict) else {"text": document or ""}
    for result, explanation in zip(results, ranked.explanations or (), strict=False):
        result["explanation"] = explanation
    meta = {"api_version": {"version": path[2]}, "billed_units": {"search_units": 1}, "model": ranked.model}
    meta |= {} if ranked.language is None else {"language": ranked.language}
    voyage = {} if request.top_k is None else {"data": text_results(request, ranked), "usage": NO_USAGE}
    return {"id": uid, "results": results, **confidence_of(ranked), "meta": meta, **voyage}


def text_results(request: RerankRequest, ranked: RankedDocuments) -> list[dict[str, Any]]:
    """Return the results of a request, whose documents are plain texts.

    Args:
        request: Request to respond to.
        ranked: Result of the engine.

    Returns:
        Results as dictionaries, best first.
    """
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": score}
        for index, score in zip(ranked.indices, ranked.relevance, strict=True)
    ]
    if request.return_documents and request.texts is not None:
        for result in results:
            result["document"] = request.texts[result["index"]]
    for result, explanation in zip(results, ranked.explanations or (), strict=False):
        result["explanation"] = explanation
    return results


def confidence_of(ranked: RankedDocuments) -> dict[str, Any]:
    """Return the entry ``perfect_recall`` of a response, or no entry if it was not requested.

    Args:
        ranked: Result of the engine.
    """
    return {} if ranked.perfect_recall is None else {"perfect_recall": ranked.perfect_recall}
