"""The application of an HTTP process, without workers."""

import asyncio
import signal
import socket
import warnings
from collections.abc import Awaitable, Callable
from threading import Event

import pytest
import uvicorn
import uvloop

from graphrerank.cli.http_service import RERANK
from graphrerank.serving.dispatcher import Dispatcher
from graphrerank.serving.http_process import _allow_files, _Server, create_app
from graphrerank.serving.limits import Limits
from graphrerank.serving.settings import ServiceSettings

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


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_is_not_accepted_when_the_end_begins_is_answered(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def app(scope: object, receive: object, send: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        server = _Server(uvicorn.Config(app, http="h11", lifespan="off", log_config=None), listener, Event())

        async def connect_and_end() -> bytes:
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                await asyncio.sleep(0.01)
            with socket.create_connection(listener.getsockname()) as client:  # the event loop sees it later
                client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                server.handle_exit(signal.SIGTERM, None)
                answer = await asyncio.to_thread(client.recv, 1000)
            await serving
            return answer

        with asyncio.Runner(loop_factory=new_loop) as runner:
            assert runner.run(connect_and_end()).startswith(b"HTTP/1.1 200")


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
