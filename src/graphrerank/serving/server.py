"""The service: LitServe's processes, with our dispatch of requests and our routes.

LitServe 0.2.19 leaves requests of a dead worker unanswered and batches by waiting, hence :class:`Dispatcher`; it dies
of SIGTERM without finishing requests, hence :func:`run`.
"""

import ctypes
import gc
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

import torch
from fastapi import FastAPI
from litserve import LitAPI, LitServer
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from graphrerank.checks import check_choice, check_counts
from graphrerank.serving.batch_loop import BatchLoop
from graphrerank.serving.dispatcher import Dispatcher
from graphrerank.serving.engine import EngineFactory
from graphrerank.serving.http_guard import HttpGuard
from graphrerank.serving.json_log import log_config, start_logging
from graphrerank.serving.limits import Limits
from graphrerank.serving.metrics import count_together
from graphrerank.serving.routes import Route, add_routes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
HOSTS = ("127.0.0.1", "0.0.0.0", "::")  # accepted by LitServe


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service.

    Attributes:
        host: Address: this machine only, or ``0.0.0.0`` or ``::`` for all networks.
        port: Port.
        workers: Number of processes with models.
        http_processes: Number of processes that read and check requests.
        batch_requests: Maximum number of requests in a batch; 1 for no batching.
        batch_candidates: Number of documents at which a batch is full.
        num_threads: Torch threads of each worker.
        device: ``cpu`` or ``cuda``.
        api_key: Key that clients must send; None for none.
        cors_origins: Origins of web pages that may call; none by default.
        shutdown_seconds: Time to finish requests at the end of the service.
        limits: Limits of requests.

    Raises:
        ValueError: If ``host`` is unknown, or a number is not positive.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    http_processes: int = 1
    batch_requests: int = 32
    batch_candidates: int = 4096
    num_threads: int = 1
    device: str = "cpu"
    api_key: str | None = None
    cors_origins: Sequence[str] = ()
    shutdown_seconds: int = 30
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_choice(HOSTS, host=self.host)
        counts = ("workers", "http_processes", "batch_requests", "batch_candidates", "num_threads")
        check_counts(**{name: getattr(self, name) for name in counts})


class EngineAPI(LitAPI):
    """LitServe's API in a worker: builds the engines and warms them up.

    Args:
        factories: Factories of the engines, by kind.
        settings: Settings of the service.
    """

    def __init__(self, factories: Mapping[str, EngineFactory], settings: ServiceSettings) -> None:
        self.dispatcher = Dispatcher(
            settings.limits,
            batch_requests=settings.batch_requests,
            batch_candidates=settings.batch_candidates,
        )
        self.batch_loop = BatchLoop()
        super().__init__(max_batch_size=settings.batch_requests, spec=self.dispatcher, loop=self.batch_loop)
        self._factories = dict(factories)
        self._num_threads = settings.num_threads

    def listen(self, folder: Path, http_processes: int) -> None:
        """Open the sockets between HTTP processes and workers, before either is started."""
        self.batch_loop.addresses = [folder / f"http-{process}" for process in range(http_processes)]
        self.dispatcher.listen(self.batch_loop.addresses)

    def setup(self, device: str) -> None:
        """Build the engines; ``GET /ready`` succeeds afterwards."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all processes; the main one ends the workers
        start_logging()
        torch.set_num_threads(self._num_threads)
        _keep_freed_memory()
        self.engines = {kind: make(device) for kind, make in self._factories.items()}
        for engine in self.engines.values():
            engine.warm_up()
        gc.freeze()  # modules and models stay, so the garbage collector may ignore them


def create_server(
    factories: Mapping[str, EngineFactory], routes: list[Route], settings: ServiceSettings, *, info: Mapping[str, Any]
) -> LitServer:
    """Create a service.

    Args:
        factories: Factories of the engines in the workers, by kind; they are pickled.
        routes: Routes of the engines.
        settings: Settings of the service.
        info: Content of ``GET /info``.
    """
    api = EngineAPI(factories, settings)
    limits = settings.limits
    middlewares: list[Any] = [(HttpGuard, {"limits": limits, "api_key": settings.api_key})]
    if settings.cors_origins:
        cors = {"allow_origins": list(settings.cors_origins), "allow_methods": ["*"], "allow_headers": ["*"]}
        middlewares.append((CORSMiddleware, cors))
    server = LitServer(
        api,
        accelerator="cuda" if settings.device.startswith("cuda") else "cpu",
        devices=1,
        workers_per_device=settings.workers,
        timeout=limits.request_seconds,
        healthcheck_path="/ready",
        info_path="/info",
        model_metadata=dict(info),
        middlewares=middlewares,
        restart_workers=True,
    )
    server.app.title = "graphrerank"
    server.app.description = "Learned graph reranking for graph RAG."
    server.uvicorn_graceful_timeout = settings.shutdown_seconds
    server.monitor_internal = 0.5  # seconds between checks for dead workers
    server.app.user_middleware = [used for used in server.app.user_middleware if used.cls is not GZipMiddleware]
    server.app.router.lifespan_context = _with_workers(server.app.router.lifespan_context, api.dispatcher)
    add_routes(server.app, routes, api.dispatcher, limits)
    return server


def run(server: LitServer, settings: ServiceSettings) -> None:
    """Serve until SIGTERM or Ctrl+C, then finish the current requests."""
    os.register_at_fork(after_in_child=_default_signals)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, partial(_end, server))
    with tempfile.TemporaryDirectory(prefix="graphrerank-") as folder:
        count_together(Path(folder))
        api = server.lit_api
        assert isinstance(api, EngineAPI)
        api.listen(Path(folder), settings.http_processes)
        try:
            server.run(
                host=settings.host,
                port=settings.port,
                num_api_servers=settings.http_processes,
                generate_client_file=False,
                log_config=log_config(),
                access_log=False,
                server_header=False,
            )
        finally:
            for process in getattr(server, "inference_workers", []):
                if process.is_alive():
                    process.terminate()


def _with_workers(lifespan: Any, dispatcher: Dispatcher) -> Any:
    """Accept workers during the lifespan of an application."""

    @asynccontextmanager
    async def both(app: FastAPI) -> AsyncIterator[Any]:
        async with dispatcher.serving(), lifespan(app) as state:
            gc.freeze()
            yield state

    return both


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory, up to 32 MiB per block.

    A batch's tensors have a few MiB each; returning them to the system and requesting them again costs more than the
    arithmetic.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)
        mallopt(M_TRIM_THRESHOLD, 512 << 20)


def _end(server: LitServer, signum: int, frame: FrameType | None) -> None:
    """End LitServe as its own shutdown route does."""
    event = server._shutdown_event
    if event is None:
        raise SystemExit(128 + signum)
    logging.getLogger("litserve.server").addFilter(_is_relevant)
    Thread(target=event.set).start()  # LitServe waits for the event in this thread, over the same connection


def _is_relevant(record: logging.LogRecord) -> bool:
    """Return False for the failure of LitServe's monitor to reach a manager that has already ended."""
    return "Monitoring worker crashed" not in record.getMessage()


def _default_signals() -> None:
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)
