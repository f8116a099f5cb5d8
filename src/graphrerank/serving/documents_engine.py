"""Adds passages to a corpus folder while it is served, and removes some; they are on the disk before the answer."""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from subprocess import Popen
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo, field_validator, model_validator

from graphrerank.corpus.edge_lists import REPEATED_EDGES, SELF_LOOPS
from graphrerank.corpus.metadata import PRINCIPALS, check_record, misplaced_principals
from graphrerank.corpus_store.growth import EdgeError, Growth, NewEdge, grow_corpus, start_compaction
from graphrerank.corpus_store.opening import open_corpus, read_manifest
from graphrerank.data.encoder import Encoder
from graphrerank.data.readers.documents import Document
from graphrerank.rerank.edge_forms import edge_rows, type_numbers, weights_of
from graphrerank.serving.callers import WRITE
from graphrerank.serving.engine import Check, Engine, Refusal, too_late
from graphrerank.serving.json_log import log
from graphrerank.serving.limits import CallerRequest, check_most, growth_work, limits_of
from graphrerank.serving.prices import Work
from graphrerank.serving.rerank_request import edge_schema, listed_edges
from graphrerank.serving.watching import folder_version
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import FolderInUseError

WAIT_SECONDS = 0.02  # between two looks whether another worker has written


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
        return Document(self.id, self.title.strip(), self.text.strip(), {}).passage


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
        """As of the base class."""
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


class DocumentsEngine(Engine[AddDocuments | RemoveDocuments]):
    """Changes a corpus folder, one request after the other; of several workers one writes, the others wait.

    Where many passages have come or gone, another process compacts the folder, which may be a link; meanwhile requests
    wait. ``make_encoder`` returns the encoder of a corpus with vectors. Unless the service ``knows_callers``, nobody
    may change a corpus that not everybody may see.
    """

    def __init__(
        self, folder: Path, make_encoder: Callable[[], Encoder] | None, *, knows_callers: bool = False
    ) -> None:
        self._folder, self._knows_callers = folder, knows_callers
        reads_vectors = read_manifest(folder.resolve()).encoder is not None
        self.encoder = make_encoder() if make_encoder is not None and reads_vectors else None
        self._compaction: Popen[bytes] | None = None

    def answer(self, jobs: Mapping[str, AddDocuments | RemoveDocuments], check: Check = lambda: None) -> dict[str, Any]:
        """Change the corpus for each request of a batch, by id."""
        return {uid: self._answer(uid, job, check) for uid, job in jobs.items()}

    def _answer(self, uid: str, job: AddDocuments | RemoveDocuments, check: Check) -> DocumentsResponse | Refusal:
        if not self._knows_callers and open_corpus(self._folder.resolve()).graph.is_guarded:
            return Refusal(403, f"the corpus has principals, so that `{WRITE}` must come from one of `permissions`")
        while True:
            try:
                check()
                growth = self._grow(job)
                if growth.needs_compaction and (self._compaction is None or self._compaction.poll() is not None):
                    self._compaction = start_compaction(self._folder.resolve())
            except FolderInUseError:
                time.sleep(WAIT_SECONDS)
            except TimeoutError:
                return too_late()
            except EdgeError as error:
                return Refusal(422, f"edges.{error.place}: must join a document of the request with one of the corpus")
            except OSError as error:
                log("corpus could not be written", level=logging.ERROR, error=error, id=uid)
                return Refusal(507, f"the corpus could not be written, and is as before: {error.strerror}")
            except ValueError as error:
                log("corpus takes no documents", level=logging.ERROR, error=error, id=uid)
                return Refusal(409, f"the corpus takes no documents; see the logs for this id: {uid}")
            else:
                counts = {"added": growth.num_added, "removed": growth.num_removed, "documents": growth.num_nodes}
                return DocumentsResponse(id=uid, **counts, meta={"index": folder_version(self._folder)})

    def _grow(self, job: AddDocuments | RemoveDocuments) -> Growth:
        folder = self._folder.resolve()
        if isinstance(job, RemoveDocuments):
            return grow_corpus(folder, remove=job.ids, ignore_absent=True, compact=False)
        return grow_corpus(
            folder,
            [document.id for document in job.documents],
            job.texts_to_encode()[1],
            edges=job.edges,
            replace=True,
            encoder=self.encoder,
            title_lengths=[len(document.title.strip()) for document in job.documents],
            metadata=[document.metadata for document in job.documents],
            compact=False,
        )
