"""The smaller tables of a target's ledger, in SQLite: commands, pending jobs, imports of a shared pool, calls of hooks.

Each class implements a port of `content/port.py`. The rest of the ledger is in `ledger.py`.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.content.port import OpenCommand, PendingJob, RestoreRecord
from mailboat.errors import MessageCorruptError, TargetCorruptError
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.jobs import JobsAdded, NewJob, Token
from mailboat.model.messages import AfterCall, CommandResult, CommandVerb, FailureCause, Suspension
from mailboat.model.positions import LogIdentity, Position
from mailboat.sqlite_file import transaction
from mailboat.wire import headers
from mailboat.wire.headers import JOBS_ADDED, headers_for
from mailboat.wire.job_records import decode_job_record, encode_job_record
from mailboat.wire.messages import decode_message, encode_message


class LedgerConnection:
    """A target's ledger connection, for one thread at a time; maps SQLite's errors to the target's."""

    def __init__(self, connection: sqlite3.Connection, uri: str) -> None:
        """Serve from a connection that has no other user; `uri` names the target in errors."""
        self._connection = connection
        self._lock = threading.Lock()
        self.uri = uri

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        with self._lock, TranslatedFailures(self.uri):
            return self._connection.execute(sql, parameters).fetchall()

    def write(self, sql: str, parameters: tuple[object, ...] = ()) -> int:
        """Execute a statement; returns how many rows it changed."""
        with self._lock, TranslatedFailures(self.uri):
            return self._connection.execute(sql, parameters).rowcount

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Several statements that count together."""
        with self._lock, TranslatedFailures(self.uri), transaction(self._connection):
            yield self._connection

    def has_table(self, name: str) -> bool:
        """Whether the target's version has the table: a reader opens those of older versions as they are."""
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)))

    def decoded(self, text: str, what: str) -> Any:
        """A value that was stored as JSON. Raises: TargetCorruptError, which names `what`."""
        try:
            return json.loads(text)
        except ValueError as error:
            raise self.corrupt(text, what) from error

    def cause(self, text: str) -> FailureCause:
        """What `cause_text` stored. Raises: TargetCorruptError."""
        fields = self.decoded(text, "a cause")
        try:
            return FailureCause(*fields)
        except TypeError as error:
            raise self.corrupt(text, "a cause") from error

    def corrupt(self, text: str, what: str) -> TargetCorruptError:
        """The error for a stored value that cannot be read."""
        return TargetCorruptError(f"{self.uri} holds {what} that cannot be read: {text[:100]!r}")


def cause_text(cause: FailureCause) -> str:
    """A cause as it is stored; `LedgerConnection.cause` reads it."""
    return json.dumps([cause.code, cause.message, cause.path, cause.trace_excerpt, cause.is_truncated])


AFTER_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS after_call (
        at_offset INTEGER PRIMARY KEY, attempts INTEGER NOT NULL DEFAULT 0, cause TEXT,
        is_set_aside INTEGER NOT NULL DEFAULT 0
    )""",
)
"""What version 6 of the schema adds."""


class TargetHookCalls:
    """See `HookCallLedger`. Shares the connection of the target's ledger."""

    def __init__(self, connection: LedgerConnection) -> None:
        self._connection = connection

    def calls(self, limit: int, *, is_set_aside: bool = False) -> Sequence[AfterCall]:
        rows = self._rows(
            "SELECT at_offset, attempts, cause FROM after_call WHERE is_set_aside = ? ORDER BY at_offset LIMIT ?",
            (is_set_aside, limit),
        )
        return [
            AfterCall(Offset(row[0]), row[1], row[2] and self._connection.cause(row[2]), is_set_aside) for row in rows
        ]

    def counts(self) -> tuple[int, int]:
        rows = self._rows("SELECT count(*) - total(is_set_aside), total(is_set_aside) FROM after_call")
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    def store(self, call: AfterCall) -> None:
        cause = call.cause
        row = (call.offset, call.attempts, None if cause is None else cause_text(cause), call.is_set_aside)
        self._connection.write("INSERT OR REPLACE INTO after_call VALUES (?, ?, ?, ?)", row)

    def forget(self, offsets: Iterable[Offset]) -> None:
        rows = [(offset,) for offset in offsets]
        with self._connection.transaction() as connection:
            connection.executemany("DELETE FROM after_call WHERE at_offset = ?", rows)

    def resume(self) -> None:
        self._connection.write("UPDATE after_call SET attempts = 0, is_set_aside = 0 WHERE is_set_aside")

    def retry(self, offset: Offset) -> bool:
        sql = "UPDATE after_call SET attempts = 0, is_set_aside = 0 WHERE at_offset = ?"
        return self._connection.write(sql, (offset,)) > 0

    def _rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Any]:
        # a reader of a target of an older version finds no table
        return self._connection.rows(sql, parameters) if self._connection.has_table("after_call") else []


