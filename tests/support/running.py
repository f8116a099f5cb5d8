"""A service as its users have it: processes, a port, and an end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.support import ROOT

PATIENCE_S = 400


@dataclass
class Service:
    """A running ``graphrerank serve``."""

    url: str
    process: subprocess.Popen[bytes]  # the main one
    log: Path  # of standard error
    output: Path  # of standard output

    def workers(self) -> list[psutil.Process]:
        """Return the processes that answer requests."""
        return self.processes("rerank serving")

    def processes(self, name: str) -> list[psutil.Process]:
        """Return the processes of a name, which tells their state."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == name:
                    found.append(process)
        return found

    def wait_until_ready(self) -> None:
        """Wait for ``GET /ready``."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/ready", timeout=10).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not ready: {self.log.read_text()}")


def free_port() -> int:
    """Return a port that nothing listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> Iterator[Service]:
    """Start a service on a free port, and end it."""
    port = free_port()
    log, output = folder / "log.jsonl", folder / "output.txt"
    command = [sys.executable, str(ROOT / "serve.py"), f"port={port}", f"paths.runs={folder}", "workers=1", "standby=0"]
    command += arguments
    with log.open("wb") as errors, output.open("wb") as written:
        process = subprocess.Popen(
            command, stdout=written, stderr=errors, cwd=folder, env=os.environ | (environment or {})
        )
    service = Service(f"http://127.0.0.1:{port}", process, log, output)
    started = []
    try:
        service.wait_until_ready()
        started = psutil.Process(process.pid).children(recursive=True)
        yield service
    finally:
        if process.poll() is None:
            started += psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
        _, left = psutil.wait_procs(started, timeout=10)
        for child in left:
            child.kill()
        assert not left, f"{left} outlived the service"
