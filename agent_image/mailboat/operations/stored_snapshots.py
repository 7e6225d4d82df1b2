"""Snapshots in the blob store: the snapshot itself as a blob, and a small document that names it.

Any process with access to the store can begin with the newest snapshot of a name, also elsewhere: members of a pool
do. A name is moved to another snapshot only once all of that is stored, and only to one that stands further in the same
log, so several subscribers may keep one name. A sweep keeps what names stand for. Called by `mailboat content`, and by
agents for their own subscribers.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from mailboat.api.archive import SnapshotView
from mailboat.blobs.port import BlobStore
from mailboat.clock import milliseconds_now, moment_of
from mailboat.composition.configured_roots import roots_of_target
from mailboat.composition.workspace import Workspace
from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.locations import opened_ledger, parse_target
from mailboat.content.snapshot_format import (
    SnapshotCorruptError,
    SnapshotHead,
    checked_ms,
    checked_number,
    checked_text,
)
from mailboat.content.watched_sources import Phases, Watch
from mailboat.errors import JournalReplacedError, JournalShorterError, JournalTrimmedError, UsageError
from mailboat.folder_handle import PRIVATE_FOLDER, make_path
from mailboat.model.identifiers import Offset, parse_agent_name
from mailboat.model.paths import NodePath, parse_path
from mailboat.model.positions import LogIdentity, Position
from mailboat.operations.target_snapshots import (
    RestoreRequest,
    SnapshotPartialError,
    SnapshotResult,
    check_is_there,
    check_position,
    check_roots,
    restore_snapshot,
    take_snapshot,
)

PLACE: Final = "blob:"
RESTORE_IN_HOME: Final = (
    "restore once the agent runs again; one without publishers ends with its last subscriber, restore in its home then,"
    " and name the target by its whole path:"
    "\nmailboat content restore blob:NAME --into TARGET --replace"
)
"""The next step where an agent cannot restore."""
_ROOMS: Final = "snapshots"
_LOCK: Final = "lock"
_COPY_BYTES: Final = 1024 * 1024
_MAX_DOCUMENT_BYTES: Final = 64 * 1024
_UNFIT: Final = (JournalReplacedError, JournalTrimmedError, JournalShorterError)


class SnapshotMissingError(UsageError):
    """The blob store has no snapshot with that name.

    `mailboat content snapshots` lists them.
    """


def snapshot_missing(name: str, blobs: BlobStore) -> SnapshotMissingError:
    """What to say of a name that stands for nothing."""
    return SnapshotMissingError(
        f"there is no snapshot {PLACE}{name} in {blobs.description}",
        next_step="mailboat content snapshots   (lists those that are there)",
    )


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """What a name stands for.

    Attributes:
        sha256: The blob, in hexadecimal.
        length_bytes: Its length.
        cluster_id, topic_id: The log that its position belongs to.
        next_offset: The first offset that it does not have.
        leader_epoch: Of the last record done, or None.
        target: What it was taken of, for people.
        taken_ms: When, milliseconds since 1970 UTC.
        roots: What its subscriber was limited to; empty: nothing; None: an earlier version did not say.
    """

    sha256: str
    length_bytes: int
    cluster_id: str
    topic_id: str
    next_offset: int
    leader_epoch: int | None
    target: str
    taken_ms: int
    roots: tuple[NodePath, ...] | None = None

    @property
    def digest(self) -> bytes:
        """The blob's SHA-256."""
        return bytes.fromhex(self.sha256)

    @property
    def position(self) -> Position:
        """Where it stands."""
        return Position(LogIdentity(self.cluster_id, self.topic_id), Offset(self.next_offset), self.leader_epoch)

    @property
    def head(self) -> SnapshotHead:
        """What is known of it before it is fetched."""
        return SnapshotHead(self.position, (), self.target, self.taken_ms, roots=self.roots)


@dataclass(frozen=True, slots=True)
class StoreResult:
    """Result of storing a snapshot.

    Attributes:
        stored: What the name stands for now.
        is_new: False where it stood as far already, and nothing was stored.
    """

    stored: StoredSnapshot
    is_new: bool


