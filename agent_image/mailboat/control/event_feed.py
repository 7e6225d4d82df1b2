"""The event feed: compares the status with the one before, and keeps the differences for clients that follow it.

Clients share one bounded buffer, each with a place in it, so a client costs a number. A client whose place is no longer
in the buffer gets the whole status instead, marked as a gap. Without clients nothing runs: the next poll makes one
event of all that happened to a subscriber meanwhile. Called by the HTTP server and by `mailboat events`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mailboat.api.problems import problem_of
from mailboat.api.records import StatusView, SubscriberStatusView
from mailboat.api.stream_events import EventType, encode_event
from mailboat.errors import JournalReplacedError, MailboatError, PositionOutOfRangeError
from mailboat.journal.port import Edge, Journal, JournalReader, ReadLimits
from mailboat.model.identifiers import TopicName
from mailboat.wire.event_documents import event_document, readable_event

MAX_EVENTS: Final = 10_000
MAX_BYTES: Final = 8 * 1024 * 1024
"""Bounds of the buffer; the oldest events leave it first."""

_EPOCH_AND_NUMBER: Final = 2
_READ: Final = ReadLimits(max_records=1_000)


class EventTopic:
    """The event topic from now on, as documents. Used by one thread at a time."""

    def __init__(self, journal: Journal, topic: TopicName) -> None:
        """The first read begins at the end of the topic."""
        self._journal = journal
        self._topic = topic
        self._reader: JournalReader | None = None

    def read(self) -> Sequence[dict[str, object]]:
        """The events since the last call. Records that are none are skipped: anyone may write to a topic.

        Raises: the journal's errors.
        """
        if self._reader is None:
            self._reader = self._journal.reader(self._topic, Edge.NEXT)
        try:
            records = self._reader.read(_READ, 0.0).records
        # It was not followed for longer than the topic keeps its records, or the topic was created again.
        except (PositionOutOfRangeError, JournalReplacedError):
            reader = self._journal.reader(self._topic, Edge.EARLIEST)  # until there is one, the old one is asked
            self._reader.close()
            self._reader = reader
            records = self._reader.read(_READ, 0.0).records
        found = list[dict[str, object]]()
        for record in records:
            event = readable_event(record.headers, record.value)
            if event is not None:
                found.append(event_document(event))
        return found


@dataclass(frozen=True, slots=True)
class _Kept:
    """An event in the buffer: its number and its bytes as they are sent."""

    number: int
    frame: bytes


class EventFeed:
    """Events by number. Safe to use from several threads."""

    def __init__(self, status: Callable[[], StatusView], epoch: str, distributed: EventTopic | None = None):
        """Compare nothing yet.

        Args:
            status: The status of the moment.
            epoch: A name that no earlier feed had: numbers begin at 0 again with every process.
            distributed: The event topic; None if absent.
        """
        self._status = status
        self._epoch = epoch
        self._distributed = distributed
        self._seen: StatusView | None = None
        self._problem: dict[str, Any] | None = None
        self._snapshots: dict[bool, bytes] = {}
        self._kept: deque[_Kept] = deque()
        self._kept_bytes = 0
        self._next = 1  # so that the id before the first event is one, too
        # two locks: polls exclude each other during their I/O, clients wait for the buffer alone
        self._poll_lock = threading.Lock()
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """Bytes of the buffered events and of the snapshots that clients were sent since the last poll."""
        with self._lock:
            return self._kept_bytes + sum(map(len, self._snapshots.values()))

    def poll(self) -> bool:
        """Look once, and keep what changed. Returns: whether there are new events."""
        with self._poll_lock:
            try:
                # the topic is read last: its reader moves on, and a failing status must not lose those events
                status = self._status()
                documents = () if self._distributed is None else self._distributed.read()
            except MailboatError as error:
                return self._note_problem(error)
            events = list[tuple[EventType, Any]]()
            if self._problem is not None:
                events.append((EventType.PROBLEM, None))
            if self._seen is not None:
                events.extend(differences(self._seen, status))
            events.extend((EventType.DISTRIBUTED, document) for document in documents)
            self._keep(events, status, None)
            return bool(events)

    def place_after(self, last_id: str | None) -> int | None:
        """The number after the event of that id; None if the client needs a snapshot first."""
        parts = (last_id or "").split("-")
        if len(parts) != _EPOCH_AND_NUMBER or parts[0] != self._epoch or not parts[1].isdecimal():
            return None
        # 20 digits: Python refuses to convert numbers of more than 4300
        number = int(parts[1][:20]) + 1
        with self._lock:
            return number if self._first() <= number <= self._next else None

    def snapshot(self, *, is_gap: bool) -> tuple[int, bytes]:
        """Place and bytes of the whole status: the same object until the next poll. Poll once before."""
        with self._lock:
            if is_gap not in self._snapshots:
                known = {"gap": is_gap, "status": self._seen, "problem": self._problem}
                frame = encode_event(f"{self._epoch}-{self._next - 1}", EventType.SNAPSHOT, known)
                self._snapshots[is_gap] = frame
            return self._next, self._snapshots[is_gap]

    def after(self, number: int, max_bytes: int) -> tuple[int, bytes] | None:
        """The events from a number on, up to about so many bytes, and the next number; None if some are lost."""
        with self._lock:
            first = self._first()
            if number < first:
                return None
            frames, total = list[bytes](), 0
            for position in range(number - first, len(self._kept)):
                frames.append(self._kept[position].frame)
                total += len(frames[-1])
                if total >= max_bytes:
                    break
            return number + len(frames), b"".join(frames)

    def after_or_gap(self, number: int, max_bytes: int) -> tuple[int, bytes]:
        """As `after`; where some are lost, the whole status, marked as a gap, and the place after it."""
        return self.after(number, max_bytes) or self.snapshot(is_gap=True)

    def _first(self) -> int:
        return self._kept[0].number if self._kept else self._next

    def _note_problem(self, error: MailboatError) -> bool:
        document = problem_of(error).document()
        if self._problem is not None and self._problem["title"] == document["title"]:
            return False
        self._keep([(EventType.PROBLEM, document)], self._seen, document)
        return True

    def _keep(
        self, events: Sequence[tuple[EventType, Any]], seen: StatusView | None, problem: dict[str, Any] | None
    ) -> None:
        """Add the events that lead to a status, in one step with it: a snapshot never holds half of a difference."""
        with self._lock:
            self._seen, self._problem = seen, problem
            self._snapshots.clear()
            for kind, data in events:
                frame = encode_event(f"{self._epoch}-{self._next}", kind, data)
                self._kept.append(_Kept(self._next, frame))
                self._kept_bytes += len(frame)
                self._next += 1
            # the newest event stays, however large it is: no client could get past it otherwise
            while len(self._kept) > MAX_EVENTS or (self._kept_bytes > MAX_BYTES and len(self._kept) > 1):
                self._kept_bytes -= len(self._kept.popleft().frame)


def differences(before: StatusView, now: StatusView) -> Iterator[tuple[EventType, Any]]:
    """The events that lead from one status to the next one."""
    if _figures_without_event(now) != _figures_without_event(before):
        yield EventType.SNAPSHOT, {"gap": False, "status": now, "problem": None}
        return
    if now.journal != before.journal:
        yield EventType.JOURNAL, now.journal
    publishers = {publisher.name: publisher for publisher in before.publishers}
    for publisher in now.publishers:
        if publishers.get(publisher.name) != publisher:
            yield EventType.PUBLISHER, publisher
    known = {_key(subscriber): subscriber for subscriber in before.subscribers}
    for subscriber in now.subscribers:
        earlier = known.pop(_key(subscriber), None)
        if earlier is None or not _is_same(earlier, subscriber):
            yield EventType.SUBSCRIBER, subscriber
    for name, sling_id in known:
        yield EventType.SUBSCRIBER_REMOVED, {"name": name, "sling_id": sling_id}


def _figures_without_event(status: StatusView) -> tuple[int, int]:
    # Each bad announcement counts, and a fleet may send hundreds a second: a snapshot comes when a number has doubled.
    return status.unreadable_announcements.bit_length(), status.dropped_subscribers.bit_length()


def _key(one: SubscriberStatusView) -> tuple[str, str | None]:
    return one.name, one.sling_id


def _is_same(before: SubscriberStatusView, now: SubscriberStatusView) -> bool:
    """Every announcement has another time: an event for each would be 500 events every few seconds."""
    # Compared first: most subscribers announced nothing since the last look, and a copy costs several comparisons.
    return before == now or replace(before, announced_at=now.announced_at) == now
