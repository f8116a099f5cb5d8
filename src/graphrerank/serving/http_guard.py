"""Middleware before the routes: key, origin, admission, the size of a body and the time to send it, and the log.

It is plain ASGI, as it needs no parsed request. It reads the whole body, so that neither a long nor a slow one reaches
a worker.
"""

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphrerank.serving.engine import Refusal
from graphrerank.serving.json_log import log
from graphrerank.serving.limits import Limits
from graphrerank.serving.metrics import metrics

OPEN_ROUTES = ("/health", "/ready")  # without a key, which load balancers do not have
PIECE = 65_536  # bytes of an answer that are handed to the connection at once


class HttpGuard:
    """Middleware that checks and logs requests.

    Args:
        app: The guarded application.
        limits: Limits of bodies.
        api_key: Key required in ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``; None for none.
        open_paths: Paths that need no key.
        origins: Web pages that may call, besides those of this service on a local name.
        admit: Returns a refusal if a further request would wait too long.
        is_ending: Returns whether the service ends, so that connections are to be closed.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        api_key: str | None = None,
        open_paths: Sequence[str] = OPEN_ROUTES,
        origins: Sequence[str] = (),
        admit: Callable[[], Refusal | None] = lambda: None,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        self._limits = limits
        self._api_key = api_key or None  # an empty variable of the environment is none
        self._open_paths = frozenset(open_paths)
        self._origins = frozenset(origins)
        self._admit = admit
        self._is_ending = is_ending
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or refuse a request; log and count it when it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["uid"], state["arrival"] = str(uuid4()), time.monotonic()

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", state["uid"].encode())]
                if self._is_ending():
                    message["headers"].append((b"connection", b"close"))
            await _send_in_pieces(send, message)

        try:
            await self._forward(scope, receive, answer)
        except ClientGoneError:
            status = 499  # logged only
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "none")  # the client's own path may contain anything
            metrics().stage_seconds.labels("total").observe(seconds)
            if status >= 400:
                metrics().errors.labels(route, status).inc()
            fields = {"id": state["uid"], "method": _method(scope), "route": route, "status": status}
            log("request", **fields, seconds=round(seconds, 6), **state.get("counts", {}))

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, uid = Headers(scope=scope), scope["state"]["uid"]
        refusal = self._refusal(scope, headers)
        body = _Body(self._limits.body_bytes if refusal is None else 0)
        try:
            if not (headers.get("expect") and (refusal or self._is_too_long(headers))):
                fault = await self._read(body, receive, headers)
                refusal = refusal or fault
            elif refusal is None:
                refusal = self._too_long()
            if refusal is None:
                await self._app(scope, _replay(body.take(), receive), send)
            else:
                await _respond(send, refusal, uid)
        finally:
            self._held_bytes -= body.held

    async def _read(self, body: "_Body", receive: Receive, headers: Headers) -> Refusal | None:
        """Read a body to its end, as many clients read the answer only then."""
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for count in body.read(receive):
                    self._held_bytes += count
                    if self._held_bytes > self._limits.held_bytes:
                        self._held_bytes -= body.drop()
                        body.is_refused = True
        except TimeoutError:
            if self._is_too_long(headers):
                return self._too_long()
            return Refusal(408, f"body: must arrive within {self._limits.body_seconds:g} seconds")
        if body.is_refused:
            return Refusal(503, "too many bytes are being received; try again later", retry_after=1)
        return self._too_long() if body.is_too_long else None

    def _is_too_long(self, headers: Headers) -> bool:
        return int(headers.get("content-length", "0")) > self._limits.body_bytes

    def _too_long(self) -> Refusal:
        return Refusal(413, f"body: must have at most {self._limits.body_bytes} bytes")

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Check everything that is known before the body."""
        if not self._is_authorized(scope["path"], headers):
            return Refusal(401, "the key is missing or wrong: Authorization: Bearer KEY")
        if not self._may_call(headers):
            return Refusal(403, "this web page may not call; `cors_origins` names those that may")
        return self._admit() if scope["method"] in ("POST", "DELETE") else None

    def _is_authorized(self, path: str, headers: Headers) -> bool:
        if self._api_key is None or path in self._open_paths:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        key = headers.get("x-api-key") or (token if scheme.lower() == "bearer" else "")
        return hmac.compare_digest(key.encode("latin-1"), self._api_key.encode())

    def _may_call(self, headers: Headers) -> bool:
        """Return False for a request of a foreign web page, which a browser sends without asking us first."""
        origin = headers.get("origin")
        if origin is None or origin in self._origins or "*" in self._origins:
            return True
        address = urlsplit(origin).netloc
        return address == headers.get("host") and _is_local_name(urlsplit(origin).hostname or "")


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class _Body:
    """A body as it arrives, kept up to a number of bytes.

    Attributes:
        held: Bytes that were counted as held.
        is_too_long: Whether it has more bytes than may be kept.
        is_refused: Whether too many bytes were held to keep it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._chunks: list[bytes] = []
        self._size = 0
        self.held = 0
        self.is_too_long = False
        self.is_refused = False

    async def read(self, receive: Receive) -> Any:
        """Read to the end; yield the number of further bytes kept, for each chunk."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            chunk = message.get("body", b"")
            self._size += len(chunk)
            if self._size > self._most:
                self.is_too_long = True
                yield -self.drop()
            elif chunk:
                self._chunks.append(chunk)
                self.held += len(chunk)
                yield len(chunk)
            if not message.get("more_body", False):
                return

    def drop(self) -> int:
        """Keep nothing from now on; return the number of bytes that were held."""
        held, self.held, self._most = self.held, 0, 0
        self._chunks.clear()
        return held

    def take(self) -> bytes:
        """Return the whole body, once."""
        chunks, self._chunks = self._chunks, []
        return b"".join(chunks)


def _is_local_name(name: str) -> bool:
    try:
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH") else "?"


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that yields a body that was already read, then what follows it."""
    unread: list[bytes] = [body]

    async def replay() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replay


async def _send_in_pieces(send: Send, message: Message) -> None:
    """Send a long body in pieces, each when the client has received most of those before."""
    body = message.get("body", b"")
    if len(body) <= PIECE:
        await send(message)
        return
    for start in range(0, len(body), PIECE):
        more = message.get("more_body", False) or start + PIECE < len(body)
        await send({"type": "http.response.body", "body": body[start : start + PIECE], "more_body": more})


async def _respond(send: Send, refusal: Refusal, uid: str) -> None:
    answer = refusal.answer(uid)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer.body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    if refusal.status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
