"""uvicorn's HTTP protocol with limits for clients that are slow, stuck, numerous or malformed.

uvicorn waits without limit for the rest of a request's head, and for a client that does not read its answer. Here a
head must be complete within the time of a request, and an answer, which is sent in one piece, must be read within the
same time. When all connections are in use, the one that has waited longest for a request is closed, taken from the
network with the most connections: a client that opens many of them displaces its own. Some connections are kept back
for the probes. A head whose end two servers could see at different places is refused, and its connection closed.
Why uvicorn's own class is extended: `docs/decisions/0029-uvicorn-protocol.md`. Called by `server.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Collection
from http import HTTPStatus
from typing import Any, Final, NoReturn, Protocol, TypeVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from mailboat.api.problems import problem_of
from mailboat.errors import UsageError
from mailboat.http.answers import problem_answer
from mailboat.http.gate import RESERVED
from mailboat.http.rates import network_of

PROBE_RESERVE: Final = 16
"""Connections beyond `max_connections`; the gate answers probes on them, and everything else with 503."""

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: 65\r\n\r\n"
    b'{"type":"about:blank","title":"Service Unavailable","status":503}'
)
_VERSIONS: Final = (b"1.0", b"1.1")
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_FOLDED_LINE: Final = re.compile(rb"\n[ \t]")


class StrictConnection(h11.Connection):
    """An h11 connection that refuses ambiguous heads (RFC 9112, 5.2 and 6.1: request smuggling)."""

    fault: str | None = None
    """Why the connection's last request was refused."""

    def next_event(self) -> Any:
        """The next event. Raises: h11.RemoteProtocolError."""
        # h11 joins folded lines before it returns a request, so they are searched in the bytes.
        if self.their_state is h11.IDLE and _is_folded(self.trailing_data[0]):
            self._refuse("a header is folded over several lines")
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                self.fault = "its head is too large; send fewer or shorter parameters"
            raise
        if isinstance(event, h11.Request):
            if event.http_version not in _VERSIONS:
                self._refuse("the version of HTTP is neither 1.0 nor 1.1")
            names = {name for name, _ in event.headers}
            # h11 follows Transfer-Encoding; a proxy may follow Content-Length (request smuggling).
            if {b"content-length", b"transfer-encoding"} <= names:
                self._refuse("the head has both Content-Length and Transfer-Encoding")
        return event

    def _refuse(self, reason: str) -> NoReturn:
        self.fault = reason
        raise h11.RemoteProtocolError(reason)


def _is_folded(data: bytes) -> bool:
    """Whether the head at the beginning of `data`, complete or not, has a folded header."""
    end = _HEAD_END.search(data)
    return _FOLDED_LINE.search(data, 0, len(data) if end is None else end.start()) is not None


class WaitingConnection(Protocol):
    """What `displaced` compares of a connection: where it comes from, and whether and since when it waits."""

    network: str
    waiting_since: float

    @property
    def is_answering(self) -> bool:
        """Whether a request is under way."""


W = TypeVar("W", bound=WaitingConnection)


def displaced(connections: Collection[W]) -> W | None:
    """The connection to close for a new one; None when all have a request under way.

    Of those that wait, it is one of the network that has the most connections, and there the one that waits longest.
    """
    per_network = Counter(connection.network for connection in connections)
    waiting = [connection for connection in connections if not connection.is_answering]
    return min(waiting, key=lambda one: (-per_network[one.network], one.waiting_since), default=None)


def guarded_protocol(request_seconds: float, max_connections: int) -> type[GuardedProtocol]:
    """The protocol class for uvicorn, with its limits."""

    class Guarded(GuardedProtocol):
        head_seconds = request_seconds
        connections_limit = max_connections

    return Guarded


