"""A home's control service with played subscribers: what they announce, confirm and answer is appended as they would.

For tests of what publishers know of subscribers, and of what a person can do about them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mailboat.api.records import DistributionView, QueueView, SubscriberStatusView
from mailboat.clock import SystemClock
from mailboat.composition.home import create_home
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import (
    Config,
    PublisherAgentConfig,
    PublisherConfig,
)
from mailboat.control.service import ControlService
from mailboat.journal.port import NewRecord, records_of
from mailboat.journal.sqlite_reader import SqliteReader
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import (
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    FailureCause,
    Message,
    PackageStatus,
    RedriveMessage,
    ReportStart,
    StatusMessage,
    SubscriberState,
    SuspendMessage,
    TopicRole,
)
from mailboat.model.requests import parse_request
from mailboat.queues.claims import SETTLING_SECONDS
from mailboat.wire.messages import decode_message, encode_message

SLING_ID = SlingId("5a1e0000-0000-4000-8000-000000000001")
AUTHOR, OTHER = AgentName("author"), AgentName("other")
CAUSE = FailureCause("StorageFull", "no space left on device", "/a", "Traceback …")
IMPORTED, REMOVED, FAILED = PackageStatus.IMPORTED, PackageStatus.REMOVED, PackageStatus.REMOVED_FAILED


@dataclass
class PlayedSubscriber:
    """A subscriber that a test plays."""

    append: Callable[[TopicRole, Message], None]
    name: str = "edge"
    publishers: tuple[AgentName, ...] = (AUTHOR,)
    sling_id: SlingId = SLING_ID
    is_editable: bool = False
    max_retries: int | None = 3
    last_done: int = -1
    reports: ReportStart | None = ReportStart(Offset(0), is_first=True)  # noqa: RUF009  # immutable
    heard: list[object] = field(default_factory=list)

    @property
    def queue_name(self) -> str:
        return f"{self.sling_id}-{self.name}"

    def announce(self, last_done: int | None = None, *, retries: int = 0, **facts: Any) -> None:
        """Say where it stands; `facts` are further fields of the announcement."""
        self.last_done = self.last_done if last_done is None else last_done
        states = tuple(
            SubscriberState(publisher, self.last_done, retries, self.reports) for publisher in self.publishers
        )
        known: dict[str, Any] = {
            "state": "importing",
            "max_retries": self.max_retries,
            "is_editable": self.is_editable,
        } | facts
        message = DiscoveryMessage(self.sling_id, AgentName(self.name), states, **known)
        self.append(TopicRole.DISCOVERY, message)

    def tell(
        self, offset: int, status: PackageStatus, publisher: AgentName = AUTHOR, golden: AgentName | None = None
    ) -> None:
        """Say what became of a package."""
        cause = CAUSE if status is FAILED else None
        message = StatusMessage(
            self.sling_id,
            AgentName(self.name),
            publisher,
            Offset(offset),
            status,
            None,
            cause,
            4,
            1_700_000_000_000,
            golden,
        )
        self.append(TopicRole.STATUS, message)

    def answer(
        self, command: CommandMessage | RedriveMessage | SuspendMessage, removed: int, message: str | None = None
    ) -> None:
        """Answer a command."""
        is_clear = isinstance(command, CommandMessage)
        verb = CommandVerb.CLEAR if is_clear else CommandVerb.REDRIVE
        if isinstance(command, SuspendMessage):
            verb, offset = command.verb, Offset(self.last_done + 1)
        else:
            offset = command.clear_up_to_offset if isinstance(command, CommandMessage) else command.offset
        result = CommandResult(
            command.command_id or "",
            self.sling_id,
            AgentName(self.name),
            verb,
            offset,
            CommandState.DONE,
            command.pub_agent_name,
            removed,
            message,
        )
        self.append(TopicRole.STATUS, result)


class ForwardClock(SystemClock):
    """The machine's clock, put forward by the test, or held."""

    ahead = timedelta()
    _held: datetime | None = None

    def now(self) -> datetime:
        return (self._held or super().now()) + self.ahead

    def stand_still(self) -> None:
        """From now on the wall time moves only when it is put forward."""
        self._held = super().now()


class Harbour:
    """A home with a source, its control service, and played subscribers."""

    def __init__(self, folder: Path, publisher: PublisherConfig) -> None:
        self._opened = ExitStack()
        self.source = folder / "site"
        self.source.mkdir()
        for number in range(5):
            (self.source / f"{number}.html").write_text(f"<p>{number}</p>")
        self.home = create_home(folder / "home", Config(publisher=publisher))
        initialise(self.home).__exit__(None, None, None)
        self.clock = ForwardClock()
        self.workspace = self._opened.enter_context(Workspace(self.home, self.clock))
        self.agents = [PublisherAgentConfig(AUTHOR, str(self.source)), PublisherAgentConfig(OTHER)]

    def service(self, *, is_running: bool = False) -> ControlService:
        """A control service; one of an agent keeps itself current."""
        service = ControlService(self.workspace, self.agents)
        self._opened.callback(service.close)
        if is_running:
            service.start()
        return service

    def append(self, role: TopicRole, message: Message) -> None:
        """Write what every client may write."""
        headers, value = encode_message(message)
        self.workspace.journal.append(self.workspace.topic(role), [NewRecord(value, headers)])

    def subscriber(self, name: str = "edge", **facts: Any) -> PlayedSubscriber:
        return PlayedSubscriber(self.append, name, **facts)

    def commands(self) -> list[CommandMessage | RedriveMessage | SuspendMessage]:
        """What subscribers were told."""
        records = records_of(self.workspace.journal, self.workspace.topic(TopicRole.COMMAND))
        return [decode_message(record.headers, record.value) for record in records]  # type: ignore[misc]  # nothing else is on that topic

    def close(self) -> None:
        self._opened.close()


def publish(service: ControlService, count: int = 1, publisher: str = AUTHOR) -> list[DistributionView]:
    """Requests that need no source."""
    return [service.distribute(publisher, parse_request("INVALIDATE", (f"/page-{n}",))) for n in range(count)]


def seen(service: ControlService, name: str = "edge") -> SubscriberStatusView:
    """Status of one subscriber."""
    (found,) = [subscriber for subscriber in service.status().subscribers if subscriber.name == name]
    return found


def settle(harbour: Harbour, service: ControlService) -> None:
    """Let what was announced be heard, and so much time pass that it counts."""
    service.catch_up()
    harbour.clock.ahead += timedelta(seconds=2 * SETTLING_SECONDS)


def queue_of(service: ControlService, name: str = "edge", publisher: str = AUTHOR) -> QueueView:
    """A subscriber's queue at a publisher."""
    return service.queue(publisher, name).queue


def count_records(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many records are read of each topic from now on."""
    counts: dict[str, int] = dict.fromkeys(map(str, TopicRole), 0)
    read = SqliteReader.read

    def counting(self: SqliteReader, *arguments: Any) -> object:
        batch = read(self, *arguments)
        counts[self._settings.topic] += len(batch.records)
        return batch

    monkeypatch.setattr(SqliteReader, "read", counting)
    return counts
