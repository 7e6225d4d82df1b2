"""A database that is read while it is written: SQLite's write-ahead log, turned on while others open the same file."""

from __future__ import annotations

import sqlite3
from typing import Final

from mailboat.faults import Fault, fault_of

_WAITS: Final = 10
"""Each waits the connection's own timeout. The first one to succeed switches the file for all."""


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
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL")
