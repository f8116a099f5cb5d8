"""``POST`` and ``DELETE /documents``: requests and answers."""

import json
from collections import Counter
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo, field_validator, model_validator

from graphrerank.corpus.edge_lists import REPEATED_EDGES, SELF_LOOPS
from graphrerank.corpus.metadata_fields import check_record
from graphrerank.corpus.permissions import PRINCIPALS, misplaced_principals
from graphrerank.corpus_store.growth import NewEdge
from graphrerank.data.readers.documents import CorpusRecord
from graphrerank.rerank.edge_forms import edge_rows, type_numbers, weights_of
from graphrerank.serving.prices import Work
from graphrerank.serving.schemas.edges import edge_schema, listed_edges
from graphrerank.serving.schemas.requests import CallerRequest, check_most, limits_of
from graphrerank.serving.work_estimates import growth_work
from graphrerank.utils.checks import UserError


def _edges(given: Any, info: ValidationInfo) -> list[NewEdge]:
    listed = listed_edges(given, info) or []
    for place, edge in enumerate(listed):  # everybody who sees both ends would see an edge, whatever it says
        if (path := misplaced_principals(edge)) is not None:
            raise UserError(f"`edges` cannot be added with principals, got `{path}` at place {place}")
    rows = edge_rows(listed)
    for place, row in enumerate(rows):
        if not (isinstance(row[0], str) and isinstance(row[1], str)):
            raise UserError(f"`edges` must each join two ids, got another at place {place}")
    types = type_numbers([row[3] for row in rows], len(rows)).tolist()
    ends = [row[:2] for row in rows]
    return [NewEdge(*pair, *more) for pair, *more in zip(ends, map(float, weights_of(rows)), types, strict=True)]


# as in files of data sets: no tab, no line break, no blank at either end
DocId = Annotated[str, Field(strict=True, min_length=1, max_length=512, pattern=r"^[^ \t\r\n]([^\t\r\n]*[^ \t\r\n])?$")]


class NewDocument(BaseModel):
    """One passage.

    Attributes:
        id: Its id; a passage of this id that is there is replaced, its edges with it.
        title: Its title, if it has one.
        text: Its text.
        metadata: Its metadata, for filters; ``principals`` are a list of who may see it; without, everybody. Fields
            that seem to be misspelt or misplaced principals are refused, as the document would be public;
            ``valid_from`` and ``valid_to`` must be times in ISO 8601.
    """

    model_config = ConfigDict(extra="forbid")

    id: DocId
    title: str = ""
    text: str
    metadata: dict[str, Any] = Field(default={})

    @field_validator("metadata")
    @classmethod
    def _has_names(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        names = metadata.get(PRINCIPALS, [])
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise UserError(f"`{PRINCIPALS}` must be a list of texts")
        check_record(metadata)
        return metadata

    @property
    def passage(self) -> str:
        """Title and text, as of a data set folder."""
        return CorpusRecord(self.id, self.title.strip(), self.text.strip(), {}).passage


class AddDocuments(CallerRequest):
    """Body of ``POST /documents``.

    Attributes:
        principals: Those of the caller, where the service trusts what requests say of themselves.
        documents: Passages, which replace those that have their ids.
        edges: Undirected edges of a passage of the request with another one, of the request or of the corpus, in the
            forms of ``POST /v2/rerank`` but with ids as ends.
    """

    writes: ClassVar[bool] = True
    documents: Annotated[list[NewDocument], Field(min_length=1, fail_fast=True)]
    edges: Annotated[list[NewEdge], PlainValidator(_edges), edge_schema({"type": "string"})] = Field([])

    @model_validator(mode="after")
    def _within_limits(self, info: ValidationInfo) -> Self:
        limits = limits_of(info)
        check_most(limits.documents, len(self.documents), "documents")
        for place, document in enumerate(self.documents):
            if not document.passage:
                raise UserError(f"document {place} must have a text")
            if len(document.passage) > limits.text_chars:
                raise UserError(f"document {place} must have at most {limits.text_chars} characters")
        num_chars = sum(len(document.title) + len(document.text) for document in self.documents)
        num_chars += sum(len(json.dumps(document.metadata)) for document in self.documents if document.metadata)
        if num_chars > limits.request_chars:
            raise UserError(f"`documents` must have at most {limits.request_chars} characters, got {num_chars}")
        ids = {document.id for document in self.documents}
        if len(ids) < len(self.documents):
            raise UserError("`documents` must have different ids")
        for place, edge in enumerate(self.edges):
            if edge.source not in ids and edge.target not in ids:
                raise UserError(f"edge {place} must be of a document of the request")
        return self

    def work(self) -> Work:
        """Estimate the work to add them."""
        return growth_work(len(self.documents), self._passages, len(self.edges))

    @property
    def bad_items(self) -> Counter[str]:
        """See the base class."""
        kept = [edge for edge in self.edges if edge.source != edge.target]
        distinct = {(frozenset(edge[:2]), edge.edge_type) for edge in kept}
        loops, repeated = len(self.edges) - len(kept), len(kept) - len(distinct)
        return +Counter({SELF_LOOPS: loops, REPEATED_EDGES: repeated})

    def texts_to_encode(self) -> tuple[list[str], list[str]]:
        """Return no query, and the passages."""
        return [], self._passages

    @cached_property
    def _passages(self) -> list[str]:
        return [document.passage for document in self.documents]


class RemoveDocuments(CallerRequest):
    """Body of ``DELETE /documents``.

    Attributes:
        principals: Those of the caller, where the service trusts what requests say of themselves.
        ids: Ids of passages; those that the corpus does not have are ignored.
    """

    writes: ClassVar[bool] = True
    ids: Annotated[list[DocId], Field(min_length=1, fail_fast=True)]

    @model_validator(mode="after")
    def _within_limits(self, info: ValidationInfo) -> Self:
        check_most(limits_of(info).documents, len(self.ids), "ids")
        return self

    def work(self) -> Work:
        """Estimate the work to remove them."""
        return growth_work(len(self.ids))


class DocumentsResponse(BaseModel):
    """Response of ``POST`` and ``DELETE /documents``: what it says is on the disk."""

    id: str  # of the request, as in the logs
    added: int  # passages, those that replaced others among them
    removed: int  # passages, those that were replaced among them
    documents: int  # passages of the corpus now
    meta: dict[str, Any]  # `index`, the version of the corpus, as of answers of `POST /search`
