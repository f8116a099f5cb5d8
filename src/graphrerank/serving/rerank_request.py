"""What a rerank request holds and its answer: Cohere's wire format, with what a graph reranker reads besides.

- One pydantic model holds every rule, for HTTP and for Python callers alike; each error names its field.
- Limits come as validation context (:class:`~graphrerank.serving.Limits`), and are checked before the entries are.
"""

import json
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from graphrerank.inference import RerankInput
from graphrerank.inference.arrays import LARGEST
from graphrerank.serving.edge_arrays import EdgeArrays, check_ends, read_edges
from graphrerank.serving.limits import limits_of
from graphrerank.text.tokenizer import WordTokenizer

Score = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False, strict=True)]
Positive = Annotated[int, Field(ge=1, strict=True)]
Document = str | dict[str, Any]

_EDGE_SCHEMA = {
    "type": "array",
    "items": {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2, "maxItems": 3},
}


def _edges(given: Any, info: ValidationInfo) -> EdgeArrays | None:
    if given is None:
        return None
    edges = read_edges(given, most=limits_of(info).edges)
    if (count := _num_documents(info.data)) is not None:
        check_ends(edges, count)
    return edges


class RerankRequest(BaseModel):
    """What ``POST /v1/rerank`` and ``POST /v2/rerank`` take.

    Attributes:
        query: The query, not empty.
        documents: Texts, or objects with a text; None to go by ``scores`` alone.
        scores: One base score per document, of any scale, higher is better; None for BM25 among the documents, mixed
            with the cosine where there are vectors.
        edges: Undirected edges ``[i, j]`` or ``[i, j, weight]`` between two different documents, numbered from 0;
            weights lie in [1e-9, 1e9], 1 when left out. A pair may stand once, in one direction.
        entities: For each document, names of what it speaks of; documents that share some are joined.
        doc_ids: For each document, the name of what it is a chunk of; with ``chunk_ids``, neighbours are joined.
        chunk_ids: For each document, its number among the chunks.
        query_vector: The query's vector; with ``vectors``, in the place of the service's encoder.
        vectors: For each document, its vector of the same encoder.
        top_n: How many results to return; None for all.
        return_documents: Whether results hold the documents.
        rank_fields: Of documents that are objects, the fields to read, joined by line breaks; None for ``text``.
        max_tokens_per_doc: Words of a document to read; None for all. The encoder has a limit of its own.
        explain: Whether results say what made their scores.
        model: Ignored: a service has one model.
        max_chunks_per_doc: Ignored: a document is read as one.
        priority: Ignored: requests wait in one queue.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    query: Annotated[str, Field(min_length=1)]
    documents: Annotated[list[Document], Field(min_length=1, fail_fast=True)] | None = None
    scores: Annotated[list[Score], Field(min_length=1, fail_fast=True)] | None = None
    edges: Annotated[EdgeArrays | None, PlainValidator(_edges), WithJsonSchema(_EDGE_SCHEMA)] = None
    entities: Annotated[list[list[str]], Field(fail_fast=True)] | None = None
    doc_ids: Annotated[list[str], Field(fail_fast=True)] | None = None
    chunk_ids: (
        Annotated[list[Annotated[int, Field(ge=-(2**53), le=2**53, strict=True)]], Field(fail_fast=True)] | None
    ) = None
    query_vector: Annotated[list[Score], Field(min_length=1, fail_fast=True)] | None = None
    vectors: Annotated[list[list[Score]], Field(fail_fast=True)] | None = None
    top_n: Positive | None = None
    return_documents: Annotated[bool, Field(strict=True)] = False
    rank_fields: Annotated[list[str], Field(min_length=1)] | None = None
    max_tokens_per_doc: Positive | None = None
    explain: Annotated[bool, Field(strict=True)] = False
    model: str | None = None
    max_chunks_per_doc: int | None = None
    priority: int | None = None

    @property
    def num_documents(self) -> int:
        """Number of candidates."""
        return len(self.documents or self.scores or ())

    def texts(self) -> list[str] | None:
        """Return the documents' texts, as far as they are read; None where there are only scores."""
        if self.documents is None:
            return None
        texts = [_text(document, self.rank_fields) for document in self.documents]
        return texts if self.max_tokens_per_doc is None else _first_words(texts, self.max_tokens_per_doc)

    def to_input(self, query_vector: Any = None, vectors: Any = None) -> RerankInput:
        """Return what the reranker takes.

        Args:
            query_vector: ``[d]``, by the service's encoder; the request's own take its place.
            vectors: ``[n, d]``, likewise.

        Raises:
            ValueError: If arguments do not fit together.
        """
        return RerankInput(
            self.query,
            self.texts(),
            scores=self.scores,
            edges=None if self.edges is None else self.edges.pairs,
            edge_weights=None if self.edges is None else self.edges.weights,
            entities=self.entities,
            doc_ids=self.doc_ids,
            chunk_ids=self.chunk_ids,
            query_vector=query_vector if self.query_vector is None else self.query_vector,
            vectors=vectors if self.vectors is None else self.vectors,
            top_n=self.top_n,
        )

    @field_validator("documents", "scores", mode="before")
    @classmethod
    def _not_too_many(cls, given: Any, info: ValidationInfo) -> Any:
        most = limits_of(info).documents
        if isinstance(given, list) and len(given) > most:
            raise ValueError(f"`{info.field_name}` must be at most {most}, got {len(given)}")
        return given

    @field_validator("query")
    @classmethod
    def _not_too_long(cls, query: str, info: ValidationInfo) -> str:
        return limits_of(info).check_text("query", query)

    @field_validator("scores", "entities", "doc_ids", "chunk_ids", "vectors")
    @classmethod
    def _one_per_document(cls, given: list[Any] | None, info: ValidationInfo) -> list[Any] | None:
        needed = _num_documents(info.data)
        if given is not None and needed is not None and len(given) != needed:
            raise ValueError(f"`{info.field_name}` must have one entry per document ({needed}), got {len(given)}")
        return given

    @model_validator(mode="after")
    def _belongs_together(self, info: ValidationInfo) -> "RerankRequest":
        if self.documents is None and self.scores is None:
            raise ValueError("`documents` must be given, or `scores` in their place, got neither")
        for first, second in (("doc_ids", "chunk_ids"), ("query_vector", "vectors")):
            if (getattr(self, first) is None) != (getattr(self, second) is None):
                raise ValueError(f"`{first}` and `{second}` belong together, got one of them")
        most = limits_of(info).text_chars
        for place, document in enumerate(self.documents or ()):
            text = _checked_text(document, self.rank_fields, place)
            if not 0 < len(text) <= most:
                raise ValueError(f"`documents` must each have 1 to {most} characters, got {len(text)} at place {place}")
        return self


