"""Requests to rank documents: Cohere's wire format, with further inputs of a graph reranker.

- One pydantic model contains all rules, for HTTP and for Python callers; each error names its field.
- Limits are passed as validation context (``Limits``), and are checked before the entries.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
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

from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER, edge_type_of
from graphrerank.inference.arrays import LARGEST
from graphrerank.inference.input_edges import LARGEST_WEIGHT, SMALLEST_WEIGHT
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.serving.limits import Probability, Query, limits_of
from graphrerank.serving.work import rerank_seconds
from graphrerank.text.languages import AUTO, LANGUAGES
from graphrerank.text.tokenizer import WordTokenizer

Score = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False, strict=True)]
Positive = Annotated[int, Field(ge=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Vector = Annotated[list[Score], Field(min_length=1, fail_fast=True)]
Names = Annotated[list[str], Field(fail_fast=True)]
Document = str | dict[str, Any]

_EDGE_SCHEMA = {
    "type": "array",
    "items": {
        "type": "array",
        "prefixItems": [
            {"type": "integer", "minimum": 0},
            {"type": "integer", "minimum": 0},
            {"type": "number", "minimum": SMALLEST_WEIGHT, "maximum": LARGEST_WEIGHT},
            {"type": "string", "examples": list(EDGE_TYPES)},
        ],
        "minItems": 2,
        "maxItems": 4,
    },
}
LARGEST_INDEX = 2**31 - 1
FORMS = "[i, j], [i, j, weight] or [i, j, weight, type]"


@dataclass(frozen=True, eq=False)
class EdgeArrays:
    """Undirected edges.

    Attributes:
        pairs: ``[M, 2]`` int64.
        weights: ``[M]`` float64.
        types: ``[M]`` int64, numbers of :data:`~graphrerank.graphs.edge_types.EDGE_TYPES`; None if no edge has a type.
    """

    pairs: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    types: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def type_names(self) -> list[str] | None:
        """The name of each edge's type; None if no edge has one."""
        return None if self.types is None else [EDGE_TYPES[number] for number in self.types.tolist()]


def read_edges(given: Any, *, most: int) -> EdgeArrays:
    """Convert edges from JSON.

    Args:
        given: List of ``[i, j]``, ``[i, j, weight]`` or ``[i, j, weight, type]``; the weight is 1 by default, the type
            ``other``.
        most: Maximum number of edges.

    Raises:
        ValueError: If there are too many, or one has another form; names its index.

    Example:
        >>> edges = read_edges([[0, 1], [2, 1, 0.5], [0, 2, 1, "citation"]], most=9)
        >>> edges.weights.tolist(), [EDGE_TYPES[number] for number in edges.types]
        ([1.0, 0.5, 1.0], ['other', 'other', 'reference'])
    """
    if not isinstance(given, list | tuple):
        raise ValueError(f"`edges` must be a list of {FORMS}, got {type(given).__name__}")
    if len(given) > most:
        raise ValueError(f"`edges` must be at most {most}, got {len(given)}")
    if not set(map(type, given)) <= {list, tuple} or not (lengths := set(map(len, given))) <= {2, 3, 4}:
        _refuse(given, f"be {FORMS}", lambda edge: isinstance(edge, list | tuple) and 2 <= len(edge) < 5)
    if (pairs := _plain_pairs(given)) is not None:
        return EdgeArrays(pairs, np.ones(len(pairs)))
    indices = [index for edge in given for index in edge[:2]]
    if not set(map(type, indices)) <= {int} or min(indices, default=0) < 0 or max(indices, default=0) > LARGEST_INDEX:
        _refuse(
            given,
            "join two documents by their indices, integers from 0",
            lambda edge: all(type(index) is int and 0 <= index <= LARGEST_INDEX for index in edge[:2]),
        )
    weights = [edge[2] if len(edge) > 2 else 1.0 for edge in given]
    if not set(map(type, weights)) <= {int, float} or not all(SMALLEST_WEIGHT <= w <= LARGEST_WEIGHT for w in weights):
        _refuse(
            given,
            f"have a weight in [{SMALLEST_WEIGHT:g}, {LARGEST_WEIGHT:g}]",
            lambda edge: (
                len(edge) == 2 or (type(edge[2]) in (int, float) and SMALLEST_WEIGHT <= edge[2] <= LARGEST_WEIGHT)
            ),
        )
    types = _types(given) if 4 in lengths else None
    return EdgeArrays(np.array(indices, dtype=np.int64).reshape(-1, 2), np.array(weights, dtype=np.float64), types)


def _types(given: Sequence[Sequence[Any]]) -> npt.NDArray[np.int64]:
    """Return the number of each edge's type; ``other`` of those without one."""
    names = [edge[3] if len(edge) == 4 else EDGE_TYPES[OTHER] for edge in given]
    if not set(map(type, names)) <= {str}:
        _refuse(given, "have a text as type", lambda edge: len(edge) < 4 or isinstance(edge[3], str))
    number = {name: edge_type_of(name) for name in set(names)}
    return np.array([number[name] for name in names], dtype=np.int64)


