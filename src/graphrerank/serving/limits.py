"""Limits of requests, in size and time."""

from dataclasses import dataclass, fields
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Attributes:
        body_bytes: Bytes of a request's body.
        documents: Documents, or scores without documents, of a request.
        edges: Edges of a request.
        explained_edges: Edges of a request with ``explain``, each of which is removed once.
        text_chars: Characters of the query and of each document.
        request_seconds: Time from a request's arrival to its answer.
        body_seconds: Time for a client to send a request's body.
        waiting: Unanswered requests per HTTP process.

    Raises:
        ValueError: If a limit is not positive.
    """

    body_bytes: int = 8_388_608
    documents: int = 1000
    edges: int = 100_000
    explained_edges: int = 1000
    text_chars: int = 100_000
    request_seconds: float = 30.0
    body_seconds: float = 10.0
    waiting: int = 1000

    def __post_init__(self) -> None:
        for field in fields(self):
            number = getattr(self, field.name)
            if not number > 0:
                raise ValueError(f"`limits.{field.name}` must be positive, got {number}")

    def check_text(self, name: str, text: str) -> str:
        """Return a text unless it is too long.

        Raises:
            ValueError: If it is too long.
        """
        if len(text) > self.text_chars:
            raise ValueError(f"`{name}` must have at most {self.text_chars} characters, got {len(text)}")
        return text


def limits_of(info: ValidationInfo) -> Limits:
    """Return the limits of a request's validation; the defaults if it has none."""
    return info.context if isinstance(info.context, Limits) else Limits()


class QueryRequest(BaseModel):
    """A request with a query.

    Attributes:
        query: The query, not empty.
    """

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1)]

    @field_validator("query")
    @classmethod
    def _not_too_long(cls, query: str, info: ValidationInfo) -> str:
        return limits_of(info).check_text("query", query)
