"""Bulk builds as the log tells them: how much of each is published, and how much of it every subscriber has imported.

Nothing is asked of who builds: the packages of a build say which part they are of how many. What was read of the log is
kept, so a later look reads only what is new; the first one goes back a long way, and not to the beginning of time.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from mailboat.agent.composition import Workspace
from mailboat.agent.control.audience import Audience
from mailboat.agent.control.build_views import BuildFollowerView, BuildView
from mailboat.agent.control.port import BuildMissingError
from mailboat.agent.inspection import readable
from mailboat.journal.port import ReadLimits, Record
from mailboat.model.identifiers import AgentName, BuildId, Offset
from mailboat.model.messages import BulkPart, PackageMessage
from mailboat.wire.bulk import may_be_part

MAX_SEARCHED_RECORDS: Final = 500_000
"""How far back from its end the log is searched for builds by the first look."""

MAX_BUILDS: Final = 50
_READ: Final = ReadLimits(max_records=1_000)


@dataclass(slots=True)
class _Build:
    build_id: BuildId
    publisher: AgentName
    total: int
    published: int = 0
    package_bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0
    offsets: array[int] = field(default_factory=lambda: array("q"))

    def take(self, record: Record, part: BulkPart, message: PackageMessage) -> None:
        if part.sequence < self.published:
            return  # the same package once more
        self.total = part.total
        self.published = part.sequence + 1
        self.package_bytes += message.package_length_bytes
        self.first_ms = self.first_ms or record.appended_ms
        self.last_ms = record.appended_ms
        self.offsets.append(record.offset)


class BuildsSeen:
    """The builds in the log of one workspace. Safe to use from several threads."""

    def __init__(self, workspace: Workspace, audience: Audience) -> None:
        """Read nothing yet."""
        self._workspace = workspace
        self._audience = audience
        self._lock = threading.Lock()
        self._builds: dict[tuple[AgentName, BuildId], _Build] = {}
        self._next: Offset | None = None

    def list(self) -> Sequence[BuildView]:
        """All builds, the newest first."""
        with self._lock:
            self._hear()
            return [self._view(one) for one in reversed(self._builds.values())]

    def find(self, build_id: str) -> BuildView:
        """One of them. Raises: BuildMissingError."""
        found = next((one for one in self.list() if one.build_id == build_id), None)
        if found is None:
            raise BuildMissingError(f"the log holds no package of a build {build_id[:80]!r}", build=build_id[:80])
        return found

    def _hear(self) -> None:
        journal, topic = self._workspace.journal, self._workspace.package_topic
        bounds = journal.bounds(topic)
        earliest = max(bounds.earliest_offset, bounds.next_offset - MAX_SEARCHED_RECORDS)
        start = Offset(earliest if self._next is None else max(earliest, self._next))
        if self._next is not None and self._next > bounds.next_offset:  # the log is another one
            self._builds.clear()
            start = Offset(earliest)
        with closing(journal.reader(topic, start)) as reader:
            while reader.next_offset < bounds.next_offset:
                batch = reader.read(_READ, 0.0)
                for record in batch.records:
                    self._take(record)
                if batch.is_at_end and not batch.records:
                    break
            self._next = reader.next_offset

    def _take(self, record: Record) -> None:
        message = readable(record) if may_be_part(record.value) else None
        if not isinstance(message, PackageMessage) or message.bulk is None or message.pub_agent_name is None:
            return
        key = message.pub_agent_name, message.bulk.build_id
        if key not in self._builds:
            self._builds[key] = _Build(message.bulk.build_id, message.pub_agent_name, message.bulk.total)
            if len(self._builds) > MAX_BUILDS:
                del self._builds[next(iter(self._builds))]
        self._builds[key].take(record, message.bulk, message)

    def _view(self, one: _Build) -> BuildView:
        subscribers = tuple(
            BuildFollowerView(member.name, bisect_left(one.offsets, member.next_offset or 0), str(member.state))
            for member in self._audience.members()
            if member.follows(one.publisher)
        )
        is_whole = one.published >= one.total
        has_everybody = all(each.imported == len(one.offsets) for each in subscribers)
        return BuildView(
            build_id=one.build_id,
            publisher=one.publisher,
            state="publishing" if not is_whole else "distributed" if subscribers and has_everybody else "published",
            published=one.published,
            total=one.total,
            package_bytes=one.package_bytes,
            first_offset=one.offsets[0],
            last_offset=one.offsets[-1],
            first_published_ms=one.first_ms,
            last_published_ms=one.last_ms,
            subscribers=subscribers,
        )
