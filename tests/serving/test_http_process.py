"""The application of an HTTP process, without workers."""

import asyncio
import signal
import socket
import warnings
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from threading import Event

import pytest
import uvicorn
import uvloop

from graphrerank.cli.http_service import RERANK
from graphrerank.serving.dispatcher import Dispatcher
from graphrerank.serving.http_process import LimitedConnection, _allow_files, _Server, create_app
from graphrerank.serving.limits import Limits
from graphrerank.serving.settings import ServiceSettings

REQUEST = b"GET /0 HTTP/1.1\r\nhost: x\r\n\r\n"


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


class Application:
    """Answers with as many bytes as the path says, once it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.gone = 0

    async def __call__(self, scope, receive, send):
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"transfer-encoding", b"chunked")]})
        for _ in range(int(scope["path"].strip("/") or 1)):
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def serving(**limits):
    application = Application()
    config = uvicorn.Config(
        application,
        http=partial(LimitedConnection, limits=Limits(**limits)),
        ws="none",
        lifespan="off",
        log_config=None,
        port=0,
        h11_max_incomplete_event_size=16_384,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield partial(asyncio.open_connection, "127.0.0.1", port), server, application
    finally:
        server.should_exit = server.force_exit = True
        await task


async def read_to_end(reader):
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""


def play(scenario, **limits):
    async def run():
        async with serving(**limits) as (connect, server, application):
            await scenario(connect, server, application)

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"GET /0 HTTP/1.1\r\nhost:", REQUEST + b"GET /"])
def test_a_connection_without_a_whole_request_is_closed(sent):
    async def scenario(connect, server, _):
        reader, writer = await connect()
        writer.write(sent)
        received = await read_to_end(reader)
        assert received.startswith(b"HTTP/1.1 200") == (sent[:5] == REQUEST[:5] and len(sent) > len(REQUEST))
        await asyncio.sleep(0.05)
        assert not server.server_state.connections
        writer.close()

    play(scenario, header_seconds=0.2)


def test_a_request_that_takes_long_is_not_disturbed():
    async def scenario(connect, server, application):
        application.may_answer.clear()
        reader, writer = await connect()
        writer.write(REQUEST)
        await asyncio.sleep(0.4)
        application.may_answer.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()

    play(scenario, header_seconds=0.1)


def test_a_client_that_does_not_read_is_left():
    async def scenario(connect, server, _):
        reader, writer = await connect()
        reader._transport.pause_reading()
        writer.write(b"GET /500 HTTP/1.1\r\nhost: x\r\n\r\n")  # 32 MB
        for _ in range(100):
            await asyncio.sleep(0.05)
            if server.server_state.total_requests or not server.server_state.connections:
                break
        assert not server.server_state.connections
        writer.close()

    play(scenario, answer_seconds=0.3)


def test_idle_connections_make_room_for_others():
    async def scenario(connect, server, application):
        first_reader, first = await connect()
        first.write(REQUEST)
        await first_reader.readuntil(b"0\r\n\r\n")
        application.may_answer.clear()
        busy = [await connect() for _ in range(2)]
        for _, writer in busy:
            writer.write(REQUEST)
        await asyncio.sleep(0.1)
        another_reader, another = await connect()  # in the place of the first, which is idle
        another.write(REQUEST)
        assert await read_to_end(first_reader) == b""
        await asyncio.sleep(0.1)
        refused_reader, refused = await connect()  # nobody is idle
        assert (await read_to_end(refused_reader)).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        application.may_answer.set()
        for reader in (*(reader for reader, _ in busy), another_reader):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for writer in (first, another, refused, *(writer for _, writer in busy)):
            writer.close()

    play(scenario, connections=3)


def test_the_connection_that_was_idle_longest_makes_room():
    async def scenario(connect, server, application):
        first, second, third = [await connect() for _ in range(3)]
        for reader, writer in (second, first, third):  # the order of their last answers
            writer.write(REQUEST)
            await reader.readuntil(b"0\r\n\r\n")
            await asyncio.sleep(0.02)
        fourth = await connect()
        assert await read_to_end(second[0]) == b""
        for reader, writer in (first, third, fourth):
            writer.write(REQUEST)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        for _, writer in (first, second, third, fourth):
            writer.close()

    play(scenario, connections=3)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000,
        b"GET / HTTP/1.1\r\na: " + b"b" * 100_000,
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 10_000,
    ],
    ids=["headers", "a header", "trailers"],
)
def test_headers_and_trailers_have_a_limit(sent):
    async def scenario(connect, server, application):
        application.may_answer.clear()
        reader, writer = await connect()
        writer.write(sent)
        assert (await read_to_end(reader)).startswith(b"HTTP/1.1 400")
        application.may_answer.set()
        writer.close()

    play(scenario)
