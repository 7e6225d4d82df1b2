"""Answers the archive port from the storage itself: journal, blobs and snapshots of a workspace.

Called by the commands on a home (`mailboat journal`, `blobs`, `content snapshots`) and by the HTTP API.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Protocol

from mailboat.api.archive import (
    MAX_PROBLEMS,
    Archive,
    BlobList,
    BlobTally,
    BlobView,
    CutOffView,
    ExpiryView,
    JournalFigures,
    RecordView,
    Restores,
    RestoreView,
    RetainerView,
    RetentionView,
    SettingDifference,
    SnapshotView,
    StoredSnapshotView,
    SweepView,
    TopicCheck,
    TopicSetup,
    TruncationView,
    VerificationView,
)
from mailboat.api.orders import BenchOrder
from mailboat.api.records import Moment, TopicView
from mailboat.blobs.sweep import SweepDecision
from mailboat.clock import milliseconds_now, moment_of
from mailboat.composition.workspace import Workspace
from mailboat.content.watched_sources import Phases
from mailboat.control.subscriber_directory import SubscriberStatus, members_below, position_findings
from mailboat.errors import DistributionMissingError, MailboatError, ThrottledError, TopicMissingError, UsageError
from mailboat.journal.port import Record, records_of
from mailboat.maintenance.blob_sweep import SweepWatch, blobs_with_fates, sweep, sweep_targets, unregister_journal
from mailboat.maintenance.retention import is_retention_by_consumption, retention_turn
from mailboat.maintenance.schedule import remove_expired
from mailboat.model.identifiers import Offset
from mailboat.model.messages import JOB_TOPIC, PackageMessage, TopicRole
from mailboat.model.positions import Bounds
from mailboat.operations.journal_bench import measure_journal
from mailboat.operations.journal_inspection import decode_record, summary_of, transport_of
from mailboat.operations.journal_verification import verify_journal
from mailboat.operations.stored_snapshots import snapshot_missing, snapshot_views, store_snapshot, view_of_stored
from mailboat.retention.marks import whole_package_border
from mailboat.retention.task import Turn

_BUSY_RETRY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class BinaryView:
    """A large binary that a package refers to.

    Attributes:
        digest: Its SHA-256 in hexadecimal, which is its name in the blob store.
        length_bytes: Its size.
    """

    digest: str
    length_bytes: int


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message on the package topic, without the package itself.

    Attributes:
        offset: Its place.
        appended_at: When the log took it.
        package_id: The package.
        action: ADD, DELETE, INVALIDATE or TEST.
        publisher: The publisher agent; None in messages of Sling without one.
        publisher_instance: The instance that it runs in.
        paths: The request's paths.
        deep_paths: Those of them that mean their whole subtree.
        package_type: The format of the package.
        package_bytes: Its size.
        transport: How it travels: `inline`, `reference`, `pieces` (in the journal, before the message), or `none`.
        payload_ref: Where it is, when it is not inline.
        package_digest: SHA-256 of its bytes, in hexadecimal.
        tree_digest: Digest of its content, in hexadecimal; equal for equal content in any format.
        request_id: The caller's id.
        user_id: Caller of the request.
        created_at: When the request was made.
        binaries: The large binaries that it refers to.
    """

    offset: int
    appended_at: Moment
    package_id: str
    action: str
    publisher: str | None
    publisher_instance: str
    paths: tuple[str, ...]
    deep_paths: tuple[str, ...]
    package_type: str
    package_bytes: int
    transport: str
    payload_ref: str | None = None
    package_digest: str | None = None
    tree_digest: str | None = None
    request_id: str | None = None
    user_id: str | None = None
    created_at: Moment | None = None
    binaries: tuple[BinaryView, ...] = ()


class LogArchive(Archive, Restores, Protocol):
    """What an agent's HTTP API reads: the archive, and whole messages. Safe to call from several threads."""

    def message(self, offset: int) -> MessageView:
        """The message at an offset of the package topic.

        Raises:
            DistributionMissingError: It is absent: retention removed it, or it was never written.
            MessageCorruptError: The record can't be decoded as a message.
        """
        ...


