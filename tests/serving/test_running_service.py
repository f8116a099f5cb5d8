"""The service as processes: real clients, faults, attacks, and its end."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import psutil
import pytest

from graphrerank import GraphReranker
from tests.support import ROOT
from tests.support.running import running

pytestmark = pytest.mark.slow  # many processes

QUERY = "spreads by removable media"
DOCUMENTS = ["a cake", "malware on removable media", "a dog"]
BODY = {"query": QUERY, "documents": DOCUMENTS, "edges": [[0, 2]]}
KEY = {"x-api-key": "k"}
NESTED = "[" * 490 + "]" * 490
WORDS = " ".join(f"word{index}" for index in range(4000))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service"), "artifact=attack", "encoder=none") as service:
        yield service


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """Two workers behind a key from the environment, and a short queue."""
    settings = ("artifact=attack", "encoder=none", "workers=2", "limits.queue_seconds=0.5")
    with running(tmp_path_factory.mktemp("locked"), *settings, environment={"GRAPHRERANK_API_KEY": "k"}) as service:
        yield service


@pytest.fixture(scope="module")
def expected():
    return GraphReranker.from_pretrained("attack").rerank(QUERY, DOCUMENTS)


def post(service, body=BODY):
    content = body if isinstance(body, str) else json.dumps(body)
    return httpx.post(f"{service.url}/v2/rerank", content=content, headers=KEY, timeout=120)


@pytest.mark.parametrize("name", ["Client", "ClientV2"])
def test_coheres_clients(service, expected, name):
    cohere = pytest.importorskip("cohere", reason="cohere is optional")
    client = getattr(cohere, name)("any key", base_url=service.url)
    found = client.rerank(model="any", query=QUERY, documents=DOCUMENTS, top_n=2)
    assert [result.index for result in found.results] == list(expected.ids)[:2]
    served = [result.relevance_score for result in found.results]
    assert served == pytest.approx(expected.probabilities[:2].tolist(), abs=1e-5)
    with pytest.raises(cohere.errors.UnprocessableEntityError) as refused:
        client.rerank(model="any", query=QUERY, documents=[])
    assert "documents" in refused.value.body["message"]


def test_the_curl_line_of_the_docs(service):
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    line = re.search(r"^curl .*?^  [^\n]*\}'$", text, re.MULTILINE | re.DOTALL).group()
    command = shlex.split(line.replace("localhost:8000", service.url.removeprefix("http://")))
    answer = json.loads(subprocess.run([*command, "-s"], capture_output=True, check=True).stdout)
    assert [result["index"] for result in answer["results"]] == [1, 2]


def test_a_slow_client_holds_up_nobody(service):
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(b"POST /v2/rerank HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{")
        assert post(service).status_code == 200


def test_a_port_that_is_taken(service, tmp_path):
    port = service.url.rpartition(":")[2]
    settings = (f"port={port}", "artifact=attack", "encoder=none", f"paths.runs={tmp_path}")
    command = [sys.executable, str(ROOT / "serve.py"), *settings]
    refused = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert refused.returncode == 1
    assert f"`port` {port} on 127.0.0.1 cannot be used" in refused.stderr


def test_the_key_comes_from_the_environment(locked):
    """And the metrics of both workers are one."""
    assert httpx.post(f"{locked.url}/v2/rerank", json=BODY).status_code == 401
    for _ in range(6):
        assert post(locked).status_code == 200
    text = httpx.get(f"{locked.url}/metrics", headers=KEY).text
    assert float(re.search(r'stage_seconds_count{stage="queue"} (\S+)', text).group(1)) >= 6
    assert len(locked.workers()) == 2


def explained():
    pairs = [[i, (i + step) % 1000] for step in (1, 2) for i in range(500)]
    documents = [WORDS[i : i + 200] for i in range(1000)]
    return {"query": WORDS[:19_000], "documents": documents, "edges": pairs, "explain": True}


def long_query():
    pairs = [[i, j] for i in range(1000) for j in range(i + 1, min(1000, i + 101))][:95_000]
    return {"query": WORDS[:19_900], "documents": ["a text"] * 1000, "edges": pairs}


@pytest.mark.parametrize(
    ("body", "times", "statuses"),
    [
        ('{"query": "q", "documents": [{"text": "a", "x": ' + NESTED + "}]}", 3, {400}),
        (" " * 200_000_000, 1, {413}),
        (explained(), 4, {200, 422}),
        (long_query(), 2, {200, 422}),
        ({"query": "q", "documents": [WORDS] * 200}, 2, {200, 422}),
    ],
    ids=["deep", "200 MB", "explain", "long query and many edges", "long texts"],
)
def test_hostile_requests_harm_nobody(locked, body, times, statuses):
    before = {process.pid for process in locked.workers()}
    content = body if isinstance(body, str) else json.dumps(body)
    for _ in range(times):
        assert post(locked, content).status_code in statuses
    for _ in range(4):
        assert post(locked).status_code == 200
    assert {process.pid for process in locked.workers()} == before


def test_overload_is_refused_and_passes(locked):
    """Refusals name a time to come back, and no accepted request expires."""
    heavy = json.dumps({"query": WORDS[:1000], "documents": [WORDS[i : i + 9000] for i in range(100)]})
    answers, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            response = post(locked, heavy)
            answers.append((response.status_code, response.headers.get("retry-after")))

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for thread in threads:
        thread.start()
    while [status for status, _ in answers].count(429) < 10 or answers.count((200, None)) < 30:
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} == {200, 429}
    assert all(int(wait) >= 1 for status, wait in answers if status == 429)
    assert post(locked).status_code == 200


def test_a_killed_worker_is_replaced(locked):
    """The other one answers meanwhile."""
    victim = locked.workers()[0]
    victim.kill()
    victim.wait(10)
    for _ in range(20):
        assert post(locked).status_code == 200
    deadline = time.monotonic() + 120
    while len(locked.workers()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert victim.pid not in {worker.pid for worker in locked.workers()}


@pytest.mark.parametrize(
    "headers",
    [
        "Host: localhost\r\nHost: localhost",
        "Host: localhost\r\nHost: evil.example",
        "Host: localhost\r\nContent-Length: 2\r\nContent-Length: 2",
        "Host: localhost\r\nContent-Length: 2\r\nContent-Length: 9",
        "Host: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
        "Host: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    ],
)
def test_requests_that_can_be_read_in_two_ways_are_refused(service, headers):
    url = httpx.URL(service.url)
    with socket.create_connection((url.host, url.port), timeout=30) as connection:
        connection.sendall(f"GET /health HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n{{}}".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 400 ")


def test_sigterm_under_load_loses_nothing(service):
    """Every request that the service began to work on is answered, and the log says the same. It ends the service."""
    answered, stop, before = [], threading.Event(), len(service.log.read_text())

    def call():
        while not stop.is_set():
            try:  # a connection each: one that is kept may close just when a request is sent
                answered.append(post(service).status_code)
            except httpx.TransportError:
                return  # no longer listening

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    while len(answered) < 20 and any(thread.is_alive() for thread in threads):
        time.sleep(0.05)
    os.kill(service.process.pid, signal.SIGTERM)
    assert service.process.wait(timeout=120) == 0
    stop.set()
    for thread in threads:
        thread.join()
    text = service.log.read_text()[before:].splitlines()
    lines = [json.loads(line) for line in text if line.startswith("{")]  # Python writes other lines
    logged = [line["status"] for line in lines if line["event"] == "request" and line["route"] == "/v2/rerank"]
    assert set(answered) == {200}
    assert logged.count(200) == len(logged) == len(answered)
    assert not [line for line in lines if line["level"] == "error"]


def test_a_killed_service_leaves_no_process(tmp_path):
    with running(tmp_path, "artifact=attack", "encoder=none") as service:
        children = psutil.Process(service.process.pid).children(recursive=True)
        assert len(children) == 3  # a worker, the process that forks workers, and Python's resource tracker
        os.kill(service.process.pid, signal.SIGKILL)
        service.process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
