"""The application of an HTTP process, without workers."""

import warnings

import pytest

from graphrerank.cli.http_service import RERANK
from graphrerank.serving import Limits, ServiceSettings
from graphrerank.serving.dispatcher import Dispatcher
from graphrerank.serving.http_process import _allow_files, create_app

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette asks for httpx2 where there is httpx only
    from fastapi.testclient import TestClient

PAGE = {"origin": "https://page.example"}


def make_client(*, is_ending: bool = False, **settings: object) -> TestClient:
    chosen = ServiceSettings(**settings)  # type: ignore[arg-type]
    dispatcher = Dispatcher(chosen.limits, batch_requests=1, batch_candidates=1)
    app = create_app([RERANK], dispatcher, chosen, info={"name": "a model"}, is_ending=lambda: is_ending)
    return TestClient(app)


def test_it_is_not_ready_without_workers() -> None:
    client = make_client()
    assert client.get("/ready").status_code == 503
    assert client.get("/health").status_code == 200


def test_what_it_says_of_itself() -> None:
    info = make_client(limits=Limits(documents=7)).get("/info").json()
    assert info["model"] == {"name": "a model"}
    assert info["server"]["limits"]["documents"] == 7


def test_connections_are_closed_at_the_end() -> None:
    assert make_client(is_ending=True).get("/health").headers["connection"] == "close"
    assert "connection" not in make_client().get("/health").headers


def test_pages_that_may_call_are_told_so_without_a_key() -> None:
    client = make_client(cors_origins=("https://page.example",), api_key="key")
    asked = client.options("/v2/rerank", headers={**PAGE, "access-control-request-method": "POST"})
    assert asked.headers["access-control-allow-origin"] == "https://page.example"
    assert client.post("/v2/rerank", json={}, headers=PAGE).status_code == 401
    assert client.post("/v2/rerank", json={}, headers={**PAGE, "x-api-key": "key"}).status_code == 422
    assert make_client().post("/v2/rerank", json={}, headers=PAGE).status_code == 403


def test_no_worker_in_time() -> None:
    client = make_client(limits=Limits(request_seconds=0.1))
    response = client.post("/v2/rerank", json={"query": "q", "documents": ["a"]})
    assert response.status_code == 504
    assert response.json()["id"] == response.headers["x-request-id"]


def test_too_few_files() -> None:
    with pytest.raises(ValueError, match=r"`limits\.connections` needs 1000000000000 open files"):
        _allow_files(10**12)
