"""Sends the event feed to many clients: one status read for all of them, bounded in number, memory and time.

A client is a place in the feed's buffer and one request that is not answered to its end. Its memory is bounded by the
transport: a client that does not read is not written to, and `connections.py` closes it when that lasts. One that reads
too slowly gets a final event, and is disconnected. Used on the event loop only. Called by `routes/members.py`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mailboat.api.events import HEARTBEAT, MEDIA_TYPE, encode_end
from mailboat.api.problems import Problem, problem_of
from mailboat.clock import Clock, thread_cpu_seconds
from mailboat.control.event_feed import EventFeed
from mailboat.errors import ThrottledError
from mailboat.http.access import Caller
from mailboat.http.answers import problem_answer

_LOG: Final = logging.getLogger("mailboat.http")

POLL_SECONDS: Final = 0.5
_SHARE: Final = 20
"""Pauses are at least this many times the CPU time of a look: following costs at most 5 % of a core."""

HEARTBEAT_SECONDS: Final = 15.0
LONGEST_SECONDS: Final = 900.0
"""After this the client has to show its token again; it resumes where it was."""

_CHUNK_BYTES: Final = 16 * 1024
_WINDOW_BITS: Final = 12
_MEMORY_LEVEL: Final = 5
"""With these sizes a compressor takes 32 KiB; zlib's defaults take 256 KiB, for each of hundreds of clients."""

_GZIP: Final = 16
"""Added to the window's bits it makes zlib write gzip: https://zlib.net/manual.html#Advanced"""

_RETRY_SECONDS: Final = 10.0


class EventStreams:
    """The clients of one feed."""

    def __init__(self, feed: EventFeed, clock: Clock, stopping: threading.Event, limit: int) -> None:
        """No client yet; `limit` is how many there may be. A caller with a token may have half of them."""
        self._feed = feed
        self._clock = clock
        self._stopping = stopping
        self._limit = limit
        self._news = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._per_caller = Counter[str]()

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self._per_caller.total()

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
        """Bring the feed up to date, before a client is answered."""
        await run_in_threadpool(self._feed.poll)
        self._wake()

    async def send_to(
        self, receive: Receive, send: Send, last_id: str | None, *, follow: bool, is_packed: bool = False
    ) -> None:
        """Send events until the client goes, the agent stops, or (`follow` is false) there are no more for now.

        `is_packed` compresses them: the snapshot of 500 subscribers is a twentieth then.
        """
        if self._poller is None and follow:
            self._poller = asyncio.create_task(self._poll())
        gone = asyncio.create_task(_gone(receive))
        try:
            await self._send_events(_Client(send, gone, is_packed=is_packed), last_id, follow=follow)
        finally:
            gone.cancel()

    async def _send_events(self, client: _Client, last_id: str | None, *, follow: bool) -> None:
        place = self._feed.place_after(last_id)
        if place is None:
            place, frame = self._feed.snapshot(is_gap=bool(last_id))
            await client.write(frame)
        ends = self._clock.monotonic() + LONGEST_SECONDS
        while not client.is_gone:
            # Taken before the feed is read: what arrives after the read sets this event, so no wake-up is lost.
            news = self._news
            found = self._feed.after(place, _CHUNK_BYTES)
            if found is None:
                await client.end("too-slow")
            elif found[1]:
                place = found[0]
                await client.write(found[1])
            elif not follow:
                await client.end("complete")
            elif self._stopping.is_set():
                await client.end("stopping")
            elif self._poller is None:
                await client.end("failed")
            elif self._clock.monotonic() >= ends:
                await client.end("renew")
            elif not await client.wait(news, HEARTBEAT_SECONDS):
                await client.write(HEARTBEAT)

    async def _poll(self) -> None:
        """Look again and again while there are clients."""
        try:
            while self.clients and not self._stopping.is_set():
                has_news, cost = await run_in_threadpool(self._look)
                if has_news:
                    self._wake()
                await asyncio.sleep(max(POLL_SECONDS, _SHARE * cost))
        except Exception:  # noqa: BLE001  # a defect: the log has its trace, and the clients are told that the stream ends
            _LOG.exception("the event stream ended: the status could not be read")
        finally:
            # Clients that find no poller end with "failed"; the next client starts another one.
            self._poller = None
            self._wake()

    def _look(self) -> tuple[bool, float]:
        """Whether there is news, and the CPU seconds of the look."""
        # Not wall time: on a busy machine a look waits for its turn, and open pages would fall behind by seconds.
        began = thread_cpu_seconds()
        return self._feed.poll(), thread_cpu_seconds() - began

    def _wake(self) -> None:
        # Replaced, not cleared: a client that holds the old event must still see it set.
        self._news.set()
        self._news = asyncio.Event()


class _Client:
    """One connection, while its answer is written."""

    def __init__(self, send: Send, gone: asyncio.Task[None], *, is_packed: bool) -> None:
        self._send = send
        self._gone = gone
        self._is_ended = False
        self._packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP + _WINDOW_BITS, _MEMORY_LEVEL) if is_packed else None

    @property
    def is_gone(self) -> bool:
        """Whether there is no one left to write to."""
        return self._is_ended or self._gone.done()

    async def write(self, data: bytes) -> None:
        """Write in pieces; waits while the client does not read."""
        for start in range(0, len(data), _CHUNK_BYTES):
            if self._gone.done():
                return
            piece = data[start : start + _CHUNK_BYTES]
            if self._packer is not None:
                # an event that stays in the compressor would reach the client with the next one
                flush = zlib.Z_SYNC_FLUSH if start + _CHUNK_BYTES >= len(data) else zlib.Z_NO_FLUSH
                piece = self._packer.compress(piece) + (self._packer.flush(flush) if flush else b"")
            if piece:
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, reason: str) -> None:
        """Write the last event."""
        self._is_ended = True
        data = encode_end(reason)
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def wait(self, news: asyncio.Event, seconds: float) -> bool:
        """Wait for news, at most so long, or until the client goes. Returns: false if there was nothing to write."""
        notified = asyncio.create_task(news.wait())
        try:
            done, _ = await asyncio.wait({notified, self._gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            notified.cancel()


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
        with self._streams.place(self._caller):  # in one step with the check: nothing is awaited between them
            await self._streams.look()
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._streams.send_to(receive, send, self._last_id, follow=self._follow, is_packed=self._is_packed)


async def _gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
