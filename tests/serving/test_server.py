"""The application of a process: routes, limits, key and log."""

import asyncio
import itertools
import json
import logging
import re
from importlib.metadata import version
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from graphrerank.serving import http_guard
from graphrerank.serving.batching import Batcher
from graphrerank.serving.engine import Refusal
from graphrerank.serving.engines.rerank import RerankEngine
from graphrerank.serving.json_log import LOGGER, JsonFormatter
from graphrerank.serving.limits import Limits
from tests.support.client import TestClient, make_client
from tests.support.clocks import Clock

BODY = {"query": "who wrote the red book", "documents": ["the red book", "a green pear", "who is who"]}


@pytest.fixture(scope="module")
def client(make_app):
    return TestClient(make_app())


def send(client, body, path="/v2/rerank"):
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    return client.post(path, content=content)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_an_answer(client, artifact, encoder, path):
    response = send(client, {**BODY, "edges": [[0, 2]], "top_n": 2}, path)
    assert response.status_code == 200
    found = response.json()
    assert set(found) == {"id", "results", "meta"}
    assert found["id"] == response.headers["x-request-id"]
    assert re.fullmatch(r"read;dur=[\d.]+, rank;dur=[\d.]+, render;dur=[\d.]+", response.headers["server-timing"])
    assert found["meta"] == {
        "api_version": {"version": path[2]},
        "billed_units": {"search_units": 1},
        "model": "test-model",
        "language": "english",
    }
    assert [set(result) for result in found["results"]] == [{"index", "relevance_score"}] * 2
    assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"edges": [[0, 1]] * 200_000}, "edges", "at most 100000 entries, got 200000"),
        ({"scores": [1.0, 1.0, "NaN"]}, "scores", "valid number"),
        ({"scores": [1.0, 1.0, -1e31]}, "scores", r"at most 1e\+30 in size, got -1e\+31 at index 2"),
        ({"top_n": 0}, "top_n", "greater than or equal to 1"),
        ({"topn": 1, "other": 2}, "top_n", "unknown fields 'other', 'topn'; did you mean `top_n`"),
        ({f"{i:09}" * 9: "secret" for i in range(9)}, "0000", "'00000000000.*' and 4 others; the known fields are"),
    ],
)
def test_bad_requests_are_refused_by_field(client, change, field, message):
    response = send(client, {**BODY, **change})
    assert response.status_code == 422, response.text
    found = response.json()
    assert field in found["message"]
    assert all(set(error) == {"loc", "msg", "type"} for error in found["detail"])  # no echo of the request
    with pytest.raises(ValueError, match=message):
        raise ValueError(found["message"])
    assert len(response.content) < 5000
    assert found["id"] == response.headers["x-request-id"]
    assert "secret" not in response.text


NESTED = "[" * 490 + "]" * 490


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        ("null", 422),
        (b"\xff", 400),
        ('{"\\ud800": 1}', 422),
        ("9" * 5000, 400),
        ('{"query": "x", "documents": [{"text": "\\udfff", "x": 1e999}]}', 422),
        ('{"query": "q", "documents": [{"text": "a", "x": ' + NESTED + "}]}", 400),
        ('{"query": "q", "documents": ["a"], "entities": [' + "[" + "[]," * 900_000 + "[]]]}", 413),
        ('{"query": "q", "documents": ["a"], "rank_fields": [' + '"a",' * 400_000 + '"a"]}', 422),
        ('{"query": "q", "documents": ["a"], "query_vector": [1], "vectors": [[' + '"a",' * 900_000 + '"a"]]}', 422),
        ('{"query": "q", "documents": ["a"], "entities": [[' + "0," * 2_000_000 + "0]]}", 422),
        ('{"query": "q", "documents": ["a"],' + ",".join(f'"k{i}":0' for i in range(400_000)) + "}", 422),
        ('{"query": "' + "word " * 25_000 + '", "documents": ["a", "b"], "edges": [[0, 1]]}', 422),
    ],
    ids=range(13),
)
def test_hostile_bodies_are_refused(client, body, status):
    response = send(client, body)
    assert response.status_code == status
    assert len(response.content) < 2000
    assert send(client, BODY).status_code == 200


def test_limits_are_answered(make_app):
    client = TestClient(make_app(Limits(work_seconds=100, request_seconds=100)))
    documents = [f"document {i}" for i in range(1000)]
    edges = [[i, j] for i in range(1000) for j in range(i + 1, min(1000, i + 101))][:95_000]
    scores = [1e30 * (-1) ** i for i in range(1000)]
    response = send(client, {"query": "q", "documents": documents, "edges": edges, "scores": scores})
    assert response.status_code == 200
    assert len(response.json()["results"]) == 1000
    assert send(client, {**BODY, "edges": [[0, 1, 1e9], [1, 2, 1e-9]]}).status_code == 200
    many = [[i, j] for i in range(60) for j in range(i)]
    response = send(client, {"query": "q", "documents": documents[:60], "edges": many, "explain": True})
    assert response.status_code == 422
    assert "`explain` requires at most 1000 edges, got 1770" in response.json()["message"]


