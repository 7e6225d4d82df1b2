"""Publishing the packages of a bulk build: built elsewhere, appended here in order, each exactly once.

A part goes the way of every package: intent, append, receipt, and what it changes in its source with the receipt. The
request id names build and sequence. A publisher whose state was lost, as on a pod with a fresh disk, finds the parts of
the build in the log. Other publications come first: while one is under way a step is one part; otherwise as many as
weigh no more than one package may, in bytes of messages and in changes of their source. A build yields before each
step, so a publication waits for one package at most, or for one such step that began before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mailboat.blobs.references import BlobReference
from mailboat.failpoints import Failpoint
from mailboat.model.identifiers import BuildId, Offset, PackageId, RequestId
from mailboat.model.messages import Action, BulkPart, PackageMessage
from mailboat.model.nodes import Binary
from mailboat.model.paths import NodePath, is_within
from mailboat.model.positions import LogIdentity
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.appender import Appender, Placed, messages_from
from mailboat.publisher.builder import PackageBuilder, Publication
from mailboat.publisher.published import SourceEnd, SourceNode, StagedNode
from mailboat.publisher.publisher_settings import PublisherPorts, PublisherSettings
from mailboat.publisher.source_changes import ChangeGroup, plan_changes
from mailboat.publisher.state import StoredReceipt
from mailboat.queues.entries import readable_package
from mailboat.tracing import PublicationSpan

STEP_CHANGES: Final = 2_000
"""What the parts of one step change in their source at most: as much as one package of the usual budget."""
_BINARY_BYTES: Final = 48
_MESSAGE_BYTES: Final = 300


@dataclass(frozen=True, slots=True)
class Part:
    """A package of a build, ready to be published.

    Attributes:
        place: Its place in the build.
        package_id: See there.
        request_id: Names build and sequence.
        roots: What it owns.
        deep_roots: Those of them that it owns with their subtrees.
        package_type: The codec.
        length_bytes: Size of the package.
        package_digest: SHA-256 of its bytes.
        tree_digest: Canonical digest of its nodes.
        payload: The package; None where it is in the blob store.
        binaries: What it refers to in the blob store.
        changes: What it changes in what is published of its source, in order.
    """

    place: BulkPart
    package_id: PackageId
    request_id: RequestId
    roots: tuple[NodePath, ...]
    deep_roots: frozenset[NodePath]
    package_type: str
    length_bytes: int
    package_digest: bytes
    tree_digest: bytes
    payload: bytes | None = None
    binaries: tuple[Binary, ...] = ()
    changes: Sequence[StagedNode] = ()

    @property
    def fingerprint(self) -> bytes:
        """Equal for the same package: what another build of that id brings is a conflict."""
        return hashlib.sha256(self.package_digest + self.place.total.to_bytes(8)).digest()

    @property
    def message_bytes(self) -> int:
        """About how long its message is."""
        paths = sum(len(root) * (2 if root in self.deep_roots else 1) for root in self.roots)
        return len(self.payload or b"") + paths + len(self.binaries) * _BINARY_BYTES + _MESSAGE_BYTES


KnownPart = tuple[Part, Placed | None]
"""A part, and where it was found in the log, if it was."""


class _Step:
    """Parts that are appended in one step, or noted in one."""

    def __init__(self, settings: PublisherSettings) -> None:
        self._settings = settings
        self.parts = list[Part]()
        self.places = list[Placed]()
        self._message_bytes = 0
        self._changes = 0

    def has_room(self, part: Part, known: Placed | None) -> bool:
        if not self.parts:
            return True
        return (
            # Those in the log are only noted: a step has such parts, or new ones.
            bool(self.places) is (known is not None)
            and len(self.parts) < self._settings.append_records
            and self._message_bytes + part.message_bytes <= self._settings.max_message_bytes
            and self._changes + len(part.changes) <= STEP_CHANGES
        )

    def add(self, part: Part, known: Placed | None) -> None:
        self.parts.append(part)
        self.places += [] if known is None else [known]
        self._message_bytes += part.message_bytes
        self._changes += len(part.changes)


class BulkParts:
    """Publishes the parts of builds for one publisher."""

    def __init__(
        self, settings: PublisherSettings, ports: PublisherPorts, builder: PackageBuilder, appender: Appender
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._builder = builder
        self._appender = appender

    def identity(self) -> LogIdentity:
        return self._appender.identity()

    def next_offset(self) -> Offset:
        """Where the log ends: the parts of a build that begins now have this offset or later ones."""
        return self._ports.journal.bounds(self._settings.package_topic).next_offset

    def end_of(self, uri: str) -> SourceEnd | None:
        """The last package that changed what is published of a source, as long as the log has it or had it."""
        # First: an end that the log has lost does not count.
        self._appender.reconcile()
        return next((end for end in self._ports.state.published.ends(self.identity()) if end.uri == uri), None)

    def build_of(self, end: SourceEnd) -> BuildId | None:
        """The build that a source's last package is of; None where it is of none, or retention removed it."""
        message = readable_package(self._ports.journal.record_at(self._settings.package_topic, end.offset))
        return None if message is None or message.bulk is None else message.bulk.build_id

    def is_known(self, uri: str) -> bool:
        # That it is followed says nothing: a process may have died between `follow` and what it was to note.
        return self._ports.state.has_published(uri, self.identity())

    def remember(
        self, uri: str, nodes: Iterable[StagedNode], end: tuple[PackageId, Offset], *, is_doubted: bool
    ) -> None:
        """Follow a source of which an earlier build, whose last package is `end`, published these nodes.

        When that `is_doubted`, they count as nodes that may have to be removed, and not as published ones.
        """
        package_id, offset = end
        published = self._ports.state.published
        # An interrupted attempt may have staged these nodes already.
        published.discard(package_id)
        source_id = published.follow(uri, self.identity())
        with published.stager(package_id, (source_id,)) as staged:
            for node in nodes:
                staged.add(node)
        self._ports.state.take_over(package_id, offset, (source_id,) if is_doubted else ())

    def has_published_since(self, since: Offset, roots: Sequence[NodePath], known: Container[BuildId]) -> bool:
        """Whether this publisher put or removed anything at or below `roots` from an offset on, by the log.

        What `known` builds published does not count. Where the log begins later, True is assumed.
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
        """Published paths below `roots` that are not among `nodes`, cut into closing packages.

        What lies at or below `kept` is left alone.
        """
        published = self._ports.state.published
        with self._ports.state.locks.exclusive("changes"):
            # One comparison at a time: it uses temporary tables of the state's connection.
            published.compare(published.follow(uri, self.identity()), roots, nodes)
            gone = (
                change
                for change in published.changes()
                if change.is_removal and not any(is_within(change.path, path) for path in kept)
            )
            settings = self._settings
            yield from plan_changes(gone, settings.max_change_nodes, settings.config.changed_package_bytes)

    def published_parts(self, build_id: BuildId, scan_from: Offset) -> dict[int, Placed]:
        """The parts of a build in the log from an offset on, by sequence: the first of each."""
        found: dict[int, Placed] = {}
        for offset, message in messages_from(self._ports.journal, self._settings.package_topic, scan_from):
            # Another publisher, with a blob store of its own, may have given its build the same id.
            is_own = message.pub_agent_name == self._settings.name
            if is_own and message.bulk is not None and message.bulk.build_id == build_id:
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
        # what an interrupted attempt left undecided is settled first: staging replaces what it had staged
        self._appender.reconcile()
        step = _Step(self._settings)
        for part, known in parts:
            found = None if known is None else self._appender.find(part.request_id, part.fingerprint)
            if found is not None or not step.has_room(part, known):
                yield from self._flush(step, uri)
                step = _Step(self._settings)
            if found is not None:
                yield found
            else:
                step.add(part, known)
        yield from self._flush(step, uri)

    def _flush(self, step: _Step, uri: str) -> Iterator[Placed]:
        if not step.parts:
            return
        state = self._ports.state
        source_ids = (state.published.follow(uri, self._appender.identity()),)
        # Staged before the append: the receipt's transaction takes over what is staged.
        state.published.stage([(part.package_id, part.changes) for part in step.parts], source_ids)
        self._ports.failpoints.reach(Failpoint.BULK_PART_STAGED)
        if step.places:
            # The state did not know of these parts: it notes where they stand.
            identity = self._appender.identity()
            receipts = [
                StoredReceipt(part.request_id, part.fingerprint, part.package_id, identity, place.offset)
                for part, place in zip(step.parts, step.places, strict=True)
            ]
            state.store_receipts(receipts)
            yield from step.places
            return
        rest: Sequence[Part] = step.parts
        while rest:
            state.locks.yield_to_waiters()
            # Probed for each step: a publication that began meanwhile waits for one part only.
            now = rest[:1] if state.locks.probe_publication() else rest
            yield from self._append(now, source_ids)
            rest = rest[len(now) :]

    def _append(self, parts: Sequence[Part], source_ids: Sequence[int]) -> list[Placed]:
        spans = [self._ports.tracer.publication(Action.ADD, None) for _ in parts]
        try:
            batch = [self._publication(*one, source_ids) for one in zip(parts, spans, strict=True)]
        except Exception as error:
            for span in spans:
                span.end(None, error)
            raise
        return self._appender.append(batch)

    def _publication(self, part: Part, span: PublicationSpan, source_ids: Sequence[int]) -> Publication:
        context = None if span.context is None else str(span.context)
        request = DistributionRequest(Action.ADD, part.roots, part.deep_roots, part.request_id, trace_parent=context)
        reference = BlobReference(part.package_digest, part.length_bytes)
        message = self._builder.draft(request, part.package_id)._replace(
            package_type=part.package_type,
            package_length_bytes=part.length_bytes,
            package_digest=part.package_digest,
            tree_digest=part.tree_digest,
            payload=part.payload,
            payload_ref=self._ports.references.format(reference) if part.payload is None else None,
            binaries=part.binaries,
            bulk=part.place,
        )
        self._builder.room_in(message)
        return Publication(message, part.fingerprint, followed=source_ids, span=span)


def _changes_any(message: PackageMessage, roots: Sequence[NodePath]) -> bool:
    if message.action not in {Action.ADD, Action.DELETE}:
        return False
    deep = frozenset(message.paths if message.action is Action.DELETE else message.deep_paths)
    return any(
        is_within(path, root) or (path in deep and is_within(root, path)) for path in message.paths for root in roots
    )
