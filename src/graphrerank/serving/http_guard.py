"""Middleware before the routes, in plain ASGI: key, host, origin, admission, and the log."""

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
from graphrerank.serving.engine import Refusal, error_response
from graphrerank.serving.fair_queue import Sender, peer_sender
from graphrerank.serving.json_log import log
from graphrerank.serving.settings import ServiceSettings

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
HEADER_BYTES = 16_384  # of a request
# headers that parties between a client and the service could read in two ways if a request had two of them
SINGLE_HEADERS = ("host", "content-length", "transfer-encoding", "content-type", "origin", "x-api-key")
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r\n", re.IGNORECASE)


ID = "-" * 36  # in a refusal that is kept, in the place of a request's
REFUSED = metrics.ERRORS.labels("none", 429)
LINE_SECONDS = 1.0  # between two lines about refusals


class RefusalLog:
    """Count and log of the requests that are refused under overload, one line a second at most.

    Args:
        clock: Monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0  # since the last line
        self._next_line = -math.inf

    def record(self, uid: str) -> None:
        """Count a refusal. The line says how many there were since the last one.

        Args:
            uid: Id of the refused request.
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
    """uvicorn's protocol; under overload it refuses whole requests before they are parsed, at a fifth of the time.

    The application's ``state.check_wait`` raises the refusal, and its ``state.refusals`` logs it. Requests that arrive
    in parts are refused by the guard. A connection gets its parser when its first request is not refused.
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments  # uvicorn's
        state = arguments["config"].loaded_app.state
        self._check_wait: Callable[[Sender], None] = state.check_wait
        self._refusals: RefusalLog = state.refusals
        self.connections = arguments["server_state"].connections
        self.cycle = self.flow = None  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note the connection."""
        self.transport = transport
        self._sender = peer_sender(transport.get_extra_info("peername"))
        self.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.connections.discard(self)
        if self.flow is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Refuse a request, or parse it."""
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
            super().__init__(**self._arguments)  # forgets it
            super().connection_made(transport)
        super().data_received(data)


def _is_whole_request(data: bytes) -> bool:
    """Return whether these bytes are a request with a body, and nothing after it."""
    end = data.find(b"\r\n\r\n") if data.startswith((b"POST ", b"DELETE ")) else -1
    length = CONTENT_LENGTH.search(data, 0, end + 2) if end > 0 else None
    return length is not None and len(data) == end + 4 + int(length[1])


@dataclass(eq=False)
class HttpGuard:
    """Middleware that checks and logs requests.

    A service for this machine alone requires a local name or an address as ``Host``: a foreign page whose name is made
    to resolve to this machine sends another.
    Requests send the key as ``X-API-Key: KEY`` or, unless tokens of callers are read, as ``Authorization: Bearer KEY``,
    but for ``open_paths``.

    Attributes:
        app: The application behind the middleware.
        settings: Settings of the service.
        open_paths: Paths that need no key.
        check_wait: Raises a refusal if a sender's request would wait too long.
        refusals: Log of these refusals.
    """

    app: ASGIApp
    _: KW_ONLY
    settings: ServiceSettings
    open_paths: Sequence[str]
    check_wait: Callable[[Sender], None]
    refusals: RefusalLog

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or refuse a request; log and count it when it is answered."""
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
            except Refusal as refusal:  # the server discards the body
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
        route = getattr(scope.get("route"), "path", "none")  # the client's own path may contain anything
        metrics.STAGE_SECONDS.labels("total").observe(seconds)
        if status >= 400:
            metrics.ERRORS.labels(route, status).inc()
        method = scope["method"] if scope["method"] in METHODS else "?"
        fields = {"id": state["uid"], "method": method, "route": route, "status": status}
        log("request", **fields, seconds=round(seconds, 6), **state.get("counts", {}))

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Check everything that is known before the body; the wait first, as under overload most requests end there."""
        if scope["method"] in ("POST", "DELETE"):
            self.check_wait(scope["state"]["sender"])
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            raise Refusal(431, f"headers: must have at most {HEADER_BYTES} bytes")
        _check_single(scope["headers"])
        if not self._is_authorized(scope["path"], headers):
            header = "Authorization: Bearer KEY" if self._bears_key else "X-API-Key: KEY"
            raise Refusal(401, f"the key is missing or wrong: {header}")
        if self.settings.is_local and not _is_local_name(f"//{headers.get('host', '')}"):
            raise Refusal(403, "the request is for another host; this service is for this machine alone")
        if not self._may_call(headers):
            raise Refusal(403, "this web page may not call; `cors_origins` names those that may")
        if scope["path"] not in self.open_paths:
            address = scope["client"][0] if scope.get("client") else None
            scope["state"]["caller"] = replace(self.settings.permissions.caller(headers), address=address)
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
        """Return False for a request of a foreign web page, which a browser sends without a preflight request."""
        origin, known = headers.get("origin"), self.settings.cors_origins
        if origin is None or origin in known or "*" in known:
            return True
        return origin.partition("//")[2] == headers.get("host") and _is_local_name(origin)


def _check_single(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse headers that can be read in two ways: a proxy might decide by one of them and the service by another."""
    values = dict(headers)
    if len(values) < len(headers):
        counts = Counter(name for name, _ in headers)
        for name in SINGLE_HEADERS:
            if (count := counts[name.encode()]) > 1:
                raise Refusal(400, f"headers: must have one `{name}`, got {count}")
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
