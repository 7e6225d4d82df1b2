"""Sends the event feed to many clients, bounded in number, memory and time: one status is read for all of them.

A client is a place in the feed's buffer and one request that is not answered to its end. What it is sent is encoded and
compressed once for all clients at that place. Its memory is bounded by the transport: a client that does not read is
not written to, and `connections.py` closes it when that lasts. One that reads too slowly gets a final event, and is
disconnected. Used on the event loop only. Called by `routes/status.py`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mailboat.api.problems import Problem, problem_of
from mailboat.api.stream_events import HEARTBEAT, MEDIA_TYPE, encode_end
from mailboat.clock import Clock, thread_cpu_seconds
from mailboat.control.event_feed import MAX_BYTES as MAX_FEED_BYTES
from mailboat.control.event_feed import EventFeed
from mailboat.errors import ThrottledError
from mailboat.http.access import Caller
from mailboat.http.answers import problem_answer
from mailboat.telemetry.memory_accounts import MemoryAccounts

_LOG: Final = logging.getLogger("mailboat.http")

POLL_SECONDS: Final = 0.5
_SHARE: Final = 20
"""Pauses are at least this many times the CPU time of a look: following costs at most 5 % of a core."""

HEARTBEAT_SECONDS: Final = 15.0
LONGEST_SECONDS: Final = 900.0
"""After this the client has to show its token again; it resumes where it was."""

_CHUNK_BYTES: Final = 16 * 1024
_SHARED_PARTS: Final = 64
"""Parts that are kept for clients that come to the same place: about 1 MB, and as far as clients lie apart normally."""

MAX_SHARED_BYTES: Final = 4 * 1024 * 1024
"""Bound of what is encoded for clients: parts, and the snapshot, which stays."""

_HEAD: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
"""Of a gzip member without name and time (RFC 1952, 2.3)."""

_FINAL_BLOCK: Final = b"\x03\0"
"""An empty deflate block that says that it is the last one (RFC 1951, 3.2.3)."""

_RETRY_SECONDS: Final = 10.0


class _Part(NamedTuple):
    """What clients at one place are sent: the place after it, its bytes, and these as a block of a gzip stream."""

    end: int
    data: bytes
    block: bytes

    @property
    def size_bytes(self) -> int:
        """What it holds."""
        return len(self.data) + len(self.block)


def _part(end: int, data: bytes) -> _Part:
    # A block of a new compressor refers to nothing before it, and a flush ends it at a byte: it fits any stream.
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return _Part(end, data, packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))


_HEARTBEAT: Final = _part(0, HEARTBEAT)


class EventStreams:
    """The clients of one feed."""

    def __init__(self, feed: EventFeed, clock: Clock, stopping: threading.Event, limit: int) -> None:
        """No client yet; `limit` is how many there may be. A caller with a token may have half of them."""
        self._feed = feed
        self._clock = clock
        self._stopping = stopping
        self._limit = limit
        self._clients = set[_Client]()
        self._poller: asyncio.Task[None] | None = None
        self._per_caller = Counter[str]()
        self._parts = OrderedDict[int, _Part]()
        self._snapshot = _HEARTBEAT
        self._shared_bytes = _HEARTBEAT.size_bytes
        self._looks = 0
        self._looking = asyncio.Lock()

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self._per_caller.total()

    def account_for(self, memory: MemoryAccounts) -> None:
        """Add what is kept for clients: events, snapshots, and what is encoded of them."""
        memory.add(
            "event-stream", lambda: self._feed.held_bytes + self._shared_bytes, MAX_FEED_BYTES + MAX_SHARED_BYTES
        )

    def refusal(self, caller: Caller) -> Problem | None:
        """The answer to a client beyond a limit; None if there is room for one."""
        share = max(1, self._limit // 2) if caller.is_known else self._limit
        if self.clients >= self._limit:
            message = f"the limit of {self._limit} event streams is reached (half of http.max_connections)"
        elif self._per_caller[caller.name] >= share:
            message = (
                f"{caller.name} has reached its limit of {share} event streams (a quarter of http.max_connections)"
            )
        else:
            return None
        busy = ThrottledError(message, retry_after_seconds=_RETRY_SECONDS)
        return problem_of(busy, HTTPStatus.SERVICE_UNAVAILABLE)

    @contextmanager
    def place(self, caller: Caller) -> Iterator[None]:
        """Count one client."""
        self._per_caller[caller.name] += 1
        try:
            yield
        finally:
            self._per_caller[caller.name] -= 1

    async def look(self) -> None:
        """Bring the feed up to date, before a client is answered. Clients that come together share one look."""
        begun = self._looks
        async with self._looking:
            # One that began after the call, and has ended: what is asked for.
            if self._looks == begun:
                await self._poll_once()

    async def send_to(
        self, receive: Receive, send: Send, last_id: str | None, *, follow: bool, is_packed: bool = False
    ) -> None:
        """Send events until the client goes, the agent stops, or (`follow` is false) all are sent.

        `is_packed` compresses them: the snapshot of 500 subscribers is a twentieth then.
        """
        if self._poller is None and follow:
            self._poller = asyncio.create_task(self._poll())
        client = _Client(send, is_packed=is_packed)
        gone = asyncio.create_task(client.watch(receive))
        self._clients.add(client)
        try:
            await self._send_events(client, last_id, follow=follow)
        finally:
            self._clients.discard(client)
            gone.cancel()

    async def _send_events(self, client: _Client, last_id: str | None, *, follow: bool) -> None:
        place = self._feed.place_after(last_id)
        if place is None:
            part = self._snapshot_part(is_gap=bool(last_id))
            place = part.end
            await client.write(part)
        ends = self._clock.monotonic() + LONGEST_SECONDS
        while not client.is_gone:
            # Cleared before the feed is read: what arrives after the read sets it, so no wake-up is lost.
            client.signal.clear()
            found = self._part_after(place)
            if found is None:
                await client.end("too-slow")
            elif found.data:
                place = found.end
                await client.write(found)
            elif not follow:
                await client.end("complete")
            elif self._stopping.is_set():
                await client.end("stopping")
            elif self._poller is None:
                await client.end("failed")
            elif self._clock.monotonic() >= ends:
                await client.end("renew")
            elif not await client.wait(HEARTBEAT_SECONDS):
                await client.write(_HEARTBEAT)

    def _snapshot_part(self, *, is_gap: bool) -> _Part:
        """The whole status; the feed returns the same bytes until its next refresh."""
        place, data = self._feed.snapshot(is_gap=is_gap)
        if data is not self._snapshot.data:
            self._shared_bytes -= self._snapshot.size_bytes
            self._snapshot = _part(place, data)
            self._shared_bytes += self._snapshot.size_bytes
            self._drop_parts()
        return self._snapshot

    def _part_after(self, place: int) -> _Part | None:
        """The events from a place on, of which more may follow; None if some are lost."""
        known = self._parts.get(place)
        if known is not None:
            return known
        found = self._feed.after(place, _CHUNK_BYTES)
        if found is None or not found[1]:
            return None if found is None else _Part(place, b"", b"")
        self._parts[place] = part = _part(*found)
        self._shared_bytes += part.size_bytes
        self._drop_parts()
        return part

    def _drop_parts(self) -> None:
        while len(self._parts) > _SHARED_PARTS or (self._parts and self._shared_bytes > MAX_SHARED_BYTES):
            _, oldest = self._parts.popitem(last=False)
            self._shared_bytes -= oldest.size_bytes

    async def _poll(self) -> None:
        """Refresh repeatedly while there are clients."""
        try:
            while self.clients and not self._stopping.is_set():
                async with self._looking:
                    cost = await self._poll_once()
                await asyncio.sleep(max(POLL_SECONDS, _SHARE * cost))
        except Exception:  # noqa: BLE001  # a defect: the log has its trace, and clients get the end of the stream
            _LOG.exception("the event stream ended: the status could not be read")
        finally:
            # Clients that find no poller end with "failed"; the next client starts another one.
            self._poller = None
            self._wake()

    async def _poll_once(self) -> float:
        """Look, and wake the clients if there is news. Returns: the CPU seconds of the look."""
        self._looks += 1
        has_news, cost = await run_in_threadpool(self._look)
        if has_news:
            self._wake()
        return cost

    def _look(self) -> tuple[bool, float]:
        # Not wall time: on a busy machine a look waits for its turn, and open pages would fall behind by seconds.
        began = thread_cpu_seconds()
        return self._feed.poll(), thread_cpu_seconds() - began

    def _wake(self) -> None:
        for client in self._clients:
            client.signal.set()


class _Client:
    """One connection, while its answer is written.

    Attributes:
        signal: Set when there is news, and when the client has gone.
    """

    def __init__(self, send: Send, *, is_packed: bool) -> None:
        self.signal = asyncio.Event()
        self._send = send
        self._is_packed = is_packed
        self._is_gone = False
        self._head = _HEAD
        self._checksum = 0
        self._length = 0

    @property
    def is_gone(self) -> bool:
        """Whether there is no one left to write to."""
        return self._is_gone

    async def watch(self, receive: Receive) -> None:
        """Return when the client has closed the connection."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        self.signal.set()

    async def write(self, part: _Part) -> None:
        """Write in pieces; waits while the client does not read."""
        data = self._encoded(part)
        for start in range(0, len(data), _CHUNK_BYTES):
            if self._is_gone:
                return
            piece = data[start : start + _CHUNK_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, reason: str) -> None:
        """Write the last event."""
        self._is_gone = True
        data = self._encoded(_part(0, encode_end(reason)))
        if self._is_packed:
            data += _FINAL_BLOCK + self._checksum.to_bytes(4, "little") + self._length.to_bytes(4, "little")
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def wait(self, seconds: float) -> bool:
        """Wait for the signal, at most so long. Returns: false if there was none."""
        try:
            async with asyncio.timeout(seconds):
                await self.signal.wait()
        except TimeoutError:
            return False
        return True

    def _encoded(self, part: _Part) -> bytes:
        if not self._is_packed:
            return part.data
        head, self._head = self._head, b""
        self._checksum = zlib.crc32(part.data, self._checksum)
        self._length = (self._length + len(part.data)) & 0xFFFFFFFF
        return head + part.block


class EventStreamResponse(Response):
    """The answer of one client."""

    media_type = MEDIA_TYPE

    def __init__(
        self, streams: EventStreams, caller: Caller, last_id: str | None, *, follow: bool, is_packed: bool = False
    ) -> None:
        """Nothing sent yet."""
        # nginx would buffer the stream: https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering
        super().__init__(media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.headers["Vary"] = "Accept-Encoding"
        if is_packed:
            self.headers["Content-Encoding"] = "gzip"
        self._streams = streams
        self._caller = caller
        self._last_id = last_id
        self._follow = follow
        self._is_packed = is_packed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end."""
        refusal = self._streams.refusal(self._caller)
        if refusal is not None:
            await problem_answer(refusal)(scope, receive, send)
            return
        # counted in one step with the check: an await between them would let others take the place
        with self._streams.place(self._caller):
            # before the head is sent: a defect can still be answered with its status
            await self._streams.look()
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._streams.send_to(receive, send, self._last_id, follow=self._follow, is_packed=self._is_packed)
