"""SQLite files of the journal, of targets and of publishers: versions of their schemas, transactions, write-ahead log.

Several processes may open a file at once, also a new one and one of an older version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from mailboat.faults import Fault, fault_of

_WAITS: Final = 10
"""Each waits the connection's own timeout. The first one to succeed switches the file for all."""


class Schema(NamedTuple):
    """The schema of a kind of file.

    Attributes:
        application_id: By which `file` and we know our files.
        versions: The statements that bring a file to each version from the one before; the first make the file. What a
            release has written is never changed: a new version is added.
    """

    application_id: int
    versions: tuple[tuple[str, ...], ...]

    @property
    def version(self) -> int:
        """The version that this release writes."""
        return len(self.versions)


def application_of(connection: sqlite3.Connection) -> int:
    """Whose file it is; 0 where no program has said so."""
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a file's schema; 0 of an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def apply_schema(connection: sqlite3.Connection, schema: Schema) -> None:
    """Bring an empty or older file to the schema's version, in the open transaction."""
    version = version_of(connection)
    if version >= schema.version:
        return
    for statements in schema.versions[version:]:
        for statement in statements:
            connection.execute(statement)
    # Both numbers are in the same transaction as the tables: a file never has a version without its tables.
    connection.execute(f"PRAGMA application_id = {schema.application_id}")
    connection.execute(f"PRAGMA user_version = {schema.version}")


def upgrade(connection: sqlite3.Connection, schema: Schema) -> None:
    """Bring a file of an older version to the schema's, as a whole or not at all; of several processes one does it."""
    if version_of(connection) < schema.version:
        with transaction(connection):
            # reads the version again under the write lock: another process may have upgraded the file since
            apply_schema(connection, schema)


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
    """All of what is done inside, committed at the end, or nothing of it."""
    connection.execute(begin)
    try:
        yield connection
        connection.commit()
    except BaseException:
        # a failed commit may leave the transaction open, and the next one could not begin
        connection.rollback()
        raise


def turn_on_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Have the database in the mode WAL, which it keeps (sqlite.org/wal.html, "Persistence of WAL mode").

    The switch begins as a reader and goes on as a writer. SQLite refuses that at once where another process is about
    to write, be it for the same switch, and whatever timeout the connection has: the two could wait for each other. To
    begin an exclusive transaction does wait.

    Raises:
        sqlite3.Error: Of the kind "busy" only if another connection held the file for the connection's whole timeout.
    """
    for _ in range(_WAITS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            if fault_of(error) is not Fault.BUSY:
                raise
            # Only for its wait: when it is granted, no other process is about to write, and the switch is tried again.
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        else:
            return
    # The last try is outside of the loop: its error is the caller's.
    connection.execute("PRAGMA journal_mode = WAL")
