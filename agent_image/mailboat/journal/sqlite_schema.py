"""The tables of the SQLite journal, and how its file comes to be.

One file holds all topics. A topic has a row with its bounds and a table of its own, whose rowid is the offset: appends
go to the right edge of one B-tree, a batch is one range scan, and removing a topic is dropping a table. Numbers of
topics are never used twice (AUTOINCREMENT), so a recreated topic has another table.

A new file is filled under a temporary name in the same folder and then linked to its path, so that no process ever
opens an incomplete journal.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

from mailboat.clock import Clock, milliseconds_now
from mailboat.errors import JournalCorruptError, JournalMissingError, JournalTooNewError
from mailboat.folder_handle import FolderHandle, make_file, make_path
from mailboat.journal.sqlite_connection import connect, mapped_errors
from mailboat.sqlite_file import Schema, application_of, apply_schema, transaction, upgrade, version_of

SCHEMA: Final = Schema(
    0x4D426A6C,  # "MBjl"
    (
        (
            "CREATE TABLE journal (uuid TEXT NOT NULL, created_ms INTEGER NOT NULL) STRICT",
            """
            CREATE TABLE topic (
                number INTEGER PRIMARY KEY AUTOINCREMENT,
                name TEXT NOT NULL UNIQUE,
                uuid TEXT NOT NULL,
                earliest_offset INTEGER NOT NULL DEFAULT 0,
                next_offset INTEGER NOT NULL DEFAULT 0,
                retention_seconds REAL,
                max_message_bytes INTEGER NOT NULL,
                CHECK (0 <= earliest_offset AND earliest_offset <= next_offset)
            ) STRICT
            """,
        ),
        ("ALTER TABLE topic ADD COLUMN retention_bytes INTEGER",),
    ),
)


def record_table(topic_number: int) -> str:
    """The name of a topic's table."""
    return f"record_{topic_number:d}"


def record_table_ddl(topic_number: int) -> str:
    """The table of a topic's records; the value is last, so other columns are read without its pages.

    The epoch is that of the writer (`sqlite_writer`): it marks records that were rewritten in a restored journal.
    """
    return f"""
    CREATE TABLE {record_table(topic_number)} (
        offset INTEGER PRIMARY KEY,
        appended_ms INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        key BLOB,
        headers BLOB NOT NULL,
        value BLOB NOT NULL
    ) STRICT
    """


def create_file(path: Path, clock: Clock) -> None:
    """Make an empty journal at `path`, unless there is a file already; several processes may try at once.

    Raises:
        StorageFullError, StorageReadOnlyError, JournalUnavailableError: Nothing was left behind.
    """
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.urandom(16).hex()}")
    try:
        with mapped_errors(path):
            make_path(path.parent)
            _fill(draft, clock)
            _link(draft, path)
    finally:
        # A crash before this leaves a draft with a random name, which no process opens.
        for leftover in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            with suppress(OSError):
                leftover.unlink()


def open_file(path: Path, busy_timeout_seconds: float) -> tuple[sqlite3.Connection, str]:
    """Connect to a journal that is there, check that it is one of ours, and say its uuid.

    Raises:
        JournalMissingError, JournalCorruptError, JournalTooNewError, JournalUnavailableError.
    """
    if not path.is_file():
        raise JournalMissingError(f"there is no journal at {path}", next_step="mailboat init")
    connection = connect(path, busy_timeout_seconds)
    try:
        with mapped_errors(path):
            identity = _check(connection, path)
            upgrade(connection, SCHEMA)
            return connection, identity
    except BaseException:
        connection.close()
        raise


def _fill(draft: Path, clock: Clock) -> None:
    # Before SQLite opens it: SQLite would give the file a mode that other users can read.
    make_file(draft)
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        # Both are stored in the file; `auto_vacuum` has an effect only before the first table is made.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        # Of this connection only: the draft must be durable before a link gives it the journal's name.
        connection.execute("PRAGMA synchronous = FULL")
        with transaction(connection):
            apply_schema(connection, SCHEMA)
            identity = str(uuid.uuid4()), milliseconds_now(clock)
            connection.execute("INSERT INTO journal (uuid, created_ms) VALUES (?, ?)", identity)
    finally:
        connection.close()  # the last connection moves the write-ahead log into the file


def _link(draft: Path, path: Path) -> None:
    with FolderHandle.open(os.path.realpath(path.parent)) as folder, suppress(FileExistsError):
        # A link and not a rename: it fails where another process has made the journal, which is as good.
        path.hardlink_to(draft)
        # Also the name: after a power failure a journal that was used must not be missing.
        folder.sync()


def _check(connection: sqlite3.Connection, path: Path) -> str:
    version = version_of(connection)
    # First whose file it is: the version number of a foreign program means nothing here.
    if application_of(connection) != SCHEMA.application_id:
        raise JournalCorruptError(f"{path} is an SQLite file, but no Mailboat journal", path=path)
    if version > SCHEMA.version:
        raise JournalTooNewError(
            f"{path} has the form {version} of a newer Mailboat; this version supports up to {SCHEMA.version}",
            path=path,
        )
    rows = connection.execute("SELECT uuid FROM journal").fetchall()
    if len(rows) != 1:
        raise JournalCorruptError(f"{path} has {len(rows)} identities instead of one", path=path)
    return str(rows[0][0])
