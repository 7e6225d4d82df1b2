"""Bulk builds, read from the log: how much of each is published, and how much of it each subscriber has imported.

The packages of a build say which part they are of how many. What was read of the log is kept, so a later query reads
only what is new; the first one goes back a long way, and not to the beginning of the log.

Which build a subscriber is in the middle of is read from a few packages before its position. That is kept, too, so that
many queries of subscribers that stand still cost one.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from mailboat.api.records import BuildFollowerView, BuildProgressView, BuildView
from mailboat.clock import moment_of
from mailboat.composition.workspace import Workspace
from mailboat.control.journal_state import JournalState
from mailboat.control.subscriber_directory import SubscriberDirectory, SubscriberStatus
from mailboat.errors import BuildMissingError, PositionOutOfRangeError
from mailboat.journal.port import Edge, ReadLimits, Record, Start, records_of
from mailboat.model.identifiers import AgentName, BuildId, Offset
from mailboat.model.messages import BulkPart
from mailboat.model.positions import LogIdentity
from mailboat.queues.entries import readable_package
from mailboat.queues.outcomes import Outcome, OutcomeFacts, decide_outcome
from mailboat.queues.queue_names import QueueName
from mailboat.wire.package_messages import may_be_part

MAX_SEARCHED_RECORDS: Final = 500_000
"""How far back from its end the log is searched for builds by the first look."""

MAX_BUILDS: Final = 50
_READ: Final = ReadLimits(max_records=1_000)


class _Found(NamedTuple):
    """A package of a build."""

    publisher: AgentName
    part: BulkPart
    package_bytes: int


@dataclass(slots=True)
class _Build:
    build_id: BuildId
    publisher: AgentName
    total: int
    published: int = 0
    package_bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0
    earliest_ms: int = 0
    offsets: array[int] = field(default_factory=lambda: array("q"))

    def take(self, record: Record, found: _Found) -> None:
        part = found.part
        if part.sequence < self.published:
            return  # the same package again
        self.total = part.total
        self.published = part.sequence + 1
        self.package_bytes += found.package_bytes
        self.first_ms = self.first_ms or record.appended_ms
        self.earliest_ms = min(self.earliest_ms or record.appended_ms, record.appended_ms)
        self.last_ms = record.appended_ms
        self.offsets.append(record.offset)

    def trim(self, before: int) -> None:
        """Forget packages that retention has removed from the log."""
        del self.offsets[: bisect_left(self.offsets, before)]


class BuildsSeen:
    """The builds in the log of one workspace. Safe to use from several threads."""

    def __init__(self, workspace: Workspace, journal_state: JournalState, directory: SubscriberDirectory) -> None:
        """Read nothing yet."""
        self._workspace = workspace
        self._journal_state = journal_state
        self._directory = directory
        self._lock = threading.Lock()
        self._builds: dict[tuple[AgentName, BuildId], _Build] = {}
        self._identity: LogIdentity | None = None
        self._next: Offset | None = None

    def list(self) -> Sequence[BuildView]:
        """All builds, the newest first."""
        with self._lock:
            self._receive()
            # the time before the positions: a position announced after it is not settled yet
            heard_at, members = self._journal_state.statuses_heard_at_seconds(), self._directory.members()
            return [self._view(build, members, heard_at) for build in reversed(self._builds.values())]

    def find(self, build_id: str) -> BuildView:
        """One of them. Raises: BuildMissingError."""
        found = next((build for build in self.list() if build.build_id == build_id), None)
        if found is None:
            raise BuildMissingError(f"the log holds no package of a build {build_id[:80]!r}", build=build_id[:80])
        return found

    def _receive(self) -> None:
        journal, topic = self._workspace.journal, self._workspace.package_topic
        bounds = journal.bounds(topic)
        for key, build in list(self._builds.items()):
            build.trim(bounds.earliest_offset)
            if not build.offsets:
                del self._builds[key]
        earliest = max(bounds.earliest_offset, bounds.next_offset - MAX_SEARCHED_RECORDS)
        start = Offset(earliest if self._next is None else max(earliest, self._next))
        identity = journal.identity(topic)
        # created again, or it lost its end
        if self._next is not None and (identity != self._identity or self._next > bounds.next_offset):
            self._builds.clear()
            start = Offset(earliest)
        self._identity = identity
        try:
            self._read(start, bounds.next_offset)
        except PositionOutOfRangeError:
            # Retention removed records since the bounds were read, and with them all that was read before.
            self._builds.clear()
            self._read(Edge.EARLIEST, bounds.next_offset)

    def _read(self, start: Start, end: Offset) -> None:
        with closing(self._workspace.journal.reader(self._workspace.package_topic, start)) as reader:
            while reader.next_offset < end:
                batch = reader.read(_READ, 0.0)
                for record in batch.records:
                    self._take(record)
                if batch.is_at_end and not batch.records:
                    break
            self._next = reader.next_offset

    def _take(self, record: Record) -> None:
        found = _part_in(record)
        if found is None:
            return
        key = found.publisher, found.part.build_id
        known = self._builds.get(key)
        # The id of a complete build that was forgotten may be given again.
        if known is None or (found.part.sequence == 0 and known.published >= known.total):
            self._builds.pop(key, None)  # the newest is the last one
            self._builds[key] = _Build(found.part.build_id, found.publisher, found.part.total)
            if len(self._builds) > MAX_BUILDS:
                del self._builds[next(iter(self._builds))]
        self._builds[key].take(record, found)

    def _view(self, one: _Build, members: Sequence[SubscriberStatus], heard_at: float) -> BuildView:
        are_complete = self._journal_state.status_follower.are_complete_since(one.earliest_ms)
        subscribers = tuple(
            self._follower(one, member, heard_at, are_statuses_complete=are_complete)
            for member in members
            if member.follows(one.publisher)
        )
        return BuildView(
            build_id=one.build_id,
            publisher=one.publisher,
            state=_state(subscribers, is_whole=one.published >= one.total),
            published=one.published,
            total=one.total,
            package_bytes=one.package_bytes,
            # there is one: `_receive` has dropped the builds whose packages retention removed
            first_offset=one.offsets[0],
            last_offset=one.offsets[-1],
            first_published_at=moment_of(one.first_ms),
            last_published_at=moment_of(one.last_ms),
            subscribers=subscribers,
        )

    def _follower(
        self, one: _Build, member: SubscriberStatus, heard_at: float, *, are_statuses_complete: bool
    ) -> BuildFollowerView:
        """Count outcomes by stretches of packages that have the same one: a build has up to millions of packages."""
        publisher, queue_name, reports = one.publisher, member.queue_name, self._journal_state.reports
        first, last = one.offsets[0], one.offsets[-1]
        done_to = member.claims.done_to(reports.last(publisher, queue_name), heard_at)
        start = member.report_start(publisher)
        edges = {
            first,
            done_to,
            0 if start is None else start.offset,
            *reports.edges(publisher, queue_name, first, last),
        }
        begins = [*sorted(edge for edge in edges if first <= edge <= last), last + 1]
        counts = Counter[Outcome]()
        for begin, end in pairwise(begins):
            count = bisect_left(one.offsets, end) - bisect_left(one.offsets, begin)
            if not count:
                continue
            facts = OutcomeFacts(
                offset=begin,
                done_to=done_to,
                is_editable=member.is_editable,
                start=start,
                reports=reports.find(publisher, queue_name, begin),
                are_statuses_complete=are_statuses_complete,
            )
            counts[decide_outcome(facts).outcome] += count
        return BuildFollowerView(
            name=member.name,
            imported=counts[Outcome.IMPORTED],
            state=str(member.state),
            pending=counts[Outcome.PENDING],
            skipped=counts[Outcome.SKIPPED],
            dropped=counts[Outcome.DROPPED],
            given_up=counts[Outcome.GIVEN_UP],
            unknown=counts[Outcome.UNKNOWN],
        )


def _state(subscribers: Sequence[BuildFollowerView], *, is_whole: bool) -> str:
    if any(subscriber.given_up for subscriber in subscribers):
        return "failed"
    if not is_whole:
        return "publishing"
    if not subscribers or any(subscriber.pending for subscriber in subscribers):
        return "published"
    has_missed = any(subscriber.skipped or subscriber.dropped or subscriber.unknown for subscriber in subscribers)
    return "incomplete" if has_missed else "distributed"


MAX_LOOKS: Final = 8
"""So many positions are looked up at once at most, those at which most subscribers stand first."""

SEARCHED_RECORDS: Final = 10
_KEPT: Final = 1_000


class BuildProgress:
    """Of the subscribers of one workspace. Safe to use from several threads."""

    def __init__(self, workspace: Workspace) -> None:
        """Read nothing yet."""
        self._workspace = workspace
        self._lock = threading.Lock()
        self._known: dict[tuple[LogIdentity, Offset], _Found | None] = {}

    def of(self, members: Sequence[SubscriberStatus]) -> Mapping[QueueName, BuildProgressView]:
        """The build that each is in the middle of; who is in none, or could not be looked up, is left out."""
        # held while the log is read: of callers that come together one reads, and the others find what it read
        with self._lock:
            found = self._at_all(members)
        progress = {}
        for member in members:
            at = None if member.next_offset is None else found.get(member.next_offset)
            if at is not None and member.follows(at.publisher):
                part = at.part
                progress[member.queue_name] = BuildProgressView(part.build_id, part.sequence + 1, part.total)
        return progress

    def _at_all(self, members: Sequence[SubscriberStatus]) -> Mapping[Offset, _Found | None]:
        journal, topic = self._workspace.journal, self._workspace.package_topic
        identity, bounds = journal.identity(topic), journal.bounds(topic)
        counts = Counter(member.next_offset for member in members if member.identity in {None, identity})
        positions = [
            position
            for position, _ in counts.most_common()
            if position is not None and bounds.earliest_offset < position <= bounds.next_offset
        ]
        new = [position for position in positions if (identity, position) not in self._known][:MAX_LOOKS]
        for position in new:
            start = Offset(max(bounds.earliest_offset, position - SEARCHED_RECORDS))
            with suppress(PositionOutOfRangeError):  # retention removed records since the bounds were read
                self._known[identity, position] = self._before(start, position)
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return {position: self._known.get((identity, position)) for position in positions}

    def _before(self, start: Offset, position: Offset) -> _Found | None:
        """The last package of a build before a position, unless it is the build's last one."""
        found = None
        for record in records_of(self._workspace.journal, self._workspace.package_topic, start, position):
            found = _part_in(record) or found
        return None if found is None or found.part.is_last else found


def _part_in(record: Record) -> _Found | None:
    # most packages are of no build, and decoding costs far more than the search for a field
    message = readable_package(record) if may_be_part(record.value) else None
    if message is None or message.bulk is None or message.pub_agent_name is None:
        return None
    return _Found(message.pub_agent_name, message.bulk, message.package_length_bytes)