def _plain_pairs(given: Sequence[Sequence[Any]]) -> npt.NDArray[np.int64] | None:
    """Convert edges without weights, some three times as fast; None if any edge is different or invalid."""
    indices = list(chain.from_iterable(given))
    if len(indices) != 2 * len(given) or not set(map(type, indices)) <= {int}:
        return None
    if not 0 <= min(indices, default=0) <= max(indices, default=0) <= LARGEST_INDEX:
        return None
    return np.array(indices, dtype=np.int64).reshape(-1, 2)


def check_ends(edges: EdgeArrays, num_documents: int) -> None:
    """Check that each edge joins two different documents, and that no pair is repeated; with types, in one type.

    Raises:
        ValueError: If one does not; names the first one's index.
    """
    low, high = edges.pairs.min(axis=1, initial=LARGEST_INDEX), edges.pairs.max(axis=1, initial=0)
    key, once = low * num_documents + high, "once"
    if edges.types is not None:
        key, once = key * len(EDGE_TYPES) + edges.types, "once for each type"
    is_repeated = np.ones(len(edges), dtype=bool)
    is_repeated[np.unique(key, return_index=True)[1]] = False
    for is_bad, needed in (
        (high >= num_documents, f"join documents 0 to {num_documents - 1}"),
        (low == high, "join two different documents"),
        (is_repeated, f"be given {once}, in one direction"),
    ):
        if is_bad.any():
            index = int(is_bad.argmax())
            raise ValueError(f"`edges` must each {needed}, got {edges.pairs[index].tolist()} at index {index}")


def _refuse(given: Any, needed: str, is_valid: Any) -> None:
    index = next(index for index, edge in enumerate(given) if not is_valid(edge))
    raise ValueError(f"`edges` must each {needed}, got another at index {index}")


def _edges(given: Any, info: ValidationInfo) -> EdgeArrays | None:
    if given is None:
        return None
    edges = read_edges(given, most=limits_of(info).edges)
    if (count := _num_documents(info.data)) is not None:
        check_ends(edges, count)
    return edges


@dataclass(frozen=True)
class RerankJob:
    """The part of a request that the engine needs.

    Attributes:
        candidates: Query, texts, scores and edges.
        explain: Whether the scores are to be explained.
        confidence: Whether the answer says how likely its top is complete.
        seconds: Estimated time to rank them.
    """

    candidates: RerankInput
    explain: bool
    confidence: bool
    seconds: float

    @property
    def num_documents(self) -> int:
        """Number of candidates."""
        return self.candidates.num_passages

    @property
    def num_chars(self) -> int:
        """Characters of the texts that a service with an encoder encodes."""
        if self.candidates.passages is None or self.candidates.vectors is not None:
            return 0
        return len(self.candidates.query) + sum(map(len, self.candidates.passages))


