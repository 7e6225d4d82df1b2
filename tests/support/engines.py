"""A whole distribution in one folder or in memory, to test publisher and subscriber with: real parts, short names.

`Engine` owns the journal, the blob store and the publisher's state, makes publishers and subscribers on them, and says
what the content of a target is. Everything that a test wants to own (clock, chance, failure) is passed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.blobs.memory import MemoryBlobStore
from mailboat.blobs.port import BlobStore
from mailboat.clock import Clock, SystemClock
from mailboat.config.document import SubscriberConfig
from mailboat.config.topic_settings import TopicSettings
from mailboat.content.digest import tree_digest
from mailboat.content.port import Source, Target
from mailboat.content.sources.folder import FolderSource
from mailboat.content.targets.files import open_files_target
from mailboat.content.targets.generations import open_generations_target
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.failpoints import Failpoints, NoFailpoints
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import Edge, Journal, NewRecord, ReadLimits, Record
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.messages import CommandResult, Message, StatusMessage
from mailboat.model.nodes import Binary, Node, file_node, folder_node
from mailboat.model.paths import ROOT, NodePath, ancestors_of
from mailboat.model.positions import Position
from mailboat.packages.port import PackageCodec
from mailboat.packages.tree import TreeCodec
from mailboat.publisher.publisher import Publisher
from mailboat.publisher.publisher_settings import PublisherPorts, PublisherSettings
from mailboat.publisher.state import PublisherState
from mailboat.publisher.state_file import Synchronous
from mailboat.subscriber.admission import ImportGuard, StopSignal
from mailboat.subscriber.figures import Observer, SubscriberStatistics
from mailboat.subscriber.importer import Importer
from mailboat.subscriber.payloads import Payloads
from mailboat.subscriber.piece_store import PieceStore
from mailboat.subscriber.subscriber import Subscriber
from mailboat.subscriber.subscriber_settings import SubscriberPorts, SubscriberSettings
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.memory_content import MemorySource
from mailboat.wire.messages import decode_message, encode_message

AUTHOR: Final = AgentName("author")
EDGE: Final = AgentName("edge")
PACKAGES: Final = TopicName("package")
STATUSES: Final = TopicName("status")
COMMANDS: Final = TopicName("command")
ANNOUNCEMENTS: Final = TopicName("discovery")
SLING_ID: Final = SlingId("5a1e0000-0000-4000-8000-000000000001")
TARGET_KINDS: Final = ("sqlite", "files", "generations")
_C = TypeVar("_C", bound="_Closable")
_S = TypeVar("_S", PublisherSettings, SubscriberSettings)
_ALL: Final = ReadLimits(max_records=10_000, max_bytes=1 << 30)


class _Closable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What a test may want to own."""

    clock: Clock = field(default_factory=SystemClock)
    failpoints: Failpoints = field(default_factory=NoFailpoints)
    random: random.Random = field(default_factory=lambda: random.Random(1))  # tests foresee it
    synchronous: Synchronous = "FULL"
    codecs: Mapping[str, PackageCodec] = field(default_factory=lambda: {"tree": TreeCodec()})


def _with_section(settings: _S, values: Mapping[str, object]) -> _S:
    keys = {item.name for item in fields(settings)}
    own = {name: value for name, value in values.items() if name in keys}
    section = {name: value for name, value in values.items() if name not in keys}
    return replace(settings, config=replace(settings.config, **section), **own)  # type: ignore[arg-type]


