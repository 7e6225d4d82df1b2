"""The SQLite file of a publisher's state: its schema, its connection, and what its failures mean in our words.

Synchronous FULL: an intent that power failure takes away would make a retry publish twice. An existing file that is
damaged, foreign or newer is refused, never replaced. An empty one counts as new: a crash of the first start leaves it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from mailboat.errors import (
    MailboatError,
    RetryableError,
    StopError,
    StorageFailedError,
    StorageFullError,
    StorageReadOnlyError,
)
from mailboat.faults import Fault, fault_at
from mailboat.folder_handle import make_file, make_path
from mailboat.write_ahead import turn_on_write_ahead_log

APPLICATION_ID: Final = 0x4D425042  # "MBPB"
SCHEMA_VERSION: Final = 3
BUSY_TIMEOUT_SECONDS: Final = 30.0

Synchronous = Literal["FULL", "OFF"]
"""OFF is for tests whose crashes are not those of a machine."""

_SCHEMA: Final = """
CREATE TABLE intents (
    request_id TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, package_id TEXT NOT NULL,
    cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL, scan_from INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE receipts (
    request_id TEXT NOT NULL, cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL, fingerprint BLOB NOT NULL,
    package_id TEXT NOT NULL, at_offset INTEGER NOT NULL, PRIMARY KEY (request_id, cluster_id, topic_id)
) WITHOUT ROWID;
CREATE INDEX receipts_by_offset ON receipts (cluster_id, topic_id, at_offset);
CREATE TABLE sources (
    id INTEGER PRIMARY KEY, uri TEXT NOT NULL, cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL,
    packages INTEGER NOT NULL DEFAULT 0, at_offset INTEGER, package_id TEXT, UNIQUE (uri, cluster_id, topic_id)
);
CREATE TABLE published (
    source_id INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (source_id, key)
) WITHOUT ROWID;
"""
_STAGED: Final = """
CREATE TABLE staged (
    rank INTEGER PRIMARY KEY, package_id TEXT NOT NULL, source_id INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB,
    staged_ms INTEGER NOT NULL
);
CREATE INDEX staged_by_package ON staged (package_id, rank);
"""
_EVENTS: Final = """
CREATE TABLE event_cursors (
    reader TEXT NOT NULL, cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL, next_offset INTEGER NOT NULL,
    event_offset INTEGER NOT NULL, PRIMARY KEY (reader, cluster_id, topic_id)
) WITHOUT ROWID;
CREATE TABLE event_audience (
    sling_id TEXT NOT NULL, name TEXT NOT NULL, since_ms INTEGER NOT NULL, left_ms INTEGER, next_offset INTEGER,
    PRIMARY KEY (sling_id, name, since_ms)
) WITHOUT ROWID;
"""
# Version 1 staged by request id. What was staged then is forgotten: at worst, `--changed` publishes it again.
_FROM_VERSION_1: Final = """
DROP TABLE staged;
ALTER TABLE sources ADD COLUMN at_offset INTEGER;
ALTER TABLE sources ADD COLUMN package_id TEXT;
"""


class PublisherStateCorruptError(StopError):
    """The publisher's state file is damaged or not a state file. It is never overwritten automatically.

    Restore it, or remove it: request ids are then forgotten, and `publish --changed` publishes the whole source again.
    """


class PublisherBusyError(RetryableError):
    """Another process of the same publisher locked its state longer than the timeout. Retry."""


def open_database(file: Path, synchronous: Synchronous = "FULL") -> sqlite3.Connection:
    """Open the state, or make it. Any one thread at a time may use the connection.

    Raises:
        PublisherStateCorruptError: Damaged, foreign, or made by a newer version.
        StorageFullError, StorageReadOnlyError, StorageFailedError, PublisherBusyError.
    """
    with translated_failures(file):
        make_path(file.parent)
        # Made before SQLite opens it: SQLite would give it a mode that other users can read.
        make_file(file)
        connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_SECONDS)
        try:
            turn_on_write_ahead_log(connection)
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            # The file may be foreign: https://www.sqlite.org/pragma.html#pragma_trusted_schema
            connection.execute("PRAGMA trusted_schema = OFF")
            _prepare(connection, file)
        except BaseException:
            connection.close()
            raise
        return connection


class StateFile:
    """The open file, for several threads: one at a time has the connection. Failures come as ours."""

    def __init__(self, path: Path, synchronous: Synchronous = "FULL") -> None:
        """Open it, or make it. Raises: see `open_database`."""
        self.path = path
        self.guard = threading.RLock()
        self.connection = open_database(path, synchronous)

    def close(self) -> None:
        """Release the file."""
        self.connection.close()

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        """All rows of a query."""
        with self.guard, translated_failures(self.path):
            return self.connection.execute(sql, parameters).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of what is done inside, durable at the end, or nothing of it."""
        with self.guard, translated_failures(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.commit()
            except BaseException:
                # a failed commit may leave the transaction open, and the next one could not begin
                self.connection.rollback()
                raise


@contextmanager
def translated_failures(file: Path) -> Iterator[None]:
    """Raise our errors for those of SQLite and the operating system, their cause kept."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise _translated(error, file) from error


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    # Several processes may open a new file at once: one makes the schema, the others wait and find it.
    connection.execute("BEGIN IMMEDIATE")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if is_empty and application == 0:
        _change(connection, _SCHEMA + _STAGED + _EVENTS)
    elif application == APPLICATION_ID and version == 1:
        _change(connection, _FROM_VERSION_1 + _STAGED + _EVENTS)
    elif application == APPLICATION_ID and version == 2:
        _change(connection, _EVENTS)
    elif application != APPLICATION_ID or version > SCHEMA_VERSION:
        raise PublisherStateCorruptError(
            f"{file} is not a publisher's state of a supported version", application=application, version=version
        )
    connection.execute("COMMIT")


def _change(connection: sqlite3.Connection, schema: str) -> None:
    for statement in schema.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _translated(error: sqlite3.Error | OSError | UnicodeDecodeError, file: Path) -> MailboatError:
    text = (error.strerror or error) if isinstance(error, OSError) else error
    return _ERRORS.get(fault_at(error, file), StorageFailedError)(f"the publisher's state {file}: {text}")


_ERRORS: Final[Mapping[Fault, type[MailboatError]]] = MappingProxyType(
    {
        Fault.FULL: StorageFullError,
        Fault.READ_ONLY: StorageReadOnlyError,
        Fault.NOT_OPENED: StorageReadOnlyError,
        Fault.BUSY: PublisherBusyError,
        Fault.DAMAGED: PublisherStateCorruptError,
    }
)
