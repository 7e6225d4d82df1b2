"""Sweeps: blobs that no retained message and no snapshot names are removed, from a home's store and from its targets.

A message that can't be decoded might name any blob, so while there is one in the log everything is kept. The log is
read first and the store listed after; a publisher that names an older blob meanwhile has renewed it before, which
makes it young. Called by `mailboat blobs`, and now and then by the maintainer of a running agent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from mailboat.api.archive import TargetSweepView, UnreadableView
from mailboat.blobs.port import BlobInfo
from mailboat.blobs.references import ReferenceCodec
from mailboat.blobs.sweep import (
    BlobStoreSharedError,
    ReferencedDigests,
    SweepDecision,
    SweepFigures,
    decide_sweep,
    new_figures,
    plan_sweep,
)
from mailboat.composition.workspace import Workspace
from mailboat.content.locations import SQLITE, parse_target
from mailboat.content.targets.sqlite import sweep_blobs
from mailboat.errors import JournalUnavailableError, MailboatError, PositionOutOfRangeError, UsageError
from mailboat.journal.port import SCAN_LIMITS, Record
from mailboat.model.identifiers import AgentName
from mailboat.model.messages import PackageMessage
from mailboat.operations.stored_snapshots import stored_snapshots
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.messages import decode_message

_LOG: Final = logging.getLogger(__name__)
_WAIT_SECONDS: Final = 1.0
# The most that S3 deletes by one request.
_AT_ONCE: Final = 1000
_OUR_REFERENCES: Final = "sha256:"


@dataclass(slots=True)
class References:
    """What the log names.

    Attributes:
        digests: The blobs.
        messages: How many messages were read.
        snapshots: How many snapshots are kept by name.
        unreadable: The first message that can't be decoded; nothing may be removed while it is there.
    """

    digests: ReferencedDigests = field(default_factory=ReferencedDigests)
    messages: int = 0
    snapshots: int = 0
    unreadable: UnreadableView | None = None

    def add_snapshot(self, digest: bytes) -> None:
        """Count a snapshot, and keep its blob."""
        self.digests.add(digest)
        self.snapshots += 1

    def add_message(self, record: Record) -> None:
        """Count a message, and keep the blobs that it names."""
        self.messages += 1
        try:
            for digest in _digests_of(record):
                self.digests.add(digest)
        except MailboatError as error:
            self.unreadable = self.unreadable or UnreadableView(record.offset, str(error))


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did, or would do.

    Attributes:
        figures: How many blobs stay, and why.
        messages: The retained messages that were read.
        snapshots: The snapshots that are kept by name.
        references: The references that they hold.
        removed: How many blobs went; fewer than removable when publishers renewed some.
        abandoned_uploads: Unfinished uploads of killed writers that went.
        unreadable: Why everything was kept, if it was.
    """

    figures: SweepFigures
    messages: int
    snapshots: int
    references: int
    removed: int = 0
    abandoned_uploads: int = 0
    unreadable: UnreadableView | None = None

    @property
    def kept(self) -> SweepFigures:
        """The figures of the blobs that stay."""
        return {fate: tally for fate, tally in self.figures.items() if fate is not SweepDecision.REMOVABLE}


@dataclass(frozen=True, slots=True)
class SweepStep:
    """How far a sweep is.

    Attributes:
        phase: What it does: `reading the log`, then `checking blobs`.
        done: Messages that were read, or blobs that were checked.
        total: Offsets in the log; None where it is not known, as of blobs.
        total_bytes: Of the messages, or of the blobs.
    """

    phase: str
    done: int
    total: int | None
    total_bytes: int


SweepWatch = Callable[[SweepStep], None]


def sweep(workspace: Workspace, *, is_dry_run: bool = False, watch: SweepWatch | None = None) -> SweepReport:
    """Remove unreferenced blobs; a dry run only counts.

    Args:
        workspace: Whose store and log.
        is_dry_run: Remove nothing.
        watch: Receives the progress.

    Raises:
        SweepBusyError: Another process sweeps the same store.
        BlobStoreSharedError: Other logs use the store. Nothing was removed.
        RetryableError: What the journal or the store raise; what was removed until then is gone.
    """
    # Messages of another journal are not read here, so its blobs would look unreferenced.
    if not is_dry_run:
        _check_is_alone(workspace)
    stored_before = _stored_before(workspace)  # before the log is read: what comes in meanwhile is young
    is_idle = not is_dry_run and next(workspace.blobs.list(), None) is None
    # A log of pieces is long, and names nothing.
    references = References() if is_idle else read_references(workspace, watch)
    figures = new_figures()
    plan = plan_sweep(_watched(workspace.blobs.list(), watch), references.digests, stored_before, figures)
    # An unreadable message may refer to any blob, so nothing is removed while the log holds one.
    is_harmless = is_dry_run or references.unreadable is not None
    removed = abandoned = 0
    while batch := list(islice(plan, _AT_ONCE)):
        if not is_harmless:
            removed += workspace.blobs.remove_unrenewed([info.digest for info in batch], stored_before)
    if not is_dry_run:
        abandoned = workspace.blobs.abandon_uploads(stored_before)
    report = SweepReport(
        figures,
        references.messages,
        references.snapshots,
        references.digests.added,
        removed,
        abandoned,
        references.unreadable,
    )
    _log(report, is_dry_run=is_dry_run)
    return report


def blobs_with_fates(workspace: Workspace, watch: SweepWatch | None = None) -> Iterator[tuple[BlobInfo, SweepDecision]]:
    """All blobs, each with what a sweep would do with it, as a stream."""
    stored_before, references = _stored_before(workspace), read_references(workspace, watch)
    for info in _watched(workspace.blobs.list(), watch):
        fate = decide_sweep(info, references.digests, stored_before)
        yield info, SweepDecision.REFERENCED if references.unreadable and fate is SweepDecision.REMOVABLE else fate


