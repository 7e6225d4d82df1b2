"""Connections of slow, stuck and numerous clients: uvicorn's HTTP protocol with limits of time and number.

uvicorn itself waits for ever for the rest of a request's head, and for a client that does not read its answer. Here a
head must be complete within the time of a request, an answer must be taken within the same time, and beyond so many
connections a new one is told so and closed. Called by `server.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: 65\r\n\r\n"
    b'{"type":"about:blank","title":"Service Unavailable","status":503}'
)


def guarded_protocol(request_seconds: float, max_connections: int) -> type[H11Protocol]:
    """The protocol class for uvicorn, with its limits."""

    class Guarded(GuardedProtocol):
        head_seconds = request_seconds
        connections_limit = max_connections

    return Guarded


class GuardedProtocol(H11Protocol):
    """One connection. On the event loop only."""

    head_seconds: float
    connections_limit: int

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        """As uvicorn makes it."""
        super().__init__(*arguments, **settings)
        self._is_refused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for a head; refuse when there are too many connections."""
        self._is_refused = len(self.connections) >= self.connections_limit
        if self._is_refused:
            self.transport = transport
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take in what came; a head that is not complete yet has its time."""
        if self._is_refused:
            return
        super().data_received(data)
        if self._is_answering():
            self._cancel_head_timer()
        else:
            self._expect_head()

    def on_response_complete(self) -> None:
        """The answer is written; what the client has not taken of it has its time."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size() > 0 and self._answer_timer is None:
            self._answer_timer = self.loop.call_later(self.head_seconds, self._abort_unread)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers with the connection."""
        self._cancel_head_timer()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn calls it a cycle also while there is none
        return cycle is not None and not cycle.response_complete

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._abort_waiting)

    def _abort_waiting(self) -> None:
        """The head was not complete in time; an idle connection is closed by uvicorn long before."""
        self._head_timer = None
        if not self._is_answering():
            self.transport.abort()

    def _abort_unread(self) -> None:
        self._answer_timer = None
        if self.transport.get_write_buffer_size() > 0:
            self.transport.abort()
