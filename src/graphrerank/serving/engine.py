"""Engines, which answer batches of requests."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError
from starlette.responses import Response

from graphrerank.serving.json_log import log

JobT = TypeVar("JobT")
JobT_contra = TypeVar("JobT_contra", contravariant=True)
MAX_DETAILS = 10
Check = Callable[[], None]


@dataclass(frozen=True)
class Refusal:
    """An error, in the place of a result."""

    status: int
    message: str  # never with text of the request
    detail: Sequence[Mapping[str, Any]] = ()  # `loc`, `msg` and `type` of each error of a field
    retry_after: int | None = None  # seconds

    @classmethod
    def of(cls, error: ValidationError) -> "Refusal":
        """Name the invalid fields without their contents."""
        errors = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_DETAILS]
        detail: list[dict[str, Any]] = [
            {"loc": e["loc"], "msg": e["msg"].removeprefix("Value error, "), "type": e["type"]} for e in errors
        ]
        lines = [": ".join(filter(None, (".".join(map(str, entry["loc"])), entry["msg"]))) for entry in detail]
        return cls(422, "; ".join(lines), detail)

    def response(self, uid: str, headers: Mapping[str, str] | None = None) -> Response:
        """Return the answer to a request: Cohere's clients read ``id`` and ``message``, TEI's ``error``."""
        body = {"id": uid, "message": self.message, "error": self.message, "detail": list(self.detail)}
        given = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return Response(json.dumps(body), self.status, given | dict(headers or {}), "application/json")


TOO_LATE = Refusal(504, "no answer in time")


class Engine(Protocol[JobT_contra]):
    """Answers one kind of request, in one thread."""

    def answer(self, jobs: Mapping[str, JobT_contra], check: Check) -> Mapping[str, Any]:
        """Return the results of a batch of jobs, by id, or a :class:`Refusal` in the place of one.

        Args:
            jobs: The jobs.
            check: Called between the steps of long work; raises TimeoutError when nobody waits any longer.

        Raises:
            ValueError: If a job is invalid.
        """

    def warm_up(self) -> None:
        """Load everything that is loaded at the first use."""


EngineFactory = Callable[[], Engine[Any]]


def answer_all(engine: Engine[JobT], jobs: Mapping[str, JobT], check: Check = lambda: None) -> dict[str, Any]:
    """Return the result of each job of a batch; if the batch fails, each job is tried separately."""
    try:
        return dict(engine.answer(jobs, check))
    except TimeoutError:
        return dict.fromkeys(jobs, TOO_LATE)
    except Exception as error:
        if len(jobs) > 1:
            return {uid: answer_all(engine, {uid: job}, check)[uid] for uid, job in jobs.items()}
        (uid,) = jobs
        if isinstance(error, ValueError):
            return {uid: Refusal(422, str(error))}
        log("request failed", level=logging.ERROR, error=error, id=uid)
        return {uid: Refusal(500, "internal error; see the logs for this id: " + uid)}
