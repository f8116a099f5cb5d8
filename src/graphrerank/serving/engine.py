"""Base class of engines, which answer batches of requests, and the errors of requests."""

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
MAX_DETAILS = 10  # maximum number of errors of single fields in a response
Check = Callable[[], None]


class Refusal(HTTPException):
    """Error response, which is raised or returned in place of a result.

    The message never contains text of the request.

    Args:
        status: HTTP status.
        message: Message for the client.
        errors: Errors of single fields, each with ``loc``, ``msg`` and ``type``.
        retry_after: Time after which the client may try again, in seconds. If None, no time is suggested.
    """

    def __init__(
        self,
        status: int,
        message: str,
        errors: Sequence[Mapping[str, Any]] = (),
        *,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(status, message, None if retry_after is None else {"retry-after": str(retry_after)})
        self.errors, self.retry_after = errors, retry_after

    @classmethod
    def of(cls, error: ValidationError) -> "Refusal":
        """Return the error response to an invalid request, which names the invalid fields but not their content.

        Args:
            error: Validation error of pydantic.
        """
        errors: list[dict[str, Any]] = [
            {"loc": e["loc"], "msg": e["msg"].removeprefix("Value error, "), "type": e["type"]}
            for e in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_DETAILS]
        ]
        lines = [": ".join(filter(None, (".".join(map(str, entry["loc"])), entry["msg"]))) for entry in errors]
        return cls(422, "; ".join(lines), errors)


def error_response(error: HTTPException, uid: str) -> Response:
    """Return the response to a failed request, in a format that all supported clients understand.

    Cohere clients read ``id`` and ``message``, TEI clients read ``error``, and Jina clients read ``detail``, which is
    therefore never empty.

    Args:
        error: Error to return.
        uid: Id of the request.
    """
    message, errors = error.detail, list(error.errors) if isinstance(error, Refusal) else []
    errors = errors or [{"loc": [], "msg": message, "type": f"http_{error.status_code}"}]
    body = {"id": uid, "message": message, "error": message, "detail": errors}
    return JSONResponse(body, error.status_code, error.headers)


def too_late() -> Refusal:
    """Return the error of a request whose deadline has passed."""
    return Refusal(504, "the request timed out")


@contextmanager
def fault_of_service() -> Iterator[None]:
    """Return a context that turns a ValueError not caused by the request into a RuntimeError, which is only logged."""
    try:
        yield
    except ValueError as error:
        raise RuntimeError(str(error)) from error


def encode(encoder: MemoryVectorCache, texts: list[str]) -> Tensor:
    """Return the vectors of texts from requests, ``[num_texts, dim]``.

    Args:
        encoder: Text encoder.
        texts: Texts to encode.
    """
    with fault_of_service():
        return encoder.encode(texts)


class Engine(ABC, Generic[JobT_contra]):
    """Answers one kind of request in one thread.

    A subclass implements :meth:`answer`. It can also override the encoder, the corpus, the warm-up and the probes.
    """

    @property
    def encoder(self) -> MemoryVectorCache | None:
        """Encoder of the texts of jobs, which are encoded before the engine answers. None if no vectors are needed."""
        return None

    @property
    def corpus(self) -> str | None:
        """Fingerprint of the searched corpus, or ``request`` for an engine that ranks the documents of a request.

        None if the fingerprint is unknown.
        """
        return None

    @abstractmethod
    def answer(self, jobs: Mapping[str, JobT_contra], check: Check = lambda: None) -> Mapping[str, Any]:
        """Answer a batch of jobs.

        Args:
            jobs: Jobs by request id.
            check: Function to call between the steps of long work. It raises TimeoutError once nobody waits for the
                batch.

        Returns:
            Result of each job by request id, or a :class:`Refusal` in place of a result.

        Raises:
            ValueError: If a job is invalid. Each job of the batch is then answered separately.
        """

    def warm_up(self) -> None:
        """Load everything that would otherwise be loaded at the first request."""
        return

    def probes(self) -> Sequence[Any]:
        """Return jobs of several sizes, whose measured times determine the prices of the engine.

        Returns:
            Jobs with a method ``work``, the cheapest first. Without probes, the engine has the default prices.
        """
        return ()


EngineFactory = Callable[[], Engine[Any]]


def answer_all(engine: Engine[JobT], jobs: Mapping[str, JobT], check: Check = lambda: None) -> dict[str, Any]:
    """Return the result of each job of a batch. If the batch fails, each job is tried separately.

    Args:
        engine: Engine that answers.
        jobs: Jobs by request id.
        check: Function that raises TimeoutError once nobody waits for the batch.
    """
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
        return {uid: Refusal(500, "internal error, see the logs for this id: " + uid)}
