"""Attacks on the service as processes: afterwards it answers as before, and nobody is left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import psutil
import pytest

from tests.support import ROOT
from tests.support.running import running

pytestmark = pytest.mark.slow  # many processes

BODY = {"query": "spreads by removable media", "documents": ["a cake", "malware on removable media", "a dog"]}
NESTED = "[" * 490 + "]" * 490
WORDS = " ".join(f"word{index}" for index in range(4000))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    settings = ("artifact=attack", "encoder=none", "workers=2")
    with running(tmp_path_factory.mktemp("attacked"), *settings) as service:
        yield service


def post(service, body, path="/v2/rerank"):
    content = body if isinstance(body, str) else json.dumps(body)
    return httpx.post(f"{service.url}{path}", content=content, timeout=120)


def explained():
    pairs = [[i, (i + step) % 1000] for step in (1, 2) for i in range(500)]
    return {
        "query": WORDS[:19_000],
        "documents": [WORDS[i : i + 200] for i in range(1000)],
        "edges": pairs,
        "explain": True,
    }


def long_query():
    pairs = [[i, j] for i in range(1000) for j in range(i + 1, min(1000, i + 101))][:95_000]
    return {"query": WORDS[:19_900], "documents": ["a text"] * 1000, "edges": pairs}


@pytest.mark.parametrize(
    ("body", "times", "statuses"),
    [
        ('{"query": "q", "documents": [{"text": "a", "x": ' + NESTED + "}]}", 3, {400}),
        (explained(), 4, {200, 422}),
        (long_query(), 2, {200, 422}),
        ({"query": "q", "documents": [WORDS] * 200}, 2, {200, 422}),
    ],
    ids=["deep", "explain", "long query and many edges", "long texts"],
)
def test_hostile_requests_harm_nobody(service, body, times, statuses):
    before = {process.pid for process in service.workers()}
    content = body if isinstance(body, str) else json.dumps(body)
    for _ in range(times):
        assert post(service, content).status_code in statuses
    for _ in range(4):
        assert post(service, BODY).status_code == 200
    assert {process.pid for process in service.workers()} == before


def test_overload_is_refused_and_passes(tmp_path):
    """Requests beyond the capacity are told when to come back, and none that is accepted expires."""
    settings = ("artifact=attack", "encoder=none", "limits.queue_seconds=0.5", "limits.request_seconds=60")
    with running(tmp_path, *settings) as service:
        heavy = json.dumps({"query": WORDS[:1000], "documents": [WORDS[i : i + 9000] for i in range(100)]})
        statuses, waits, stop = [], [], threading.Event()

        def ask():
            with httpx.Client(base_url=service.url, timeout=120) as client:
                while not stop.is_set():
                    response = client.post("/v2/rerank", content=heavy)
                    statuses.append(response.status_code)
                    waits.append(response.headers.get("retry-after"))

        threads = [threading.Thread(target=ask) for _ in range(40)]
        for thread in threads:
            thread.start()
        while statuses.count(200) < 60 or statuses.count(429) < 10:
            time.sleep(0.1)
        stop.set()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200, 429}
        assert all(int(wait) >= 1 for status, wait in zip(statuses, waits, strict=True) if status == 429)
        assert post(service, BODY).status_code == 200


def test_a_killed_service_leaves_nobody_and_starts_anew(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "serve.py"), f"port={port}", "artifact=attack", "encoder=none"]
    for _ in range(2):
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([*command, f"paths.runs={tmp_path}"], stdout=log, stderr=log, cwd=tmp_path)
        try:
            while True:
                assert process.poll() is None, (tmp_path / "log").read_text()
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/ready", timeout=10).status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            children = psutil.Process(process.pid).children(recursive=True)
            assert len(children) == 2  # a worker, and Python's resource tracker
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive


def test_a_port_that_is_taken(service, tmp_path):
    port = service.url.rpartition(":")[2]
    settings = (f"port={port}", "artifact=attack", "encoder=none", f"paths.runs={tmp_path}")
    command = [sys.executable, str(ROOT / "serve.py"), *settings]
    refused = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert refused.returncode == 1
    assert f"`port` {port} of 127.0.0.1 cannot be used" in refused.stderr
