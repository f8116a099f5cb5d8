"""How much a request may hold, and how long it may take."""

from dataclasses import dataclass, fields

from pydantic import ValidationInfo


@dataclass(frozen=True)
class Limits:
    """What a service takes on.

    Attributes:
        body_bytes: Of a request's body.
        documents: Documents, or scores without documents, of a request.
        edges: Edges of a request.
        explained_edges: Edges of a request with ``explain``, each of which is left out once.
        text_chars: Characters of the query and of each document.
        request_seconds: From a request's arrival to its answer.
        body_seconds: For a client to send a request's body.
        waiting: Requests that wait or are worked on at a time, for each HTTP process.

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
        """Return a text that is not too long.

        Raises:
            ValueError: If it is.
        """
        if len(text) > self.text_chars:
            raise ValueError(f"`{name}` must have at most {self.text_chars} characters, got {len(text)}")
        return text


def limits_of(info: ValidationInfo) -> Limits:
    """Return the limits that a request is validated with, or the usual ones where it was given none."""
    return info.context if isinstance(info.context, Limits) else Limits()
