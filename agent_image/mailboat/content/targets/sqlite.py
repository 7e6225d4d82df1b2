"""The target `sqlite:FILE`: content and position in one SQLite transaction, large binaries in `FILE.blobs/`.

The fastest target, and the one for content that a program reads. Bodies are stored as packages bring them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.held_blobs import HeldBlobs, blob_folder
from mailboat.content.keys import SEPARATOR
from mailboat.content.sources.sqlite import SqliteSource
from mailboat.content.targets.database import check_database, connect_database, create_database, open_database
from mailboat.content.targets.locks import TargetLock
from mailboat.content.targets.tree_table import Held, Row
from mailboat.content.targets.tree_target import TargetParts, TreePresenter, TreeTarget
from mailboat.errors import TargetCorruptError
from mailboat.folder_handle import PUBLIC_FILE, PUBLIC_FOLDER, FolderHandle, make_path
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath
from mailboat.wire.node_bodies import DIGEST_BYTES

KIND: Final = "sqlite"


def open_sqlite_target(file: Path, *, is_known: bool = False) -> TreeTarget:
    """Open `sqlite:FILE`, and make it if there is nothing of it.

    `is_known`: This process has checked the whole file before.

    Raises:
        TargetBusyError: Another process imports into it.
        TargetCorruptError: It is damaged, or parts of it are missing.
        UsageError: The file is something else, or newer than this version.
        StorageFullError, StorageReadOnlyError, StorageFailedError.
    """
    uri = f"{KIND}:{file}"
    with TranslatedFailures(uri):
        make_path(file.parent, PUBLIC_FOLDER)
        with FolderHandle.open(str(file.parent.resolve())) as folder:
            lock = TargetLock(folder, f"{file.name}.lock", uri)
            try:
                # Under the lock: two processes that start at once must not both create the database.
                if folder.status(file.name) is None:
                    _check_nothing_is_left(file, uri)
                    create_database(folder, file.name, KIND, mode=PUBLIC_FILE)
                connection, second = open_database(folder, file.name, KIND, uri, is_known=is_known)
            except BaseException:
                lock.release()
                raise
    return TreeTarget(
        TargetParts(
            uri, lock, connection, second, _BlobIntake(HeldBlobs(file)), TreePresenter(), partial(SqliteSource, file)
        )
    )


def sweep_blobs(file: Path, *, is_dry_run: bool = False) -> int:
    """Delete the blobs of a target that no node names, or only count them. The target must be closed.

    Raises:
        TargetBusyError: It is not closed: its lock is taken.
        TargetCorruptError, UsageError, StorageReadOnlyError, StorageFailedError.
    """
    uri = f"{KIND}:{file}"
    with TranslatedFailures(uri), FolderHandle.open(str(file.parent.resolve())) as folder:
        lock = TargetLock(folder, f"{file.name}.lock", uri)
    try:
        with TranslatedFailures(uri):
            check_database(file, KIND, uri)
            connection = connect_database(file, uri)
            try:
                return HeldBlobs(file).sweep(_named_blobs(connection), is_dry_run=is_dry_run)
            finally:
                connection.close()
    finally:
        lock.release()


def _check_nothing_is_left(file: Path, uri: str) -> None:
    # SQLite would apply a WAL that was left behind to the new file
    for rest in (file.with_name(f"{file.name}-wal"), blob_folder(file)):
        if rest.exists():
            raise TargetCorruptError(
                f"{file} is missing, but {rest.name} is there: a part of the target is gone",
                next_step=f"restore {file} from a snapshot, or remove {rest} to import everything again into {uri}",
            )


def _named_blobs(connection: sqlite3.Connection) -> Callable[[bytes], bool]:
    """Whether a blob is named, by an index in SQLite's own temporary store: memory does not grow with the blobs."""
    connection.execute("CREATE TEMP TABLE named (digest BLOB PRIMARY KEY) WITHOUT ROWID")
    for (held,) in connection.execute("SELECT held FROM nodes WHERE held IS NOT NULL"):
        digests = ((held[start : start + DIGEST_BYTES],) for start in range(0, len(held), DIGEST_BYTES))
        connection.executemany("INSERT OR IGNORE INTO named VALUES (?)", digests)

    def is_named(digest: bytes) -> bool:
        return connection.execute("SELECT 1 FROM named WHERE digest = ?", (digest,)).fetchone() is not None

    return is_named


class _BlobIntake:
    """Keeps large binaries as blobs, and all else in the rows."""

    keeps_bodies = True

    def __init__(self, blobs: HeldBlobs) -> None:
        self._blobs = blobs
        self._compares_held = False

    def compare_held(self, *, is_wanted: bool) -> None:
        self._compares_held = is_wanted

    def rows(self, records: Sequence[NodeRecord], stamp: int) -> list[Row]:
        """See `Intake.rows`: the hot path of the import."""
        hold, are_compared = self._blobs.hold, self._compares_held
        return [
            (path.replace("/", SEPARATOR), stamp, hold(binaries, are_compared=are_compared) if binaries else None, body)
            for path, body, binaries, _ in records
        ]

    def open_held(self, path: NodePath, held: Held, digest: bytes) -> BinaryIO:  # noqa: ARG002  # blobs need no path
        return self._blobs.open(digest)
