"""Calls of the hook `after` of all targets, in SQLite, next to the rest of the ledger."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.errors import TargetCorruptError
from mailboat.model.identifiers import Offset
from mailboat.model.messages import AfterCall, FailureCause
from mailboat.sqlite_file import transaction

AFTER_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS after_call (
        at_offset INTEGER PRIMARY KEY, attempts INTEGER NOT NULL DEFAULT 0, cause TEXT,
        is_set_aside INTEGER NOT NULL DEFAULT 0
    )""",
)
"""What version 6 of the schema adds."""


class TargetHookCalls:
    """See `HookCallLedger`. Shares connection and lock with the target's ledger."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock, uri: str) -> None:
        """Serve from a connection that is used under the lock only."""
        self._connection = connection
        self._lock = lock
        self._uri = uri

    def calls(self, limit: int, *, is_set_aside: bool = False) -> Sequence[AfterCall]:
        rows = self._rows(
            "SELECT at_offset, attempts, cause FROM after_call WHERE is_set_aside = ? ORDER BY at_offset LIMIT ?",
            (is_set_aside, limit),
        )
        return [AfterCall(Offset(row[0]), row[1], self._cause(row[2]), is_set_aside) for row in rows]

    def counts(self) -> tuple[int, int]:
        rows = self._rows("SELECT count(*) - total(is_set_aside), total(is_set_aside) FROM after_call")
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    def store(self, call: AfterCall) -> None:
        cause = call.cause
        text = None
        if cause is not None:
            text = json.dumps([cause.code, cause.message, cause.path, cause.trace_excerpt, cause.is_truncated])
        row = (call.offset, call.attempts, text, call.is_set_aside)
        with self._lock, TranslatedFailures(self._uri):
            self._connection.execute("INSERT OR REPLACE INTO after_call VALUES (?, ?, ?, ?)", row)

    def forget(self, offsets: Iterable[Offset]) -> None:
        with self._lock, TranslatedFailures(self._uri):
            rows = [(offset,) for offset in offsets]
            with transaction(self._connection):
                self._connection.executemany("DELETE FROM after_call WHERE at_offset = ?", rows)

    def resume(self) -> None:
        with self._lock, TranslatedFailures(self._uri):
            self._connection.execute("UPDATE after_call SET attempts = 0, is_set_aside = 0 WHERE is_set_aside")

    def retry(self, offset: Offset) -> bool:
        sql = "UPDATE after_call SET attempts = 0, is_set_aside = 0 WHERE at_offset = ?"
        with self._lock, TranslatedFailures(self._uri):
            return self._connection.execute(sql, (offset,)).rowcount > 0

    def _rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        with self._lock, TranslatedFailures(self._uri):
            if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'after_call'").fetchall():
                return []  # a reader's look at a target of an older version
            return self._connection.execute(sql, parameters).fetchall()

    def _cause(self, text: str | None) -> FailureCause | None:
        if text is None:
            return None
        try:
            return FailureCause(*json.loads(text))
        except (ValueError, TypeError) as error:
            raise TargetCorruptError(f"{self._uri} holds a cause that cannot be read: {text[:100]!r}") from error


def note_calls(connection: sqlite3.Connection, offsets: Iterable[Offset]) -> None:
    """Note calls in the transaction that is open on the connection."""
    rows = [(offset,) for offset in offsets]
    connection.executemany("INSERT OR REPLACE INTO after_call (at_offset) VALUES (?)", rows)
