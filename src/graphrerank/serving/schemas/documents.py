"""Requests and responses of ``POST`` and ``DELETE /documents``."""

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


def _edges(content: Any, info: ValidationInfo) -> list[NewEdge]:
    """Parse the edges of a JSON body. An added edge is visible to everybody who may see both of its passages."""
    edges = listed_edges(content, info) or []
    for index, edge in enumerate(edges):
        path = misplaced_principals(edge)
        if path is not None:
            raise UserError(f"`edges` cannot be added with principals, got `{path}` at index {index}")
    rows = edge_rows(edges)
    for index, row in enumerate(rows):
        if not (isinstance(row[0], str) and isinstance(row[1], str)):
            raise UserError(f"`edges` must each connect two ids, got an edge without two ids at index {index}")
    types = type_numbers([row[3] for row in rows], len(rows)).tolist()
    return [
        NewEdge(row[0], row[1], float(weight), edge_type)
        for row, weight, edge_type in zip(rows, weights_of(rows), types, strict=True)
    ]


# same ids as in files of data sets: no tab, no line break, no space at either end
DocId = Annotated[str, Field(strict=True, min_length=1, max_length=512, pattern=r"^[^ \t\r\n]([^\t\r\n]*[^ \t\r\n])?$")]


class NewDocument(BaseModel):
    """Passage to add."""

    model_config = ConfigDict(extra="forbid")

    id: DocId = Field(description="Id of the passage. An existing passage with this id is replaced, with its edges.")
    title: str = Field(default="", description="Title of the passage.")
    text: str = Field(description="Text of the passage.")
    metadata: dict[str, Any] = Field(
        default={},
        description="Metadata for filters. `principals` is the list of who may see the passage; without it, everybody "
        "may. Fields that look like misspelt or misplaced principals are rejected, because the passage would be "
        "public. `valid_from` and `valid_to` must be times in ISO 8601.",
    )

    @field_validator("metadata")
    @classmethod
    def _has_names(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        names = metadata.get(PRINCIPALS, [])
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise UserError(f"`{PRINCIPALS}` must be a list of strings")
        check_record(metadata)
        return metadata

    @property
    def passage(self) -> str:
        """Title and text of the passage, joined as in a data set folder."""
        return CorpusRecord(self.id, self.title.strip(), self.text.strip(), {}).passage


class AddDocuments(CallerRequest):
    """Body of ``POST /documents``."""

    writes: ClassVar[bool] = True
    documents: Annotated[list[NewDocument], Field(min_length=1, fail_fast=True)] = Field(
        description="Passages to add. They replace passages with the same ids."
    )
    edges: Annotated[list[NewEdge], PlainValidator(_edges), edge_schema({"type": "string"})] = Field(
        default=[],
        description="Undirected edges between a passage of the request and another passage, of the request or of the "
        "corpus. The forms are those of `POST /v2/rerank`, but with ids instead of positions.",
    )

    @model_validator(mode="after")
    def _within_limits(self, info: ValidationInfo) -> Self:
        limits = limits_of(info)
        check_most(limits.documents, len(self.documents), "documents")
        for index, document in enumerate(self.documents):
            if not document.passage:
                raise UserError(f"document {index} must have a text")
            if len(document.passage) > limits.text_chars:
                raise UserError(f"document {index} must have at most {limits.text_chars} characters")
        num_chars = sum(len(document.title) + len(document.text) for document in self.documents)
        num_chars += sum(len(json.dumps(document.metadata)) for document in self.documents if document.metadata)
        if num_chars > limits.request_chars:
            raise UserError(f"`documents` must have at most {limits.request_chars} characters, got {num_chars}")
        ids = {document.id for document in self.documents}
        if len(ids) < len(self.documents):
            raise UserError("`documents` must have unique ids")
        for index, edge in enumerate(self.edges):
            if edge.source not in ids and edge.target not in ids:
                raise UserError(f"edge {index} must have at least one end among the documents of the request")
        return self

    def work(self) -> Work:
        """Return the estimated work to add the passages."""
        return growth_work(len(self.documents), self._passages, len(self.edges))

    @property
    def bad_items(self) -> Counter[str]:
        """Number of self-loops and of repeated edges, which are ignored."""
        proper = [edge for edge in self.edges if edge.source != edge.target]
        distinct = {(frozenset(edge[:2]), edge.edge_type) for edge in proper}
        loops, repeated = len(self.edges) - len(proper), len(proper) - len(distinct)
        return +Counter({SELF_LOOPS: loops, REPEATED_EDGES: repeated})

    def texts_to_encode(self) -> tuple[list[str], list[str]]:
        """Return the queries (none) and the passages to encode."""
        return [], self._passages

    @cached_property
    def _passages(self) -> list[str]:
        return [document.passage for document in self.documents]


class RemoveDocuments(CallerRequest):
    """Body of ``DELETE /documents``."""

    writes: ClassVar[bool] = True
    ids: Annotated[list[DocId], Field(min_length=1, fail_fast=True)] = Field(
        description="Ids of passages to remove. Ids that are not in the corpus are ignored."
    )

    @model_validator(mode="after")
    def _within_limits(self, info: ValidationInfo) -> Self:
        check_most(limits_of(info).documents, len(self.ids), "ids")
        return self

    def work(self) -> Work:
        """Return the estimated work to remove the passages."""
        return growth_work(len(self.ids))


class DocumentsResponse(BaseModel):
    """Response of ``POST`` and ``DELETE /documents``. The change is already on disk."""

    id: str = Field(description="Id of the request, which is also in the logs.")
    added: int = Field(description="Number of added passages, including those that replaced others.")
    removed: int = Field(description="Number of removed passages, including those that were replaced.")
    documents: int = Field(description="Number of passages in the corpus after the change.")
    meta: dict[str, Any] = Field(description="`index`, the version of the corpus, as in `POST /search`.")
