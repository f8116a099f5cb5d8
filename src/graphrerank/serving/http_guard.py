"""Middleware before the routes: key, origin, admission, the size of a body, and the log.

It is plain ASGI and reads the whole body, so that no engine waits for one. Slow clients, connections and TLS are a
proxy's (docs/serving.md).
"""

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
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
HEADER_BYTES = 16_384  # of a request


class HttpGuard:
    """Middleware that checks and logs requests.

    Args:
        app: The guarded application.
        limits: Limits of bodies.
        api_key: Key required in ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``; None for none.
        open_paths: Paths that need no key.
        origins: Web pages that may call, besides those of this service on a local name.
        local_only: Whether the ``Host`` must be a local name or an address: a foreign page whose name is made to
            resolve to this machine sends another.
        admit: Returns a refusal if a further request would wait too long.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        api_key: str | None = None,
        open_paths: Sequence[str] = OPEN_ROUTES,
        origins: Sequence[str] = (),
        local_only: bool = False,
        admit: Callable[[], Refusal | None] = lambda: None,
    ) -> None:
        self._app = app
        self._limits = limits
        self._api_key = api_key or None  # an empty variable of the environment is none
        self._open_paths = frozenset(open_paths)
        self._origins = frozenset(origins)
        self._local_only = local_only
        self._admit = admit
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
            await send(message)

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
            method = scope["method"] if scope["method"] in METHODS else "?"
            fields = {"id": state["uid"], "method": method, "route": route, "status": status}
            log("request", **fields, seconds=round(seconds, 6), **state.get("counts", {}))

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope, Headers(scope=scope))
        body, held, more = bytearray(), 0, refusal is None
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                chunk, more = message.get("body", b""), message.get("more_body", False)
                held += len(chunk)
                self._held_bytes += len(chunk)
                if held > self._limits.body_bytes:
                    refusal, more = Refusal(413, f"body: must have at most {self._limits.body_bytes} bytes"), False
                elif self._held_bytes > self._limits.held_bytes:
                    refusal, more = Refusal(503, "too many bytes are held; try again later", retry_after=1), False
                body += chunk
            if refusal is None:
                await self._app(scope, _replay(bytes(body), receive), send)
            else:  # the server discards the rest of the body
                await refusal.response(scope["state"]["uid"])(scope, receive, send)
        finally:
            self._held_bytes -= held

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Check everything that is known before the body."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            return Refusal(431, f"headers: must have at most {HEADER_BYTES} bytes")
        if not self._is_authorized(scope["path"], headers):
            return Refusal(401, "the key is missing or wrong: Authorization: Bearer KEY")
        if self._local_only and not _is_local_name(_host(f"//{headers.get('host', '')}")):
            return Refusal(403, "the request is for another host; this service is for this machine alone")
        if not self._may_call(headers):
            return Refusal(403, "this web page may not call; `cors_origins` names those that may")
        if int(headers.get("content-length", "0")) > self._limits.body_bytes:
            return Refusal(413, f"body: must have at most {self._limits.body_bytes} bytes")
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
        return origin.partition("//")[2] == headers.get("host") and _is_local_name(_host(origin))


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


def _host(url: str) -> str:
    """Return the name of an address; an empty one where it is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_local_name(name: str) -> bool:
    try:
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that yields a body that was already read, then what follows it."""
    unread = [body]

    async def replay() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replay
