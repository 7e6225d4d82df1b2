"""The commands of all targets, in SQLite, next to the rest of the ledger."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from mailboat.content.commands import OpenCommand
from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.errors import TargetCorruptError
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import CommandResult, CommandVerb, Suspension
from mailboat.model.positions import LogIdentity, Position
from mailboat.sqlite_file import transaction
from mailboat.wire import headers
from mailboat.wire.messages import decode_message, encode_message

REMEMBERED_ANSWERS: Final = 1000

COMMAND_SCHEMA: Final = (
    "ALTER TABLE pending_status ADD COLUMN kind INTEGER NOT NULL DEFAULT 3",  # headers.STATUS
    """CREATE TABLE command_position (
        id INTEGER PRIMARY KEY CHECK (id = 1), cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL,
        next_offset INTEGER NOT NULL
    )""",
    """CREATE TABLE command (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, command_id TEXT UNIQUE, verb TEXT NOT NULL, pub_agent_name TEXT,
        at_offset INTEGER NOT NULL, removed INTEGER NOT NULL DEFAULT 0, answer BLOB
    )""",
)
"""What version 2 of the schema adds to version 1."""

SUSPENSION_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS suspension (
        id INTEGER PRIMARY KEY CHECK (id = 1), since_ms INTEGER NOT NULL, until_ms INTEGER
    )""",
)
"""What version 9 of the schema adds."""

_HEADERS: Final = headers.headers_for(headers.COMMAND_RESULT)


class TargetCommands:
    """See `CommandLedger`. Shares connection and lock with the target's ledger."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock, uri: str) -> None:
        """Serve from a connection that is used under the lock only."""
        self._connection = connection
        self._lock = lock
        self._uri = uri

    def position(self) -> Position | None:
        for cluster_id, topic_id, next_offset in self._rows(
            "SELECT cluster_id, topic_id, next_offset FROM command_position"
        ):
            return Position(LogIdentity(cluster_id, topic_id), Offset(next_offset))
        return None

    def suspension(self) -> Suspension | None:
        for row in self._rows("SELECT since_ms, until_ms FROM suspension"):
            return Suspension(*row)
        return None

    def take(
        self,
        opened: Sequence[OpenCommand],
        answers: Sequence[CommandResult],
        position: Position,
        suspension: Suspension | None = None,
    ) -> None:
        with self._transaction() as connection:
            for one in opened:
                connection.execute(
                    # A command id that comes again is the same command; its first entry counts.
                    "INSERT OR IGNORE INTO command (command_id, verb, pub_agent_name, at_offset) VALUES (?, ?, ?, ?)",
                    (one.command_id, one.verb, one.pub_agent_name, one.offset),
                )
                if one.verb is CommandVerb.REDRIVE:
                    connection.execute("UPDATE given_up SET is_redrive = 1 WHERE at_offset = ?", (one.offset,))
            for answer in answers:
                _remember(connection, answer)
            connection.execute(
                "INSERT OR REPLACE INTO command_position VALUES (1, ?, ?, ?)",
                (position.identity.cluster_id, position.identity.topic_id, position.next_offset),
            )
            connection.execute("DELETE FROM suspension")
            if suspension is not None:
                row = (suspension.since_ms, suspension.until_ms)
                connection.execute("INSERT INTO suspension VALUES (1, ?, ?)", row)

    def open_commands(self) -> Sequence[OpenCommand]:
        return [
            OpenCommand(sequence, self._verb(verb), Offset(offset), name and AgentName(name), command_id, removed)
            for sequence, verb, offset, name, command_id, removed in self._rows(
                "SELECT sequence, verb, at_offset, pub_agent_name, command_id, removed FROM command"
                " WHERE answer IS NULL ORDER BY sequence"
            )
        ]

    def answer_to(self, command_id: str) -> CommandResult | None:
        for (answer,) in self._rows("SELECT answer FROM command WHERE command_id = ?", (command_id,)):
            decoded = None if answer is None else decode_message(_HEADERS, answer)
            if isinstance(decoded, CommandResult):
                return decoded
        return None

    def settle(self, command: OpenCommand, answer: CommandResult) -> None:
        with self._transaction() as connection:
            settle_command(connection, command, answer)

    def _verb(self, text: str) -> CommandVerb:
        try:
            return CommandVerb(text)
        except ValueError as error:
            raise TargetCorruptError(f"{self._uri} holds a command that can't be understood: {text[:40]!r}") from error

    def _rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        with self._lock, TranslatedFailures(self._uri):
            return self._connection.execute(sql, parameters).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, TranslatedFailures(self._uri), transaction(self._connection):
            yield self._connection


def settle_command(connection: sqlite3.Connection, command: OpenCommand, answer: CommandResult | None) -> None:
    """Note what a command has done so far and, with an answer, that it is over; in the open transaction."""
    if answer is not None and command.command_id is None:
        connection.execute("DELETE FROM command WHERE sequence = ?", (command.sequence,))
        return
    connection.execute("UPDATE command SET removed = ? WHERE sequence = ?", (command.removed, command.sequence))
    if answer is not None:
        _remember(connection, answer)


def _remember(connection: sqlite3.Connection, answer: CommandResult) -> None:
    """Keep the answer for a repeated command, and send it."""
    value = encode_message(answer)[1]
    connection.execute(
        "INSERT INTO command (command_id, verb, pub_agent_name, at_offset, removed, answer) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (command_id) DO UPDATE SET answer = excluded.answer, removed = excluded.removed",
        (answer.command_id, answer.verb, answer.pub_agent_name, answer.offset, answer.removed, value),
    )
    connection.execute("INSERT INTO pending_status (kind, message) VALUES (?, ?)", (headers.COMMAND_RESULT, value))
    connection.execute(
        "DELETE FROM command WHERE answer IS NOT NULL AND sequence <= (SELECT max(sequence) FROM command) - ?",
        (REMEMBERED_ANSWERS,),
    )