@dataclass(frozen=True, slots=True)
class Seeded:
    """Result of seeding a target: what was restored, or the reason why the target was left as it is."""

    taken: SnapshotResult | None
    reason: str = ""


def store_snapshot(
    target: str, name: str, workspace: Workspace, *, is_forced: bool = False, phases: Phases | None = None
) -> StoreResult:
    """Take a snapshot of a target and let the name stand for it.

    Args:
        target: What to copy.
        name: What it is to be found by.
        workspace: Whose blob store.
        is_forced: Store it also where the name stands as far, or further, or for another log.
        phases: Receives the progress; its phase of copying has begun.

    Raises:
        UsageError: The name stands for another log's.
        As `take_snapshot`, and what the store raises. The name then stands for what it stood for.
    """
    parse_agent_name(name)
    before = None if is_forced else _read(workspace.blobs, name)
    # Several members of a pool may keep one name: the one that is furthest wins, and the others store nothing.
    if before is not None and _is_enough(before, name, _position_of(target), target, workspace.blobs):
        return StoreResult(before, is_new=False)
    with _room(workspace) as folder:
        file = folder / "snapshot"
        watch, roots = None if phases is None else phases.advance, roots_of_target(workspace.home, target)
        taken = take_snapshot(target, file, workspace.clock, watch, roots)
        stored = _put(workspace.blobs, file, taken.head, phases)
    # Again: the copy may have taken hours, and another member may have moved the name further meanwhile.
    now = None if is_forced else _read(workspace.blobs, name)
    if now is not None and _is_enough(now, name, stored.position, target, workspace.blobs):
        return StoreResult(now, is_new=False)
    # the blob before its name: a crash in between leaves a blob without a name, which a sweep removes
    workspace.blobs.documents.write(name, _encoded(stored))
    return StoreResult(stored, is_new=True)


def _is_enough(stored: StoredSnapshot, name: str, position: Position, target: str, blobs: BlobStore) -> bool:
    """Whether a name needs no snapshot of this position. Raises: UsageError: the name stands for another log's."""
    if position.identity != stored.position.identity:
        raise UsageError(
            f"{PLACE}{name} is of another journal, {stored.position.identity}; {target} is of {position.identity}",
            next_step="another name, or --force to replace it",
        )
    # A blob that something else removed, such as a rule of the bucket, would be missed at the restore only.
    return position.next_offset <= stored.next_offset and blobs.stat(stored.digest) is not None


def restore_stored(
    name: str,
    target: str,
    workspace: Workspace,
    *,
    is_checked: bool = True,
    request: RestoreRequest | None = None,
    phases: Phases | None = None,
) -> SnapshotResult:
    """Make a new target of the snapshot that a name stands for, or replace the content of an existing one.

    Args:
        name: Of the snapshot.
        target: Where to; missing, or empty.
        workspace: Whose blob store and, where `is_checked`, whose log the position must fit. Its configuration says
            to which roots the target's subscriber is limited.
        is_checked: Whether it must.
        request: What the target keeps of the restore. None: it is asked for now, for a new target.
        phases: Receives the progress.

    Raises:
        SnapshotMissingError: No snapshot has that name.
        As `restore_snapshot`, and what the store raises.
    """
    request = request or RestoreRequest(f"{PLACE}{name}", milliseconds_now(workspace.clock))
    stored, roots = stored_snapshot(workspace.blobs, name), roots_of_target(workspace.home, target)
    # before all of it is fetched, and again by `restore_snapshot`: retention may pass the position during the transfer
    check_roots(stored.head, target, roots)
    if is_checked:
        check_position(stored.head, workspace)
    if request.is_replacing:
        check_is_there(target)
    with _room(workspace) as folder:
        file = folder / "snapshot"
        _fetch(workspace.blobs, stored, file, phases)
        if phases is not None:
            phases.begin("restoring", stored.length_bytes)
        watch = None if phases is None else phases.advance
        return restore_snapshot(file, target, workspace if is_checked else None, watch, roots, request)


