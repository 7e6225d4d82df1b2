"""A cache of the digests of large files, by their state: unchanged files are not read again.

A cache in a SQLite file of its own. Losing it costs time and nothing else, so it is deleted at will, and whatever goes
wrong with it means that a file is not known. It is as safe as the signature is: length, times and inode, of files that
had rested for a while when they were read (`FolderSource`). Used for `publish --changed`.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from mailboat.content.sources.folder_entries import FileSignature
from mailboat.folder_handle import make_file
from mailboat.model.paths import NodePath
from mailboat.sqlite_file import turn_on_write_ahead_log

MAX_FILES: Final = 1_000_000
"""With more of them, most are of folders that are gone: all are forgotten."""
BUSY_TIMEOUT_SECONDS: Final = 2.0

_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS file (
    folder TEXT NOT NULL, path TEXT NOT NULL, length_bytes INTEGER NOT NULL, modified_ns INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL, inode INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (folder, path)
) WITHOUT ROWID
"""
_FIND: Final = (
    "SELECT digest FROM file WHERE folder = ? AND path = ? "
    "AND length_bytes = ? AND modified_ns = ? AND changed_ns = ? AND inode = ?"
)
# SQLite stores integers of 64 bits with a sign.
_HALF: Final = 1 << 63
_LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")


class KnownFiles:
    """The cache of one folder, see `DigestCache`. One thread at a time; `close` it."""

    def __init__(self, file: Path, folder: Path) -> None:
        """Open the cache at `file`, or make it. Raises nothing: without one, no file is known."""
        self._folder = os.path.realpath(folder)
        self._connection: sqlite3.Connection | None = None
        self._try(lambda: self._open(file))

    def find(self, path: NodePath, signature: FileSignature) -> bytes | None:
        connection = self._connection
        if connection is None:
            return None
        row = self._try(lambda: connection.execute(_FIND, (self._folder, path, *_numbers(signature))).fetchone())
        return None if row is None else bytes(row[0])

    def store(self, path: NodePath, signature: FileSignature, digest: bytes) -> None:
        connection = self._connection
        if connection is not None:
            values = (self._folder, path, *_numbers(signature), digest)
            self._try(lambda: connection.execute("INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?, ?)", values))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, file: Path) -> None:
        # Before SQLite opens it: SQLite would give the file a mode that other users can read.
        make_file(file)
        self._connection = connection = sqlite3.connect(
            file, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_SECONDS
        )
        turn_on_write_ahead_log(connection)
        # after a power failure the last entries may be missing, which costs time only
        connection.execute("PRAGMA synchronous = NORMAL")
        if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            connection.execute("DROP TABLE IF EXISTS file")
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        if connection.execute("SELECT count(*) FROM file").fetchone()[0] > MAX_FILES:
            # All at once: entries of files that are gone are never removed one by one.
            connection.execute("DELETE FROM file")

    def _try(self, action: Callable[[], T]) -> T | None:
        try:
            return action()
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last for a message about a damaged schema
            _LOG.warning("the cache of file digests is not used: %s", error)
            # For the rest of this run files are read instead; a later run opens or makes the cache again.
            self.close()
            return None


def _numbers(signature: FileSignature) -> tuple[int, ...]:
    """The numbers in 64 bits with a sign: inodes, and times after 2262, need more."""
    return tuple((number + _HALF) % (2 * _HALF) - _HALF for number in signature)
