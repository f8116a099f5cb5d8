"""What answers requests in a worker: a batch of them in, an answer to each out."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from graphrerank.serving.json_log import log

RequestT = TypeVar("RequestT")
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
MOST_DETAILS = 10


@dataclass(frozen=True)
class Answer:
    """An answer, ready to send.

    Attributes:
        status: HTTP's status code.
        body: JSON.
    """

    status: int
    body: bytes

    @classmethod
    def of(cls, response: BaseModel | Mapping[str, Any]) -> "Answer":
        """Answer with a response, or what one holds."""
        return cls(200, to_json(response, exclude_none=True))

    @classmethod
    def refuse(cls, status: int, message: str, detail: Sequence[Mapping[str, Any]] = ()) -> "Answer":
        """Answer with an error; ``message`` is where Cohere's clients look."""
        return cls(status, json.dumps({"message": message, "detail": list(detail)}).encode())

    @classmethod
    def invalid(cls, error: ValidationError) -> "Answer":
        """Refuse a request by the names of its fields, and without its contents."""
        found = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_DETAILS]
        said = [one["msg"].removeprefix("Value error, ") for one in found]
        detail = [{"loc": one["loc"], "msg": msg, "type": one["type"]} for one, msg in zip(found, said, strict=True)]
        fields = [".".join(map(str, one["loc"])) for one in found]
        lines = [": ".join(filter(None, line)) for line in zip(fields, said, strict=True)]
        return cls.refuse(422, "; ".join(lines), detail)


class Engine(Protocol[RequestT_contra]):
    """Answers one kind of request, in one thread."""

    def answer(self, requests: Mapping[str, RequestT_contra]) -> dict[str, Answer]:
        """Answer a batch of requests, by their ids.

        Raises:
            ValueError: If a request is at fault.
        """

    def warm_up(self) -> None:
        """Load everything that is loaded at the first use."""


EngineFactory = Callable[[str], Engine[Any]]  # takes the device; sent to worker processes


def answer_all(engine: Engine[RequestT], requests: Mapping[str, RequestT]) -> dict[str, Answer]:
    """Answer each request of a batch, whatever the others do: where a batch fails, each is tried alone."""
    try:
        return engine.answer(requests)
    except Exception as error:
        if len(requests) > 1:
            return {uid: answer_all(engine, {uid: request})[uid] for uid, request in requests.items()}
        (uid,) = requests
        if isinstance(error, ValueError):
            return {uid: Answer.refuse(422, str(error))}
        log("request failed", level=logging.ERROR, error=error, id=uid)
        return {uid: Answer.refuse(500, "internal error; the logs tell more under this id: " + uid)}
