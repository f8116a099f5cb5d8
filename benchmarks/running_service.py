"""Start the service that a benchmark measures on a free port, wait until it is ready, and stop it."""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]


def serve_command(*settings: str) -> Callable[[int], list[str]]:
    """Return a function from a port to the command that starts ``serve.py`` with the given settings."""
    return lambda port: [sys.executable, str(ROOT / "serve.py"), f"port={port}", *settings]


@contextmanager
def running_service(
    command: Callable[[int], Sequence[str]], source: Path = ROOT / "src"
) -> Iterator[tuple[int, psutil.Process]]:
    """Start a service of the package in ``source``, and yield its port and main process when it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        command(port),
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(source)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # one line per request
    )
    try:
        while not _is_ready(port):
            if process.poll() is not None:
                raise SystemExit(f"{' '.join(command(port))}: ended with {process.returncode}")
            time.sleep(0.1)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