class JournalArchive:
    """`LogArchive` over a workspace's storage, without restores: these need the subscriber's process."""

    def __init__(self, workspace: Workspace, watch: SweepWatch | None = None, phases: Phases | None = None) -> None:
        """Read nothing yet.

        Args:
            workspace: Whose journal and blob store.
            watch: Receives the progress of listing and sweeping blobs.
            phases: Receives the progress of storing a snapshot.
        """
        self._workspace = workspace
        self._watch = watch
        self._phases = phases
        self._whole = threading.Lock()

    def topics(self) -> Sequence[TopicView]:
        found, journal = list[TopicView](), self._workspace.journal
        missing: TopicMissingError | None = None
        # the log of durable jobs is made with the first job, and has no role: an agent without jobs needs none
        named = [*((role.value, self._workspace.topic(role)) for role in TopicRole), (JOB_TOPIC, JOB_TOPIC)]
        for role, name in named:
            try:
                bounds, identity = journal.bounds(name), str(journal.identity(name))
            except TopicMissingError as error:
                missing = missing or error
                continue
            found.append(TopicView(role, name, bounds.earliest_offset, bounds.next_offset, identity))
        if missing is not None and not found:
            raise missing  # a journal without any topic was not set up; an empty list would hide that
        return found

    def records(self, role: str, from_offset: int | None = None, max_items: int = 20) -> Sequence[RecordView]:
        topic = self._workspace.topic(TopicRole(role))
        bounds = self._workspace.journal.bounds(topic)
        if from_offset is not None and not bounds.earliest_offset <= from_offset < bounds.next_offset:
            held = f"offsets {bounds.earliest_offset} to {bounds.next_offset - 1}" if bounds.count else "no messages"
            raise UsageError(
                f"there is no message at offset {from_offset}: {topic} holds {held}", next_step="mailboat journal show"
            )
        start = max(bounds.earliest_offset, bounds.next_offset - max_items) if from_offset is None else from_offset
        found = islice(records_of(self._workspace.journal, topic, Offset(start)), max_items)
        return [_record_view(record, is_event=role == TopicRole.EVENT) for record in found]

    def message(self, offset: int) -> MessageView:
        journal, topic = self._workspace.journal, self._workspace.package_topic
        record = journal.record_at(topic, Offset(offset))
        message = None if record is None else decode_record(record)
        if record is not None and isinstance(message, PackageMessage):
            return message_view(record, message)
        bounds = journal.bounds(topic)
        raise DistributionMissingError(
            f"the package topic has no package at offset {offset}; it holds {bounds.earliest_offset} up to "
            f"{bounds.next_offset}, but not this one",
            topic=topic,
            offset=offset,
        )

    def verify(self, *, reads_blobs: bool = False) -> VerificationView:
        workspace = self._workspace
        with self._reading_everything():
            found = verify_journal(
                workspace.journal,
                [workspace.topic(role) for role in TopicRole],
                workspace.blobs,
                event_topic=workspace.topic(TopicRole.EVENT),
                reads_blobs=reads_blobs,
            )
            positions = list(position_findings(workspace))
        count, problems = found.problem_count + len(positions), (*found.findings, *positions)[:MAX_PROBLEMS]
        return VerificationView(found.record_count, len(found.problems), reads_blobs, count, problems)

    def truncate(self, role: str, before: int, *, is_dry_run: bool = True) -> TruncationView:
        workspace, kind = self._workspace, TopicRole(role)
        journal, topic, border = workspace.journal, workspace.topic(kind), Offset(before)
        old = journal.bounds(topic)
        if before > old.next_offset:
            raise UsageError(
                f"offset {before} is beyond the end of {topic}, {old.next_offset}",
                next_step=f"--before {old.next_offset} removes all messages",
            )
        behind: Sequence[SubscriberStatus] = ()
        if kind is TopicRole.PACKAGE:
            # between the pieces of a package and its message, a package would stay that nothing can import
            border = whole_package_border(journal, topic, border, workspace.clock)
            behind = members_below(workspace, border)
        new = (
            Bounds(max(old.earliest_offset, border), old.next_offset) if is_dry_run else journal.truncate(topic, border)
        )
        cut_off = tuple(CutOffView(subscriber.name, subscriber.next_offset) for subscriber in behind)
        removed = new.earliest_offset - old.earliest_offset
        return TruncationView(topic, border, is_dry_run, removed, new.earliest_offset, new.next_offset, cut_off)

    def remove_expired(self) -> ExpiryView:
        removed = remove_expired(self._workspace)
        return ExpiryView(removed, self._workspace.journal.upkeep.is_automatic)

    def retention(self, *, is_applied: bool = False) -> RetentionView:
        workspace = self._workspace
        with self._reading_everything():  # a keeper that starts reads the whole package topic
            turn = retention_turn(workspace, is_applied=is_applied)
        now_ms = milliseconds_now(workspace.clock)
        return _retention_view(turn, now_ms, is_on=is_retention_by_consumption(workspace), is_applied=is_applied)

    def ensure_topics(self, *, is_dry_run: bool = False) -> TopicSetup:
        handle = check_topic if is_dry_run else ensure_topic
        topics = tuple(handle(self._workspace, role) for role in TopicRole)
        return TopicSetup(self._workspace.journal.description, topics)

    def bench(self, order: BenchOrder) -> JournalFigures:
        prefix = self._workspace.home.config.journal.topic_prefix
        with self._reading_everything():
            return measure_journal(self._workspace.journal, prefix, order, self._workspace.clock)

    def blobs(self, *, is_removable: bool = False, max_items: int | None = None) -> BlobList:
        with self._reading_everything():
            found = blobs_with_fates(self._workspace, self._watch)
            wanted = (pair for pair in found if not is_removable or pair[1] is SweepDecision.REMOVABLE)
            shown = [
                BlobView(info.digest.hex(), info.length_bytes, info.stored_at, str(fate))
                for info, fate in islice(wanted, max_items)
            ]
            return BlobList(tuple(shown), max_items is None or next(wanted, None) is None)

    def sweep(self, *, is_dry_run: bool = True, forget_journal: str | None = None) -> SweepView:
        workspace = self._workspace
        with self._reading_everything():
            # before the sweep, which refuses a store that another journal uses
            if forget_journal is not None:
                unregister_journal(workspace, forget_journal, is_dry_run=is_dry_run)
            report = sweep(workspace, is_dry_run=is_dry_run, watch=self._watch)
            targets = sweep_targets(workspace, is_dry_run=is_dry_run)
        return SweepView(
            store=workspace.blobs.description,
            dry_run=is_dry_run,
            messages=report.messages,
            references=report.references,
            blobs={str(fate): BlobTally(one.count, one.total_bytes) for fate, one in report.figures.items()},
            removed=report.removed,
            abandoned_uploads=report.abandoned_uploads,
            unreadable=report.unreadable,
            targets=tuple(targets),
            snapshots=report.snapshots,
            grace_seconds=workspace.home.config.blobs.grace_seconds,
        )

    def snapshots(self) -> Sequence[SnapshotView]:
        return snapshot_views(self._workspace.blobs)

    def store_snapshot(self, target: str, name: str, *, is_forced: bool = False) -> StoredSnapshotView:
        kept = store_snapshot(target, name, self._workspace, is_forced=is_forced, phases=self._phases)
        return StoredSnapshotView(view_of_stored(name, kept.stored), kept.is_new)

    def remove_snapshot(self, name: str) -> None:
        if not self._workspace.blobs.documents.remove(name):
            raise snapshot_missing(name, self._workspace.blobs)

    @contextmanager
    def _reading_everything(self) -> Iterator[None]:
        """One reader of the whole journal at a time: several callers of an agent must not multiply its load."""
        if not self._whole.acquire(blocking=False):
            raise ThrottledError(
                "another request reads or measures the whole journal", retry_after_seconds=_BUSY_RETRY_SECONDS
            )
        try:
            yield
        finally:
            self._whole.release()