class Engine:
    """The parts of one distribution below a folder. A context manager."""

    def __init__(
        self,
        folder: Path,
        parts: EngineParts | None = None,
        *,
        journal: Journal | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        """Open, or make, everything; a journal or blob store that is given is used instead of one in the folder."""
        self.folder = folder
        self.parts = parts or EngineParts()
        self._opened = ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        self.journal = journal or self._opened.enter_context(
            SqliteJournal.create(folder / "journal.db", self.parts.clock)
        )
        for topic in (PACKAGES, STATUSES, COMMANDS, ANNOUNCEMENTS):
            self.journal.ensure_topic(topic, TopicSettings())
        self.blobs = blobs or self._close_later(DirectoryBlobStore(folder / "blobs", self.parts.clock))
        self.state = self._close_later(PublisherState(folder / "author.db", self.parts.clock, self.parts.synchronous))
        self.publishing = PublisherSettings(AUTHOR, SLING_ID)
        self.subscribing = SubscriberSettings(
            EDGE, SLING_ID, is_editable=True, config=SubscriberConfig(max_retries=3, first_pause_seconds=0.01)
        )

    def forget_state(self) -> None:
        """Continue without the publisher's state, as on a fresh disk."""
        self.state.close()
        for file in self.folder.glob("author.db*"):
            file.unlink()
        self.state = self._close_later(PublisherState(self.folder / "author.db", self.parts.clock, "OFF"))

    def publisher(self, settings: PublisherSettings | None = None) -> Publisher:
        """A publisher agent."""
        parts = self.parts
        ports = PublisherPorts(
            self.journal, self.blobs, parts.codecs, self.state, parts.clock, parts.failpoints, parts.random
        )
        return Publisher(settings or self.publishing, ports)

    def subscriber(
        self,
        target: Target,
        settings: SubscriberSettings | None = None,
        change_ports: Callable[[SubscriberPorts], SubscriberPorts] | None = None,
    ) -> Subscriber:
        """A subscriber agent on a target that the caller closes."""
        parts = self.parts
        ports = SubscriberPorts(
            self.journal, self.blobs, parts.codecs, parts.clock, parts.failpoints, parts.random, target=target
        )
        return Subscriber(settings or self.subscribing, ports if change_ports is None else change_ports(ports))

    def importer(self, target: Target) -> Importer:
        """What imports records into a batch, without the loop around it."""
        ports = SubscriberPorts(self.journal, self.blobs, self.parts.codecs, self.parts.clock, target=target)
        pieces = PieceStore(ports.journal, PACKAGES, ports.clock)
        payloads = Payloads(ports.blobs, ports.references, pieces, self.subscribing.limits.max_total_bytes)
        return Importer(self.subscribing, ports, payloads, ImportGuard(ports.clock, None, StopSignal()))

    def position(self, next_offset: int) -> Position:
        """A position in the package topic."""
        return Position(self.journal.identity(PACKAGES), Offset(next_offset))

    def target(self, kind: str, name: str = "edge") -> Target:
        """Open a target in the folder; the caller closes it."""
        place = self.folder / f"{name}-{kind}"
        if kind == "sqlite":
            return open_sqlite_target(place / "content.db")
        if kind == "files":
            return open_files_target(place, self.parts.failpoints)
        return open_generations_target(place, self.parts.failpoints)

    def records(self, topic: TopicName = PACKAGES) -> list[Record]:
        """All records of a topic."""
        reader = self.journal.reader(topic, Edge.EARLIEST)
        try:
            return list(reader.read(_ALL, 0.0).records)
        finally:
            reader.close()

    def statuses(self) -> list[StatusMessage]:
        """All confirmations in the log."""
        messages = [decode_message(record.headers, record.value) for record in self.records(STATUSES)]
        return [message for message in messages if isinstance(message, StatusMessage)]

    def results(self) -> list[CommandResult]:
        """All answers to commands in the log."""
        messages = [decode_message(record.headers, record.value) for record in self.records(STATUSES)]
        return [message for message in messages if isinstance(message, CommandResult)]

    def send(self, topic: TopicName, *messages: Message) -> None:
        """Append messages to a topic."""
        encoded = map(encode_message, messages)
        self.journal.append(topic, [NewRecord(value, headers) for headers, value in encoded])

    def publishing_with(self, **values: object) -> PublisherSettings:
        """The publisher's settings with some replaced, its own or those of the configuration."""
        return _with_section(self.publishing, values)

    def with_settings(self, **values: object) -> SubscriberSettings:
        """The subscriber's settings with some replaced, its own or those of the configuration."""
        return _with_section(self.subscribing, values)

    def close(self) -> None:
        """Release everything but targets."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_later(self, one: _C) -> _C:
        self._opened.callback(one.close)
        return one


def digest_of(source: Source) -> str:
    """The canonical digest of a source's whole tree, in hexadecimal."""
    try:
        return tree_digest(source.walk(ROOT)).hex()
    finally:
        source.close()


def write_site(folder: Path, files: Mapping[str, str | bytes]) -> FolderSource:
    """Make a folder with these files, and nothing else, and read it."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return FolderSource(folder)


def memory_engine(folder: Path, parts: EngineParts | None = None) -> Engine:
    """An engine whose journal and blobs are in memory; `folder` gets the publisher's state. Waits pass at once."""
    parts = parts or EngineParts(SkippingClock(), synchronous="OFF")
    return Engine(folder, parts, journal=MemoryJournal(parts.clock), blobs=MemoryBlobStore(parts.clock))


def page_source(*paths: str, text: str = "text") -> MemorySource:
    """Files with a little text, and the folders above them."""
    nodes: dict[NodePath, Node] = {}
    for path in map(NodePath, paths):
        for above in ancestors_of(path):
            nodes.setdefault(above, folder_node(above))
        nodes[path] = file_node(path, Binary(f"{text} of {path}".encode()))
    return MemorySource(list(nodes.values()))


class StopWhen(Observer):
    """An observer that stops the subscriber when something holds."""

    def __init__(self, holds: Callable[[SubscriberStatistics], bool]) -> None:
        """Stop as soon as `holds` is true of a snapshot; all snapshots are kept in `seen`."""
        self.subscriber: Subscriber | None = None
        self._holds = holds
        self.seen: list[SubscriberStatistics] = []

    def on_progress(self, statistics: SubscriberStatistics) -> None:
        self.seen.append(statistics)
        if self.subscriber is not None and self._holds(statistics):
            self.subscriber.stop()

    def on_given_up(self, statistics: SubscriberStatistics) -> None:
        self.on_progress(statistics)


def watched_subscriber(engine: Engine, target: Target, observer: StopWhen) -> Subscriber:
    """A subscriber that the observer watches, and may stop."""

    def change(ports: SubscriberPorts) -> SubscriberPorts:
        return replace(ports, observer=observer)

    observer.subscriber = engine.subscriber(target, None, change)
    return observer.subscriber