def seed(name: str, target: str, workspace: Workspace, phases: Phases | None = None) -> Seeded:
    """Begin a target with the snapshot of that name, where that helps; runs before a subscriber starts.

    A target that has a position, a name that stands for nothing and a snapshot that does not fit the log or the roots
    are no failures: the subscriber that starts next says where it stands.

    Raises: what `restore_stored` raises otherwise; try again.
    """
    # The file first: opening the ledger of a target that was never made would be an error.
    if parse_target(target).database.is_file() and _has_begun(target):
        return Seeded(None, f"{target} has content and a position of its own")
    try:
        return Seeded(restore_stored(name, target, workspace, phases=phases))
    except SnapshotMissingError as error:
        return Seeded(None, error.message)
    except SnapshotPartialError as error:
        return Seeded(None, f"{PLACE}{name} does not fit the roots: {error.message}")
    except _UNFIT as error:
        # No failure of an init container: the subscriber starts, and stops in a named state if it cannot go on.
        return Seeded(None, f"{PLACE}{name} does not fit the journal: {error.name}: {error.message}")


def stored_snapshots(blobs: BlobStore) -> Iterator[tuple[str, StoredSnapshot]]:
    """All names with what they stand for. Raises: SnapshotCorruptError, what the store raises."""
    for name in blobs.documents.names():
        found = _read(blobs, name)
        if found is not None:
            yield name, found


def snapshot_views(blobs: BlobStore) -> list[SnapshotView]:
    """All names; one whose document cannot be read says so, and hides no other. Raises: what the store raises."""
    views = []
    for name in blobs.documents.names():
        try:
            found = _read(blobs, name)
        except SnapshotCorruptError as error:
            unread = SnapshotView(f"{PLACE}{name}", error=error.name, message=error.message, next_step=error.next_step)
            views.append(unread)
        else:
            views += [] if found is None else [view_of_stored(name, found)]
    return views


def stored_snapshot(blobs: BlobStore, name: str) -> StoredSnapshot:
    """What a name stands for. Raises: SnapshotMissingError, SnapshotCorruptError, what the store raises."""
    found = _read(blobs, name)
    if found is None:
        raise snapshot_missing(name, blobs)
    return found


def check_stored(stored: StoredSnapshot, target: str, workspace: Workspace) -> None:
    """See that the subscriber of a target could go on from the snapshot, without fetching it.

    Raises: as `check_position` and `check_roots`.
    """
    check_roots(stored.head, target, roots_of_target(workspace.home, target))
    check_position(stored.head, workspace)


def view_of_stored(name: str, stored: StoredSnapshot) -> SnapshotView:
    """What a name stands for, as a record of the API."""
    taken_at = moment_of(stored.taken_ms)
    place, identity = f"{PLACE}{name}", str(stored.position.identity)
    return SnapshotView(
        place, stored.sha256, stored.length_bytes, stored.target, taken_at, stored.next_offset, identity, stored.roots
    )


class _WatchedFile(io.BufferedReader):
    """A file that reports how much of it was read."""

    def __init__(self, file: Path, watch: Watch) -> None:
        """Open it."""
        super().__init__(io.FileIO(file))
        self._watch = watch

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._watch(len(data))
        return data


def _put(blobs: BlobStore, file: Path, head: SnapshotHead, phases: Phases | None) -> StoredSnapshot:
    position = head.position
    with file.open("rb") as stream:
        # hashed first: without a digest S3 would spool the whole file a second time, as its key is the digest
        digest = hashlib.file_digest(stream, "sha256").digest()
    if phases is not None:
        phases.begin("storing", file.stat().st_size)
    with file.open("rb") if phases is None else _WatchedFile(file, phases.advance) as stream:
        info = blobs.put(stream, digest)
    return StoredSnapshot(
        digest.hex(),
        info.length_bytes,
        position.identity.cluster_id,
        position.identity.topic_id,
        position.next_offset,
        position.leader_epoch,
        head.target,
        head.taken_ms,
        head.roots,
    )