def test_long_bodies_are_refused_before_they_are_read(make_app):
    client = TestClient(make_app(Limits(body_bytes=1000)))
    sent = 0

    def chunks():
        nonlocal sent
        for _ in range(20):
            sent += 1
            yield b" " * 100_000

    response = client.post("/v2/rerank", content=chunks())
    assert response.status_code == 413
    assert response.json()["message"] == "body: must have at most 1000 bytes"
    assert client.post("/v2/rerank", content=b" " * 900).status_code == 400
    headers = {"content-length": "200000000", "expect": "100-continue"}
    assert client.post("/v2/rerank", content=iter([b""]), headers=headers).status_code == 413


def test_the_key(make_app):
    client = TestClient(make_app(api_key="kéy"))
    assert client.get("/health").status_code == 200  # open, for load balancers
    for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": ""}, {"x-api-key": "k"}):
        response = client.post("/v2/rerank", json=BODY, headers=headers)
        assert response.status_code == 401
        assert "invalid or missing key" in response.json()["message"]
        assert client.get("/metrics", headers=headers).status_code == 401
    for name, key, status in (
        *(("authorization", "Bearer kéy", 200), ("authorization", "bearer kéy", 200), ("x-api-key", "kéy", 200)),
        ("authorization", "Basic kéy", 401),
    ):
        assert client.post("/v2/rerank", json=BODY, headers={name: key.encode()}).status_code == status
    assert TestClient(make_app(api_key="")).post("/v2/rerank", json=BODY).status_code == 200


@pytest.mark.parametrize(
    ("path", "needed"),
    [("/documents", "corpus folder"), ("/feedback", "`feedback.path`"), ("/search", "`index`"), ("/route", "adapter")],
)
def test_a_route_that_is_disabled_says_what_it_needs(make_app, path, needed):
    client = TestClient(make_app())
    for response in (client.post(path, json={}), client.delete(path)):
        assert response.status_code == 404
        assert re.match(f"this service has no {path}: .*{needed}", response.json()["message"])


def test_what_no_route_takes(make_app):
    client = TestClient(make_app())
    for response, status, said in (
        (client.get("/nothing"), 404, "Not Found"),
        (client.get("/v2/rerank"), 405, "Method Not Allowed"),
    ):
        detail = [{"loc": [], "msg": said, "type": f"http_{status}"}]
        assert (response.status_code, response.json()) == (
            status,
            {"id": response.headers["x-request-id"], "message": said, "error": said, "detail": detail},
        )
    assert response.headers["allow"] == "POST"


def test_logs_hold_numbers_and_no_texts(make_app, caplog):
    client = TestClient(make_app())
    with caplog.at_level(logging.INFO, LOGGER):
        response = send(client, {**BODY, "query": "secret"})
        send(client, {"query": "secret", "documents": ["secret", ""], "top_n": 0})
        client.get("/secret")
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name == LOGGER]
    assert [(line["route"], line["status"]) for line in lines] == [
        ("/v2/rerank", 200),
        ("/v2/rerank", 422),
        ("none", 404),
    ]
    assert (lines[0]["documents"], lines[0]["id"]) == (3, response.json()["id"])
    assert lines[0]["seconds"] > 0
    assert "secret" not in json.dumps(lines)


