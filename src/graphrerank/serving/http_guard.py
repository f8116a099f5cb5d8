"""ASGI middleware that runs before the routes: API key, host, origin, admission control and request log."""

import asyncio
import hmac
import ipaddress
import math
import re
import time
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from graphrerank.serving import metrics
from graphrerank.serving.auth import authenticate
from graphrerank.serving.engine import Refusal, error_response
from graphrerank.serving.fair_queue import Sender, peer_sender
from graphrerank.serving.json_log import log
from graphrerank.serving.settings import ServiceSettings

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
HEADER_BYTES = 16_384  # largest size of the headers of a request
# Headers that a proxy and the service could interpret differently if a request repeated them.
SINGLE_HEADERS = (
    "host",
    "content-length",
    "transfer-encoding",
    "content-type",
    "content-encoding",
    "origin",
    "x-api-key",
)
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r\n", re.IGNORECASE)


ID = "-" * 36  # placeholder for the request id in a cached response
REFUSED = metrics.ERRORS.labels("none", 429)
LINE_SECONDS = 1.0  # smallest time between two log lines about rejected requests


class RefusalLog:
    """Counts the requests that are rejected under overload, and logs at most one line per second.

    Args:
        clock: Monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0  # number of rejected requests since the last line
        self._next_line = -math.inf

    def record(self, uid: str) -> None:
        """Count a rejected request. The log line has the number of rejected requests since the previous line.

        Args:
            uid: Id of the rejected request.
        """
        REFUSED.inc()
        self._count += 1
        now = self._clock()
        if now >= self._next_line:
            log("requests refused", id=uid, status=429, refused=self._count)
            self._count, self._next_line = 0, now + LINE_SECONDS


@lru_cache(100)
def _refusal_bytes(message: str, retry_after: int | None) -> bytes:
    answer = error_response(Refusal(429, message, retry_after=retry_after), ID)
    headers = [*answer.raw_headers, (b"x-request-id", ID.encode()), (b"connection", b"close")]
    return b"\r\n".join([b"HTTP/1.1 429 Too Many Requests", *map(b": ".join, headers), b"", bytes(answer.body)])


class RefusingProtocol(HttpToolsProtocol):
    """uvicorn protocol that rejects requests under overload before they are parsed, which takes a fifth of the time.

    The function ``state.check_wait`` of the application raises the refusal, and its ``state.refusals`` logs it.
    Requests that arrive in several packets are rejected later, by :class:`HttpGuard`. The parser of a connection is
    created only when its first request is accepted.

    Args:
        arguments: Arguments of uvicorn's protocol.
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        state = arguments["config"].loaded_app.state
        self._check_wait: Callable[[Sender], None] = state.check_wait
        self._refusals: RefusalLog = state.refusals
        self.connections = arguments["server_state"].connections
        self.cycle = self.flow = None  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register a new connection.

        Args:
            transport: Transport of the connection.
        """
        self.transport = transport
        self._sender = peer_sender(transport.get_extra_info("peername"))
        self.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister a closed connection.

        Args:
            exc: Error that closed the connection, or None.
        """
        self.connections.discard(self)
        if self.flow is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reject a request under overload, otherwise parse it.

        Args:
            data: Bytes that were received.
        """
        try:
            if (self.cycle is None or self.cycle.response_complete) and _is_whole_request(data):
                self._check_wait(self._sender)
        except Refusal as refusal:
            uid = str(uuid4())
            answer = _refusal_bytes(refusal.detail, refusal.retry_after)
            self.transport.write(answer.replace(ID.encode(), uid.encode()))
            self.transport.close()
            self._refusals.record(uid)
            return
        if self.flow is None:
            transport = self.transport
            super().__init__(**self._arguments)  # resets the transport
            super().connection_made(transport)
        super().data_received(data)


def _is_whole_request(data: bytes) -> bool:
    """Return whether the bytes are exactly one complete request with a body."""
    end = data.find(b"\r\n\r\n") if data.startswith((b"POST ", b"DELETE ")) else -1
    length = CONTENT_LENGTH.search(data, 0, end + 2) if end > 0 else None
    return length is not None and len(data) == end + 4 + int(length[1])


@dataclass(eq=False)
class HttpGuard:
    """Middleware that checks and logs requests.

    A service that only accepts local connections requires a local name or an IP address in the header ``Host``. This
    protects against web pages whose host name resolves to this machine (DNS rebinding).

    Unless a path is one of ``open_paths``, requests must send the key as ``X-API-Key: KEY``, or as
    ``Authorization: Bearer KEY`` if the service does not use tokens of callers.

    Attributes:
        app: Application behind the middleware.
        settings: Settings of the service.
        open_paths: Paths that need no key.
        check_wait: Function that raises a refusal if a request of a sender would wait too long.
        refusals: Log of the rejected requests.
        logs_requests: Whether each request is logged.
    """

    app: ASGIApp
    _: KW_ONLY
    settings: ServiceSettings
    open_paths: Sequence[str]
    check_wait: Callable[[Sender], None]
    refusals: RefusalLog
    logs_requests: bool = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or reject a request. Log and count the request when it is answered."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["uid"], state["arrival"] = str(uuid4()), time.monotonic()
        state["sender"] = peer_sender(scope.get("client"))

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", state["uid"].encode())]
            await send(message)

        try:
            try:
                self._check(scope, Headers(scope=scope))
            except Refusal as refusal:  # uvicorn discards the body
                await error_response(refusal, state["uid"])(scope, receive, answer)
            else:
                await self.app(scope, receive, answer)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        state = scope["state"]
        if status == 429:
            self.refusals.record(state["uid"])
            return
        route = getattr(scope.get("route"), "path", "none")  # the path in the request may contain private data
        metrics.STAGE_SECONDS.labels("total").observe(seconds)
        if status >= 400:
            metrics.ERRORS.labels(route, status).inc()
        method = scope["method"] if scope["method"] in METHODS else "?"
        fields = {"id": state["uid"], "method": method, "route": route, "status": status}
        if self.logs_requests:
            log("request", **fields, seconds=round(seconds, 6), **state.get("counts", {}))

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Check everything known before the body is read.

        The waiting time comes first because it rejects most requests under overload.
        """
        if scope["method"] in ("POST", "DELETE"):
            self.check_wait(scope["state"]["sender"])
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            raise Refusal(431, f"headers: must have at most {HEADER_BYTES} bytes")
        _check_single(scope["headers"])
        if not self._is_authorized(scope["path"], headers):
            header = "Authorization: Bearer KEY" if self._bears_key else "X-API-Key: KEY"
            raise Refusal(401, f"invalid or missing key, send {header}")
        if self.settings.is_local and not _is_local_name(f"//{headers.get('host', '')}"):
            raise Refusal(403, "the header `host` must be a local name because this service is for this machine only")
        if not self._may_call(headers):
            raise Refusal(403, "this web page may not call the service, add its origin to `cors_origins`")
        if scope["path"] not in self.open_paths:
            address = scope["client"][0] if scope.get("client") else None
            scope["state"]["caller"] = replace(authenticate(self.settings.permissions, headers), address=address)
        if int(headers.get("content-length", "0")) > (most := self.settings.limits.body_bytes):
            raise Refusal(413, f"body: must have at most {most} bytes")

    def _is_authorized(self, path: str, headers: Headers) -> bool:
        if not self.settings.api_key or path in self.open_paths:
            return True
        if len(headers.getlist("authorization")) > 1:
            return False
        scheme, _, token = headers.get("authorization", "").partition(" ")
        key = headers.get("x-api-key") or (token if scheme.lower() == "bearer" and self._bears_key else "")
        return hmac.compare_digest(key.encode("latin-1"), self.settings.api_key.encode())

    @property
    def _bears_key(self) -> bool:
        return self.settings.permissions.algorithm is None

    def _may_call(self, headers: Headers) -> bool:
        """Return False for a request of a foreign web page.

        A browser may send such a request without a preflight request.
        """
        origin, allowed = headers.get("origin"), self.settings.cors_origins
        if origin is None or origin in allowed or "*" in allowed:
            return True
        return origin.partition("//")[2] == headers.get("host") and _is_local_name(origin)


def _check_single(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Reject ambiguous headers, because a proxy could decide by one of them and the service by another."""
    values = dict(headers)
    if len(values) < len(headers):
        counts = Counter(name for name, _ in headers)
        for name in SINGLE_HEADERS:
            if (count := counts[name.encode()]) > 1:
                raise Refusal(400, f"headers: must have at most one `{name}`, got {count}")
    length = values.get(b"content-length")
    if length is None:
        return
    if b"transfer-encoding" in values:
        raise Refusal(400, "headers: must have `content-length` or `transfer-encoding`, got both")
    if not (length.isdigit() and len(length) <= 18):
        raise Refusal(400, "headers: `content-length` must be a number")


def _is_local_name(url: str) -> bool:
    """Return whether the host of a URL is ``localhost`` or an IP address."""
    try:
        name = urlsplit(url).hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False
