"""Connections of clients, limited in number and in the time that they may keep us waiting.

uvicorn limits neither a connection that sends no request, nor a client that does not read its answer.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from graphrerank.serving.engine import Refusal
from graphrerank.serving.limits import Limits


class LimitedConnection(H11Protocol):
    """One connection over HTTP/1.1.

    Args:
        limits: Limits of connections.
        arguments: uvicorn's.
    """

    def __init__(self, *, limits: Limits, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._header_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse a connection beyond the limit; otherwise wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections and not self._replace_idle():
            body = Refusal(503, "too many connections; try again later").answer("").body
            head = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
            transport.write(head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            transport.close()
            return
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Read data; headers may not arrive byte by byte for long."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._has_request():
            self._stop_header_timer()
        elif self._header_timer is None:
            self._wait_for_headers()

    def pause_writing(self) -> None:
        """Give the client some time to read what was sent."""
        super().pause_writing()
        self._answer_timer = self.loop.call_later(self._limits.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on sending."""
        super().resume_writing()
        self._stop_answer_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_header_timer()
        self._stop_answer_timer()
        super().connection_lost(exc)

    def _replace_idle(self) -> bool:
        """Close the connection that has been idle longest; return False if there is none."""
        connections = [other for other in self.connections if isinstance(other, LimitedConnection)]
        idle = [other for other in connections if other is not self and not other._has_request()]
        if idle:
            min(idle, key=lambda other: other._idle_since).transport.abort()
        return bool(idle)

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_response_complete(self) -> None:
        """Be idle again."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _wait_for_headers(self) -> None:
        self._header_timer = self.loop.call_later(self._limits.header_seconds, self.transport.abort)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None
