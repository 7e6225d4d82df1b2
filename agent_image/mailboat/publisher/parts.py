"""Publishing the packages of a bulk build: built elsewhere, appended here one by one, each exactly once.

A part goes the way of every package: intent, append, receipt, and what it changes in its source with the receipt. The
request id names build and sequence. A publisher whose state was lost, as on a pod with a fresh disk, finds the parts
of the build in the log. Between two parts the lane gives way: whoever waits to append comes first, so a single
publication waits for one part at most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from mailboat.blobs.references import BlobReference
from mailboat.errors import MessageCorruptError, PathRefusedError
from mailboat.failpoints import Failpoint
from mailboat.journal.port import ReadLimits
from mailboat.model.identifiers import BuildId, Offset, PackageId, RequestId
from mailboat.model.messages import Action, BulkPart, PackageMessage
from mailboat.model.nodes import Binary
from mailboat.model.paths import NodePath, is_within
from mailboat.model.positions import LogIdentity
from mailboat.publisher.appending import Appender, Placed, Prepared
from mailboat.publisher.changes import ChangeGroup, plan_changes
from mailboat.publisher.packaging import PackageBuilder
from mailboat.publisher.published import SourceEnd, SourceNode, StagedNode
from mailboat.publisher.requests import DistributionRequest
from mailboat.publisher.settings import PublisherPorts, PublisherSettings
from mailboat.publisher.state import StoredReceipt
from mailboat.tracing import PublicationSpan, TracedPackage
from mailboat.wire.messages import decode_package

_READ: Final = ReadLimits(max_records=500)


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


class PartShipper:
    """Ships the parts of builds for one publisher."""

    def __init__(
        self, settings: PublisherSettings, ports: PublisherPorts, builder: PackageBuilder, appender: Appender
    ) -> None:
        """Nothing is read yet."""
        self._settings = settings
        self._ports = ports
        self._builder = builder
        self._appender = appender

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

    def is_followed(self, uri: str) -> bool:
        """Whether it is known what was published of a source."""
        return self._ports.state.published.source_id(uri, self.identity()) is not None

    def remember(self, uri: str, nodes: Iterable[StagedNode], end: tuple[PackageId, Offset]) -> None:
        """Follow a source of which an earlier build, whose last package is `end`, published these nodes."""
        package_id, offset = end
        published = self._ports.state.published
        published.discard(package_id)
        with published.stager(package_id, (published.follow(uri, self.identity()),)) as staged:
            for node in nodes:
                staged.add(node)
        self._ports.state.take_over(package_id, offset)

    def removals(
        self, uri: str, roots: Sequence[NodePath], nodes: Iterable[SourceNode], kept: Sequence[NodePath] = ()
    ) -> Iterator[ChangeGroup]:
        """What was published of a source below `roots` and is not among its `nodes`, cut into closing packages.

        What lies at or below `kept` is left alone.
        """
        published = self._ports.state.published
        with self._ports.state.exclusive("changes"):
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
        journal, topic = self._ports.journal, self._settings.package_topic
        bounds = journal.bounds(topic)
        start = max(bounds.earliest_offset, min(scan_from, bounds.next_offset))
        with closing(journal.reader(topic, start)) as reader:
            while reader.next_offset < bounds.next_offset:
                batch = reader.read(_READ, 0.0)
                for record in batch.records:
                    message = _decoded(record.value)
                    if message is not None and message.bulk is not None and message.bulk.build_id == build_id:
                        placed = Placed(record.offset, message.package_id, is_repeat=True)
                        found.setdefault(message.bulk.sequence, placed)
                if batch.is_at_end and not batch.records:
                    break
        return found

    def ship(self, part: Part, uri: str, known: Placed | None = None) -> Placed:
        """Publish a part, unless it stands in the log: at the place that is `known`, or by its receipt.

        Raises:
            RequestConflictError: The build published something else in its place.
            JournalUnavailableError, StorageFullError: Try again; what was appended is found.
        """
        found = self._appender.find(part.request_id, part.fingerprint)
        if found is not None:
            return found
        state, identity = self._ports.state, self.identity()
        source_ids = (state.published.follow(uri, identity),)
        state.published.discard(part.package_id)  # of an attempt that died: it is staged anew
        with state.published.stager(part.package_id, source_ids) as staged:
            for change in part.changes:
                staged.add(change)
        self._ports.failpoints.reach(Failpoint.BULK_PART_STAGED)
        if known is not None:
            receipt = StoredReceipt(part.request_id, part.fingerprint, part.package_id, identity, known.offset)
            state.store_receipts([receipt])
            return known
        state.give_way()
        return self._append(part, source_ids)

    def _append(self, part: Part, source_ids: Sequence[int]) -> Placed:
        span = self._ports.tracer.publication(Action.ADD, None)
        try:
            message = self._message_of(part, span)
            (placed,) = self._appender.append([Prepared(message, part.fingerprint, True, source_ids)])
        except Exception as error:
            span.end(None, error)
            raise
        span.end(_traced(message, placed), None)
        return placed

    def _message_of(self, part: Part, span: PublicationSpan) -> PackageMessage:
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
        return message


def _traced(message: PackageMessage, placed: Placed) -> TracedPackage:
    return TracedPackage(
        message.package_id,
        message.action,
        message.pub_agent_name,
        placed.offset,
        message.paths[0] if message.paths else None,
        message.package_length_bytes,
        message.trace_parent,
    )


def _decoded(value: bytes) -> PackageMessage | None:
    try:
        return decode_package(value)
    except (MessageCorruptError, PathRefusedError):
        return None  # another's, and no matter of ours