class AgentArchive(JournalArchive):
    """The archive of an agent for callers elsewhere: they can't name files of its machine."""

    def __init__(self, workspace: Workspace, restores: Restores) -> None:
        """Read nothing yet; `restores` are those into the targets of the process."""
        super().__init__(workspace)
        self._restores = restores

    def restore_snapshot(self, name: str, target: str, *, is_replacing: bool = False) -> RestoreView:
        return self._restores.restore_snapshot(name, target, is_replacing=is_replacing)

    def restores(self) -> Sequence[RestoreView]:
        return self._restores.restores()

    def store_snapshot(self, target: str, name: str, *, is_forced: bool = False) -> StoredSnapshotView:
        home = self._workspace.home
        targets = {subscriber.target for subscriber in home.known_subscribers()}
        target = home.configured_target(target)
        if target not in targets:
            raise UsageError(
                f"no subscriber of this agent imports into {target[:200]}",
                next_step=f"use one of: {', '.join(sorted(targets)) or 'none'}",
            )
        return super().store_snapshot(target, name, is_forced=is_forced)


def _record_view(record: Record, *, is_event: bool) -> RecordView:
    try:
        message = decode_record(record, is_event=is_event)
        kind, summary = type(message).__name__.removesuffix("Message"), summary_of(message)
    except MailboatError as error:
        kind, summary = "unreadable", str(error)
    return RecordView(record.offset, moment_of(record.appended_ms), kind, len(record.value), summary)


