"""The SQLite file in which a target keeps its tree, its position and its ledger: made whole, opened with suspicion.

A new file is made under another name and renamed when it is complete, so a crash leaves no half of one; an existing
file that is empty, foreign, damaged or newer than this version is refused, never replaced.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.targets.ledger_tables import (
    AFTER_SCHEMA,
    COMMAND_SCHEMA,
    JOB_SCHEMA,
    POOL_SCHEMA,
    RESTORE_SCHEMA,
    SUSPENSION_SCHEMA,
)
from mailboat.content.targets.namespace_table import NAMESPACE_SCHEMA
from mailboat.errors import TargetCorruptError, UsageError
from mailboat.folder_handle import PRIVATE_FILE, FolderHandle, ForeignEntryError, is_same_entry
from mailboat.sqlite_file import (
    Schema,
    application_of,
    apply_schema,
    transaction,
    turn_on_write_ahead_log,
    upgrade,
    version_of,
)

# The check reads the whole file: larger ones are not checked at each start.
QUICK_CHECK_BYTES: Final = 32 * 1024 * 1024
BUSY_TIMEOUT_SECONDS: Final = 10.0
CHECKPOINT_PAGES: Final = 4000  # 16 MiB of log: fewer fsyncs in a backlog than with SQLite's 4 MiB
WAL_KEPT_BYTES: Final = 64 * 1024 * 1024

_FIRST_SCHEMA: Final = (
    "CREATE TABLE nodes (key TEXT PRIMARY KEY, stamp INTEGER NOT NULL, held, body BLOB NOT NULL) WITHOUT ROWID",
    "CREATE VIEW content AS SELECT replace(key, char(1), '/') AS path, body FROM nodes",
    """CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1), kind TEXT NOT NULL, owner TEXT, cluster_id TEXT, topic_id TEXT,
    next_offset INTEGER, leader_epoch INTEGER, changes INTEGER NOT NULL DEFAULT 0, generations TEXT NOT NULL DEFAULT ''
)""",
    """CREATE TABLE attempt (
    id INTEGER PRIMARY KEY CHECK (id = 1), at_offset INTEGER NOT NULL, count INTEGER NOT NULL, cause TEXT NOT NULL,
    next_try_ms INTEGER NOT NULL
)""",
    "CREATE TABLE pending_status (sequence INTEGER PRIMARY KEY AUTOINCREMENT, message BLOB NOT NULL)",
    """CREATE TABLE given_up (
    at_offset INTEGER PRIMARY KEY, package_id TEXT NOT NULL, pub_agent_name TEXT, paths TEXT NOT NULL,
    cause TEXT NOT NULL, attempts INTEGER NOT NULL, given_up_ms INTEGER NOT NULL, is_redrive INTEGER NOT NULL DEFAULT 0
)""",
)

# Also noted by the file targets: the nodes that differ between the table and the disk (`staged_intake.py`). The
# statement that fires a trigger decides about conflicts within it, hence no OR IGNORE.
REDO_SCHEMA: Final = (
    "CREATE TABLE redo (key TEXT PRIMARY KEY) WITHOUT ROWID",
    """CREATE TRIGGER put_node AFTER INSERT ON nodes BEGIN
    INSERT INTO redo SELECT new.key WHERE NOT EXISTS (SELECT 1 FROM redo WHERE key = new.key); END""",
    """CREATE TRIGGER change_node AFTER UPDATE OF body ON nodes WHEN old.body IS NOT new.body BEGIN
    INSERT INTO redo SELECT new.key WHERE NOT EXISTS (SELECT 1 FROM redo WHERE key = new.key); END""",
    """CREATE TRIGGER remove_node AFTER DELETE ON nodes BEGIN
    INSERT INTO redo SELECT old.key WHERE NOT EXISTS (SELECT 1 FROM redo WHERE key = old.key); END""",
)

_BUILD_SCHEMA: Final = (
    """CREATE TABLE open_build (
        pub_agent_name TEXT NOT NULL, build_id TEXT NOT NULL, done INTEGER NOT NULL, total INTEGER NOT NULL,
        last_ms INTEGER NOT NULL, PRIMARY KEY (pub_agent_name, build_id)
    )""",
)

SCHEMA: Final = Schema(
    0x4D424F54,  # "MBOT"
    (
        _FIRST_SCHEMA,
        COMMAND_SCHEMA,
        _BUILD_SCHEMA,
        ("CREATE TABLE IF NOT EXISTS passed_over (publisher TEXT PRIMARY KEY) WITHOUT ROWID",),
        ("ALTER TABLE state ADD COLUMN reports TEXT NOT NULL DEFAULT '{}'",),
        AFTER_SCHEMA,
        NAMESPACE_SCHEMA,
        JOB_SCHEMA,
        SUSPENSION_SCHEMA,
        POOL_SCHEMA,
        RESTORE_SCHEMA,
    ),
)


def create_database(
    folder: FolderHandle, name: str, kind: str, extra_schema: tuple[str, ...] = (), *, mode: int = PRIVATE_FILE
) -> None:
    """Make an empty target database of that kind. Raises: OSError, sqlite3.Error; nothing is left then."""
    half = f"{name}.new"
    # SQLite would roll the journal of a killed process back into the new file
    folder.remove(f"{half}-journal")
    folder.create_file(half, mode).close()  # SQLite gives its other files the mode of this one
    connection = sqlite3.connect(f"{folder.place}/{half}", isolation_level=None)
    try:
        # EXTRA also synchronises the folder after the journal is removed:
        # https://www.sqlite.org/pragma.html#pragma_synchronous
        connection.execute("PRAGMA synchronous = EXTRA")
        with transaction(connection):
            apply_schema(connection, SCHEMA)
            for statement in extra_schema:
                connection.execute(statement)
            connection.execute("INSERT INTO state (id, kind) VALUES (1, ?)", (kind,))
    finally:
        connection.close()
    folder.move(half, folder, name)
    folder.sync()


def open_database(
    folder: FolderHandle, name: str, kind: str, uri: str, *, is_known: bool = False
) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Check a target database, and open it for batches and for the ledger. Raises: as `check_database`.

    `is_known`: This process has checked the whole file before.
    """
    file = Path(folder.place) / name
    check_database(file, kind, uri, is_known=is_known)
    with ExitStack() as undo:
        first = undo.enter_context(closing(connect_database(file, uri)))
        # For the ledger, which other threads use: a connection has one transaction at a time.
        second = undo.enter_context(closing(connect_database(file, uri)))
        # SQLite opens by path alone: what it opened must be what the handle of the folder leads to
        if not is_same_entry(folder.status(name), file.lstat()):
            raise ForeignEntryError(errno.ELOOP, "is not in the folder that was opened", str(file))
        undo.pop_all()
    return first, second


