"""A publisher's log in memory, the subscribers that report on it, and its run of distributed events, step by step.

For tests of when a package counts as distributed, whatever subscribers and processes do meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mailboat.config.topic_settings import TopicSettings
from mailboat.failpoints import Failpoint
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import Edge, NewRecord, ReadLimits
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.job_rules import JobRule
from mailboat.model.messages import (
    Action,
    DiscoveryMessage,
    DistributedEvent,
    PackageMessage,
    PackageStatus,
    ReportStart,
    StatusMessage,
    SubscriberState,
    TopicRole,
)
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity
from mailboat.publisher.distributed_memory import EventMemory
from mailboat.publisher.distributed_notifier import EventPorts, EventRun, EventSettings
from mailboat.testing.clocks import ManualClock
from mailboat.wire.event_documents import decode_event
from mailboat.wire.messages import encode_message

AUTHOR = AgentName("author")
SLING = SlingId("5a1e0000-0000-4000-8000-000000000001")
SETTINGS = EventSettings(AUTHOR, silent_seconds=300.0, job_rules=(JobRule("/**", "webhook.crm"),))
SETTLED = 1.1
FROM_FIRST = ReportStart(Offset(0), is_first=True)
SILENT = 301.0


class CrashError(BaseException):
    """The process would be dead now."""


@dataclass
class CrashingFailpoints:
    """Crashes at the next time that the step is reached."""

    at: Failpoint | None = None

    def reach(self, failpoint: Failpoint) -> None:
        if failpoint is self.at:
            self.at = None
            raise CrashError(failpoint)


def name_of(subscriber: str) -> str:
    """What events call a subscriber."""
    return f"{SLING}-{subscriber}"


@dataclass
class World:
    """A publisher's log and the subscribers that report on it."""

    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)
    failpoints: CrashingFailpoints = field(default_factory=CrashingFailpoints)

    def __post_init__(self) -> None:
        self.journal = MemoryJournal(self.clock)
        for role in TopicRole:
            self.journal.ensure_topic(TopicName(role), TopicSettings(retention_seconds=None))
        self.memory = EventMemory(self.folder / "author.db", "OFF")
        self.run: EventRun | None = None
        self.start()

    def stop(self) -> None:
        if self.run is not None:
            self.run.close()
        self.run = None

    def start(self) -> None:
        self.stop()
        self.run = EventRun(SETTINGS, EventPorts(self.journal, self.memory, self.clock, self.failpoints))

    def step(self) -> list[DistributedEvent]:
        return [] if self.run is None else list(self.run.step(0.0))

    def settle(self) -> list[DistributedEvent]:
        """What is raised now, and after positions had time to settle."""
        found = self.step()
        self.clock.advance(SETTLED)
        return found + self.step()

    def publish(self, action: Action = Action.ADD, publisher: str = "author") -> Offset:
        end = self.journal.bounds(TopicName("package")).next_offset
        message = PackageMessage(
            SLING, PackageId(f"dstrpck-{end}"), action, "tree", AgentName(publisher), paths=(NodePath(f"/p{end}"),)
        )
        return self.append("package", message)

    def announce(
        self,
        subscriber: str,
        next_offset: int,
        identity: LogIdentity | None = None,
        reports: ReportStart | None = FROM_FIRST,
    ) -> None:
        states = (SubscriberState(AUTHOR, next_offset - 1, reports=reports),)
        self.append("discovery", DiscoveryMessage(SLING, AgentName(subscriber), states, log_identity=identity))

    def announce_all(self, subscriber: str, next_offset: int) -> None:
        """As one that follows all, and has seen nothing of this publisher yet."""
        states = (SubscriberState(AgentName("other"), next_offset - 1),)
        message = DiscoveryMessage(
            SLING,
            AgentName(subscriber),
            states,
            next_offset=Offset(next_offset),
            follows_all=True,
            reports=FROM_FIRST,
        )
        self.append("discovery", message)

    def say(self, subscriber: str, offset: int, status: PackageStatus, golden: str | None = None) -> None:
        staged_behind = None if golden is None else AgentName(golden)
        message = StatusMessage(
            SLING, AgentName(subscriber), AUTHOR, Offset(offset), status, staged_behind=staged_behind
        )
        self.append("status", message)

    def append(self, topic: str, message: PackageMessage | DiscoveryMessage | StatusMessage) -> Offset:
        headers, value = encode_message(message)
        return self.journal.append(TopicName(topic), [NewRecord(value, headers)])[0]

    def events(self) -> list[DistributedEvent]:
        reader = self.journal.reader(TopicName("event"), Edge.EARLIEST)
        records = reader.read(ReadLimits(100_000, 1 << 30), 0.0).records
        reader.close()
        return [decode_event(record.headers, record.value) for record in records]

    def close(self) -> None:
        if self.run is not None:
            self.run.close()
        self.memory.close()
        self.journal.close()