def sweep_targets(workspace: Workspace, *, is_dry_run: bool = False) -> list[TargetSweepView]:
    """Sweep the blobs of all known targets that keep some; one that is being imported into is left alone."""
    known = workspace.home.known_subscribers()
    swept = [sweep_target(subscriber.name, subscriber.target, is_dry_run=is_dry_run) for subscriber in known]
    return [target for target in swept if target is not None]


def sweep_target(name: AgentName, target: str, *, is_dry_run: bool = False) -> TargetSweepView | None:
    """Sweep the blobs of one target; None where it keeps none. Raises: nothing: the report says what went wrong."""
    location = parse_target(target)
    if location.kind != SQLITE or not location.path.is_file():
        return None
    try:
        return TargetSweepView(name, target, sweep_blobs(location.path, is_dry_run=is_dry_run))
    except MailboatError as error:
        return TargetSweepView(name, target, 0, error.name)


def read_references(workspace: Workspace, watch: SweepWatch | None = None) -> References:
    """Read what the package topic holds at this moment, and what snapshots are named.

    Raises: JournalUnavailableError, SnapshotCorruptError, what the store raises.
    """
    found = References()
    # a snapshot that is stored from now on is missing here, and has a young blob
    for _, snapshot in stored_snapshots(workspace.blobs):
        found.add_snapshot(snapshot.digest)
    # Only for the progress: `_retained` asks for the bounds itself.
    bounds, total_bytes = workspace.journal.bounds(workspace.package_topic), 0
    for record in _retained(workspace):
        found.add_message(record)
        if watch is not None:
            total_bytes += len(record.value)
            offsets = bounds.next_offset - bounds.earliest_offset
            watch(SweepStep("reading the log", found.messages, offsets, total_bytes))
    return found


def _watched(blobs: Iterator[BlobInfo], watch: SweepWatch | None) -> Iterator[BlobInfo]:
    total_bytes = 0
    for count, info in enumerate(blobs, 1):
        if watch is not None:
            total_bytes += info.length_bytes
            watch(SweepStep("checking blobs", count, None, total_bytes))
        yield info


def unregister_journal(workspace: Workspace, identity: str, *, is_dry_run: bool = False) -> None:
    """Deregister a deleted journal that used the workspace's blob store, so that sweeps no longer stop for it.

    Raises: UsageError: No other journal with this id is registered.
    """
    others = _other_journals(workspace)
    if identity not in others:
        known = ", ".join(others) or "none"
        raise UsageError(
            f"no other journal {identity} is registered in {workspace.blobs.description}; registered: {known}",
            next_step="mailboat blobs sweep",
        )
    if not is_dry_run:
        workspace.blobs.forget_user(identity)


def _other_journals(workspace: Workspace) -> list[str]:
    own = str(workspace.journal.identity(workspace.package_topic))
    return [user for user in workspace.blobs.users() if user != own]


def _check_is_alone(workspace: Workspace) -> None:
    others = _other_journals(workspace)
    if others:
        own = workspace.journal.identity(workspace.package_topic)
        raise BlobStoreSharedError(
            f"the journal {others[0]} stores packages in {workspace.blobs.description}, too; this one is {own}",
            next_step=f"give each its own place or, if that journal was deleted:\n"
            f"mailboat blobs sweep --forget-journal {others[0]}",
            others=len(others),
        )


def _digests_of(record: Record) -> Sequence[bytes]:
    if record.headers == PIECE_HEADERS:
        return ()
    message = decode_message(record.headers, record.value)
    if not isinstance(message, PackageMessage):
        return ()
    digests = [binary.digest for binary in message.binaries]
    text = message.payload_ref
    if text is not None and text.startswith(_OUR_REFERENCES):  # others lead to stores that are none of ours
        digests.append(ReferenceCodec().parse(text).digest)
    return digests


def _retained(workspace: Workspace) -> Iterator[Record]:
    journal, topic = workspace.journal, workspace.package_topic
    bounds = journal.bounds(topic)
    start, end = bounds.earliest_offset, bounds.next_offset
    while start < end:
        with closing(journal.reader(topic, start)) as reader:
            try:
                while reader.next_offset < end:
                    batch = reader.read(SCAN_LIMITS, _WAIT_SECONDS)
                    yield from batch.records
                    # A log that was cut while it was read: the messages that are missing may refer to blobs.
                    if batch.is_at_end and reader.next_offset < end:
                        raise JournalUnavailableError("the log ended before it was read to its end", topic=topic)
                start = reader.next_offset
            except PositionOutOfRangeError:
                start = journal.bounds(topic).earliest_offset
                # Retention was faster: what it removed needs no blob any more. Anything else is a log that was cut.
                if start <= reader.next_offset:
                    raise


def _stored_before(workspace: Workspace) -> datetime:
    return workspace.clock.now() - timedelta(seconds=workspace.home.config.blobs.grace_seconds)


def _log(report: SweepReport, *, is_dry_run: bool) -> None:
    figures = report.figures
    if report.unreadable is not None:
        _LOG.warning(
            "all blobs are kept: the message at %d can't be read, so it might name any: %s",
            report.unreadable.offset,
            report.unreadable.reason,
        )
    elif not is_dry_run:
        _LOG.log(
            logging.INFO if report.removed else logging.DEBUG,  # every start sweeps
            "swept %d blobs; kept %d that messages name and %d that are young",
            report.removed,
            figures[SweepDecision.REFERENCED].count,
            figures[SweepDecision.YOUNG].count,
        )
