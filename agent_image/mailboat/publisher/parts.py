"""Publishing the packages of a bulk build: built elsewhere, appended here in order, each exactly once.

A part goes the way of every package: intent, append, receipt, and what it changes in its source with the receipt. The
request id names build and sequence. A publisher whose state was lost, as on a pod with a fresh disk, finds the parts
of the build in the log. How parts are appended beside other publications is in `lane.py`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

from mailboat.errors import MessageCorruptError, PathRefusedError
from mailboat.journal.port import ReadLimits
from mailboat.model.identifiers import BuildId, Offset, PackageId
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.paths import NodePath, is_within
from mailboat.model.positions import LogIdentity
from mailboat.publisher.appending import Appender, Placed
from mailboat.publisher.changes import ChangeGroup, plan_changes
from mailboat.publisher.finding import messages_from
from mailboat.publisher.lane import KnownPart, PartLane
from mailboat.publisher.packaging import PackageBuilder
from mailboat.publisher.published import SourceEnd, SourceNode, StagedNode
from mailboat.publisher.settings import PublisherPorts, PublisherSettings
from mailboat.wire.messages import decode_package

_READ: Final = ReadLimits(max_records=500)


class PartShipper:
    """Ships the parts of builds for one publisher."""

    def __init__(
        self, settings: PublisherSettings, ports: PublisherPorts, builder: PackageBuilder, appender: Appender
    ) -> None:
        """Nothing is read yet."""
        self._settings = settings
        self._ports = ports
        self._appender = appender
        self._lane = PartLane(settings, ports, builder, appender)

    def identity(self) -> LogIdentity:
        """The log that is published to."""
        return self._appender.identity()

    def next_offset(self) -> Offset:
        """Where the log ends: no part of a build that begins now stands before it."""
        return self._ports.journal.bounds(self._settings.package_topic).next_offset

    def end_of(self, uri: str) -> SourceEnd | None:
        """The last package that changed what is published of a source, as long as the log has it or had it."""
        self._appender.reconcile()
        return next((end for end in self._ports.state.published.ends(self.identity()) if end.uri == uri), None)

    def build_of(self, end: SourceEnd) -> BuildId | None:
        """The build that a source's last package is of; None where it is of none, or the log has it no more."""
        record = self._ports.journal.record_at(self._settings.package_topic, end.offset)
        message = None if record is None else _decoded(record.value)
        return None if message is None or message.bulk is None else message.bulk.build_id

    def is_followed(self, uri: str) -> bool:
        """Whether it is known what was published of a source."""
        return self._ports.state.published.source_id(uri, self.identity()) is not None

    def remember(
        self, uri: str, nodes: Iterable[StagedNode], end: tuple[PackageId, Offset], *, is_doubted: bool
    ) -> None:
        """Follow a source of which an earlier build, whose last package is `end`, published these nodes.

        When that `is_doubted`, they count for what may have to be removed, and not for what is there.
        """
        package_id, offset = end
        published = self._ports.state.published
        published.discard(package_id)
        source_id = published.follow(uri, self.identity())
        with published.stager(package_id, (source_id,)) as staged:
            for node in nodes:
                staged.add(node)
        self._ports.state.take_over(package_id, offset, (source_id,) if is_doubted else ())

    def has_published_since(self, since: Offset, roots: Sequence[NodePath], known: Container[BuildId]) -> bool:
        """Whether this publisher put or removed anything at or below `roots` at or after an offset, as the log tells.

        What `known` builds published does not count. Where the log begins later, nobody can tell, so it is assumed.
        """
        if self._ports.journal.bounds(self._settings.package_topic).earliest_offset > since:
            return True
        return any(
            message.pub_agent_name == self._settings.name
            and (message.bulk is None or message.bulk.build_id not in known)
            and _changes_any(message, roots)
            for _, message in messages_from(self._ports.journal, self._settings.package_topic, since)
        )

    def removals(
        self, uri: str, roots: Sequence[NodePath], nodes: Iterable[SourceNode], kept: Sequence[NodePath] = ()
    ) -> Iterator[ChangeGroup]:
        """What was published of a source below `roots` and is not among its `nodes`, cut into closing packages.

        What lies at or below `kept` is left alone.
        """
        published = self._ports.state.published
        with self._ports.state.locks.exclusive("changes"):
            published.compare(published.follow(uri, self.identity()), roots, nodes)
            gone = (
                change
                for change in published.changes()
                if change.is_removal and not any(is_within(change.path, path) for path in kept)
            )
            yield from plan_changes(gone, self._settings.changes)

    def published_parts(self, build_id: BuildId, scan_from: Offset) -> dict[int, Placed]:
        """The parts of a build that stand in the log at or after an offset, by their sequence: the first of each."""
        found: dict[int, Placed] = {}
        for offset, message in messages_from(self._ports.journal, self._settings.package_topic, scan_from):
            if message.bulk is not None and message.bulk.build_id == build_id:
                found.setdefault(message.bulk.sequence, Placed(offset, message.package_id, is_repeat=True))
        return found

    def ship(self, parts: Iterable[KnownPart], uri: str) -> Iterator[Placed]:
        """Publish parts of one build in order; their places, as they are durable.

        Args:
            parts: Each with the place where it was found in the log, if it was; see `published_parts`.
            uri: Of their source.

        Raises:
            RequestConflictError: The build published something else in a part's place.
            JournalUnavailableError, StorageFullError: Try again; what was appended is found.
        """
        return self._lane.ship(parts, uri)


def _decoded(value: bytes) -> PackageMessage | None:
    try:
        return decode_package(value)
    except (MessageCorruptError, PathRefusedError):
        return None  # another's, and no matter of ours


def _changes_any(message: PackageMessage, roots: Sequence[NodePath]) -> bool:
    if message.action not in {Action.ADD, Action.DELETE}:
        return False
    deep = frozenset(message.paths if message.action is Action.DELETE else message.deep_paths)
    return any(
        is_within(path, root) or (path in deep and is_within(root, path)) for path in message.paths for root in roots
    )
