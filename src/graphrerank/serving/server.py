"""Run a service: a FastAPI application in several processes, each with its engines and a uvicorn server."""

import asyncio
import contextlib
import gc
import logging.config
import multiprocessing
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI

from graphrerank.serving import metrics
from graphrerank.serving.app import create_app
from graphrerank.serving.batching import Batcher
from graphrerank.serving.engine import Engine, EngineFactory
from graphrerank.serving.feedback_log import open_log
from graphrerank.serving.http_guard import RefusingProtocol
from graphrerank.serving.json_log import LOG_CONFIG
from graphrerank.serving.price_measurement import load_prices
from graphrerank.serving.recorder import Recorder
from graphrerank.serving.routes import Route
from graphrerank.serving.settings import ServiceSettings
from graphrerank.serving.supervisor import FAILED, SERVING, STANDING_BY, Post, supervise
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import temporary_folder, write_text

IDLE_SECONDS = 75  # time after which an idle connection is closed
MEMORY_FOLDER = Path("/dev/shm")  # metrics can be written here even if the disk is full
FAILURE = "failure.txt"  # file with the reason why a process could not start
PRICES = "prices.json"  # file with the prices that the first process measured
ENVIRONMENT = {  # environment variables of the worker processes
    "JOBLIB_MULTIPROCESSING": "0",  # otherwise scikit-learn leaves semaphores behind
    # Thresholds in bytes below which glibc keeps freed memory. The tensors of a batch have a few MiB each, and
    # requesting them from the system again would take longer than the arithmetic.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
}


@dataclass(frozen=True)
class Service:
    """Description of a service that is not running yet.

    Attributes:
        factories: Factories of the engines by kind, which are pickled for each process.
        routes: Routes of the service.
        settings: Settings of the service.
        info: Description of the model in the response of ``GET /info``.
    """

    factories: Mapping[str, EngineFactory]
    routes: Sequence[Route]
    settings: ServiceSettings
    info: Mapping[str, Any]


def run(service: Service) -> None:
    """Run a service until SIGTERM or Ctrl+C, then finish open requests.

    ``workers`` processes answer requests. Standby processes replace workers that die or hang
    (:mod:`graphrerank.serving.supervisor`).

    Args:
        service: Service to run.

    Raises:
        UserError: If the port cannot be used or the engines cannot be loaded.
    """
    settings = service.settings
    parent = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    with (
        _listening(settings) as listener,
        temporary_folder(parent) as folder,
    ):
        os.environ |= {
            metrics.FOLDER: str(folder),
            **{key: os.environ.get(key, ENVIRONMENT[key]) for key in ENVIRONMENT},
        }
        logging.config.dictConfig(LOG_CONFIG)
        supervise(
            run_worker,
            (service, folder, listener),
            workers=settings.workers,
            standby=settings.standby,
            forks=settings.device == "cpu" and "forkserver" in multiprocessing.get_all_start_methods(),
        )
        failure = folder / FAILURE
        if failure.is_file():
            raise UserError(failure.read_text(encoding="utf-8"))


def run_worker(post: Post, service: Service, folder: Path, listener: socket.socket) -> None:
    """Answer requests in a worker process, once the supervisor activates it.

    Args:
        post: Connection to the supervisor.
        service: Service to run.
        folder: Folder shared by the processes of the service.
        listener: Listening socket.
    """
    settings = service.settings
    config = uvicorn.Config(
        partial(process_app, service, folder, post),
        factory=True,
        # web pages cannot read the rejections of RefusingProtocol, which have no CORS headers
        http="auto" if settings.cors_origins else RefusingProtocol,
        ws="none",
        lifespan="on",
        log_config=LOG_CONFIG,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    try:
        uvicorn.Server(config).run([listener])
    except SystemExit:  # the application could not start
        post.report(FAILED)
        raise


def process_app(service: Service, folder: Path, post: Post) -> FastAPI:
    """Create the application of one process, which loads its engines at startup and then waits until it is activated.

    Args:
        service: Service to run.
        folder: Folder shared by the processes of the service.
        post: Connection to the supervisor.

    Returns:
        The application, an ASGI callable.
    """
    settings, engines = service.settings, dict[str, Engine[Any]]()
    batcher = Batcher(
        engines, settings.limits, batch_requests=settings.batch_requests, batch_candidates=settings.batch_candidates
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        metrics.forget_dead_processes(folder)
        try:
            engines.update(load_engines(service.factories, settings.num_threads))
            batcher.prices = load_prices(folder / PRICES, engines)
        except ValueError as error:
            write_text(folder / FAILURE, str(error))
            raise
        metrics.WORKER_STARTS.inc()
        if not post.may_serve.is_set():
            post.report(STANDING_BY)
            await asyncio.to_thread(post.may_serve.wait)
        post.report(SERVING)
        yield

    recorder = None if settings.feedback.path is None else Recorder(open_log(settings.feedback), settings.feedback)
    return create_app(service.routes, batcher, settings, info=service.info, recorder=recorder, lifespan=lifespan)


def load_engines(factories: Mapping[str, EngineFactory], num_threads: int) -> dict[str, Engine[Any]]:
    """Build and warm up the engines of a process.

    Args:
        factories: Factories of the engines by kind.
        num_threads: Number of torch threads.

    Returns:
        Engines by kind.
    """
    torch.set_num_threads(num_threads)
    engines = {kind: make() for kind, make in factories.items()}
    for engine in engines.values():
        engine.warm_up()
    gc.collect()
    gc.freeze()  # modules and models live as long as the process, so the garbage collector can skip them
    return engines


def local_listener(port: int) -> socket.socket:
    """Return a listening socket that accepts connections from this machine only.

    Args:
        port: Port to listen on. 0 chooses a free one.

    Raises:
        UserError: If the port is out of range or in use.
    """
    return _listening(ServiceSettings(port=port))


def _listening(settings: ServiceSettings) -> socket.socket:
    is_v6 = ":" in settings.host
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, dualstack_ipv6=is_v6)
    except OSError as error:
        raise UserError(f"`port` {settings.port} on {settings.host} cannot be used: {error}") from error
