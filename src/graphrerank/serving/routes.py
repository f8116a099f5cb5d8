"""The HTTP routes of a service."""

import asyncio
import difflib
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from graphrerank.serving.batches import Batcher
from graphrerank.serving.engine import Answer, Refusal
from graphrerank.serving.limits import Limits
from graphrerank.serving.metrics import metrics

LARGE_BODY = 65_536  # bytes, from which on bodies are read in a thread, one after the other
ERRORS = {
    400: "The body is not JSON.",
    401: "The key is missing or wrong.",
    403: "The page may not call.",
    409: "The corpus takes no documents.",
    413: "The body is too long.",
    422: "A field is invalid, or the request is too much work; the message says which limit.",
    429: "The wait would be too long.",
    431: "The headers are too long.",
    503: "Too many bytes of bodies.",
    504: "The request timed out.",
    507: "The disk is full.",
}


class ErrorAnswer(BaseModel):
    """Response of every error.

    Attributes:
        id: Id of the request, as in the logs.
        message: The errors, by field.
        error: The same, under the name that TEI's clients read.
        detail: ``loc``, ``msg`` and ``type`` of each error.
    """

    id: str
    message: str
    error: str
    detail: list[dict[str, Any]]


def _render(request: Any, result: Any, uid: str, path: str) -> Answer:
    return Answer.of(result)


@dataclass(frozen=True)
class Route:
    """A route that an engine answers."""

    paths: tuple[str, ...]
    kind: str  # name of the engine
    request: type[BaseModel]  # the body; its `to_job` returns what the engine needs
    response: Any  # model of the response
    summary: str
    render: Callable[[Any, Any, str, str], Answer] = _render  # from the request, the engine's result, the id, the path
    method: str = "POST"


def add_routes(app: FastAPI, routes: list[Route], batcher: Batcher, limits: Limits) -> None:
    """Add the engines' routes, ``GET /health`` and ``GET /metrics``."""
    reading = asyncio.Lock()
    for route in routes:
        for path in route.paths:
            app.add_api_route(
                path,
                _endpoint(route, path, batcher, limits, reading),
                methods=[route.method],
                summary=route.summary,
                description=route.request.__doc__,
                response_model=route.response,
                responses={status: {"model": ErrorAnswer, "description": text} for status, text in ERRORS.items()},
                openapi_extra={
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": route.request.model_json_schema()}},
                    }
                },
            )

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        """Answer a request that matches no route, in the form of all errors."""
        answer = Refusal(error.status_code, str(error.detail)).answer(request.state.uid)
        return Response(answer.body, answer.status, headers=error.headers, media_type="application/json")

    @app.get("/health", summary="Whether the process runs; see /ready for its engines.")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Metrics in Prometheus's text format.", response_class=Response)
    def measures() -> Response:  # no `async`: reads files, in the thread pool
        return Response(metrics().render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _endpoint(
    route: Route, path: str, batcher: Batcher, limits: Limits, reading: asyncio.Lock
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        answer = await _answer(route, path, batcher, limits, reading, request)
        return Response(answer.body, answer.status, headers=dict(answer.headers), media_type="application/json")

    endpoint.__name__ = route.kind
    return endpoint


async def _answer(
    route: Route, path: str, batcher: Batcher, limits: Limits, reading: asyncio.Lock, request: Request
) -> Answer:
    uid, content = request.state.uid, await request.body()
    begin = time.perf_counter()
    try:
        if len(content) < LARGE_BODY:
            body, job = _read(route, content, limits)
        else:
            async with reading:  # in a thread, while the loop serves others
                body, job = await asyncio.to_thread(_read, route, content, limits)
    except _RefusedError as error:
        return error.refusal.answer(uid)
    finally:
        del content
    request.state.counts = {"documents": job.num_documents}
    read = time.perf_counter()
    result = await batcher.ask(route.kind, job, uid, arrival=request.state.arrival, receive=request.receive)
    if isinstance(result, Refusal):
        return result.answer(uid)
    ranked = time.perf_counter()
    with metrics().stage_seconds.labels("render").time():
        answer = route.render(body, result, uid, path)
    stages = {"read": read - begin, "rank": ranked - read, "render": time.perf_counter() - ranked}
    timing = ", ".join(f"{stage};dur={1000 * seconds:.2f}" for stage, seconds in stages.items())
    return replace(answer, headers={**answer.headers, "server-timing": timing})


class _RefusedError(Exception):
    """A body is no valid request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def _read(route: Route, content: bytes, limits: Limits) -> tuple[Any, Any]:
    """Parse and check a body; return the request and its job.

    Raises:
        _RefusedError: If it is invalid or too much work.
    """
    with metrics().stage_seconds.labels("read").time():
        given = _parse(content, limits)
        if isinstance(given, dict) and (unknown := given.keys() - route.request.model_fields.keys()):
            raise _RefusedError(_unknown(unknown, route.request))
        try:
            body: Any = route.request.model_validate(given, context=limits)
            job = body.to_job()
        except ValidationError as error:
            raise _RefusedError(Refusal.of(error)) from None
        except ValueError as error:
            raise _RefusedError(Refusal(422, str(error))) from None
        if job.seconds > limits.work_seconds:
            raise _RefusedError(_too_much(job.seconds, limits))
        return body, job


def _too_much(seconds: float, limits: Limits) -> Refusal:
    message = (
        f"the request must be at most `limits.work_seconds` = {limits.work_seconds:g} seconds of work, got about "
        f"{seconds:.1f}; give fewer documents, edges or words, or leave out `explain`"
    )
    return Refusal(422, message)


def _parse(content: bytes, limits: Limits) -> Any:
    """Parse JSON of bounded size and depth.

    Raises:
        _RefusedError: If it is no JSON, nested more than 200 times, or has too many parts.
    """
    count = content.count(b"[") + content.count(b"{") + content.count(b":")
    if count > limits.json_nodes:
        message = f"body: must have at most {limits.json_nodes} opening brackets and colons, got {count}"
        raise _RefusedError(Refusal(413, message))
    gc.disable()  # it would look at each new list again and again
    try:
        return from_json(content)
    except ValueError:
        raise _RefusedError(
            Refusal(400, "body: must be JSON in UTF-8, without lone surrogates, nested at most 200 times")
        ) from None
    finally:
        gc.enable()


def _unknown(names: set[Any], request: type[BaseModel]) -> Refusal:
    """Refuse fields that do not exist, without repeating their names; suggest the closest known ones."""
    known = sorted(request.model_fields)
    meant = sorted({best[0] for name in sorted(names)[:10] if (best := difflib.get_close_matches(name[:40], known, 1))})
    hint = f"did you mean {', '.join(f'`{name}`' for name in meant)}?" if meant else f"the known ones are {known}"
    message = f"body: {len(names)} fields are not permitted; {hint}"
    return Refusal(422, message, [{"loc": ["body"], "msg": message, "type": "extra_forbidden"}])
