"""Which bulk build each subscriber is in the middle of, by the packages that precede its position in the log.

A few packages are read for each position, and what was found there is kept, so that many queries of subscribers that
stand still cost one. `builds.py`, which reads the whole log, has the progress of all subscribers with all builds.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from mailboat.api.records import BuildProgressView
from mailboat.composition.workspace import Workspace
from mailboat.control.subscriber_directory import SubscriberStatus
from mailboat.discovery.topology import AgentKey
from mailboat.journal.port import ReadLimits, Record
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import BulkPart, PackageMessage
from mailboat.model.positions import LogIdentity
from mailboat.operations.journal_inspection import readable
from mailboat.wire.bulk import may_be_part

MAX_LOOKS: Final = 8
"""So many positions are looked up at once at most, those at which most subscribers stand first."""

SEARCHED_RECORDS: Final = 10
_KEPT: Final = 1_000


class _Found(NamedTuple):
    publisher: AgentName
    part: BulkPart


class BuildProgress:
    """Of the subscribers of one workspace. Safe to use from several threads."""

    def __init__(self, workspace: Workspace) -> None:
        """Read nothing yet."""
        self._workspace = workspace
        self._lock = threading.Lock()
        self._known: dict[tuple[LogIdentity, Offset], _Found | None] = {}

    def of(self, members: Sequence[SubscriberStatus]) -> Mapping[AgentKey, BuildProgressView]:
        """The build that each is in the middle of; who is in none, or could not be looked up, is left out."""
        with self._lock:
            found = self._at_all(members)
        progress = {}
        for member in members:
            at = None if member.next_offset is None else found.get(member.next_offset)
            if at is not None and member.follows(at.publisher):
                part = at.part
                progress[member.key] = BuildProgressView(part.build_id, part.sequence + 1, part.total)
        return progress

    def _at_all(self, members: Sequence[SubscriberStatus]) -> Mapping[Offset, _Found | None]:
        journal, topic = self._workspace.journal, self._workspace.package_topic
        identity, bounds = journal.identity(topic), journal.bounds(topic)
        counts = Counter(member.next_offset for member in members if member.identity in {None, identity})
        positions = [
            one
            for one, _ in counts.most_common()
            if one is not None and bounds.earliest_offset < one <= bounds.next_offset
        ]
        new = [position for position in positions if (identity, position) not in self._known][:MAX_LOOKS]
        for one in new:
            start = Offset(max(bounds.earliest_offset, one - SEARCHED_RECORDS))
            self._known[identity, one] = self._before(start, one)
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return {position: self._known.get((identity, position)) for position in positions}

    def _before(self, start: Offset, position: Offset) -> _Found | None:
        """The last package of a build before a position, unless it is the build's last one."""
        found = None
        with closing(self._workspace.journal.reader(self._workspace.package_topic, start)) as reader:
            while reader.next_offset < position:
                records = reader.read(ReadLimits(max_records=position - reader.next_offset), 0.0).records
                if not records:
                    break
                for record in records:
                    found = _part_in(record) or found
        return None if found is None or found.part.is_last else found


def _part_in(record: Record) -> _Found | None:
    message = readable(record) if may_be_part(record.value) else None
    if not isinstance(message, PackageMessage) or message.bulk is None or message.pub_agent_name is None:
        return None
    return _Found(message.pub_agent_name, message.bulk)