def connect_database(file: Path, uri: str) -> sqlite3.Connection:
    """A writable connection, for one thread at a time, without checks. Raises: as `open_database`."""
    with TranslatedFailures(uri):
        connection = _connect(file, "mode=rw")
        try:
            turn_on_write_ahead_log(connection)
            # With NORMAL, a power failure may take back the last commits of a write-ahead log:
            # https://www.sqlite.org/pragma.html#pragma_synchronous
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            # Else the log keeps the size of the largest package or restore, and Debian's SQLite overwrites all that is
            # removed with zeros.
            connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
            connection.execute("PRAGMA secure_delete = OFF")
            upgrade(connection, SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection


def connect_reader(file: Path) -> sqlite3.Connection:
    """A read-only connection; works in a read-only folder if the writer closed the database."""
    # a database in WAL mode can't be read without its -shm file, which can't be made here:
    # https://www.sqlite.org/wal.html#read_only_databases
    is_resting = not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists()
    return _connect(file, "mode=ro&immutable=1" if is_resting else "mode=ro")


def check_database(file: Path, kind: str, uri: str, *, is_known: bool = False) -> None:
    """Check an existing target database before writing: the whole file, unless checked before.

    Raises:
        TargetCorruptError: It is damaged, or empty.
        UsageError: It is a target of another kind, no target at all, or made by a newer version.
        StorageReadOnlyError, StorageFailedError.
    """
    with TranslatedFailures(uri):
        if file.stat().st_size == 0:
            raise TargetCorruptError(f"{file} is empty, and no target has ever been so", next_step=_way_out(uri))
        connection = connect_reader(file)
        try:
            _check(connection, file, kind, uri, is_known=is_known)
        finally:
            connection.close()


def is_held_back(connection: sqlite3.Connection) -> bool:
    """Whether an open bulk build hides what is committed. Also for databases of older versions."""
    is_known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'open_build'").fetchone() is not None
    return is_known and connection.execute("SELECT 1 FROM open_build LIMIT 1").fetchone() is not None


def _connect(file: Path, mode: str) -> sqlite3.Connection:
    """Raises: ForeignEntryError where the file is a link, or is exchanged meanwhile."""
    before = _own_status(file)
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?{mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_SECONDS,
    )
    if not is_same_entry(before, _own_status(file)):
        connection.close()
        raise ForeignEntryError(errno.ELOOP, "was exchanged for another file", str(file))
    return connection


def _own_status(file: Path) -> os.stat_result:
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise ForeignEntryError(errno.ELOOP, "is a link, a pipe or a device and not a file", str(file))
    return status


def _check(connection: sqlite3.Connection, file: Path, kind: str, uri: str, *, is_known: bool) -> None:
    if application_of(connection) != SCHEMA.application_id:
        raise UsageError(f"{file} is a SQLite database, but not one of Mailboat's targets")
    version = version_of(connection)
    if version > SCHEMA.version:
        raise UsageError(
            f"{uri} has the format {version}, this version supports formats up to {SCHEMA.version}",
            next_step="use the version of Mailboat that wrote it, or a newer one",
        )
    if not is_known and file.stat().st_size <= QUICK_CHECK_BYTES:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise TargetCorruptError(f"{uri} fails its integrity check: {verdict}", next_step=_way_out(uri))
    found = connection.execute("SELECT kind FROM state").fetchone()
    if found is None:
        raise TargetCorruptError(f"{uri} has lost its state", next_step=_way_out(uri))
    if found[0] != kind:
        raise UsageError(f"{file} belongs to a target of the kind {found[0]!r}, not {kind!r}")


def _way_out(uri: str) -> str:
    return f"restore {uri} from a snapshot, or remove it and import everything again"
