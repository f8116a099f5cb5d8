"""What an engine has unless it overrides it, and the route through which it is asked."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi import Request, Response

from graphrerank.serving.engine import Check, Engine, Refusal, answer_all, error_response
from graphrerank.serving.http_guard import _check_single
from graphrerank.serving.price_measurement import measure_prices
from graphrerank.serving.routes import RequestRoute


class Echo(Engine[str]):
    """The smallest engine."""

    def answer(self, jobs: Mapping[str, str], check: Check = lambda: None) -> Mapping[str, Any]:
        return {uid: job.upper() for uid, job in jobs.items()}


def test_an_engine_needs_only_an_answer() -> None:
    engine = Echo()
    engine.warm_up()
    assert (engine.encoder, engine.corpus, engine.probes()) == (None, None, ())
    assert answer_all(engine, {"a": "x"}) == {"a": "X"}
    assert measure_prices({"echo": engine}, lambda: 0.0) == {}  # those of the defaults hold


def test_a_class_without_an_answer_is_no_engine() -> None:
    class Silent(Engine[str]):
        pass

    with pytest.raises(TypeError, match="answer"):
        Silent()  # type: ignore[abstract]


def test_a_request_route_calls_its_endpoint_with_the_request() -> None:
    async def endpoint(request: Request) -> Response:
        return Response(request.url.path)

    route = RequestRoute("/a", endpoint, methods=["POST"])
    request = Request({"type": "http", "method": "POST", "path": "/a", "headers": [], "query_string": b""})
    assert asyncio.run(route.get_route_handler()(request)).body == b"/a"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([(b"host", b"a"), (b"host", b"b")], "must have at most one `host`, got 2"),
        ([(b"content-length", b"1"), (b"transfer-encoding", b"chunked")], "got both"),
        ([(b"content-length", b"+1")], "must be a number"),
        ([(b"content-length", b"1" * 19)], "must be a number"),
        ([(b"content-length", "\u0661".encode())], "must be a number"),
    ],
)
def test_headers_that_can_be_read_in_two_ways(headers: list[tuple[bytes, bytes]], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        _check_single(headers)


def test_other_headers_may_come_twice() -> None:
    _check_single([(b"accept", b"a"), (b"accept", b"b"), (b"content-length", b"12")])


def test_only_refusals_have_details() -> None:
    refusal = Refusal(422, "bad", [{"loc": ["a"], "msg": "bad", "type": "value_error"}])
    assert b'"loc":["a"]' in bytes(error_response(refusal, "u").body)
