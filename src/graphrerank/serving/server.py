"""The service: a supervisor, HTTP processes and workers.

There is no framework between uvicorn and the models, because a request needs a deadline, a price and a batch, and
processes need a supervisor; see docs/serving.md.
"""

import contextlib
import gc
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.serving.engine import EngineFactory
from graphrerank.serving.http_process import BACKLOG, serve_http
from graphrerank.serving.json_log import start_logging
from graphrerank.serving.messages import listen
from graphrerank.serving.metrics import count_together
from graphrerank.serving.routes import Route
from graphrerank.serving.settings import ServiceSettings
from graphrerank.serving.supervisor import Lifeline, Program, Supervisor
from graphrerank.serving.worker import answer_batches, load_engines

MEMORY_FOLDER = Path("/dev/shm")  # where metrics are written even if the disk is full


@dataclass(frozen=True)
class Service:
    """A service that is not running yet.

    Attributes:
        factories: Factories of the engines in the workers, by kind; they are pickled for CUDA.
        routes: Routes of the engines.
        settings: Settings.
        info: Content of ``GET /info``.
    """

    factories: Mapping[str, EngineFactory]
    routes: Sequence[Route]
    settings: ServiceSettings
    info: Mapping[str, Any]


def run(service: Service) -> None:
    """Serve until SIGTERM or Ctrl+C, then finish the current requests.

    Raises:
        ValueError: If the port is taken, or an engine cannot be built.
    """
    settings = service.settings
    start_logging()
    with _listening(settings) as listener, _memory_folder() as folder:
        count_together(folder)
        addresses = [folder / f"http-{index}" for index in range(settings.http_processes)]
        sockets = [listen(address) for address in addresses]
        programs = [
            Program(
                f"HTTP process {index}",
                serve_http,
                (listener, workers, service.routes, settings, service.info, folder),
                ends_first=True,
            )
            for index, workers in enumerate(sockets)
        ]
        is_cuda = settings.device.startswith("cuda")
        own = None if is_cuda else (listener, *sockets)
        arguments = (dict(service.factories), settings.device, settings.num_threads, addresses, own)
        programs += [
            Program(f"worker {index}", serve_engines, arguments, spawn=is_cuda) for index in range(settings.workers)
        ]
        gc.collect()
        gc.freeze()  # what is loaded stays, and is shared with the forked processes
        Supervisor(programs, shutdown_seconds=settings.shutdown_seconds + 5, on_end=listener.close).run()


def serve_engines(
    lifeline: Lifeline,
    factories: Mapping[str, EngineFactory],
    device: str,
    num_threads: int,
    addresses: Sequence[Path],
    inherited: Sequence[socket.socket] | None,
) -> None:
    """Run a worker.

    Args:
        lifeline: Connection to the supervisor.
        factories: Factories of the engines.
        device: Device of the models.
        num_threads: Torch threads.
        addresses: Sockets of the HTTP processes.
        inherited: Sockets of others that a fork copies, to be closed.
    """
    for inherited_socket in inherited or ():
        inherited_socket.close()
    start_logging()
    engines = load_engines(factories, device=device, num_threads=num_threads)
    lifeline.say_ready_always()
    answer_batches(engines, addresses, is_ending=lifeline.is_cut)


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
        listener.setblocking(False)
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