class Explanation(BaseModel):
    """What made a document's score.

    Attributes:
        base_rank: Its rank by the base score, from 1, ties by index.
        base_score: The base score: the given one, or the hybrid of BM25 and cosine.
        gcs_part: What Graph Cohesive Smoothing adds to the score; 0 for a model without it.
        learned_part: What the network adds to it.
        score: The model's score, the sum of both parts.
        edges: Up to five edges whose removal changes the score most, largest change first.
        probability: That the document is relevant, where the artifact is calibrated.
    """

    base_rank: int
    base_score: float
    gcs_part: float
    learned_part: float
    score: float
    edges: list["EdgeEffect"]
    probability: float | None = None


class EdgeEffect(BaseModel):
    """What an edge does to a score.

    Attributes:
        edge: The two documents that it joins.
        effect: The score with it minus the score without it.
    """

    edge: tuple[int, int]
    effect: float


class RerankResult(BaseModel):
    """One document of an answer.

    Attributes:
        index: The document's place in the request, from 0.
        relevance_score: Of a calibrated model the probability that the document is relevant, in [0, 1]; of another one
            its score, of any size and comparable within an answer only.
        document: The document, where ``return_documents`` asks for it; a text as ``{"text": ...}``.
        explanation: Where ``explain`` asks for it.
    """

    index: int
    relevance_score: float
    document: dict[str, Any] | None = None
    explanation: Explanation | None = None


class RerankResponse(BaseModel):
    """What a rerank request answers.

    Attributes:
        id: Of the request, as in the logs.
        results: Best first by the model's score, ties by index.
        meta: ``api_version`` as Cohere's clients expect it, and the model's name.
    """

    id: str
    results: list[RerankResult]
    meta: dict[str, Any]


def _num_documents(read: dict[str, Any]) -> int | None:
    """Count what is there so far; None where the documents have an error of their own."""
    if "documents" not in read:
        return None
    counted = read["documents"] if read["documents"] is not None else read.get("scores")
    return None if counted is None else len(counted)


def _text(document: Document, rank_fields: list[str] | None) -> str:
    return document if isinstance(document, str) else "\n".join(document[name] for name in rank_fields or ["text"])


def _checked_text(document: Document, rank_fields: list[str] | None, place: int) -> str:
    if isinstance(document, dict):
        for name in rank_fields or ["text"]:
            if not isinstance(document.get(name), str):
                raise ValueError(f"`documents` must each be a text or have a text `{name}`, got none at place {place}")
    try:  # an object comes back as it is
        whole = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False, allow_nan=False)
        whole.encode()
    except ValueError as error:
        raise ValueError(f"`documents` must hold valid Unicode and finite numbers, not so at place {place}") from error
    return _text(document, rank_fields).strip()


def _first_words(texts: list[str], most: int) -> list[str]:
    spans = WordTokenizer().spans(texts)
    return [text[: of[most - 1][1]] if len(of) > most else text for text, of in zip(texts, spans, strict=True)]
