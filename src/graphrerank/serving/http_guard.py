"""Middleware before the routes: the key, the size of a body, the time to send it, and the log.

It is plain ASGI, as it needs no parsed request. It reads the whole body, so that neither a long nor a slow one reaches
a worker.
"""

import asyncio
import hmac
import time
from collections.abc import MutableMapping
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphrerank.serving.engine import Answer
from graphrerank.serving.json_log import log
from graphrerank.serving.limits import Limits
from graphrerank.serving.metrics import metrics

OPEN_ROUTES = ("/health", "/ready")  # without a key, which load balancers do not have


class HttpGuard:
    """Middleware that checks and logs requests.

    Args:
        app: The guarded application.
        limits: Limits of bodies.
        api_key: Key required in ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``; None for none.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits, api_key: str | None = None) -> None:
        self._app = app
        self._limits = limits
        self._api_key = api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or refuse a request; log and count it when it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["uid"] = str(uuid4())

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
            fields = {"id": state["uid"], "method": scope["method"], "route": route, "status": status}
            log("request", **fields, seconds=round(seconds, 6), **state.get("counts", {}))

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if not self._is_authorized(scope["path"], headers):
            await _respond(send, Answer.refuse(401, "the key is missing or wrong: Authorization: Bearer KEY"))
            return
        declared = int(headers.get("content-length", "0"))
        too_long = Answer.refuse(413, f"body: must have at most {self._limits.body_bytes} bytes")
        if headers.get("expect") and declared > self._limits.body_bytes:
            await _respond(send, too_long)
            return
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await self._read(receive)
        except TimeoutError:
            too_slow = Answer.refuse(408, f"body: must arrive within {self._limits.body_seconds:g} seconds")
            await _respond(send, too_long if declared > self._limits.body_bytes else too_slow)
            return
        if body is None:
            await _respond(send, too_long)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """Read the body to its end, as many clients read the answer only then; return None if it is too long."""
        chunks, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            size += len(message.get("body", b""))
            if size <= self._limits.body_bytes:
                chunks.append(message.get("body", b""))
            else:
                chunks.clear()
            if not message.get("more_body", False):
                return b"".join(chunks) if size <= self._limits.body_bytes else None

    def _is_authorized(self, path: str, headers: Headers) -> bool:
        if self._api_key is None or path in OPEN_ROUTES:
            return True
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(key.encode("latin-1"), self._api_key.encode())


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that yields a body that was already read, then what follows it."""
    is_sent = False

    async def replay() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _respond(send: Send, answer: Answer) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
