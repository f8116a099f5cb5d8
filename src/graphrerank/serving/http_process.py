"""An HTTP process: reads and checks requests, lets workers answer them, and sends the answers."""

import asyncio
import contextlib
import gc
import os
import resource
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
from starlette.middleware.cors import CORSMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from graphrerank.serving.dispatcher import Dispatcher
from graphrerank.serving.engine import Refusal
from graphrerank.serving.http_guard import OPEN_ROUTES, HttpGuard
from graphrerank.serving.limits import Limits
from graphrerank.serving.page.routes import PAGE_PATHS, add_page
from graphrerank.serving.routes import Route, add_routes
from graphrerank.serving.settings import ServiceSettings
from graphrerank.serving.supervisor import Lifeline

HEADER_BYTES = 16_384  # of a request's headers, and of its trailers
BACKLOG = 2048  # connections that are not accepted yet
IDLE_SECONDS = 75  # between two requests of a connection
SPARE_FILES = 100  # besides those of connections
DRAIN_SECONDS = 3.0  # at most: clients learn from answers that connections close, before they do
DRAIN_LOOK_SECONDS = 0.1  # whether any connection is left


class LimitedConnection(H11Protocol):
    """One connection over HTTP/1.1.

    Args:
        limits: Limits of connections.
        arguments: uvicorn's.
    """

    def __init__(self, *, limits: Limits, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._header_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse a connection beyond the limit; otherwise wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections and not self._replace_idle():
            body = Refusal(503, "too many connections; try again later").answer("").body
            head = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
            transport.write(head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            transport.close()
            return
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Read data; headers may not arrive byte by byte for long."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._has_request():
            self._stop_header_timer()
        elif self._header_timer is None:
            self._wait_for_headers()

    def pause_writing(self) -> None:
        """Give the client some time to read what was sent."""
        super().pause_writing()
        self._answer_timer = self.loop.call_later(self._limits.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on sending."""
        super().resume_writing()
        self._stop_answer_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_header_timer()
        self._stop_answer_timer()
        super().connection_lost(exc)

    def _replace_idle(self) -> bool:
        """Close the connection that has been idle longest; return False if there is none."""
        connections = [other for other in self.connections if isinstance(other, LimitedConnection)]
        idle = [other for other in connections if other is not self and not other._has_request()]
        if idle:
            min(idle, key=lambda other: other._idle_since).transport.abort()
        return bool(idle)

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_response_complete(self) -> None:
        """Be idle again."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _wait_for_headers(self) -> None:
        self._header_timer = self.loop.call_later(self._limits.header_seconds, self.transport.abort)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None


def create_app(
    routes: Sequence[Route],
    dispatcher: Dispatcher,
    settings: ServiceSettings,
    *,
    info: Mapping[str, Any],
    is_ending: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """Create the application of an HTTP process.

    Args:
        routes: Routes of the engines.
        dispatcher: Lets workers answer.
        settings: Settings of the service.
        info: Content of ``GET /info``.
        is_ending: Returns whether the service ends.
    """
    app = FastAPI(title="graphrerank", description="Learned graph reranking for graph RAG.")
    add_routes(app, list(routes), dispatcher, settings.limits)

    @app.get("/ready", summary="Whether all workers are warm.")
    async def ready() -> Response:
        is_ready = dispatcher.num_workers >= settings.workers and not is_ending()
        return Response("ok" if is_ready else "not ready", 200 if is_ready else 503, media_type="text/plain")

    server = {"workers": settings.workers, "limits": asdict(settings.limits)}
    page = {} if settings.page is None else {"page": asdict(settings.page)}

    @app.get("/info", summary="The artifact's manifest, the types of edges, and the limits of requests.")
    async def describe() -> dict[str, Any]:
        return {"model": dict(info), "server": server, **page}

    if settings.page is not None:
        add_page(app)

    app.add_middleware(
        HttpGuard,
        limits=settings.limits,
        api_key=settings.api_key,
        open_paths=OPEN_ROUTES if settings.page is None else (*OPEN_ROUTES, *PAGE_PATHS),
        origins=settings.cors_origins,
        admit=dispatcher.refusal,
        is_ending=is_ending,
    )
    if settings.cors_origins:  # before the guard, as a browser asks without a key
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["*"], allow_headers=["*"]
        )
    return app


def serve_http(
    lifeline: Lifeline,
    listener: socket.socket,
    workers: socket.socket,
    routes: Sequence[Route],
    settings: ServiceSettings,
    info: Mapping[str, Any],
    folder: Path,
) -> None:
    """Serve until SIGTERM, or until the supervisor is gone; then finish the requests in flight.

    Args:
        lifeline: Connection to the supervisor.
        listener: Socket of the clients, shared with the other HTTP processes.
        workers: Socket to which the workers connect.
        routes: Routes of the engines.
        settings: Settings of the service.
        info: Content of ``GET /info``.
        folder: Folder of the service's sockets and metrics.
    """
    _allow_files(settings.limits.connections + SPARE_FILES)
    dispatcher = Dispatcher(
        settings.limits,
        batch_requests=settings.batch_requests,
        batch_candidates=settings.batch_candidates,
        http_processes=settings.http_processes,
        encodes=settings.encodes,
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with dispatcher.serving(workers):
            alive = asyncio.create_task(_say_ready(lifeline))
            gc.collect()
            gc.freeze()
            yield
            alive.cancel()

    ending = Event()
    app = create_app(routes, dispatcher, settings, info=info, is_ending=ending.is_set)
    app.router.lifespan_context = lifespan
    config = uvicorn.Config(
        app,
        http=partial(LimitedConnection, limits=settings.limits),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        backlog=BACKLOG,
    )
    Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    _Server(config, listener, ending).run(sockets=[listener])
    if lifeline.is_cut():  # the supervisor, which would remove it, was killed
        shutil.rmtree(folder, ignore_errors=True)


class _Server(uvicorn.Server):
    """A server that answers open connections for a moment after SIGTERM, and closes each with its answer.

    Args:
        config: Configuration of uvicorn.
        listener: Socket of the clients; it does not block.
        ending: Set when the end begins.
    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket, ending: Event) -> None:
        super().__init__(config)
        self._listener = listener
        self._ending = ending
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end."""
        if sig == signal.SIGTERM and not self._ending.is_set():
            self._ending.set()
            asyncio.get_running_loop().call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        """Accept those that are connected, nobody after them, and end when the clients of all connections know."""
        taken = self._take_connected()
        for server in self.servers:
            server.close()  # at once: who connects in between is reset
        self._draining = asyncio.create_task(self._end(taken))

    def _take_connected(self) -> list[socket.socket]:
        """Return the connections that the system has made, and the event loop has not seen."""
        taken = []
        with contextlib.suppress(OSError):  # no more of them, or no more files
            while True:
                taken.append(self._listener.accept()[0])
        return taken

    async def _end(self, taken: list[socket.socket]) -> None:
        """Serve these connections and all others, until their clients know."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS
        for connection in taken:
            with contextlib.suppress(OSError):  # already gone
                await loop.connect_accepted_socket(self._protocol, connection)
        await asyncio.sleep(DRAIN_LOOK_SECONDS)  # until connections that the event loop accepts are counted
        while self.server_state.connections and loop.time() < deadline:
            await asyncio.sleep(DRAIN_LOOK_SECONDS)
        self.should_exit = True

    def _protocol(self) -> asyncio.Protocol:
        create: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return create(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


async def _say_ready(lifeline: Lifeline) -> None:
    """Report from the event loop that it is not blocked."""
    while True:
        lifeline.say("ready")
        await asyncio.sleep(1)


def _end_with(lifeline: Lifeline) -> None:
    """End when the supervisor is gone without having ended this process."""
    lifeline.wait_for_cut()
    os.kill(os.getpid(), signal.SIGTERM)


def _allow_files(count: int) -> None:
    """Let this process open so many files.

    Raises:
        ValueError: If the system does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise ValueError(f"`limits.connections` needs {count} open files, the system allows {hard}: see `ulimit -n`")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
