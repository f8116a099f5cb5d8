"""``POST /v1/rerank`` and ``POST /v2/rerank``: requests and answers in Cohere's wire format."""

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
Names = Annotated[list[str], Field(fail_fast=True)]
ChunkNumber = Annotated[int, Field(ge=-(2**53), le=2**53, strict=True)]
Document = str | dict[str, Any]


class RerankRequest(EngineRequest):
    """Body of ``POST /v1/rerank`` and ``POST /v2/rerank``.

    Attributes:
        query: The query, not blank.
        documents: Texts, or objects with a text; None to use ``scores`` alone. Blank ones rank last.
        scores: One base score per document, of any scale, higher is better; None for BM25 among the documents, mixed
            with the cosine if there are vectors.
        edges: Undirected edges ``[i, j]``, ``[i, j, weight]``, ``[i, j, type]``, ``[i, j, weight, type]`` or ``[i, j,
            {"weight": ..., "type": ...}]`` between documents, numbered from 0; weights lie in [1e-9, 1e9] and are 1 by
            default. Types are ``reference``, ``entity``, ``adjacency``, ``similarity`` and ``other``, the default, or
            names that mean one of them, as ``GET /info`` lists; a model that reads no types merges edges.
        entities: Names of entities for each document; documents with common entities are joined.
        doc_ids: For each chunk, the name of its document; with ``chunk_ids``, neighbouring chunks are joined.
        chunk_ids: For each chunk, its number in its document; null, here or in ``doc_ids``, for what is no chunk.
        query_vector: The query's vector; with ``vectors``, used in place of the service's encoder.
        vectors: A vector of the same encoder for each document.
        cross_encoder_scores: One score of a cross-encoder per document, null for those that it has not read; for models
            of ``features=scores_match_typed_cross_encoder``, which rank without them too.
        top_n: Number of results; None for all.
        min_probability: Leave out what is relevant with less than this probability; the artifact must be calibrated.
        min_perfect_recall: As few results as hold all that is relevant with at least this probability; the artifact
            must have a ``list_confidence``.
        return_documents: Whether results contain the documents.
        rank_fields: Fields of documents that are objects, joined by line breaks; None for ``text``.
        max_tokens_per_doc: Number of words of a document that are read; None for all. The encoder has its own limit.
        max_doc_length: Jina's name of ``max_tokens_per_doc``.
        language: In which words are matched; None for the service's setting, by default that of the documents.
        explain: Whether results explain their scores.
        return_confidence: Whether the response has ``perfect_recall``; the artifact must have a ``list_confidence``.
        stream: Ignored; true is refused.

    Ignored, as a service has one model and one queue, a document is read as one, and a text beyond the encoder's limit
    is truncated: ``model``, ``priority``, ``max_chunks_per_doc``, ``truncation``. Of ``user`` a log of feedback keeps a
    pseudonym.
    """

    query: Query
    documents: Annotated[list[Document], Field(min_length=1, fail_fast=True)] | None = None
    scores: Annotated[list[Score], Field(min_length=1, fail_fast=True)] | None = None
    edges: Annotated[list[Any] | None, PlainValidator(listed_edges), NUMBERED_EDGES] = None
    entities: Annotated[list[Names], Field(fail_fast=True)] | None = None
    doc_ids: Annotated[list[str | None], Field(fail_fast=True)] | None = None
    chunk_ids: Annotated[list[ChunkNumber | None], Field(fail_fast=True)] | None = None
    query_vector: Vector | None = None
    vectors: Annotated[list[Vector], Field(fail_fast=True)] | None = None
    cross_encoder_scores: Annotated[list[Score | None], Field(fail_fast=True)] | None = None
    top_n: Positive | None = None
    min_probability: Probability | None = None
    min_perfect_recall: Probability | None = None
    return_documents: Flag = False
    rank_fields: Annotated[list[str], Field(min_length=1, fail_fast=True)] | None = None
    max_tokens_per_doc: Positive | None = None
    max_doc_length: Positive | None = None
    language: str | None = None
    explain: Flag = False
    return_confidence: Flag = False
    model: str | None = None
    max_chunks_per_doc: int | None = None
    priority: int | None = None
    truncation: bool | None = None
    user: str | None = None
    stream: Literal[False] | None = None
    _passages: list[str] | None = PrivateAttr(None)  # the texts of the documents

    def work(self) -> Work:
        """Estimate the work to rank the documents; a ValueError if fields do not fit together."""
        return rerank_work(self._whole, explain=self.explain, cut=self._num_words is not None)

    def texts_to_encode(self) -> tuple[list[str], list[str]]:
        """Return the query and the passages, if no vectors are given."""
        given = self.candidates
        return ([], []) if given.vectors is not None or given.passages is None else ([given.query], [*given.passages])

    @cached_property
    def candidates(self) -> RerankInput:
        """Return the input of the reranker: the first words of the documents, whose search takes time."""
        most, passages = self._num_words, self._whole.passages
        if most is None or passages is None:
            return self._whole
        spans = WordTokenizer().spans(passages)
        stops = [words[most - 1][1] if len(words) > most else None for words in spans]
        return replace(self._whole, passages=[text[:stop] for text, stop in zip(passages, stops, strict=True)])

    @property
    def _num_words(self) -> int | None:
        return self.max_tokens_per_doc or self.max_doc_length

    @property
    def bad_items(self) -> Counter[str]:
        """See :class:`RerankInput`."""
        return self._whole.bad_items

    @cached_property
    def _whole(self) -> RerankInput:
        """The request with whole documents."""
        return RerankInput(
            self.query,
            self._passages,
            edges=parse_edges(self.edges or (), len(self.documents or self.scores or ())),
            language=self.language or AUTO,
            **{name: getattr(self, name) for name in AS_GIVEN},
        )

    @field_validator("documents", "scores", "cross_encoder_scores", "rank_fields", "entities", mode="before")
    @classmethod
    def _not_too_many(cls, given: Any, info: ValidationInfo) -> Any:
        limits, name = limits_of(info), str(info.field_name)
        if isinstance(given, list):
            check_most(limits.fields if name == "rank_fields" else limits.documents, len(given), name)
            count = sum(len(names) for names in given if isinstance(names, list)) if name == "entities" else 0
            check_most(limits.entities, count, "names of entities")
        return given

    @field_validator("language")
    @classmethod
    def _a_known_language(cls, language: str | None) -> str | None:
        if language not in (None, AUTO, *LANGUAGES):
            raise UserError(f"`language` must be {AUTO} or one of {list(LANGUAGES)}")
        return language

    @model_validator(mode="after")
    def _within_limits(self, info: ValidationInfo) -> "RerankRequest":
        if self.documents is None and self.scores is None:
            raise UserError("`documents` or `scores` must be given, got neither")
        if self.max_tokens_per_doc is not None and self.max_doc_length is not None:
            raise UserError("`max_tokens_per_doc` and `max_doc_length` mean the same, got both")
        limits, num_chars = limits_of(info), len(self.query)
        if self.documents is not None:
            self._passages = [_text(each, self.rank_fields, index) for index, each in enumerate(self.documents)]
        for index, length in enumerate(len(text.strip()) for text in self._passages or ()):
            num_chars += length
            if length > (most := limits.text_chars):
                raise UserError(f"`documents` must each have at most {most} characters, got {length} at index {index}")
        if num_chars > (most := limits.request_chars):
            raise UserError(f"`query` and `documents` must have at most {most} characters together, got {num_chars}")
        return self