class GuardedProtocol(H11Protocol):
    """One connection. On the event loop only."""

    head_seconds: float
    connections_limit: int

    def __init__(self, config: uvicorn.Config, *arguments: Any, **settings: Any) -> None:
        """As uvicorn makes it."""
        super().__init__(config, *arguments, **settings)
        self.conn: StrictConnection = StrictConnection(h11.SERVER, config.h11_max_incomplete_event_size or 0)
        self.network = ""
        self.waiting_since = 0.0
        self._is_refused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for a head, if there is a place for one more connection."""
        is_reserved = self._is_busy()
        places = self.connections_limit + (PROBE_RESERVE if is_reserved else 0)
        if len(self.connections) >= places and not self._displace():
            # uvicorn never sees this connection: it would count it and wait for its request.
            self._is_refused = True
            self.transport = transport
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        self.network = network_of(self.client[0] if self.client else "")
        self.waiting_since = self.loop.time()
        self.app_state = {**self.app_state, RESERVED: is_reserved}
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes; an incomplete head has its own timeout."""
        if self._is_refused:
            return
        super().data_received(data)
        if self.is_answering:
            self._cancel_head_timer()
        else:
            self._expect_head()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's sentence gives no reason
        """Refuse an invalid request, and close the connection: the next request's start is unknown."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            # Its head was read, so an answer to it may come at this moment: on this connection it would be a defect,
            # and a stranger could fill the log with traces.
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            reason = self.conn.fault or "its head or its chunks are malformed"
            answer = problem_answer(problem_of(UsageError(f"not a valid HTTP request: {reason}")))
            headers = [*answer.raw_headers, (b"connection", b"close")]
            head = h11.Response(status_code=answer.status_code, headers=headers, reason=b"Bad Request")
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        """The answer is written; what the client has not taken of it has its time."""
        super().on_response_complete()
        self.waiting_since = self.loop.time()
        # `pause_writing` is called only above the transport's high-water mark: a short rest has no timer yet
        if self.transport.get_write_buffer_size() > 0 and self._answer_timer is None:
            self._answer_timer = self.loop.call_later(self.head_seconds, self._abort_unread)

    def pause_writing(self) -> None:
        """The client does not read what is written: it has the same time to go on."""
        super().pause_writing()
        if self._answer_timer is None:
            self._answer_timer = self.loop.call_later(self.head_seconds, self._abort_unread)

    def resume_writing(self) -> None:
        """The client has read most of what was written; the end of an answer sets its own limit."""
        super().resume_writing()
        cycle: RequestResponseCycle | None = self.cycle
        if self._answer_timer is not None and cycle is not None and not cycle.response_complete:
            self._answer_timer.cancel()
            self._answer_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers with the connection."""
        self._cancel_head_timer()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        super().connection_lost(exc)

    @property
    def is_answering(self) -> bool:
        """Whether a request is under way."""
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn declares it as never None
        return cycle is not None and not cycle.response_complete

    def _is_busy(self) -> bool:
        """Whether as many requests are under way as there may be connections."""
        limit = self.connections_limit
        return len(self.connections) >= limit and sum(other.is_answering for other in self._others()) >= limit

    def _others(self) -> list[GuardedProtocol]:
        return [connection for connection in self.connections if isinstance(connection, GuardedProtocol)]

    def _displace(self) -> bool:
        """Close another connection for this one. Whether one could be closed."""
        found = displaced(self._others())
        if found is None:
            return False
        # Now and not in `connection_lost`, which the loop calls later: the new connection needs the place at once.
        self.connections.discard(found)
        found.transport.abort()
        return True

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _expect_head(self) -> None:
        # Bytes that arrive do not restart the timer: one byte at a time would hold the connection without limit.
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._abort_waiting)

    def _abort_waiting(self) -> None:
        """The head was not complete in time; an idle connection is closed by uvicorn long before."""
        self._head_timer = None
        if not self.is_answering:
            self.transport.abort()

    def _abort_unread(self) -> None:
        self._answer_timer = None
        if self.transport.get_write_buffer_size() > 0:
            self.transport.abort()
