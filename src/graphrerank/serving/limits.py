"""Limits of requests, in size, number and time."""

from dataclasses import dataclass, fields
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from graphrerank.graphs.list_confidence import CALIBRATE
from graphrerank.serving.work import most_explained_edges, query_seconds

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
Positive = Annotated[int, Field(ge=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
NO_CONFIDENCE = (
    f"`return_confidence` needs an artifact of a checkpoint with `list_confidence`, this one has none; {CALIBRATE}"
)


@dataclass(frozen=True)
class Limits:
    """Limits of a service, all positive; those of bodies and waiting requests hold for each process."""

    body_bytes: int = 8_388_608  # of a request's body
    json_nodes: int = 500_000  # opening brackets and colons of a body, in texts too: they bound the time to parse it
    documents: int = 1000  # or scores without documents
    edges: int = 100_000
    entities: int = 50_000  # names, over all documents
    fields: int = 16  # names in `rank_fields`
    query_chars: int = 20_000
    text_chars: int = 100_000  # of each document
    request_chars: int = 8_000_000  # of the query and all documents together
    explained_edges: int = 1000  # with `explain`, which removes each once
    work_seconds: float = 2.0  # estimated, without encoding; see graphrerank.serving.work
    request_seconds: float = 30.0  # from a request's arrival to its answer
    queue_seconds: float = 10.0  # estimated wait for an engine, beyond which requests are refused
    waiting: int = 1000  # unanswered requests
    held_bytes: int = 134_217_728  # of all bodies that are not answered yet

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = getattr(self, field.name)
            if not limit > 0:
                raise ValueError(f"`limits.{field.name}` must be positive, got {limit}")

    def most_explained_edges(self, num_documents: int) -> int:
        """Return how many edges a request may leave out once each."""
        return min(self.explained_edges, most_explained_edges(num_documents, self.work_seconds))

    def check_query(self, query: str) -> str:
        """Return a query; a ValueError if it is too long, or blank."""
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


class EngineRequest(BaseModel):
    """A request that its engine answers as it is."""

    model_config = ConfigDict(extra="forbid")

    @property
    def num_documents(self) -> int:
        """Documents of a batch that it counts as."""
        return 1

    @property
    def num_chars(self) -> int:
        """Characters of the texts that a service with an encoder encodes."""
        return 0

    def to_job(self) -> Self:
        """Return the request: the engine needs all of it."""
        return self


class QueryRequest(EngineRequest):
    """A request with a query.

    Attributes:
        query: The query, not blank.
    """

    query: Query

    @property
    def num_chars(self) -> int:
        """Characters of the text that a service with an encoder encodes."""
        return len(self.query)

    @property
    def seconds(self) -> float:
        """Estimated time to parse the query or to search for it."""
        return query_seconds(self.query)
