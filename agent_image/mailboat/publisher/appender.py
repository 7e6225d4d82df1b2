"""Appending messages so that each request has one: intents before, receipts after, the log as the judge in between.

The log is the judge of receipts, too: one whose message is gone from the end, or is another, counts for nothing, and
what was remembered of the source is put in doubt. Requests without an id of their own need no intent: a caller that
cannot name a request cannot retry it. `find_packages` searches the log for a publisher's messages.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from mailboat.clock import milliseconds_of
from mailboat.errors import (
    AppendUncertainError,
    JournalUnavailableError,
    MailboatError,
    RequestConflictError,
)
from mailboat.failpoints import Failpoint
from mailboat.journal.port import Journal, NewRecord, records_of
from mailboat.model.identifiers import Offset, PackageId, RequestId, TopicName
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.paths import NodePath
from mailboat.model.pieces import is_run, parse_run
from mailboat.model.positions import LogIdentity
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.builder import PackageBuilder, Publication
from mailboat.publisher.published import SourceEnd
from mailboat.publisher.publisher_settings import PublisherPorts, PublisherSettings
from mailboat.publisher.state import Intent, StoredReceipt
from mailboat.queues.entries import readable_package
from mailboat.tracing import TracedPackage
from mailboat.wire.messages import encode_message

_LOG: Final = logging.getLogger(__name__)

# Longer than any build of a package: changes are staged before their intent is stored.
_STRAYS_LIVE: Final = timedelta(days=7)

_SETTLED_SECONDS: Final = 3600.0  # an agent lives for months, and each request leaves a receipt


class Placed(NamedTuple):
    """Where a message stands; `is_repeat` when it stood there before."""

    offset: Offset
    package_id: PackageId
    is_repeat: bool


class Appender:
    """Appends for one publisher."""

    def __init__(self, settings: PublisherSettings, ports: PublisherPorts, builder: PackageBuilder) -> None:
        self._settings = settings
        self._ports = ports
        self._builder = builder
        self._topic = settings.package_topic
        self._settled_seconds: float | None = None
        self._seen_end: Offset | None = None

    def identity(self) -> LogIdentity:
        return self._ports.journal.identity(self._topic)

    def find(self, request_id: RequestId, fingerprint: bytes) -> Placed | None:
        """Where the message of a request stands already; None when it was not appended.

        Raises:
            RequestConflictError: The id belongs to another request.
        """
        self.settle()
        return self._find(request_id, fingerprint, self.identity())

    def settle(self) -> None:
        """Resolve the appends that a crash interrupted, once, and forget receipts that expired, now and then."""
        settled, now = self._settled_seconds, self._ports.clock.monotonic()
        if settled is None or now - settled >= _SETTLED_SECONDS:
            self.reconcile()

    def reconcile(self) -> None:
        """Settle, and put in doubt what was remembered of sources whose last package is no longer in the log."""
        with self._ports.state.locks.exclusive():
            identity = self.identity()
            self._ports.state.prune(identity, self._ports.journal.bounds(self._topic).earliest_offset)
            self._ports.state.published.discard_strays(milliseconds_of(self._ports.clock.now() - _STRAYS_LIVE))
            self._settle_intents(identity)
            self._doubt_lost(self._ports.state.published.ends(identity))
        # After success only: while the journal fails, each request tries to settle again.
        self._settled_seconds = self._ports.clock.monotonic()

    def append(self, batch: Sequence[Publication]) -> list[Placed]:
        """Append in order, in one durable step; what stands in the log already is left out.

        Raises:
            RequestConflictError, MessageTooLargeError: Nothing was appended.
            JournalUnavailableError, StorageFullError: Try again with the same request ids.
        """
        try:
            # Requests that can't be repeated need neither lock nor state.
            if any(one.needs_state for one in batch):
                with self._ports.state.locks.exclusive():
                    placed = self._append_known(batch)
            else:
                placed = self._append(batch)
        except Exception as error:
            for one in batch:
                one.span.end(TracedPackage.of(one.message, None), error)
            # A repetition stages it again, under other package ids. Parts of a build keep their ids: another driver may
            # have staged the same ones.
            with suppress(MailboatError):  # the error of the append is raised, for instance of a full disk
                for one in batch:
                    if one.followed and one.message.bulk is None:
                        self._ports.state.published.discard(one.message.package_id)
            raise
        for one, place in zip(batch, placed, strict=True):
            one.span.end(TracedPackage.of(one.message, place.offset), None)
        return placed

    def _append_known(self, batch: Sequence[Publication]) -> list[Placed]:
        identity = self.identity()
        # Settled first: an intent of a crashed process may be one of these requests.
        self._settle_intents(identity)
        # Only the sources of this batch: the others are checked with their own next publication.
        concerned = {source_id for one in batch for source_id in one.followed}
        self._doubt_lost([end for end in self._ports.state.published.ends(identity) if end.source_id in concerned])
        known = [self._find(one.request_id, one.fingerprint, identity) if one.is_named else None for one in batch]
        for one, found in zip(batch, known, strict=True):
            # Published before, under another package id: what was staged under this one belongs to no message.
            if found is not None and one.followed:
                self._ports.state.published.discard(one.message.package_id)
        fresh = [one for one, found in zip(batch, known, strict=True) if found is None]
        # Read before the append: no message of these requests has a lower offset, so a later search begins here.
        next_offset = self._ports.journal.bounds(self._topic).next_offset
        intents = [
            Intent(one.request_id, one.fingerprint, one.message.package_id, identity, next_offset)
            for one in fresh
            if one.is_named
        ]
        # Durable before the append: after a crash the intents say what to search for.
        self._ports.state.store_intents(intents)
        # Doubted before the append: a crash in between costs a repeated publication, not a missed change.
        self._doubt_newly_followed(fresh, identity)
        placed = iter(self._append(fresh, identity) if fresh else ())
        return [next(placed) if found is None else found for found in known]

    def _append(self, batch: Sequence[Publication], identity: LogIdentity | None = None) -> list[Placed]:
        self._ports.failpoints.reach(Failpoint.PUBLISHER_INTENT_STORED)
        began = self._ports.clock.monotonic()
        encoded = (encode_message(one.message) for one in batch)
        records = [NewRecord(value, headers) for headers, value in encoded]
        offsets = self._append_records(records, [one.message.package_id for one in batch])
        self._ports.failpoints.reach(Failpoint.PUBLISHER_APPENDED)
        # The log keeps the order, so the last record stands for the batch.
        self._confirm(records[-1], offsets[-1])
        if identity is not None:
            receipts = [
                StoredReceipt(one.request_id, one.fingerprint, one.message.package_id, identity, offset)
                for one, offset in zip(batch, offsets, strict=True)
                if one.is_named
            ]
            self._ports.state.store_receipts(receipts)
        self._ports.failpoints.reach(Failpoint.PUBLISHER_RECEIPT_STORED)
        self._ports.meter.appended([one.message.action for one in batch], self._ports.clock.monotonic() - began)
        for one, offset in zip(batch, offsets, strict=True):
            reference = one.message.payload_ref
            if reference is not None and is_run(reference):
                self._ports.meter.appended_in_pieces(parse_run(reference, offset).count)
        return [
            Placed(offset, one.message.package_id, is_repeat=False) for one, offset in zip(batch, offsets, strict=True)
        ]

    def _append_records(self, records: Sequence[NewRecord], package_ids: Sequence[PackageId]) -> Sequence[Offset]:
        """Append; without an acknowledgement, search the log for all of them.

        Raises:
            AppendUncertainError: Some are not found, or the search failed. The next call settles intents.
        """
        # Known before the append: the search after a missing answer begins here, not at the head of the log.
        if self._seen_end is None:
            self._seen_end = self._ports.journal.bounds(self._topic).next_offset
        try:
            offsets = self._ports.journal.append(self._topic, records)
        except AppendUncertainError as error:
            offsets = self._find_all(package_ids, error)
        self._seen_end = Offset(offsets[-1] + 1)
        return offsets

    def _find_all(self, package_ids: Sequence[PackageId], error: AppendUncertainError) -> Sequence[Offset]:
        try:
            found = find_packages(self._ports.journal, self._topic, self._seen_end or Offset(0), set(package_ids))
        except JournalUnavailableError:
            # The first error is raised below: it says that the append's outcome is unknown, and why.
            found = {}
        # A part may be stored, and the rest may follow: only a later search, behind a TEST message, decides.
        if len(found) < len(package_ids):
            raise error
        _LOG.warning("topic %s did not confirm an append, but holds its %d messages", self._topic, len(found))
        return [found[identifier] for identifier in package_ids]

    def _confirm(self, appended: NewRecord, offset: Offset) -> None:
        # Brokers have acknowledged and lost records of a recreated topic (decision 0007), so the last one is read back.
        found = self._ports.journal.record_at(self._topic, offset)
        if found is None or found.value != appended.value:
            raise JournalUnavailableError(
                "read-back after append returned a different record", topic=self._topic, offset=offset
            )

    def _is_there(self, offset: Offset, package_id: PackageId) -> bool:
        bounds = self._ports.journal.bounds(self._topic)
        if not bounds.earliest_offset <= offset < bounds.next_offset:
            return offset < bounds.earliest_offset  # retention took it, which is not a loss
        message = readable_package(self._ports.journal.record_at(self._topic, offset))
        return message is not None and message.package_id == package_id

    def _doubt_lost(self, ends: Sequence[SourceEnd]) -> None:
        lost = [end for end in ends if not self._is_there(end.offset, end.package_id)]
        for end in lost:
            _LOG.warning(
                "topic %s lost its offset %d, package %s: the next --changed of %s publishes all of it again",
                self._topic,
                end.offset,
                end.package_id,
                end.uri,
            )
        if lost:
            self._ports.state.doubt({end.source_id: () for end in lost})

    def _doubt_newly_followed(self, batch: Sequence[Publication], identity: LogIdentity) -> None:
        published = self._ports.state.published
        for one in batch:
            now = published.followed(one.message.action, one.source_uri, identity)
            if new := set(now) - set(one.followed):
                self._ports.state.doubt(dict.fromkeys(new, one.message.paths))

    def _find(self, request_id: RequestId, fingerprint: bytes, identity: LogIdentity) -> Placed | None:
        receipt = self._ports.state.receipt(request_id, identity)
        # A receipt whose message the log has lost counts for nothing: the request is published again.
        if receipt is None or not self._is_there(receipt.offset, receipt.package_id):
            return None
        if receipt.fingerprint != fingerprint:
            raise RequestConflictError(
                f"the request id {request_id} was used for another request, published at offset {receipt.offset}",
                next_step="use a new request id",
                request_id=request_id,
                offset=receipt.offset,
            )
        return Placed(receipt.offset, receipt.package_id, is_repeat=True)

    def _settle_intents(self, identity: LogIdentity) -> None:
        intents = self._ports.state.intents(identity)
        if not intents:
            return
        found = self._find_intended(intents)
        # A record without an acknowledgement may become readable later; a later durable record settles that.
        if len(found) < len(intents) and not self._ports.journal.upkeep.are_appends_seen_at_once:
            self._settle_unanswered()
            found = self._find_intended(intents)
        receipts = [
            StoredReceipt(intent.request_id, intent.fingerprint, intent.package_id, identity, found[intent.package_id])
            for intent in intents
            if intent.package_id in found
        ]
        # Receipts before the intents are dropped: a crash in between searches again, and finds the same.
        self._ports.state.store_receipts(receipts)
        self._ports.state.drop_intents([intent for intent in intents if intent.package_id not in found])

    def _find_intended(self, intents: Sequence[Intent]) -> dict[PackageId, Offset]:
        # Not by request id: a publisher of the same name on another home may have used it for another request.
        wanted = {intent.package_id for intent in intents}
        return find_packages(self._ports.journal, self._topic, intents[0].scan_from, wanted)

    def _settle_unanswered(self) -> None:
        """Append a TEST, and wait until it is durable: what the log took before it can be seen then, or is lost.

        Without it a record that only the leader has is not found, its
        request is published again, and both come to be seen when the other replicas are back.
        """
        _LOG.info("appending a TEST message to topic %s to settle unanswered appends", self._topic)
        test = self._builder.draft(DistributionRequest(Action.TEST), self._builder.new_package_id())
        headers, value = encode_message(test)
        self._ports.journal.append(self._topic, [NewRecord(value, headers)])


def find_packages(
    journal: Journal, topic: TopicName, scan_from: Offset, wanted: Collection[PackageId]
) -> dict[PackageId, Offset]:
    """Where some packages stand, from `scan_from` (or the head) to the end. Raises: the journal's errors."""
    found: dict[PackageId, Offset] = {}
    for offset, message in messages_from(journal, topic, scan_from):
        if message.package_id in wanted:
            found.setdefault(message.package_id, offset)
    return found