class Connection(asyncio.Transport):
    """A client's connection, without a network."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5000), "sockname": ("127.0.0.1", 8000)})
        self.received = b""
        self.is_closed = False
        self.is_answered = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.received += data
        head, _, body = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None and len(body) == int(length[1]):
            self.is_answered.set()

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def test_refusals_under_overload_share_a_line_a_second(make_app, caplog, monkeypatch):
    def refuse(*_):
        raise Refusal(429, "too many requests", retry_after=7)

    monkeypatch.setattr(Batcher, "check_wait", refuse)
    clock = Clock()
    head = b"POST /v2/rerank HTTP/1.1\r\nhost: localhost\r\nContent-Length: 10\r\n\r\n"
    whole, parts = [head + b"x" * 10], [head, b"x" * 10]

    async def ask(config, chunks):
        connection = Connection()
        protocol = http_guard.RefusingProtocol(config=config, server_state=ServerState(), app_state={})
        protocol.connection_made(connection)
        for chunk in chunks:
            protocol.data_received(chunk)
        await asyncio.wait_for(connection.is_answered.wait(), 20)
        is_parsed, is_closed = protocol.flow is not None, connection.is_closed
        protocol.connection_lost(None)
        return connection.received, is_closed, is_parsed

    async def play():
        config = uvicorn.Config(make_app(refusals=http_guard.RefusalLog(clock)), log_config=None, proxy_headers=False)
        config.load()
        answers = [await ask(config, chunks) for chunks in (whole, parts, whole)]
        clock.move(http_guard.LINE_SECONDS)
        return [*answers, await ask(config, whole)]

    with caplog.at_level(logging.INFO, LOGGER):
        answers = asyncio.run(play())
    for answer, _, _ in answers:
        assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"\r\nretry-after: 7\r\n" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["message"] == "too many requests"
    assert [is_closed for _, is_closed, _ in answers] == [True, False, True, True]
    assert [b"connection: close" in answer for answer, _, _ in answers] == [True, False, True, True]
    assert [is_parsed for _, _, is_parsed in answers] == [False, True, False, False]
    lines = [record.fields for record in caplog.records if record.name == LOGGER]
    assert [line["refused"] for line in lines] == [1, 3]
    assert f"x-request-id: {lines[0]['id']}".encode() in answers[0][0]


def test_a_failure_is_logged_without_its_message(make_app, caplog, monkeypatch):
    def fail(*_):
        raise RuntimeError("secret")

    monkeypatch.setattr(RerankEngine, "answer", fail)
    with caplog.at_level(logging.INFO, LOGGER):
        response = send(TestClient(make_app()), {**BODY, "query": "secret"})
    assert response.status_code == 500
    lines = [JsonFormatter().format(record) for record in caplog.records if record.name == LOGGER]
    assert json.loads(lines[0])["error"] == "RuntimeError"
    assert "fail (" in json.loads(lines[0])["at"][-1]
    assert "secret" not in " ".join(lines) + response.text


def test_measures(client):
    send(client, BODY)
    send(client, {})
    text = client.get("/metrics").text
    for line in (
        'graphrerank_stage_seconds_bucket{le="0.001",stage="rerank"}',
        'graphrerank_stage_seconds_count{stage="total"}',
        'graphrerank_errors_total{route="/v2/rerank",status="422"}',
        "graphrerank_queue_length",
        "graphrerank_batch_requests_count",
    ):
        assert line in text


def test_the_schema_names_what_is_taken_and_answered(client):
    schema = client.get("/openapi.json").json()
    assert schema["info"]["version"] == version("graphrerank")
    post = schema["paths"]["/v2/rerank"]["post"]
    body = post["requestBody"]["content"]["application/json"]["schema"]
    assert {"query", "documents", "top_n", "edges", "entities", "doc_ids", "scores", "explain"} <= set(
        body["properties"]
    )
    assert body["required"] == ["query"]
    assert set(post["responses"]) >= {"200", "400", "401", "413", "422", "504"}
    assert "RerankResponse" in schema["components"]["schemas"]


def test_bodies_that_are_held_have_a_limit(make_app):
    app = make_app(Limits(held_bytes=1000))
    sent = []

    async def send_back(message):
        sent.append(message)

    async def ask(num_together=1):
        """Send a body in two parts, the second one after as many requests have sent their first."""
        chunks = [b" " * 600, b""]

        async def receive():
            nonlocal num_begun
            if len(chunks) == 2:
                num_begun += 1
                if num_begun == num_together:
                    have_begun.set()
            else:
                await have_begun.wait()
            return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

        scope = {"type": "http", "method": "POST", "path": "/v2/rerank", "headers": [], "query_string": b""}
        await app(scope, receive, send_back)

    async def play():
        await asyncio.gather(ask(2), ask(2))
        await ask()

    num_begun, have_begun = 0, asyncio.Event()
    asyncio.run(play())
    assert [message["status"] for message in sent if "status" in message] == [503, 400, 400]


PAGE = {"origin": "https://page.example"}


def test_pages_that_may_call_need_no_key_to_ask() -> None:
    client = make_client(cors_origins=("https://page.example",), api_key="key")
    asked = client.options("/v2/rerank", headers={**PAGE, "access-control-request-method": "POST"})
    assert asked.headers["access-control-allow-origin"] == "https://page.example"
    assert client.post("/v2/rerank", json={}, headers=PAGE).status_code == 401
    assert client.post("/v2/rerank", json={}, headers={**PAGE, "x-api-key": "key"}).status_code == 422
    assert make_client().post("/v2/rerank", json={}, headers=PAGE).status_code == 403


@pytest.mark.parametrize("path", ["/info", "/metrics", "/", "/info/"])
def test_a_service_for_this_machine_answers_no_other_name(path: str) -> None:
    """A page elsewhere can make its name resolve to this machine. A slash too many redirects nowhere."""
    assert make_client("http://evil.example:8000").get(path, follow_redirects=False).status_code == 403
    assert make_client().get("/info/", follow_redirects=False).status_code == 404
    assert make_client("http://rerank:8000", host="0.0.0.0", allow_no_key=True).get("/info").status_code == 200


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("http://evil.example", "localhost:8000", 403),
        ("http://evil.example:8000", "evil.example:8000", 403),  # a name that now points to this machine
        ("null", "localhost:8000", 403),
        ("http://[", "localhost:8000", 403),
        ("http://localhost:80000000", "localhost:8000", 403),
        ("//", "localhost:8000", 403),
        ("http://localhost:8000", "localhost:8000", 422),  # our page
        ("http://127.0.0.1:8000", "127.0.0.1:8000", 422),
    ],
)
def test_pages_of_others_may_not_call(origin: str, host: str, status: int) -> None:
    """A browser sends ``text/plain`` to any address, without asking before."""
    headers = {"origin": origin, "host": host, "content-type": "text/plain"}
    assert (
        make_client(host="0.0.0.0", allow_no_key=True).post("/v2/rerank", content="{}", headers=headers).status_code
        == status
    )


def test_long_headers_are_refused() -> None:
    assert make_client().get("/info", headers={"x": "a" * 20_000}).status_code == 431


def test_nothing_is_loaded_from_elsewhere() -> None:
    assert make_client().get("/docs").status_code == 404
    info = make_client(limits=Limits(documents=7)).get("/info").json()
    assert (info["model"], info["server"]["limits"]["documents"]) == ({"name": "a model"}, 7)
    assert make_client().get("/openapi.json").status_code == 200


@pytest.mark.parametrize(
    ("name", "values", "status"),
    [
        ("host", ["localhost:8000", "localhost:8000"], 400),
        ("host", ["localhost:8000", "evil.example"], 400),
        ("content-type", ["application/json", "text/plain"], 400),
        ("origin", ["http://localhost:8000", "http://evil.example"], 400),
        ("x-api-key", ["k", "k"], 400),
        ("content-length", ["2", "2"], 400),
        ("content-length", ["2", "3"], 400),
        ("content-length", ["+2"], 400),
        ("content-length", ["1_0"], 400),
        ("transfer-encoding", ["chunked", "identity"], 400),
        ("transfer-encoding", ["chunked"], 400),  # next to the content-length
        ("authorization", ["Bearer k", "Bearer k"], 401),
        ("accept", ["a/b", "c/d"], 422),  # may come in parts
    ],
)
def test_headers_that_can_be_read_in_two_ways_are_refused(name: str, values: list[str], status: int) -> None:
    """Also by the guard itself, whatever the server in front of it lets pass."""
    headers = {"host": "localhost:8000", "content-length": "2", "x-api-key": "k", "content-type": "application/json"}
    if name == "authorization":
        headers.pop("x-api-key")
    pairs = [(key.encode(), text.encode()) for key, text in headers.items() if key != name]
    pairs += [(name.encode(), text.encode()) for text in values]
    app = make_client(host="0.0.0.0", api_key="k").app
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v2/rerank", "headers": pairs, "query_string": b"", "state": {}}
    asyncio.run(app({**scope, "http_version": "1.1", "scheme": "http"}, receive, send))
    assert sent[0]["status"] == status, sent


def test_no_score_depends_on_the_order_of_the_request(client):
    documents, scores = ["the red book", "a green pear", "the red book", "who is who"], [0.5, 0.5, 0.5, 0.5]

    def by_document(order):
        edge = [order.index(0), order.index(3)]
        body = {"query": BODY["query"], "documents": [documents[i] for i in order], "scores": scores, "edges": [edge]}
        found = send(client, body).json()["results"]
        return {order[each["index"]]: each["relevance_score"] for each in found}

    expected = by_document([0, 1, 2, 3])
    for order in itertools.permutations(range(4)):
        assert by_document(order) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(("path", "name"), [("/v1/rerank", "top_n"), ("/v1/rerank", "top_k"), ("/rerank", "top_k")])
def test_names_of_the_number_of_results(client, path, name):
    assert len(send(client, {**BODY, name: 2}, path).json()["results"]) == 2


def test_both_names_of_the_number_of_results(client):
    assert send(client, {**BODY, "top_n": 2, "top_k": 2}).status_code == 200
    refused = send(client, {**BODY, "top_n": 2, "top_k": 3})
    assert refused.status_code == 422
    assert "`top_n` and `top_k` have the same meaning" in refused.json()["message"]


def test_a_limit_in_the_format_of_tei(client):
    texts = {"query": BODY["query"], "texts": BODY["documents"]}
    assert [each["index"] for each in send(client, {**texts, "top_n": 2}, "/rerank").json()] == [
        each["index"] for each in send(client, texts, "/rerank").json()[:2]
    ]
    assert send(client, {**texts, "top_n": 0}, "/rerank").status_code == 422