class RerankRequest(BaseModel):
    """Body of ``POST /v1/rerank`` and ``POST /v2/rerank``.

    Attributes:
        query: The query, not blank.
        documents: Texts, or objects with a text; None to use ``scores`` alone.
        scores: One base score per document, of any scale, higher is better; None for BM25 among the documents, mixed
            with the cosine if there are vectors.
        edges: Undirected edges ``[i, j]``, ``[i, j, weight]`` or ``[i, j, weight, type]`` between two different
            documents, numbered from 0; weights lie in [1e-9, 1e9] and are 1 by default. Types are ``reference``,
            ``entity``, ``adjacency``, ``similarity`` and ``other``, the default, or names that mean one of them, as
            ``GET /info`` lists; a model that reads no types merges edges. Each pair may be given once for each type, in
            one direction.
        entities: Names of entities for each document; documents with common entities are joined.
        doc_ids: For each chunk, the name of its document; with ``chunk_ids``, neighbouring chunks are joined.
        chunk_ids: For each chunk, its number in its document.
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
        model: Ignored: a service has one model.
        max_chunks_per_doc: Ignored: a document is read as one.
        priority: Ignored: requests wait in one queue.
        truncation: Ignored: a text beyond the encoder's limit is truncated.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    query: Query
    documents: Annotated[list[Document], Field(min_length=1, fail_fast=True)] | None = None
    scores: Annotated[list[Score], Field(min_length=1, fail_fast=True)] | None = None
    edges: Annotated[EdgeArrays | None, PlainValidator(_edges), WithJsonSchema(_EDGE_SCHEMA)] = None
    entities: Annotated[list[Names], Field(fail_fast=True)] | None = None
    doc_ids: Names | None = None
    chunk_ids: (
        Annotated[list[Annotated[int, Field(ge=-(2**53), le=2**53, strict=True)]], Field(fail_fast=True)] | None
    ) = None
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

    @property
    def num_documents(self) -> int:
        """Number of candidates."""
        return len(self.documents or self.scores or ())

    def texts(self) -> list[str] | None:
        """Return the parts of the documents that are read; None if there are only scores."""
        if self.documents is None:
            return None
        texts = [_text(document, self.rank_fields) for document in self.documents]
        most = self.max_tokens_per_doc or self.max_doc_length
        return texts if most is None else _first_words(texts, most)

    def to_job(self) -> RerankJob:
        """Return the part of the request that the engine needs.

        Raises:
            ValueError: If arguments do not fit together.
        """
        candidates = RerankInput(
            self.query,
            self.texts(),
            scores=self.scores,
            edges=None if self.edges is None else self.edges.pairs,
            edge_weights=None if self.edges is None else self.edges.weights,
            edge_types=None if self.edges is None else self.edges.type_names,
            entities=self.entities,
            doc_ids=self.doc_ids,
            chunk_ids=self.chunk_ids,
            query_vector=self.query_vector,
            vectors=self.vectors,
            cross_encoder_scores=self.cross_encoder_scores,
            top_n=self.top_n,
            min_probability=self.min_probability,
            min_perfect_recall=self.min_perfect_recall,
            language=self.language or AUTO,
        )
        seconds = rerank_seconds(candidates, explain=self.explain)
        return RerankJob(candidates, self.explain, self.return_confidence, seconds)

    @field_validator("documents", "scores", "cross_encoder_scores", "rank_fields", "entities", mode="before")
    @classmethod
    def _not_too_many(cls, given: Any, info: ValidationInfo) -> Any:
        limits = limits_of(info)
        most = limits.fields if info.field_name == "rank_fields" else limits.documents
        if isinstance(given, list) and len(given) > most:
            raise ValueError(f"`{info.field_name}` must be at most {most}, got {len(given)}")
        if info.field_name == "entities" and isinstance(given, list):
            count = sum(len(names) for names in given if isinstance(names, list))
            if count > limits.entities:
                raise ValueError(f"`entities` must have at most {limits.entities} names, got {count}")
        return given

    @field_validator("language")
    @classmethod
    def _a_known_language(cls, language: str | None) -> str | None:
        if language not in (None, AUTO, *LANGUAGES):
            raise ValueError(f"`language` must be {AUTO} or one of {list(LANGUAGES)}")
        return language

    @field_validator("scores", "entities", "doc_ids", "chunk_ids", "vectors", "cross_encoder_scores")
    @classmethod
    def _one_per_document(cls, given: list[Any] | None, info: ValidationInfo) -> list[Any] | None:
        needed = _num_documents(info.data)
        if given is not None and needed is not None and len(given) != needed:
            raise ValueError(f"`{info.field_name}` must have one entry per document ({needed}), got {len(given)}")
        return given

    @model_validator(mode="after")
    def _belongs_together(self, info: ValidationInfo) -> "RerankRequest":
        if self.documents is None and self.scores is None:
            raise ValueError("`documents` or `scores` must be given, got neither")
        for first, second in (("doc_ids", "chunk_ids"), ("query_vector", "vectors")):
            if (getattr(self, first) is None) != (getattr(self, second) is None):
                raise ValueError(f"`{first}` and `{second}` belong together, got one of them")
        if self.max_tokens_per_doc is not None and self.max_doc_length is not None:
            raise ValueError("`max_tokens_per_doc` and `max_doc_length` mean the same, got both")
        limits, num_chars = limits_of(info), len(self.query)
        for index, document in enumerate(self.documents or ()):
            text = _checked_text(document, self.rank_fields, index)
            num_chars += len(text)
            if not 0 < len(text) <= limits.text_chars:
                raise ValueError(
                    f"`documents` must each have 1 to {limits.text_chars} characters, got {len(text)} at index {index}"
                )
        if num_chars > limits.request_chars:
            raise ValueError(
                f"`query` and `documents` must have at most {limits.request_chars} characters together, got {num_chars}"
            )
        return self


def _num_documents(read: dict[str, Any]) -> int | None:
    """Count the documents that were read so far; None if they are invalid."""
    if "documents" not in read:
        return None
    counted = read["documents"] if read["documents"] is not None else read.get("scores")
    return None if counted is None else len(counted)


def _text(document: Document, rank_fields: list[str] | None) -> str:
    return document if isinstance(document, str) else "\n".join(document[name] for name in rank_fields or ["text"])


def _checked_text(document: Document, rank_fields: list[str] | None, index: int) -> str:
    if isinstance(document, dict):
        for field, name in enumerate(rank_fields or ["text"]):
            if not isinstance(document.get(name), str):
                named = "a text `text`" if rank_fields is None else f"a text for `rank_fields[{field}]`"
                raise ValueError(f"`documents` must each be a text or have {named}, got none at index {index}")
    try:  # objects are returned as they are
        whole = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False, allow_nan=False)
        whole.encode()
    except ValueError as error:
        raise ValueError(f"`documents` must hold valid Unicode and finite numbers, not so at index {index}") from error
    return _text(document, rank_fields).strip()


def _first_words(texts: list[str], most: int) -> list[str]:
    spans = WordTokenizer().spans(texts)
    return [text[: of[most - 1][1]] if len(of) > most else text for text, of in zip(texts, spans, strict=True)]
