"""FastAPI application of one process: routes, error responses and middleware."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from graphrerank.serving import metrics
from graphrerank.serving.batching import Batcher
from graphrerank.serving.deployment.deployed_engine import DeployedEngine
from graphrerank.serving.deployment.shadow import SHADOW_OF
from graphrerank.serving.engine import Refusal, error_response
from graphrerank.serving.http_guard import HttpGuard, RefusalLog
from graphrerank.serving.page import PAGE_PATHS, add_page
from graphrerank.serving.recorder import Recorder
from graphrerank.serving.routes import Endpoints, Route
from graphrerank.serving.settings import ServiceSettings

NEEDED = {  # setting that enables a route
    "/documents": "`index` must be a corpus folder (graphrerank prepare), and `documents` true",
    "/feedback": "`feedback.path` must be a folder for the log",
    "/inspect": "`page` must be true, and `index` a data set or corpus folder",
    "/search": "`index` must be a data set or corpus folder",
    "/v2/rerank": "`artifact` must be a reranker",
    "/route": "`artifact` must be a complexity adapter",
}
OPEN_ROUTES = ("/health", "/ready")  # need no key, so that load balancers can call them
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    routes: Sequence[Route],
    batcher: Batcher,
    settings: ServiceSettings,
    *,
    info: Mapping[str, Any],
    recorder: Recorder | None = None,
    lifespan: Lifespan | None = None,
    refusals: RefusalLog | None = None,
) -> FastAPI:
    """Create the application of a service.

    Args:
        routes: Routes that are answered by engines.
        batcher: Batcher with the engines.
        settings: Settings of the service.
        info: Description of the model in the response of ``GET /info``.
        recorder: Recorder of shown results. If None, nothing is recorded.
        lifespan: Context manager that loads the engines when the application starts. If None, they are already loaded.
        refusals: Log of requests that are rejected under overload. If None, a new log is created.

    Returns:
        The application, an ASGI callable.
    """
    app = FastAPI(
        title="graphrerank",
        version=version("graphrerank"),
        description="Learned graph reranking for graph RAG.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.batcher = batcher
    app.state.check_wait = batcher.check_wait
    app.state.refusals = refusals or RefusalLog()
    app.state.description = service_description(settings, info)
    endpoints = Endpoints(batcher, recorder)
    for route in routes:
        endpoints.add_to(app, route)
    add_error_answers(app)
    add_state_routes(app)
    if settings.page is not None:
        add_page(app)
    add_middleware(app, settings)
    return app


def service_description(settings: ServiceSettings, info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``GET /info`` that does not change while the service runs.

    Args:
        settings: Settings of the service.
        info: Description of the model.

    Returns:
        Entries ``model`` and ``server``, and ``page`` if there is a page. ``page.feedback`` tells whether the service
        logs feedback.
    """
    described = {"model": dict(info), "server": {"workers": settings.workers, "limits": asdict(settings.limits)}}
    if settings.page is None:
        return described
    return described | {"page": {**asdict(settings.page), "feedback": settings.feedback.path is not None}}


def add_error_answers(app: FastAPI) -> None:
    """Add handlers that return errors in the formats of Cohere and TEI.

    Args:
        app: Application to change.
    """
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_exception_handler(ClientDisconnect, _answer_disconnect)


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    needed = NEEDED.get(request.url.path)
    if error.status_code == 404 and needed is not None and request.scope.get("route") is None:
        return error_response(Refusal(404, f"this service has no {request.url.path}: {needed}"), request.state.uid)
    return error_response(error, request.state.uid)


async def _answer_disconnect(request: Request, error: Exception) -> Response:
    """Return a response that is only logged, because the client has disconnected."""
    return error_response(Refusal(499, "the client has disconnected"), request.state.uid)


def add_state_routes(app: FastAPI) -> None:
    """Add the routes for the state of a service: ``/health``, ``/ready``, ``/info`` and ``/metrics``.

    Args:
        app: Application to change.
    """
    app.add_api_route(
        "/health", _health, name="health", summary="Check that the process runs. See /ready for its engines."
    )
    app.add_api_route(
        "/ready", _ready, name="ready", summary="Check that the engines are loaded. The process does not listen before."
    )
    app.add_api_route(
        "/info",
        _describe,
        name="describe",
        summary="Get the artifact's manifest, the edge types, and the limits of requests.",
    )
    app.add_api_route(
        "/metrics",
        _measures,
        name="measures",
        summary="Get metrics in the text format of Prometheus.",
        response_class=Response,
    )


# These endpoints have no docstrings because FastAPI would publish them in openapi.json next to the summaries.
async def _health() -> dict[str, str]:
    return {"status": "ok"}


async def _ready() -> Response:
    return Response("ok", media_type="text/plain")


async def _describe(request: Request) -> dict[str, Any]:
    state = request.app.state
    live = [engine for kind, engine in state.batcher.engines.items() if not kind.startswith(SHADOW_OF)]
    deployed = next((engine for engine in live if isinstance(engine, DeployedEngine)), None)
    description: dict[str, Any] = state.description
    return description if deployed is None else description | deployed.describe()


def _measures() -> Response:  # not `async`, so that FastAPI runs it in the thread pool, because it reads files
    return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def add_middleware(app: FastAPI, settings: ServiceSettings) -> None:
    """Add the middleware that checks requests before their bodies are read, and the CORS middleware if it is needed.

    Args:
        app: Application with its ``state``.
        settings: Settings of the service.
    """
    open_paths = OPEN_ROUTES if settings.page is None else (*OPEN_ROUTES, *PAGE_PATHS)
    app.add_middleware(
        HttpGuard,
        settings=settings,
        open_paths=open_paths,
        check_wait=app.state.check_wait,
        refusals=app.state.refusals,
    )
    if settings.cors_origins:  # runs before the guard, because browsers send preflight requests without a key
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["*"], allow_headers=["*"]
        )
