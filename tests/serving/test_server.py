"""The application of a process."""

import pytest

from graphrerank.serving.limits import Limits
from tests.support.client import make_client

PAGE = {"origin": "https://page.example"}


def test_info() -> None:
    info = make_client(limits=Limits(documents=7)).get("/info").json()
    assert info["model"] == {"name": "a model"}
    assert info["server"]["limits"]["documents"] == 7


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
    assert make_client("http://rerank:8000", host="0.0.0.0").get("/info").status_code == 200


@pytest.mark.parametrize("origin", ["http://[", "http://localhost:80000000", "//", "http://[::1"])
def test_an_origin_that_is_no_address_is_refused(origin: str) -> None:
    assert make_client().get("/info", headers={"origin": origin}).status_code == 403


def test_long_headers_are_refused() -> None:
    assert make_client().get("/info", headers={"x": "a" * 20_000}).status_code == 431


def test_nothing_is_loaded_from_elsewhere() -> None:
    assert make_client().get("/docs").status_code == 404
    assert make_client().get("/openapi.json").status_code == 200