def messages_from(journal: Journal, topic: TopicName, scan_from: Offset) -> Iterator[tuple[Offset, PackageMessage]]:
    """The decodable packages from `scan_from` (or the head) to the present end."""
    bounds = journal.bounds(topic)
    start = max(bounds.earliest_offset, min(scan_from, bounds.next_offset))
    with closing(records_of(journal, topic, start, bounds.next_offset)) as records:
        for record in records:
            message = readable_package(record)
            if message is not None:
                yield record.offset, message


@dataclass(frozen=True, slots=True)
class Receipt:
    """That a request's message is durable in the journal.

    Attributes:
        action: What was asked for.
        paths: The request's paths; empty in the receipt of a repeated request found only in the state.
        package_id: The package.
        offset: The message's place on the package topic.
        request_id: The caller's id, or the one that the publisher made.
        is_repeat: The request was published before; nothing was appended now.
        nodes: Nodes in the package.
        removed: Paths that the package removes: of a DELETE, the deletes of `publish_changed`, roots without content.
        package_bytes: Size of the package.
        content_bytes: Bytes of values and binaries, wherever they travel.
        is_inline: The package travels in the message, not through the blob store.
        deep_paths: Those of the paths that stand for their subtrees, in the same order.
    """

    action: Action
    paths: tuple[NodePath, ...]
    package_id: PackageId
    offset: Offset
    request_id: RequestId
    is_repeat: bool = False
    nodes: int = 0
    removed: int = 0
    package_bytes: int = 0
    content_bytes: int = 0
    is_inline: bool = True
    deep_paths: tuple[NodePath, ...] = ()


def receipt_of(publication: Publication, placed: Placed) -> Receipt:
    """The receipt of a publication with its place in the log. Figures are of the package that was appended just now."""
    message, summary = publication.message, None if placed.is_repeat else publication.summary
    return Receipt(
        message.action,
        tuple(message.paths),
        placed.package_id,
        placed.offset,
        publication.request_id,
        placed.is_repeat,
        removed=publication.removed,
        nodes=summary.node_count if summary else 0,
        package_bytes=summary.length_bytes if summary else 0,
        content_bytes=summary.content_bytes if summary else 0,
        is_inline=summary is None or message.payload is not None,
        deep_paths=tuple(message.deep_paths),
    )