def note_calls(connection: sqlite3.Connection, offsets: Iterable[Offset]) -> None:
    """Note calls in the transaction that is open on the connection."""
    rows = [(offset,) for offset in offsets]
    # REPLACE: a package that is imported again is called for again, with all attempts
    connection.executemany("INSERT OR REPLACE INTO after_call (at_offset) VALUES (?)", rows)


POOL_SCHEMA: Final = (
    "ALTER TABLE state ADD COLUMN pool TEXT",
    "CREATE TABLE pool_done (at_offset INTEGER PRIMARY KEY, token INTEGER NOT NULL)",
)
"""What version 10 of the schema adds. Nothing reads `token`: it is for people who look for the attempt in the log."""


def note_done(connection: sqlite3.Connection, done: Mapping[Offset, Token], position: Offset) -> None:
    """Store packages in the transaction that is open, and forget those that the position covers."""
    connection.executemany("INSERT INTO pool_done VALUES (?, ?)", done.items())
    connection.execute("DELETE FROM pool_done WHERE at_offset < ?", (position,))


class TargetPoolImports:
    """See `PoolImports`. Shares the connection of the target's ledger."""

    def __init__(self, connection: LedgerConnection) -> None:
        self._connection = connection

    def marker(self) -> str | None:
        ((marker,),) = self._connection.rows("SELECT pool FROM state")
        return None if marker is None else str(marker)

    def mark(self, marker: str) -> None:
        self._connection.write("UPDATE state SET pool = ?", (marker,))

    def is_done(self, offset: Offset) -> bool:
        return bool(self._connection.rows("SELECT 1 FROM pool_done WHERE at_offset = ?", (offset,)))

    def end(self) -> Offset | None:
        ((last,),) = self._connection.rows("SELECT max(at_offset) FROM pool_done")
        return None if last is None else Offset(last + 1)

    def forget(self) -> None:
        self._connection.write("DELETE FROM pool_done")


JOB_SCHEMA: Final = ("CREATE TABLE pending_job (sequence INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL)",)
"""What version 8 of the schema adds."""


def note_jobs(connection: sqlite3.Connection, jobs: Iterable[NewJob]) -> None:
    """Store jobs in the transaction that is open on the connection."""
    rows = [(encode_job_record(JobsAdded([job]))[1],) for job in jobs]
    connection.executemany("INSERT INTO pending_job (record) VALUES (?)", rows)


class TargetJobs:
    """See `PendingJobs`. Shares the connection of the target's ledger."""

    def __init__(self, connection: LedgerConnection) -> None:
        self._connection = connection

    def pending(self, limit: int) -> Sequence[PendingJob]:
        sql = "SELECT sequence, record FROM pending_job ORDER BY sequence LIMIT ?"
        return [PendingJob(sequence, self._job(record)) for sequence, record in self._connection.rows(sql, (limit,))]

    def forget(self, up_to_sequence: int) -> None:
        self._connection.write("DELETE FROM pending_job WHERE sequence <= ?", (up_to_sequence,))

    def _job(self, record: bytes) -> NewJob:
        try:
            decoded = decode_job_record(headers_for(JOBS_ADDED), record)
        except MessageCorruptError as error:
            raise TargetCorruptError(
                f"{self._connection.uri} holds a job that cannot be read: {error.message}"
            ) from error
        if not isinstance(decoded, JobsAdded):
            raise TargetCorruptError(f"{self._connection.uri} holds a job that cannot be read")
        return decoded.jobs[0]


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

RESTORE_SCHEMA: Final = (
    "ALTER TABLE command ADD COLUMN is_void INTEGER NOT NULL DEFAULT 0",
    """CREATE TABLE restored (
        id INTEGER PRIMARY KEY CHECK (id = 1), snapshot TEXT NOT NULL, begun_ms INTEGER NOT NULL,
        next_offset INTEGER NOT NULL, given_up INTEGER NOT NULL
    )""",
)
"""What version 11 of the schema adds."""

