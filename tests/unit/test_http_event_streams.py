"""The event stream with a thousand clients, of which some do not read and some vanish, without sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from mailboat.api.dashboard_files import accepts_gzip
from mailboat.api.records import JournalView, StatusView, SubscriberStatusView
from mailboat.clock import SystemClock
from mailboat.control import event_feed
from mailboat.control.event_feed import EventFeed
from mailboat.http import event_stream
from mailboat.http.access import LOCAL
from mailboat.http.event_stream import EventStreamResponse, EventStreams
from mailboat.telemetry.memory_accounts import MemoryAccounts
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS

READERS, SLOW, VANISHING = 600, 200, 200
SUBSCRIBERS = 50
CLIENT_BYTES = 10_000
KEPT_EVENTS = 8
POLL_SECONDS = 0.05


class Line:
    """A client's connection. It takes what is sent only while `reading` is set, and vanishes when `gone` is."""

    def __init__(self) -> None:
        self.reading, self.gone = asyncio.Event(), asyncio.Event()
        self.reading.set()
        self.received = 0
        self._body = bytearray()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.body":
            self._body += message["body"]
            self.received += 1

    @property
    def reason(self) -> str:
        """Why the stream ended."""
        reason: str = json.loads(gzip.decompress(self._body).rpartition(b"data: ")[2])["reason"]
        return reason


class Fleet:
    """A status that changes, and is counted when it is read."""

    def __init__(self) -> None:
        self.members = [SubscriberStatusView(f"edge-{number}", "current") for number in range(SUBSCRIBERS)]
        self.reads = 0

    def status(self) -> StatusView:
        self.reads += 1
        return StatusView(JournalView("memory", 0, 1), (), tuple(self.members))

    def change(self) -> None:
        self.members[7] = replace(self.members[7], next_offset=(self.members[7].next_offset or 0) + 1)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110  # of many lines at once
            await asyncio.sleep(0.01)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each block that is compressed."""
    monkeypatch.setattr(event_stream, "POLL_SECONDS", POLL_SECONDS)
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", LONG_WAIT_SECONDS)  # clients count what they receive
    monkeypatch.setattr(event_feed, "MAX_EVENTS", KEPT_EVENTS)
    monkeypatch.setattr(event_stream, "_SHARED_PARTS", 1)
    blocks, part = list[int](), event_stream._part
    monkeypatch.setattr(event_stream, "_part", lambda end, data: (blocks.append(len(data)), part(end, data))[1])
    return blocks


def test_a_thousand_clients_cost_little_and_slow_and_vanished_ones_leave_the_others_alone(packed: list[int]) -> None:
    asyncio.run(serve_a_thousand(packed))


async def serve_a_thousand(packed: list[int]) -> None:
    fleet, stopping = Fleet(), threading.Event()
    streams = EventStreams(EventFeed(fleet.status, "e"), SystemClock(), stopping, limit=1_000)
    lines = [Line() for _ in range(READERS + SLOW + VANISHING)]
    readers, slow, vanishing = lines[:READERS], lines[READERS : READERS + SLOW], lines[READERS + SLOW :]

    began = time.monotonic()
    tracemalloc.start()
    answers = [EventStreamResponse(streams, LOCAL, None, follow=True, is_packed=True) for _ in lines]
    tasks = [
        asyncio.create_task(answer({}, line.receive, line.send)) for answer, line in zip(answers, lines, strict=True)
    ]
    await until(lambda: all(line.received for line in lines))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < len(lines) * CLIENT_BYTES
    assert streams.clients == len(lines)
    assert streams.refusal(LOCAL) is not None
    polls = (time.monotonic() - began) / POLL_SECONDS
    assert len(packed) <= fleet.reads < 100 + polls, "clients that come together share a look and its snapshot"

    for line in slow:
        line.reading.clear()
    for line in vanishing:
        line.gone.set()
    await until(lambda: streams.clients == READERS + SLOW)
    before = len(packed)
    fleet.change()
    await until(lambda: all(line.received == 2 for line in readers))
    assert len(packed) == before + 1, "a change is compressed once for all clients"

    for number in range(KEPT_EVENTS + 1):
        fleet.change()
        await until(lambda number=number: all(line.received == 3 + number for line in readers))
    assert {line.received for line in slow} == {1}, "nothing piles up for a client that does not read"
    for line in slow:
        line.reading.set()
    await until(lambda: streams.clients == READERS)
    assert {line.reason for line in slow} == {"too-slow"}

    stopping.set()
    fleet.change()
    await asyncio.gather(*tasks)
    assert {line.reason for line in readers} == {"stopping"}
    assert streams.clients == 0


def test_memory_account_has_events_snapshot_and_what_is_encoded_for_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(account_for_clients(monkeypatch))


async def account_for_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, memory = Fleet(), MemoryAccounts()
    feed = EventFeed(fleet.status, "e")
    streams = EventStreams(feed, SystemClock(), threading.Event(), limit=2)
    streams.account_for(memory)

    async def follow(last_id: str | None) -> int:
        line = Line()
        await EventStreamResponse(streams, LOCAL, last_id, follow=False)({}, line.receive, line.send)
        [account] = memory.view().accounts
        kept = [*streams._parts.values(), streams._snapshot]
        assert account.used_bytes == feed.held_bytes + sum(len(part.data) + len(part.block) for part in kept)
        return account.used_bytes

    status_bytes = len(msgspec.json.encode(fleet.status()))
    first = await follow(None)
    assert 2 * status_bytes < first < 3 * status_bytes, "the snapshot of the feed, and the one for clients, encoded"
    for _ in range(2):
        fleet.change()
        await follow("e-0")
    assert len(streams._parts) > 1
    monkeypatch.setattr(event_stream, "MAX_SHARED_BYTES", 0)
    fleet.change()
    await follow("e-0")
    assert not streams._parts, "beyond its limit nothing is kept for clients that come later"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP ; q=0.5", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, identity", False),
    ],
)
def test_gzip_is_sent_only_to_clients_that_accept_it(header: str, expected: bool) -> None:
    assert accepts_gzip(header) == expected
