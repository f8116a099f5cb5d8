"""Engines, which answer batches of requests."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from torch import Tensor

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.serving.json_log import log

JobT = TypeVar("JobT")
JobT_contra = TypeVar("JobT_contra", contravariant=True)
MAX_DETAILS = 10
Check = Callable[[], None]


class Refusal(HTTPException):
    """An error response, raised or in the place of a result; ``errors`` are ``loc``, ``msg`` and ``type`` by field.

    Its message never contains text of the request.
    """

    def __init__(
        self,
        status: int,
        message: str,
        errors: Sequence[Mapping[str, Any]] = (),
        *,
        retry_after: int | None = None,  # seconds
    ) -> None:
        super().__init__(status, message, None if retry_after is None else {"retry-after": str(retry_after)})
        self.errors, self.retry_after = errors, retry_after

    @classmethod
    def of(cls, error: ValidationError) -> "Refusal":
        """Name the invalid fields without their contents."""
        errors: list[dict[str, Any]] = [
            {"loc": e["loc"], "msg": e["msg"].removeprefix("Value error, "), "type": e["type"]}
            for e in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_DETAILS]
        ]
        lines = [": ".join(filter(None, (".".join(map(str, entry["loc"])), entry["msg"]))) for entry in errors]
        return cls(422, "; ".join(lines), errors)


def error_response(error: HTTPException, uid: str) -> Response:
    """Return the answer to a request that failed: Cohere's clients read ``id`` and ``message``, TEI's ``error``."""
    message, errors = error.detail, list(error.errors) if isinstance(error, Refusal) else []
    body = {"id": uid, "message": message, "error": message, "detail": errors}
    return JSONResponse(body, error.status_code, error.headers)


def too_late() -> Refusal:
    """Return the error of a request whose deadline has passed."""
    return Refusal(504, "no answer in time")


@contextmanager
def fault_of_service() -> Iterator[None]:
    """Turn a ValueError that is not the requests' fault into a RuntimeError, whose text is for the logs alone."""
    try:
        yield
    except ValueError as error:
        raise RuntimeError(str(error)) from error


def encode(encoder: MemoryVectorCache, texts: list[str]) -> Tensor:
    """Encode texts of requests."""
    with fault_of_service():
        return encoder.encode(texts)


class Engine(ABC, Generic[JobT_contra]):
    """Answers one kind of request, in one thread.

    A subclass implements :meth:`answer`, and overrides what else it has: an encoder, a corpus, a warm-up or probes.
    """

    @property
    def encoder(self) -> MemoryVectorCache | None:
        """Encoder of the texts of jobs, which are encoded before the engine answers. None if it reads no vectors."""
        return None

    @property
    def corpus(self) -> str | None:
        """Fingerprint of the corpus that is searched, or ``request`` for an engine that ranks a request's documents.

        None if it is unknown.
        """
        return None

    @abstractmethod
    def answer(self, jobs: Mapping[str, JobT_contra], check: Check = lambda: None) -> Mapping[str, Any]:
        """Answer a batch of jobs.

        Args:
            jobs: Jobs by id.
            check: Function that is called between the steps of long work. It raises TimeoutError when nobody waits for
                the batch any longer.

        Returns:
            Result of each job by id, or a :class:`Refusal` in its place.

        Raises:
            ValueError: If a job is invalid. Each job of the batch is then answered separately.
        """

    def warm_up(self) -> None:
        """Load everything that is loaded at the first use."""
        return

    def probes(self) -> Sequence[Any]:
        """Return jobs of several sizes, to whose measured times the engine's prices are fitted.

        Returns:
            Jobs with a method ``work``, the cheapest first. Without any the engine has the default prices.
        """
        return ()


EngineFactory = Callable[[], Engine[Any]]


def answer_all(engine: Engine[JobT], jobs: Mapping[str, JobT], check: Check = lambda: None) -> dict[str, Any]:
    """Return the result of each job of a batch; if the batch fails, each job is tried separately."""
    try:
        return dict(engine.answer(jobs, check))
    except TimeoutError:
        return {uid: too_late() for uid in jobs}
    except Exception as error:
        if len(jobs) > 1:
            return {uid: answer_all(engine, {uid: job}, check)[uid] for uid, job in jobs.items()}
        (uid,) = jobs
        if isinstance(error, ValueError | Refusal):
            return {uid: error if isinstance(error, Refusal) else Refusal(422, str(error))}
        log("request failed", level=logging.ERROR, error=error, id=uid)
        return {uid: Refusal(500, "internal error; see the logs for this id: " + uid)}