_HEADERS: Final = headers.headers_for(headers.COMMAND_RESULT)


class TargetCommands:
    """See `CommandLedger`. Shares the connection of the target's ledger."""

    def __init__(self, connection: LedgerConnection) -> None:
        self._connection = connection

    def position(self) -> Position | None:
        for cluster_id, topic_id, next_offset in self._connection.rows(
            "SELECT cluster_id, topic_id, next_offset FROM command_position"
        ):
            return Position(LogIdentity(cluster_id, topic_id), Offset(next_offset))
        return None

    def suspension(self) -> Suspension | None:
        for row in self._connection.rows("SELECT since_ms, until_ms FROM suspension"):
            return Suspension(*row)
        return None

    def take(
        self,
        opened: Sequence[OpenCommand],
        answers: Sequence[CommandResult],
        position: Position,
        suspension: Suspension | None = None,
    ) -> None:
        # Commands, answers and position in one transaction: a crash loses no command, and takes none twice.
        with self._connection.transaction() as connection:
            for command in opened:
                connection.execute(
                    # A command id that comes again is the same command; its first entry counts.
                    "INSERT OR IGNORE INTO command (command_id, verb, pub_agent_name, at_offset) VALUES (?, ?, ?, ?)",
                    (command.command_id, command.verb, command.pub_agent_name, command.offset),
                )
                if command.verb is CommandVerb.REDRIVE:
                    connection.execute("UPDATE given_up SET is_redrive = 1 WHERE at_offset = ?", (command.offset,))
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
            OpenCommand(
                row[0], self._verb(row[1]), Offset(row[2]), row[3] and AgentName(row[3]), row[4], row[5], bool(row[6])
            )
            for row in self._connection.rows(
                "SELECT sequence, verb, at_offset, pub_agent_name, command_id, removed, is_void FROM command"
                " WHERE answer IS NULL ORDER BY sequence"
            )
        ]

    def answer_to(self, command_id: str) -> CommandResult | None:
        for (answer,) in self._connection.rows("SELECT answer FROM command WHERE command_id = ?", (command_id,)):
            decoded = None if answer is None else decode_message(_HEADERS, answer)
            if isinstance(decoded, CommandResult):
                return decoded
        return None

    def settle(self, command: OpenCommand, answer: CommandResult) -> None:
        with self._connection.transaction() as connection:
            settle_command(connection, command, answer)

    def _verb(self, text: str) -> CommandVerb:
        try:
            return CommandVerb(text)
        except ValueError as error:
            raise TargetCorruptError(
                f"{self._connection.uri} holds a command that can't be understood: {text[:40]!r}"
            ) from error


def note_restore(connection: sqlite3.Connection, record: RestoreRecord, next_offset: Offset) -> None:
    """Note it in the open transaction, in place of what the ledger has of the content before."""
    for table in ("given_up", "passed_over", "open_build", "pool_done"):
        connection.execute(f"DELETE FROM {table}")
    # Open commands have no effect; the answer, where one is wanted, needs the subscriber's identity.
    connection.execute("DELETE FROM command WHERE answer IS NULL AND command_id IS NULL")
    connection.execute("UPDATE command SET is_void = 1 WHERE answer IS NULL")
    # packages below stay imported, so calls for them are still to be made
    connection.execute("DELETE FROM after_call WHERE at_offset >= ?", (next_offset,))
    connection.execute("UPDATE state SET reports = '{}'")
    row = record.snapshot, record.begun_ms, record.next_offset, record.given_up
    connection.execute("INSERT OR REPLACE INTO restored VALUES (1, ?, ?, ?, ?)", row)


def settle_command(connection: sqlite3.Connection, command: OpenCommand, answer: CommandResult | None) -> None:
    """Note what a command has done so far and, with an answer, that it is over; in the open transaction."""
    # without an id the answer is never asked for, so the command is not remembered
    if answer is not None and command.command_id is None:
        connection.execute("DELETE FROM command WHERE sequence = ?", (command.sequence,))
        return
    connection.execute("UPDATE command SET removed = ? WHERE sequence = ?", (command.removed, command.sequence))
    if answer is not None:
        _remember(connection, answer)


def _remember(connection: sqlite3.Connection, answer: CommandResult) -> None:
    """Keep the answer for a repeated command, and send it."""
    value = encode_message(answer)[1]
    # the row of the command, where it was open; a new row for one that is answered as it is taken
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
