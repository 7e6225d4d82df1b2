"""Taking snapshots of targets, and restoring them: a subscriber begins near the log's end instead of at its beginning.

The content travels as a `tree` package with all its binaries inside, so a snapshot needs no blob store and any kind of
target can be restored from any other. Restoring is one commit of the target, new or replaced: content, position and
error queue, or nothing. Called by `mailboat content snapshot` and `restore`, and by agents for their own subscribers.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from mailboat.clock import Clock, milliseconds_now
from mailboat.composition.places import open_target
from mailboat.composition.workspace import Workspace
from mailboat.config.document import LimitsConfig
from mailboat.content.locations import opened_ledger, parse_target
from mailboat.content.port import Batch, RestoreRecord, Target
from mailboat.content.snapshot_format import (
    Snapshot,
    SnapshotCorruptError,
    SnapshotHead,
    SnapshotTail,
    opened_snapshot,
    write_snapshot,
)
from mailboat.content.views import TargetView, opened_view
from mailboat.content.watched_sources import Watch, namespaces_of, watched_nodes, watched_records
from mailboat.errors import SourceMissingError, UsageError
from mailboat.model.filters import FilterSet, WorkspaceFilter
from mailboat.model.identifiers import AgentName
from mailboat.model.paths import ROOT, NodePath, is_within
from mailboat.packages.port import PackageContents
from mailboat.packages.tree import TreeCodec
from mailboat.subscriber.admission import Roots
from mailboat.subscriber.continuity import decide_start

_EVERYTHING: Final = WorkspaceFilter((FilterSet(ROOT),))
_NO_LIMITS: Final = LimitsConfig(
    max_entries=1 << 40, max_entry_bytes=1 << 60, max_total_bytes=1 << 62, refuse_collisions=False
)
"""What a target held, another can hold: the limits of packages were kept when it was imported."""


class SnapshotPartialError(UsageError):
    """The snapshot's `roots` do not cover those of the target's subscriber. Nothing was restored.

    Use another snapshot, or configure the snapshot's roots.
    """


class TargetNotEmptyError(UsageError):
    """The target has content, which was not touched.

    Name another place, or pass `--replace`.
    """


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """A snapshot that was taken, or restored.

    Attributes:
        head: What it stands for.
        tail: What its package came to.
        total_bytes: Its length.
        roots: What was restored of it, each path with all below it; empty: all.
    """

    head: SnapshotHead
    tail: SnapshotTail
    total_bytes: int
    roots: tuple[NodePath, ...] = ()


class RestoreRequest(NamedTuple):
    """A restore that was asked for.

    Attributes:
        place: What is restored: `blob:NAME`, or a file.
        begun_ms: When it was asked for, milliseconds since 1970 UTC.
        is_replacing: The target may have content. Its subscriber stays; commands that are not done are refused.
    """

    place: str
    begun_ms: int
    is_replacing: bool = False


def take_snapshot(
    target: str, file: Path, clock: Clock, watch: Watch | None = None, roots: tuple[NodePath, ...] | None = None
) -> SnapshotResult:
    """Write a target's content and position to a file, which is whole or not there.

    Args:
        target: The target.
        file: Where to.
        clock: Time.
        watch: Receives the bytes of content processed.
        roots: Those of the target's subscriber; empty: it has none; None: unknown.

    Raises:
        TargetBusyError: A subscriber imports into a `files:` target.
        SourceMissingError, UsageError: There is no such target, or nothing in it.
        SourceChangedError: The target went on faster than it could be read. Nothing was written.
        StorageFullError, StorageReadOnlyError, BlobMissingError, BlobCorruptError.
    """
    with opened_view(target) as view:
        taken_ms = milliseconds_now(clock)
        head = SnapshotHead(view.position, view.given_up, target, taken_ms, view.passed_over, roots)
        tail = write_snapshot(file, head, lambda into: _write_package(view, into, watch))
    return SnapshotResult(head, tail, file.stat().st_size)


def restore_snapshot(
    file: Path,
    target: str,
    workspace: Workspace | None,
    watch: Watch | None = None,
    roots: tuple[NodePath, ...] = (),
    request: RestoreRequest | None = None,
) -> SnapshotResult:
    """Make a new target of a snapshot, or replace the content of an existing one.

    Replacing is one commit of the existing target: readers see the content of before until then, and so does whatever
    opens the target after a crash.

    Args:
        file: The snapshot.
        target: Where to; missing, or empty.
        workspace: Whose log the position must fit; None when that is left to the subscriber's start.
        watch: Receives the bytes of content processed.
        roots: Those of the target's subscriber: nothing outside is restored; empty: all is.
        request: Kept in the target; None: the target is new, and nothing is kept.

    Raises:
        SnapshotCorruptError: Before anything was written.
        JournalReplacedError, JournalTrimmedError, JournalShorterError: The position does not fit the log.
        SnapshotPartialError: The snapshot lacks what its own subscriber's roots left out.
        UsageError: The target is that of a shared pool.
        SourceMissingError: There is nothing to replace.
        TargetNotEmptyError, TargetBusyError, StorageFullError, StorageReadOnlyError.
    """
    parse_target(target)  # before the snapshot is read
    is_replacing = request is not None and request.is_replacing
    with opened_snapshot(file) as snapshot:
        check_roots(snapshot.head, target, roots)
        if workspace is not None:
            check_position(snapshot.head, workspace)
        (check_is_there if is_replacing else check_is_empty)(target)
        with closing(open_target(target)) as opened:
            if is_replacing:
                _check_is_replaceable(opened)
            else:  # checked again under the target's lock: another process may have begun it since
                _check_empty_ledger(opened, target)
            restored = None if request is None else _record_of(request, snapshot.head)
            with opened.batch(restored=restored) as batch:
                _apply(snapshot, batch, file, watch, roots)
                if workspace is not None:  # again: retention may have passed the position meanwhile
                    check_position(snapshot.head, workspace)
                batch.commit(snapshot.head.position)
        return SnapshotResult(snapshot.head, snapshot.tail, file.stat().st_size, roots)


def last_restore(target: str) -> RestoreRecord | None:
    """The last restore of a target, which is stored with the content; None before the first one.

    Raises: what opening the target's ledger raises.
    """
    # the file first: opening the ledger of a target that was never made would be an error
    if not parse_target(target).database.is_file():
        return None
    with opened_ledger(target, is_known=True) as ledger:
        return ledger.restored


def _record_of(request: RestoreRequest, head: SnapshotHead) -> RestoreRecord:
    return RestoreRecord(request.place, request.begun_ms, head.position.next_offset, len(head.given_up))


def check_position(head: SnapshotHead, workspace: Workspace) -> None:
    """Whether a subscriber could go on from the snapshot. Raises: the named state that it would stop in."""
    topic = workspace.package_topic
    decide_start(
        AgentName("the snapshot"),
        head.position,
        workspace.journal.identity(topic),
        workspace.journal.bounds(topic),
        is_gap_accepted=False,
    )


def check_roots(head: SnapshotHead, target: str, roots: tuple[NodePath, ...]) -> None:
    """See that the snapshot has all that a subscriber with these roots imports. Raises: SnapshotPartialError."""
    if not head.roots or (roots and all(any(is_within(path, held) for held in head.roots) for path in roots)):
        return
    held, wanted = ", ".join(head.roots)[:200], ", ".join(roots)[:200] or ROOT
    raise SnapshotPartialError(
        f"the snapshot of {head.target} holds {held} only, the subscriber of {target} imports {wanted}",
        next_step="a snapshot of a subscriber with the same roots or none, or the snapshot's roots for this one in the"
        " configuration",
    )


def _write_package(view: TargetView, into: BinaryIO, watch: Watch | None) -> SnapshotTail:
    nodes = view.source.walk(ROOT)
    shown = nodes if watch is None else watched_nodes(nodes, watch)
    contents = PackageContents(
        _EVERYTHING, shown, is_self_contained=True, namespaces=namespaces_of(view.source), limits=_NO_LIMITS
    )
    summary = TreeCodec().write(contents, into)
    return SnapshotTail(summary.length_bytes, summary.node_count, summary.tree_digest.hex())


def _apply(snapshot: Snapshot, batch: Batch, file: Path, watch: Watch | None, roots: tuple[NodePath, ...]) -> None:
    reader = TreeCodec().open(snapshot.package, _NO_LIMITS, None)
    try:
        change = reader.change()
        if change.filter != _EVERYTHING:
            raise SnapshotCorruptError(f"{file} holds a part of a tree only", file=file)
        records = change.records if watch is None else watched_records(change.records, watch)
        wanted = change._replace(records=records)
        part = Roots(roots).part_of(wanted) if roots else wanted
        stamp = snapshot.head.position.next_offset
        # A node that is the same in the target is not written again; on its disk it may be damaged or gone.
        batch.remove([filter_set.root for filter_set in part.filter.sets], stamp)
        batch.apply(part, stamp)
        for entry in snapshot.head.given_up:
            batch.give_up(entry)
        batch.pass_over(snapshot.head.passed_over)
    finally:
        reader.close()


def check_is_empty(target: str) -> None:
    """See that a target is missing or empty, before it is opened for writing, which would finish what is left undone.

    Raises: TargetNotEmptyError.
    """
    # the file first: opening the ledger of a target that was never made would be an error
    if not parse_target(target).database.is_file():
        return
    with opened_ledger(target) as ledger:
        if ledger.position() is not None:
            raise _not_empty(target)


def check_is_there(target: str) -> None:
    """See that there is a target to replace. Raises: SourceMissingError."""
    if not parse_target(target).database.is_file():
        raise SourceMissingError(
            f"{target} is not a target yet: there is nothing to replace",
            next_step="correct its name, or restore without --replace, which creates it",
        )


def _check_is_replaceable(opened: Target) -> None:
    if opened.ledger.pool.marker() is not None:
        # members hold positions and tokens of their own, which a replaced target would contradict
        raise UsageError(
            f"{opened.uri} is the target of a shared pool, whose members cannot be restored one by one",
            next_step="stop the pool, restore into another place, and let the pool import there",
        )


def _check_empty_ledger(opened: Target, target: str) -> None:
    if opened.ledger.position() is not None or opened.ledger.given_up_count:
        raise _not_empty(target)


def _not_empty(target: str) -> TargetNotEmptyError:
    return TargetNotEmptyError(
        f"{target} is a target already, with content and a position of its own",
        next_step="restore into another place, or replace the content: --replace",
    )