def _text(document: Document, rank_fields: list[str] | None, index: int) -> str:
    """Return what is ranked of a document, of which all must be fit to be sent back."""
    names = rank_fields or ["text"]
    if isinstance(document, dict):
        for field, name in enumerate(names):
            if not isinstance(document.get(name), str):
                named = "a text `text`" if rank_fields is None else f"a text for `rank_fields[{field}]`"
                raise UserError(f"`documents` must each be a text or have {named}, got none at index {index}")
    try:
        whole = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False, allow_nan=False)
        whole.encode()
    except ValueError as error:
        raise UserError(f"`documents` must hold valid Unicode and finite numbers, not so at index {index}") from error
    return document if isinstance(document, str) else "\n".join(document[name] for name in names)


# fields that the reranker takes as they are
AS_GIVEN = RerankInput.__dataclass_fields__.keys() & RerankRequest.model_fields.keys() - {"query", "edges", "language"}


class RerankResult(BaseModel):
    """One document of an answer.

    ``relevance_score`` is the probability of relevance, of a document alone, or of documents with equal scores, by
    their texts; null where such have none; 0 for blank ones. The model's score if the artifact is not calibrated.
    """

    #: Position of the document in the request, from 0.
    index: int
    #: Probability of relevance, or the score if the artifact is not calibrated.
    relevance_score: float | None
    #: The document, a text as ``{"text": ...}``. Only with ``return_documents``.
    document: dict[str, Any] | None = None
    #: Parts of the score. Only with ``explain``.
    explanation: Explanation | None = None


