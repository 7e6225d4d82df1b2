"""What all targets keep for a shared pool, in SQLite, next to the rest of the ledger."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from typing import Any, Final

from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import Token

POOL_SCHEMA: Final = (
    "ALTER TABLE state ADD COLUMN pool TEXT",
    "CREATE TABLE pool_done (at_offset INTEGER PRIMARY KEY, token INTEGER NOT NULL)",
)
"""What version 10 of the schema adds."""


def note_done(connection: sqlite3.Connection, done: Mapping[Offset, Token], position: Offset) -> None:
    """Store packages in the transaction that is open, and forget those that the position covers."""
    connection.executemany("INSERT INTO pool_done VALUES (?, ?)", done.items())
    connection.execute("DELETE FROM pool_done WHERE at_offset < ?", (position,))


class TargetPoolImports:
    """See `PoolImports`. Shares connection and lock with the target's ledger."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock, uri: str) -> None:
        """Serve from a connection that no other code uses without the lock."""
        self._connection = connection
        self._lock = lock
        self._uri = uri

    def marker(self) -> str | None:
        """See `PoolImports.marker`."""
        ((marker,),) = self._execute("SELECT pool FROM state")
        return None if marker is None else str(marker)

    def mark(self, marker: str) -> None:
        """See `PoolImports.mark`."""
        self._execute("UPDATE state SET pool = ?", (marker,))

    def is_done(self, offset: Offset) -> bool:
        """See `PoolImports.is_done`."""
        return bool(self._execute("SELECT 1 FROM pool_done WHERE at_offset = ?", (offset,)))

    def end(self) -> Offset | None:
        """See `PoolImports.end`."""
        ((last,),) = self._execute("SELECT max(at_offset) FROM pool_done")
        return None if last is None else Offset(last + 1)

    def forget(self) -> None:
        """See `PoolImports.forget`."""
        self._execute("DELETE FROM pool_done")

    def _execute(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        with self._lock, TranslatedFailures(self._uri):
            return self._connection.execute(sql, parameters).fetchall()
