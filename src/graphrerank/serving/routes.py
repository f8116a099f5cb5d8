"""The HTTP routes of a service."""

import asyncio
import difflib
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json
from starlette.exceptions import HTTPException

from graphrerank.serving.batches import Batcher
from graphrerank.serving.engine import Refusal
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


def _render(request: Any, result: Any, uid: str, path: str) -> Any:
    return result


@dataclass(frozen=True)
class Route:
    """A route that an engine answers."""

    paths: tuple[str, ...]
    kind: str  # name of the engine
    request: type[BaseModel]  # the body; its `to_job` returns what the engine needs
    response: Any  # model of the response
    summary: str
    render: Callable[[Any, Any, str, str], Any] = _render  # from the request, the engine's result, the id, the path
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
        return Refusal(error.status_code, str(error.detail)).response(request.state.uid, error.headers)

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
        uid, content = request.state.uid, await request.body()
        begin = time.perf_counter()
        if len(content) < LARGE_BODY:
            given = _read(route, content, limits)
        else:
            async with reading:  # in a thread, while the loop serves others
                given = await asyncio.to_thread(_read, route, content, limits)
        del content
        if isinstance(given, Refusal):
            return given.response(uid)
        body, job = given
        request.state.counts = {"documents": job.num_documents}
        read = time.perf_counter()
        result = await batcher.ask(route.kind, job, uid, arrival=request.state.arrival, receive=request.receive)
        if isinstance(result, Refusal):
            return result.response(uid)
        ranked = time.perf_counter()
        with metrics().stage_seconds.labels("render").time():
            answer = to_json(route.render(body, result, uid, path), exclude_none=True)
        stages = {"read": read - begin, "rank": ranked - read, "render": time.perf_counter() - ranked}
        timing = ", ".join(f"{stage};dur={1000 * seconds:.2f}" for stage, seconds in stages.items())
        return Response(answer, headers={"server-timing": timing}, media_type="application/json")

    endpoint.__name__ = route.kind
    return endpoint


def _read(route: Route, content: bytes, limits: Limits) -> tuple[Any, Any] | Refusal:
    """Parse and check a body; return the request and its job, or a refusal if it is invalid or too much work."""
    with metrics().stage_seconds.labels("read").time():
        count = content.count(b"[") + content.count(b"{") + content.count(b":")
        if count > limits.json_nodes:
            return Refusal(413, f"body: must have at most {limits.json_nodes} opening brackets and colons, got {count}")
        gc.disable()  # it would look at each new list again and again
        try:
            given = from_json(content)
        except ValueError:
            return Refusal(400, "body: must be JSON in UTF-8, without lone surrogates, nested at most 200 times")
        finally:
            gc.enable()
        if isinstance(given, dict) and (unknown := given.keys() - route.request.model_fields.keys()):
            return _unknown(unknown, route.request)
        try:
            body: Any = route.request.model_validate(given, context=limits)
            job = body.to_job()
            seconds = job.seconds
        except ValidationError as error:
            return Refusal.of(error)
        except ValueError as error:
            return Refusal(422, str(error))
        if seconds > limits.work_seconds:
            return Refusal(
                422,
                f"the request must be at most `limits.work_seconds` = {limits.work_seconds:g} seconds of work, got "
                f"about {seconds:.1f}; give fewer documents, edges or words, or leave out `explain`",
            )
        return body, job


def _unknown(names: set[Any], request: type[BaseModel]) -> Refusal:
    """Refuse fields that do not exist, without repeating their names; suggest the closest known ones."""
    known = sorted(request.model_fields)
    meant = sorted({best[0] for name in sorted(names)[:10] if (best := difflib.get_close_matches(name[:40], known, 1))})
    hint = f"did you mean {', '.join(f'`{name}`' for name in meant)}?" if meant else f"the known ones are {known}"
    message = f"body: {len(names)} fields are not permitted; {hint}"
    return Refusal(422, message, [{"loc": ["body"], "msg": message, "type": "extra_forbidden"}])
