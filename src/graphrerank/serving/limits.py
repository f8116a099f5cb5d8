"""Limits of requests, in size, number and time."""

from dataclasses import dataclass, fields
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from graphrerank.serving.work import query_seconds

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]


@dataclass(frozen=True)
class Limits:
    """Limits of a service; those of bodies and waiting requests hold for each process.

    Attributes:
        body_bytes: Bytes of a request's body.
        json_nodes: Opening brackets and colons of a body, in texts too: they bound the time to parse it.
        documents: Documents, or scores without documents, of a request.
        edges: Edges of a request.
        entities: Names of entities of a request, over all documents.
        fields: Names in ``rank_fields``.
        query_chars: Characters of the query.
        text_chars: Characters of each document.
        request_chars: Characters of the query and all documents together.
        explained_edges: Edges of a request with ``explain``, each of which is removed once.
        work_seconds: Estimated time to rank a request without encoding it, see :mod:`~graphrerank.serving.work`.
        request_seconds: Time from a request's arrival to its answer.
        queue_seconds: Estimated wait for an engine from which on requests are refused.
        body_seconds: Time for a client to send a request's body.
        waiting: Unanswered requests.
        held_bytes: Bytes of all bodies that are not answered yet.

    Raises:
        ValueError: If a limit is not positive.
    """

    body_bytes: int = 8_388_608
    json_nodes: int = 500_000
    documents: int = 1000
    edges: int = 100_000
    entities: int = 50_000
    fields: int = 16
    query_chars: int = 20_000
    text_chars: int = 100_000
    request_chars: int = 8_000_000
    explained_edges: int = 1000
    work_seconds: float = 2.0
    request_seconds: float = 30.0
    queue_seconds: float = 10.0
    body_seconds: float = 10.0
    waiting: int = 1000
    held_bytes: int = 134_217_728

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = getattr(self, field.name)
            if not limit > 0:
                raise ValueError(f"`limits.{field.name}` must be positive, got {limit}")

    def check_query(self, query: str) -> str:
        """Return a query unless it is too long, or blank.

        Raises:
            ValueError: If it is.
        """
        if not query.strip():
            raise ValueError("`query` must be a text that is not blank")
        if len(query) > self.query_chars:
            raise ValueError(f"`query` must have at most {self.query_chars} characters, got {len(query)}")
        return query


def limits_of(info: ValidationInfo) -> Limits:
    """Return the limits of a request's validation; the defaults if it has none."""
    return info.context if isinstance(info.context, Limits) else Limits()


Query = Annotated[
    str,
    Field(json_schema_extra={"minLength": 1, "pattern": r"\S"}),
    AfterValidator(lambda query, info: limits_of(info).check_query(query)),
]


class QueryRequest(BaseModel):
    """A request with a query.

    Attributes:
        query: The query, not blank.
    """

    model_config = ConfigDict(extra="forbid")

    query: Query

    @property
    def num_documents(self) -> int:
        """1: a query counts as one document of a batch."""
        return 1

    @property
    def num_chars(self) -> int:
        """Characters of the text that a service with an encoder encodes."""
        return len(self.query)

    @property
    def seconds(self) -> float:
        """Estimated time to parse the query or to search for it."""
        return query_seconds(self.query)

    def to_job(self) -> Self:
        """Return the request: the engine needs all of it."""
        return self