class RerankResponse(BaseModel):
    """Response to a rerank request."""

    #: Id of the request, as in the logs.
    id: str
    #: Results, best first by the model's score. Ties are ranked by index.
    results: list[RerankResult]
    #: Probability, for each result, that nothing relevant is below it or was not sent. Only with `return_confidence`.
    perfect_recall: list[float] | None = None
    #: Cohere's `api_version`, `billed_units` and `warnings` of bad items, the name of the `model`, and the `language`.
    meta: dict[str, Any]


@dataclass(frozen=True)
class RankedDocuments:
    """Result of the engine: the documents of a request, best first.

    Attributes:
        model: Name of the model.
        indices: Positions of the documents in the request.
        relevance: Probability of relevance of each document, or its score if the model is not calibrated. None for each
            document if their probabilities are unknown.
        scores: Score of the model for each document.
        explanations: Parts of each score. None if they were not requested.
        perfect_recall: Probability, for each rank, that no relevant document is below it. None if it was not requested.
        language: Language in which words were matched. None if none were.
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
        """Indices of the documents in the request, as texts."""
        return list(map(str, self.indices))

    def picked(self, other: "RankedDocuments", picks: Sequence[tuple[int, int]]) -> "RankedDocuments":
        """Return documents of this result (0) and another one (1), by place."""
        changed: dict[str, Any] = {}
        for name in ("indices", "relevance", "scores", "explanations"):
            lists = (getattr(self, name), getattr(other, name))
            changed[name] = lists[0] and [lists[which][place] for which, place in picks]
        return replace(self, **changed)


def render_rerank(
    request: RerankRequest, ranked: RankedDocuments, uid: str, path: str = "/v2/rerank"
) -> dict[str, Any]:
    """Return the content of a :class:`RerankResponse`, as building models would be slow; the path has the version."""
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": score}
        for index, score in zip(ranked.indices, ranked.relevance, strict=True)
    ]
    if request.return_documents and request.documents is not None:
        for result in results:
            document = request.documents[result["index"]]
            result["document"] = {"text": document} if isinstance(document, str) else document
    for result, explanation in zip(results, ranked.explanations or (), strict=False):
        result["explanation"] = explanation
    meta = {"api_version": {"version": path[2]}, "billed_units": {"search_units": 1}, "model": ranked.model}
    meta |= {} if ranked.language is None else {"language": ranked.language}
    confidence = {} if ranked.perfect_recall is None else {"perfect_recall": ranked.perfect_recall}
    return {"id": uid, "results": results, **confidence, "meta": meta}
