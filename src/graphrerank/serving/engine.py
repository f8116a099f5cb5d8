"""Engines, which answer batches of requests in a worker."""

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
MAX_DETAILS = 10


@dataclass(frozen=True)
class Answer:
    """An answer, ready to send.

    Attributes:
        status: HTTP status code.
        body: JSON.
    """

    status: int
    body: bytes

    @classmethod
    def of(cls, response: BaseModel | Mapping[str, Any]) -> "Answer":
        """Answer with a response, or its content."""
        return cls(200, to_json(response, exclude_none=True))

    @classmethod
    def refuse(cls, status: int, message: str, detail: Sequence[Mapping[str, Any]] = ()) -> "Answer":
        """Answer with an error; Cohere's clients read ``message``."""
        return cls(status, json.dumps({"message": message, "detail": list(detail)}).encode())

    @classmethod
    def invalid(cls, error: ValidationError) -> "Answer":
        """Refuse a request, naming the invalid fields without their contents."""
        errors = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_DETAILS]
        detail: list[dict[str, Any]] = [
            {"loc": e["loc"], "msg": e["msg"].removeprefix("Value error, "), "type": e["type"]} for e in errors
        ]
        lines = [": ".join(filter(None, (".".join(map(str, entry["loc"])), entry["msg"]))) for entry in detail]
        return cls.refuse(422, "; ".join(lines), detail)


class Engine(Protocol[RequestT_contra]):
    """Answers one kind of request, in one thread."""

    def answer(self, requests: Mapping[str, RequestT_contra]) -> dict[str, Answer]:
        """Answer a batch of requests, by id.

        Raises:
            ValueError: If a request is invalid.
        """

    def warm_up(self) -> None:
        """Load everything that is loaded at the first use."""


EngineFactory = Callable[[str], Engine[Any]]  # from a device; sent to worker processes


def answer_all(engine: Engine[RequestT], requests: Mapping[str, RequestT]) -> dict[str, Answer]:
    """Answer each request of a batch; if the batch fails, each request is tried separately."""
    try:
        return engine.answer(requests)
    except Exception as error:
        if len(requests) > 1:
            return {uid: answer_all(engine, {uid: request})[uid] for uid, request in requests.items()}
        (uid,) = requests
        if isinstance(error, ValueError):
            return {uid: Answer.refuse(422, str(error))}
        log("request failed", level=logging.ERROR, error=error, id=uid)
        return {uid: Answer.refuse(500, "internal error; see the logs for this id: " + uid)}
