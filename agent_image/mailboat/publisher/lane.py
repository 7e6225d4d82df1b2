"""The lane of bulk builds: parts are appended in order, many in one step, and whoever else publishes comes first.

A step of the lane is one append with its intents before and its receipts behind it, as for every publication. While a
publication is under way a step holds one part; otherwise as many as weigh no more than one package may: in bytes of
messages, and in what they change in their source. Before each step the lane lets in who waits. So a publication waits
for one package at most, or for one such step, which was begun before anybody knew of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mailboat.blobs.references import BlobReference
from mailboat.failpoints import Failpoint
from mailboat.model.identifiers import PackageId, RequestId
from mailboat.model.messages import Action, BulkPart, PackageMessage
from mailboat.model.nodes import Binary
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.appending import Appender, Placed, Prepared
from mailboat.publisher.packaging import PackageBuilder
from mailboat.publisher.published import StagedNode
from mailboat.publisher.settings import PublisherPorts, PublisherSettings
from mailboat.publisher.state import StoredReceipt
from mailboat.tracing import PublicationSpan, TracedPackage

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


class PartLane:
    """Appends the parts of builds for one publisher."""

    def __init__(
        self, settings: PublisherSettings, ports: PublisherPorts, builder: PackageBuilder, appender: Appender
    ) -> None:
        """Nothing is read yet."""
        self._settings = settings
        self._ports = ports
        self._builder = builder
        self._appender = appender

    def ship(self, parts: Iterable[KnownPart], uri: str) -> Iterator[Placed]:
        """See `PartShipper.ship`."""
        self._appender.reconcile()  # what an attempt left undecided is settled before anything is staged anew
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
        state.published.stage([(part.package_id, part.changes) for part in step.parts], source_ids)
        self._ports.failpoints.reach(Failpoint.BULK_PART_STAGED)
        if step.places:
            yield from self._remembered(step)
            return
        rest: Sequence[Part] = step.parts
        while rest:
            state.locks.give_way()
            now = rest[:1] if state.locks.probe_publication() else rest
            yield from self._append(now, source_ids)
            rest = rest[len(now) :]

    def _remembered(self, step: _Step) -> Sequence[Placed]:
        """Note where parts stand of which the state did not know."""
        identity = self._appender.identity()
        receipts = [
            StoredReceipt(part.request_id, part.fingerprint, part.package_id, identity, place.offset)
            for part, place in zip(step.parts, step.places, strict=True)
        ]
        self._ports.state.store_receipts(receipts)
        return step.places

    def _append(self, parts: Sequence[Part], source_ids: Sequence[int]) -> list[Placed]:
        spans = [self._ports.tracer.publication(Action.ADD, None) for _ in parts]
        try:
            messages = [self._message_of(part, span) for part, span in zip(parts, spans, strict=True)]
            placed = self._appender.append(
                [
                    Prepared(message, part.fingerprint, True, source_ids)
                    for message, part in zip(messages, parts, strict=True)
                ]
            )
        except Exception as error:
            for span in spans:
                span.end(None, error)
            raise
        for span, message, place in zip(spans, messages, placed, strict=True):
            span.end(_traced(message, place), None)
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
