"""The service: a FastAPI application in the processes of uvicorn, each with its engines."""

import asyncio
import contextlib
import ctypes
import gc
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, Response
from starlette.middleware.cors import CORSMiddleware
from uvicorn.supervisors import Multiprocess

from graphrerank.files import write_text
from graphrerank.serving.batches import Batcher
from graphrerank.serving.engine import Engine, EngineFactory
from graphrerank.serving.http_guard import OPEN_ROUTES, HttpGuard
from graphrerank.serving.json_log import log_config, start_logging
from graphrerank.serving.metrics import count_together, forget_dead_processes, metrics
from graphrerank.serving.page.routes import PAGE_PATHS, add_page
from graphrerank.serving.routes import Route, add_routes
from graphrerank.serving.settings import ServiceSettings

BACKLOG = 2048  # connections that are not accepted yet
IDLE_SECONDS = 75  # between two requests of a connection
SILENT_SECONDS = 30  # after which uvicorn replaces a process that does not answer it
MEMORY_FOLDER = Path("/dev/shm")  # where metrics are written even if the disk is full
FAILURE = "failure.txt"  # why a process could not start
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@dataclass(frozen=True)
class Service:
    """A service that is not running yet."""

    factories: Mapping[str, EngineFactory]  # of the engines, by kind; pickled for each process
    routes: Sequence[Route]
    settings: ServiceSettings
    info: Mapping[str, Any]  # content of `GET /info`


def run(service: Service) -> None:
    """Serve until SIGTERM or Ctrl+C, then finish the current requests.

    uvicorn starts ``workers`` processes, replaces one that dies or does not answer, and ends all of them.

    Raises:
        ValueError: If the port is taken, or an engine cannot be built.
    """
    settings = service.settings
    start_logging()
    with _listening(settings) as listener, _memory_folder() as folder:
        count_together(folder)
        os.environ.setdefault("JOBLIB_MULTIPROCESSING", "0")  # else scikit-learn leaves semaphores behind
        config = uvicorn.Config(
            partial(process_app, service, folder, os.getpid()),
            factory=True,
            workers=settings.workers,
            ws="none",
            lifespan="on",
            log_config=log_config(),
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=settings.shutdown_seconds,
            timeout_worker_healthcheck=SILENT_SECONDS,
        )
        Multiprocess(config, [listener]).run()
        failure = folder / FAILURE
        if failure.is_file():
            raise ValueError(failure.read_text(encoding="utf-8"))


def process_app(service: Service, folder: Path, supervisor: int) -> FastAPI:
    """Create the application of one process, which builds its engines when it starts, and ends with its supervisor."""
    settings, engines = service.settings, dict[str, Engine[Any]]()
    batcher = Batcher(
        engines,
        settings.limits,
        batch_requests=settings.batch_requests,
        batch_candidates=settings.batch_candidates,
        encodes=settings.encodes,
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        start_logging()
        forget_dead_processes(folder)
        try:
            engines.update(load_engines(service.factories, settings.num_threads))
        except ValueError as error:
            write_text(folder / FAILURE, str(error))
            raise
        metrics().restarts.inc()
        watch = asyncio.create_task(_end_with(supervisor))
        yield
        watch.cancel()

    return create_app(service.routes, batcher, settings, info=service.info, lifespan=lifespan)


def create_app(
    routes: Sequence[Route],
    batcher: Batcher,
    settings: ServiceSettings,
    *,
    info: Mapping[str, Any],
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Create an application of some routes."""
    app = FastAPI(
        title="graphrerank",
        description="Learned graph reranking for graph RAG.",
        lifespan=lifespan,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    add_routes(app, list(routes), batcher, settings.limits)
    server = {"workers": settings.workers, "limits": asdict(settings.limits)}
    page = {} if settings.page is None else {"page": asdict(settings.page)}

    @app.get("/ready", summary="Whether the engines are warm: before, the process does not listen.")
    async def ready() -> Response:
        return Response("ok", media_type="text/plain")

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
        local_only=settings.is_local,
        admit=batcher.refusal,
    )
    if settings.cors_origins:  # before the guard, as a browser asks without a key
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["*"], allow_headers=["*"]
        )
    return app


def load_engines(factories: Mapping[str, EngineFactory], num_threads: int) -> dict[str, Engine[Any]]:
    """Build the engines of a process and warm them up."""
    torch.set_num_threads(num_threads)
    _keep_freed_memory()
    engines = {kind: make() for kind, make in factories.items()}
    for engine in engines.values():
        engine.warm_up()
    gc.collect()
    gc.freeze()  # modules and models stay, so the garbage collector may ignore them
    return engines


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory, up to 32 MiB per block.

    A batch's tensors have a few MiB each; returning them to the system and requesting them again costs more than the
    arithmetic.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)
        mallopt(M_TRIM_THRESHOLD, 512 << 20)


async def _end_with(supervisor: int) -> None:
    """End this process when the one that started it was killed."""
    while os.getppid() == supervisor:
        await asyncio.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _listening(settings: ServiceSettings) -> Iterator[socket.socket]:
    """Listen at the service's port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            raise ValueError(f"`port` {settings.port} of {settings.host} cannot be used: {error}") from error
        listener.listen(BACKLOG)
        listener.set_inheritable(True)
        yield listener


@contextlib.contextmanager
def _memory_folder() -> Iterator[Path]:
    """Create a folder, in memory if the system has such a place, and remove it at the end."""
    parent = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="graphrerank-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
