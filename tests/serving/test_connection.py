"""Connections over real sockets, with an application that answers when it is told to."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest
import uvicorn

from graphrerank.serving.connection import LimitedConnection
from graphrerank.serving.limits import Limits

REQUEST = b"GET /0 HTTP/1.1\r\nhost: x\r\n\r\n"


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
