"""The HTTP routes of a service."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from graphrerank.serving.dispatcher import Dispatcher
from graphrerank.serving.engine import Answer
from graphrerank.serving.limits import Limits
from graphrerank.serving.metrics import metrics

ERRORS = {
    400: "The body is not JSON.",
    401: "The key is missing or wrong.",
    408: "The body came too slowly.",
    413: "The body is too long.",
    422: "A field is invalid; the message names it.",
    429: "Too many requests are waiting.",
    503: "Workers died with the request.",
    504: "The request timed out.",
}


class ErrorAnswer(BaseModel):
    """Response of every error.

    Attributes:
        message: The errors, by field.
        detail: ``loc``, ``msg`` and ``type`` of each error.
    """

    message: str
    detail: list[dict[str, Any]]


@dataclass(frozen=True)
class Route:
    """A route that an engine answers.

    Attributes:
        paths: Its paths.
        kind: Name of the engine.
        request: Model of the body.
        response: Model of the response.
        summary: Summary for the documentation.
    """

    paths: tuple[str, ...]
    kind: str
    request: type[BaseModel]
    response: type[BaseModel]
    summary: str


def add_routes(app: FastAPI, routes: list[Route], dispatcher: Dispatcher, limits: Limits) -> None:
    """Add the engines' routes, ``GET /health`` and ``GET /metrics``."""
    for route in routes:
        for path in route.paths:
            app.add_api_route(
                path,
                _endpoint(route, dispatcher, limits),
                methods=["POST"],
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
        answer = Answer.refuse(error.status_code, str(error.detail))
        return Response(answer.body, answer.status, headers=error.headers, media_type="application/json")

    @app.get("/health", summary="Whether the HTTP process runs; see /ready for the workers.")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Metrics in Prometheus's text format.", response_class=Response)
    def measures() -> Response:  # no `async`: reads files, in the thread pool
        return Response(metrics().render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _endpoint(route: Route, dispatcher: Dispatcher, limits: Limits) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        answer = await _answer(route, dispatcher, limits, request)
        return Response(answer.body, answer.status, media_type="application/json")

    endpoint.__name__ = route.kind
    return endpoint


async def _answer(route: Route, dispatcher: Dispatcher, limits: Limits, request: Request) -> Answer:
    try:
        content = _read_json(await request.body())
    except (ValueError, RecursionError) as error:
        return Answer.refuse(400, f"body: must be JSON: {type(error).__name__}")
    try:
        body = route.request.model_validate(content, context=limits)
    except ValidationError as error:
        return Answer.invalid(error)
    request.state.counts = {"documents": getattr(body, "num_documents", 0)}
    return await dispatcher.ask(route.kind, body, request.state.uid)


def _read_json(body: bytes) -> Any:
    """Parse JSON, with a fast parser first.

    Raises:
        ValueError: If it is invalid.
    """
    try:
        return from_json(body)
    except ValueError:  # it refuses lone surrogates, which a later check attributes to their field
        return json.loads(body)
