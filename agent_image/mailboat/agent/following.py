"""Waits until the known subscribers have imported a package: what `publish --wait` does.

Announcements say how far everybody is, statuses say who gave a package up. Both are read as they are appended, so the
wait ends within milliseconds of the last import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mailboat.agent.composition import Workspace
from mailboat.agent.inspection import readable
from mailboat.agent.subscribers import SubscriberView, subscriber_views, view_of
from mailboat.clock import Deadline
from mailboat.journal.port import Edge, JournalReader, ReadLimits
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import DiscoveryMessage, PackageStatus, StatusMessage, TopicRole

_READ = ReadLimits()
_WAIT_SECONDS = 0.25


@dataclass(slots=True)
class Following:
    """Who has imported, and who has not yet.

    Attributes:
        waiting: Subscribers that have not come past the last offset, as they were last known.
        imported: Those that have.
        failed: Those that gave one of the packages up, with the reason.
        seconds: How long it took.
        unreadable: Records seen meanwhile that are no message that can be understood.
    """

    waiting: dict[AgentName, SubscriberView]
    imported: list[AgentName] = field(default_factory=list)
    failed: dict[AgentName, str] = field(default_factory=dict)
    seconds: float = 0.0
    unreadable: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether nobody is waited for any more."""
        return not self.waiting

    @property
    def total(self) -> int:
        """How many subscribers there are."""
        return len(self.waiting) + len(self.imported) + len(self.failed)

    def see(self, view: SubscriberView, last: Offset) -> None:
        """Take in how far a subscriber is."""
        if view.next_offset is not None and view.next_offset > last and self.waiting.pop(view.name, None) is not None:
            self.imported.append(view.name)
        elif view.name in self.waiting:
            self.waiting[view.name] = view

    def see_status(self, status: StatusMessage, offsets: Sequence[Offset]) -> None:
        """Take in that a package was given up."""
        if status.status is PackageStatus.REMOVED_FAILED and status.offset in offsets:
            self.waiting.pop(status.sub_agent_name, None)
            if status.sub_agent_name in self.imported:
                self.imported.remove(status.sub_agent_name)
            cause = status.cause
            self.failed[status.sub_agent_name] = "given up" if cause is None else f"{cause.code}: {cause.message}"


class Followers:
    """The subscribers of a publisher, from before a publication on, so that nothing said meanwhile is missed."""

    def __init__(self, workspace: Workspace, publisher: AgentName) -> None:
        """Begin to listen. To be closed."""
        self._workspace = workspace
        self._discovery = self._reader(TopicRole.DISCOVERY)
        self._statuses = self._reader(TopicRole.STATUS)
        self._views = [view for view in subscriber_views(workspace) if view.follows(publisher)]

    def wait(self, offsets: Sequence[Offset], seconds: float) -> Following:
        """Wait until everybody is past the last of `offsets`, or gave one of them up, or the time is over."""
        clock = self._workspace.clock
        started, deadline = clock.monotonic(), Deadline(clock, seconds)
        found = Following({view.name: view for view in self._views})
        for view in self._views:
            found.see(view, offsets[-1])
        while not found.is_complete and not deadline.is_over():
            self._hear(found, offsets, min(_WAIT_SECONDS, deadline.remaining_seconds()))
        self._hear(found, offsets, 0.0)
        found.seconds = clock.monotonic() - started
        return found

    def close(self) -> None:
        """Stop listening."""
        self._discovery.close()
        self._statuses.close()

    def _reader(self, role: TopicRole) -> JournalReader:
        return self._workspace.journal.reader(self._workspace.topic(role), Edge.NEXT)

    def _hear(self, found: Following, offsets: Sequence[Offset], wait_seconds: float) -> None:
        for record in self._discovery.read(_READ, wait_seconds).records:
            message = readable(record)
            if isinstance(message, DiscoveryMessage) and message.states:
                found.see(view_of(message, record.appended_ms), offsets[-1])
            found.unreadable += message is None and record.value != b""
        for record in self._statuses.read(_READ, 0.0).records:
            message = readable(record)
            if isinstance(message, StatusMessage):
                found.see_status(message, offsets)
            found.unreadable += message is None
