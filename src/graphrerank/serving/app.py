"""The FastAPI application of one process: its routes, error answers and middleware."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
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

OPEN_ROUTES = ("/health", "/ready")  # without a key, which load balancers do not have
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
        routes: Routes that engines answer.
        batcher: Batcher with the engines.
        settings: Settings of the service.
        info: Description of the model in the answer of ``GET /info``.
        recorder: Log of what is shown. If None, nothing is recorded.
        lifespan: Context manager that loads the engines when the application starts. If None, they are loaded.
        refusals: Log of the requests that are refused under overload. If None, a new one is made.

    Returns:
        The application, an ASGI callable.
    """
    app = FastAPI(
        title="graphrerank",
        description="Learned graph reranking for graph RAG.",
        lifespan=lifespan,
        docs_url=None,  # they load scripts from elsewhere
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
    """Describe a service for ``GET /info``, without what changes while it runs.

    Args:
        settings: Settings of the service.
        info: Description of the model.

    Returns:
        ``model`` and ``server`` and, with a page, ``page``.
    """
    described = {"model": dict(info), "server": {"workers": settings.workers, "limits": asdict(settings.limits)}}
    return described if settings.page is None else described | {"page": asdict(settings.page)}


def add_error_answers(app: FastAPI) -> None:
    """Let an application answer errors in the formats of Cohere and TEI.

    Args:
        app: The application.
    """
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_exception_handler(ClientDisconnect, _answer_disconnect)


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error, request.state.uid)


async def _answer_disconnect(request: Request, error: Exception) -> Response:
    """Return an answer that nobody reads, so that the status is logged."""
    return error_response(Refusal(499, "the client is gone"), request.state.uid)


def add_state_routes(app: FastAPI) -> None:
    """Add the routes that tell the state of a service: ``/health``, ``/ready``, ``/info`` and ``/metrics``.

    Args:
        app: The application.
    """
    app.add_api_route(
        "/health", _health, name="health", summary="Whether the process runs; see /ready for its engines."
    )
    app.add_api_route(
        "/ready", _ready, name="ready", summary="Whether the engines are warm: before, the process does not listen."
    )
    app.add_api_route(
        "/info",
        _describe,
        name="describe",
        summary="The artifact's manifest, the types of edges, and the limits of requests.",
    )
    app.add_api_route(
        "/metrics",
        _measures,
        name="measures",
        summary="Metrics in Prometheus's text format.",
        response_class=Response,
    )


# FastAPI publishes the docstrings of endpoints in openapi.json, where the summaries suffice.
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


def _measures() -> Response:  # no `async`: reads files, in the thread pool
    return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def add_middleware(app: FastAPI, settings: ServiceSettings) -> None:
    """Let an application check requests before they are read, and answer web pages of other origins.

    Args:
        app: The application, with its ``state``.
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
    if settings.cors_origins:  # before the guard, as a browser asks without a key
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["*"], allow_headers=["*"]
        )
