"""The SQLite file of a publisher's state: its schema, its connection, and what its failures mean in our words.

Synchronous FULL: an intent that power failure takes away would make a retry publish twice. An existing file that is
damaged, foreign or newer is refused, never replaced. An empty one counts as new: a crash of the first start leaves it.
"""

from __future__ import annotations

import fcntl
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
from mailboat.model.positions import LogIdentity
from mailboat.sqlite_file import Schema, application_of, apply_schema, transaction, turn_on_write_ahead_log, version_of

BUSY_TIMEOUT_SECONDS: Final = 30.0
WAL_KEPT_BYTES: Final = 64 * 1024 * 1024

Synchronous = Literal["FULL", "OFF"]
"""OFF is for tests that kill processes, but never the machine."""

# `sources.packages` counts those published so far: it makes the request ids of `--changed` unlike.
_FIRST_SCHEMA: Final = (
    """CREATE TABLE intents (
    request_id TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, package_id TEXT NOT NULL,
    cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL, scan_from INTEGER NOT NULL
) WITHOUT ROWID""",
    """CREATE TABLE receipts (
    request_id TEXT NOT NULL, cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL, fingerprint BLOB NOT NULL,
    package_id TEXT NOT NULL, at_offset INTEGER NOT NULL, PRIMARY KEY (request_id, cluster_id, topic_id)
) WITHOUT ROWID""",
    "CREATE INDEX receipts_by_offset ON receipts (cluster_id, topic_id, at_offset)",
    """CREATE TABLE sources (
    id INTEGER PRIMARY KEY, uri TEXT NOT NULL, cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL,
    packages INTEGER NOT NULL DEFAULT 0, UNIQUE (uri, cluster_id, topic_id)
)""",
    """CREATE TABLE published (
    source_id INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (source_id, key)
) WITHOUT ROWID""",
)
# Files of version 1 had a table `staged` by request id, which `_FIRST_SCHEMA` no longer makes. What was staged then is
# forgotten: at worst, `--changed` publishes it again. `rank` keeps the order in which a package changes its nodes.
_STAGED_SCHEMA: Final = (
    "DROP TABLE IF EXISTS staged",
    "ALTER TABLE sources ADD COLUMN at_offset INTEGER",
    "ALTER TABLE sources ADD COLUMN package_id TEXT",
    """CREATE TABLE staged (
    rank INTEGER PRIMARY KEY, package_id TEXT NOT NULL, source_id INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB,
    staged_ms INTEGER NOT NULL
)""",
    "CREATE INDEX staged_by_package ON staged (package_id, rank)",
)
# The columns of `event_audience` are what `StoredSubscriber` has, its queue name in two.
_EVENT_SCHEMA: Final = (
    """CREATE TABLE event_cursors (
    reader TEXT NOT NULL, cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL, next_offset INTEGER NOT NULL,
    event_offset INTEGER NOT NULL, PRIMARY KEY (reader, cluster_id, topic_id)
) WITHOUT ROWID""",
    """CREATE TABLE event_audience (
    sling_id TEXT NOT NULL, name TEXT NOT NULL, since_ms INTEGER NOT NULL, left_ms INTEGER, next_offset INTEGER,
    PRIMARY KEY (sling_id, name, since_ms)
) WITHOUT ROWID""",
)
SCHEMA: Final = Schema(0x4D425042, (_FIRST_SCHEMA, _STAGED_SCHEMA, _EVENT_SCHEMA))  # "MBPB"


class PublisherStateCorruptError(StopError):
    """The publisher's state file is damaged or not a state file. It is never overwritten automatically.

    Restore a copy, or remove it: request ids are then forgotten, and `publish --changed` publishes the whole source.
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
            # Other processes of the publisher read meanwhile, and a commit is one synchronisation.
            turn_on_write_ahead_log(connection)
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            # as in targets: see `content/targets/database.py`
            connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
            connection.execute("PRAGMA secure_delete = OFF")
            # The file may be foreign: https://www.sqlite.org/pragma.html#pragma_trusted_schema
            connection.execute("PRAGMA trusted_schema = OFF")
            # under the write lock: another process may be making the schema of a new file
            with transaction(connection):
                _check(connection, file)
                apply_schema(connection, SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection


class StateFile:
    """The open file. Failures come as ours.

    `rows`, `execute` and `transaction` are for all threads. `connection` is for what runs within `transaction`, and for
    `PublishedTrees.compare`, which takes no guard: one thread at a time publishes.
    """

    def __init__(self, path: Path, synchronous: Synchronous = "FULL") -> None:
        """Open it, or make it. Raises: see `open_database`."""
        self.path = path
        # Re-entrant: `PublisherLocks` holds it around whole appends, which read and write the file.
        self.guard = threading.RLock()
        self.connection = open_database(path, synchronous)

    def close(self) -> None:
        self.connection.close()

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        with self.guard, translated_failures(self.path):
            return self.connection.execute(sql, parameters).fetchall()

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> None:
        """Execute a statement: in the open transaction, or else durable at once."""
        with self.guard, translated_failures(self.path):
            self.connection.execute(sql, parameters)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of what is done inside, durable at the end, or nothing of it."""
        with self.guard, translated_failures(self.path), transaction(self.connection):
            yield self.connection


@contextmanager
def translated_failures(file: Path) -> Iterator[None]:
    """Raise our errors for those of SQLite and the operating system, their cause kept."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        text = (error.strerror or error) if isinstance(error, OSError) else error
        raise _ERRORS.get(fault_at(error, file), StorageFailedError)(f"the publisher's state {file}: {text}") from error


def _check(connection: sqlite3.Connection, file: Path) -> None:
    application, version = application_of(connection), version_of(connection)
    # A crash between `make_file` and the first commit leaves an empty file; tables without our id are foreign.
    is_empty = application == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if not is_empty and (application != SCHEMA.application_id or version > SCHEMA.version):
        raise PublisherStateCorruptError(
            f"{file} is not a publisher's state of a supported version", application=application, version=version
        )


_ERRORS: Final[Mapping[Fault, type[MailboatError]]] = MappingProxyType(
    {
        Fault.FULL: StorageFullError,
        Fault.READ_ONLY: StorageReadOnlyError,
        # In a folder that may not be written, SQLite cannot open its log, and says only that.
        Fault.NOT_OPENED: StorageReadOnlyError,
        Fault.BUSY: PublisherBusyError,
        Fault.DAMAGED: PublisherStateCorruptError,
    }
)


def columns_of(identity: LogIdentity) -> tuple[str, str]:
    """The values of `cluster_id` and `topic_id`, by which all tables keep logs apart."""
    return identity.cluster_id, identity.topic_id


def try_lock(handle: int) -> bool:
    """Lock an open file exclusively, unless another process has; whether it is locked now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