def _retention_view(turn: Turn, now_ms: int, *, is_on: bool, is_applied: bool) -> RetentionView:
    return RetentionView(
        enabled=is_on,
        applied=is_applied,
        earliest_offset=turn.bounds.earliest_offset,
        next_offset=turn.bounds.next_offset,
        head=turn.plan.head,
        reason=str(turn.plan.reason),
        freed_bytes=turn.freed_bytes,
        losers=tuple(loser.name for loser in turn.plan.losers),
        dropped=tuple(registration.name for registration in turn.dropped),
        subscribers=tuple(
            RetainerView(
                one.name,
                is_durable,
                one.next_offset,
                moment_of(one.heard_ms),
                silent_seconds=max(0, now_ms - one.heard_ms) / 1000,
            )
            for one, is_durable in turn.registrations
        ),
    )


def message_view(record: Record, message: PackageMessage) -> MessageView:
    """A message as a document."""
    return MessageView(
        offset=record.offset,
        appended_at=moment_of(record.appended_ms),
        package_id=message.package_id,
        action=message.action.value,
        publisher=message.pub_agent_name,
        publisher_instance=message.pub_sling_id,
        paths=message.paths,
        deep_paths=message.deep_paths,
        package_type=message.package_type,
        package_bytes=message.package_length_bytes,
        transport=transport_of(message),
        payload_ref=message.payload_ref,
        package_digest=_hexadecimal(message.package_digest),
        tree_digest=_hexadecimal(message.tree_digest),
        request_id=message.request_id,
        user_id=message.user_id,
        created_at=None if message.created_ms is None else moment_of(message.created_ms),
        binaries=tuple(BinaryView(binary.digest.hex(), binary.length_bytes) for binary in message.binaries),
    )


def _hexadecimal(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()


def check_topic(workspace: Workspace, role: TopicRole) -> TopicCheck:
    """Compare a topic with the configuration; changes nothing. Raises: JournalUnavailableError."""
    topic = workspace.topic(role)
    try:
        found = _differences(workspace, role)
    except TopicMissingError:
        return TopicCheck(topic, role.value, "missing")
    return TopicCheck(topic, role.value, "different" if found else "right", found)


def ensure_topic(workspace: Workspace, role: TopicRole) -> TopicCheck:
    """Create a missing topic, or correct what differs. What the log can't change stays `different`.

    Raises: JournalUnavailableError, JournalAccessDeniedError; UsageError for what the brokers do not grant.
    """
    found = check_topic(workspace, role)
    if found.is_right:
        return found
    workspace.journal.ensure_topic(workspace.topic(role), workspace.topic_settings(role))
    left = _differences(workspace, role)
    if left:
        return replace(found, state="different", differences=left)
    return replace(found, state="made" if found.state == "missing" else "changed")


def _differences(workspace: Workspace, role: TopicRole) -> tuple[SettingDifference, ...]:
    found = workspace.journal.upkeep.differences(workspace.topic(role), workspace.topic_settings(role))
    return tuple(SettingDifference(difference.name, difference.found, difference.wanted) for difference in found)