def _fetch(blobs: BlobStore, stored: StoredSnapshot, file: Path, phases: Phases | None) -> None:
    if phases is not None:
        phases.begin("fetching", stored.length_bytes)
    with (
        TranslatedFailures(str(file)),
        blobs.open(stored.digest, stored.length_bytes) as stream,
        # "x": the folder is of this process alone, so an existing file would be a mistake of ours.
        file.open("xb") as into,
    ):
        while data := stream.read(_COPY_BYTES):
            into.write(data)
            if phases is not None:
                phases.advance(len(data))


def _read(blobs: BlobStore, name: str) -> StoredSnapshot | None:
    data = blobs.documents.read(name)
    if data is None:
        return None
    try:
        # Before it is parsed: any program with write access to the bucket may have written it.
        if len(data) > _MAX_DOCUMENT_BYTES:
            raise ValueError(f"{len(data)} bytes")
        return _decode(json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SnapshotCorruptError(
            f"the document of the snapshot {PLACE}{name} can't be understood: {error}",
            next_step=f"create it again, mailboat content snapshot TARGET {PLACE}{name} --force, or drop it:\n"
            f"mailboat content snapshots --remove {name}",
        ) from error


def _encoded(stored: StoredSnapshot) -> bytes:
    data = json.dumps(asdict(stored)).encode()
    # more roots than the document has room for; the snapshot itself has them
    if len(data) > _MAX_DOCUMENT_BYTES:
        data = json.dumps(asdict(replace(stored, roots=None))).encode()
    return data


def _decode(found: dict[str, object]) -> StoredSnapshot:
    # earlier versions wrote no roots
    epoch, roots = found["leader_epoch"], found.get("roots")
    if not isinstance(roots, list | None):
        raise TypeError("its roots are not a list")
    sha256 = checked_text(found["sha256"])
    if len(bytes.fromhex(sha256)) != hashlib.sha256().digest_size:
        raise ValueError("its digest has another length")
    return StoredSnapshot(
        sha256,
        checked_number(found["length_bytes"]),
        checked_text(found["cluster_id"]),
        checked_text(found["topic_id"]),
        checked_number(found["next_offset"]),
        None if epoch is None else checked_number(epoch),
        checked_text(found["target"]),
        checked_ms(found["taken_ms"]),
        None if roots is None else tuple(parse_path(checked_text(path)) for path in roots),
    )


def _position_of(target: str) -> Position:
    with opened_ledger(target) as ledger:
        position = ledger.position()
    if position is None:
        raise UsageError(f"nothing was imported into {target} yet")
    return position


def _has_begun(target: str) -> bool:
    with opened_ledger(target) as ledger:
        return ledger.position() is not None


@contextmanager
def _room(workspace: Workspace) -> Iterator[Path]:
    """A folder for one snapshot on the way."""
    # In the home: the folder for temporary files may be small.
    rooms = workspace.home.path / _ROOMS
    with TranslatedFailures(str(rooms)):
        make_path(rooms)
        # One process at a time: another could remove the new folder before its lock is held.
        rooms_lock = os.open(rooms, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(rooms_lock, fcntl.LOCK_EX)
            # What killed processes left there goes first: nothing else removes it.
            for left in rooms.iterdir():
                _clear(left)
            room = rooms / uuid.uuid4().hex
            room.mkdir(PRIVATE_FOLDER)
            lock = os.open(room / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # `_clear` asks for it exclusively: the folder of a live process stays
            fcntl.flock(lock, fcntl.LOCK_SH)
        finally:
            os.close(rooms_lock)
    try:
        yield room
    finally:
        # removed under its lock: no other process clears it at the same time
        shutil.rmtree(room, ignore_errors=True)
        os.close(lock)


def _clear(room: Path) -> None:
    """Remove it, unless a process uses it."""
    # FileNotFoundError: its process has removed it meanwhile. BlockingIOError: its process is alive.
    with suppress(FileNotFoundError, BlockingIOError):
        # with O_CREAT: a process that was killed right after making the folder left it without a lock file
        lock = os.open(room / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # without waiting: a live process holds it shared for as long as its transfer lasts
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(room, ignore_errors=True)
        finally:
            os.close(lock)
