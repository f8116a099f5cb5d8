"""Servers on this machine: of any handler, and of bytes, which can cut its answers short."""

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint(BaseHTTPRequestHandler):
    """Answers JSON with JSON, and tells whoever is to try again to do so at once."""

    def do_POST(self) -> None:
        status, answer = self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(content)

    def reply(self, body: Any) -> tuple[int, Any]:
        """Return the status and the answer to what was sent."""
        raise NotImplementedError

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # a client beyond the 5 that are usual waits a second before it tries again


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests until the block ends, at the address that is given."""
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving_app(make_app: Callable[[int], Any]) -> Iterator[str]:
    """Serve an ASGI application in a thread until the block ends, at the address that is given.

    ``make_app`` gets the port.
    """
    import uvicorn

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # a client that comes before the server has started waits for it
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(make_app(port), log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(30)


@dataclass
class Web:
    """What the server sends, and what it was asked for."""

    files: dict[str, bytes]  # by path
    cut: list[int] = field(default_factory=list)  # bytes after which the next answers end, one after the other
    requests: int = 0  # so far
    url: str = ""


@contextmanager
def serving(files: dict[str, bytes], *, commit: str = "") -> Iterator[Web]:
    """Serve files until the block ends; those of a commit as the Hugging Face hub does."""
    web = Web(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.requests += 1
            content = web.files.get(self.path.partition("?")[0])
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content[: web.cut.pop(0) if web.cut else len(content)])

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as web.url:
        yield web
