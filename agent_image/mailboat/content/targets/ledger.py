"""The ledger of all targets: position, failed attempt, confirmations to send and error queue, in SQLite.

`TargetLedger` serves calls outside of a batch, each a durable step of its own, from any thread and on a connection of
its own, so that it never sees a batch that is not committed. `LedgerAdditions` collects what a batch adds, and writes
it in the batch's transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mailboat.content.port import Attempt, GivenUp, OpenBuild, OpenCommand, PendingStatus, ReportStarts, RestoreRecord
from mailboat.content.targets.ledger_tables import (
    LedgerConnection,
    TargetCommands,
    TargetHookCalls,
    TargetJobs,
    TargetPoolImports,
    cause_text,
    note_calls,
    note_done,
    note_jobs,
    note_restore,
    settle_command,
)
from mailboat.errors import TargetCorruptError, TargetOwnedError, UsageError
from mailboat.model.identifiers import AgentName, BuildId, Offset, PackageId
from mailboat.model.jobs import NewJob, Token
from mailboat.model.messages import CommandResult, FailureCause, ReportStart, StatusMessage
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity, Position
from mailboat.wire import headers
from mailboat.wire.messages import decode_message, encode_message

# The count of changes never goes back: rows are stamped by it, and a position that is reset has none of its own.
_STORE_POSITION: Final = (
    "UPDATE state SET cluster_id = ?, topic_id = ?, next_offset = ?, leader_epoch = ?, changes = max(changes, ?)"
)


class TargetLedger:
    """What a subscriber keeps besides the content; see `Ledger`."""

    def __init__(self, connection: sqlite3.Connection, uri: str) -> None:
        """Serve from a connection that has no other user."""
        self._connection = shared = LedgerConnection(connection, uri)
        self.commands = TargetCommands(shared)
        self.hook_calls = TargetHookCalls(shared)
        self.jobs = TargetJobs(shared)
        self.pool = TargetPoolImports(shared)

    def position(self) -> Position | None:
        row = self._connection.rows("SELECT cluster_id, topic_id, next_offset, leader_epoch FROM state")[0]
        return None if row[2] is None else Position(LogIdentity(row[0], row[1]), Offset(row[2]), row[3])

    def subscriber(self) -> AgentName | None:
        owner = self._connection.rows("SELECT owner FROM state")[0][0]
        return None if owner is None else AgentName(owner)

    def claim(self, name: AgentName) -> None:
        owner = self.subscriber()
        if owner is not None and owner != name:
            raise TargetOwnedError(
                f"{self._connection.uri} belongs to the subscriber {owner}, not to {name}",
                next_step=f"subscribe as {owner}, or choose another target",
            )
        if owner is None:
            self._connection.write("UPDATE state SET owner = ?", (name,))

    def reset_position(
        self, position: Position, accepted: Iterable[str] = (), report_starts: ReportStarts | None = None
    ) -> None:
        with self._connection.transaction() as connection:
            connection.executemany("DELETE FROM passed_over WHERE publisher = ?", [(name,) for name in accepted])
            # not of a pool, whose position stays: it gives up packages that are beyond it
            connection.execute(
                "DELETE FROM given_up WHERE at_offset >= ? AND (SELECT next_offset FROM state) > ?",
                (position.next_offset, position.next_offset),
            )
            connection.execute(_STORE_POSITION, _position_row(position, 0))
            if report_starts is not None:
                starts = {
                    name or "": None if one is None else [one.offset, one.is_first, one.until]
                    for name, one in report_starts.items()
                }
                connection.execute("UPDATE state SET reports = ?", (json.dumps(starts),))

    @property
    def report_starts(self) -> ReportStarts:
        text = self._connection.rows("SELECT reports FROM state")[0][0]
        starts = self._connection.decoded(text, "report starts")
        try:
            return {
                AgentName(name) if name else None: None if found is None else ReportStart(*found)
                for name, found in starts.items()
            }
        except (TypeError, AttributeError) as error:
            raise self._connection.corrupt(text, "report starts") from error

    def attempt(self) -> Attempt | None:
        rows = self._connection.rows("SELECT at_offset, count, cause, next_try_ms FROM attempt")
        if not rows:
            return None
        offset, count, cause, next_try_ms = rows[0]
        return Attempt(Offset(offset), count, self._connection.cause(cause), next_try_ms)

    def store_attempt(self, attempt: Attempt | None) -> None:
        if attempt is None:
            self._connection.write("DELETE FROM attempt")
            return
        row = (attempt.offset, attempt.count, cause_text(attempt.cause), attempt.next_try_ms)
        self._connection.write("INSERT OR REPLACE INTO attempt VALUES (1, ?, ?, ?, ?)", row)

    @property
    def restored(self) -> RestoreRecord | None:
        for row in self._connection.rows("SELECT snapshot, begun_ms, next_offset, given_up FROM restored"):
            return RestoreRecord(row[0], row[1], Offset(row[2]), row[3])
        return None

    @property
    def passed_over(self) -> frozenset[str]:
        if not self._connection.has_table("passed_over"):
            return frozenset()
        return frozenset(row[0] for row in self._connection.rows("SELECT publisher FROM passed_over"))

    def pending_statuses(self, limit: int) -> Sequence[PendingStatus]:
        rows = self._connection.rows(
            "SELECT sequence, kind, message FROM pending_status ORDER BY sequence LIMIT ?", (limit,)
        )
        return [PendingStatus(sequence, self._status(kind, message)) for sequence, kind, message in rows]

    def forget_statuses(self, up_to_sequence: int) -> None:
        self._connection.write("DELETE FROM pending_status WHERE sequence <= ?", (up_to_sequence,))

    def given_up(self) -> Sequence[GivenUp]:
        return self._entries("")

    @property
    def given_up_count(self) -> int:
        ((count,),) = self._connection.rows("SELECT count(*) FROM given_up")
        return int(count)

    @property
    def given_up_offsets(self) -> frozenset[Offset]:
        return frozenset(Offset(row[0]) for row in self._connection.rows("SELECT at_offset FROM given_up"))

    @property
    def open_builds(self) -> Sequence[OpenBuild]:
        rows = self._connection.rows(
            "SELECT pub_agent_name, build_id, done, total, last_ms FROM open_build ORDER BY 1, 2"
        )
        return [OpenBuild(AgentName(row[0]), BuildId(row[1]), *row[2:]) for row in rows]

    def redrives(self) -> Sequence[GivenUp]:
        return self._entries("WHERE is_redrive")

    def request_redrive(self, offset: Offset) -> None:
        if self._connection.write("UPDATE given_up SET is_redrive = 1 WHERE at_offset = ?", (offset,)) == 0:
            raise UsageError(f"no package at the offset {offset} is in the error queue of {self._connection.uri}")

    def refuse_redrive(self, offset: Offset, cause: FailureCause) -> None:
        self._connection.write(
            "UPDATE given_up SET is_redrive = 0, attempts = attempts + 1, cause = ? WHERE at_offset = ?",
            (cause_text(cause), offset),
        )

    def _entries(self, where: str) -> list[GivenUp]:
        rows = self._connection.rows(
            "SELECT at_offset, package_id, pub_agent_name, paths, cause, attempts, given_up_ms FROM given_up "
            f"{where} ORDER BY at_offset"
        )
        return [self._entry(row) for row in rows]

    def _entry(self, row: Sequence[Any]) -> GivenUp:
        paths = self._connection.decoded(row[3], "paths")
        if not isinstance(paths, list):
            raise self._connection.corrupt(row[3], "paths")
        more = paths.pop() if paths and isinstance(paths[-1], int) else 0
        return GivenUp(
            Offset(row[0]),
            PackageId(row[1]),
            None if row[2] is None else AgentName(row[2]),
            tuple(NodePath(path) for path in paths),
            self._connection.cause(row[4]),
            row[5],
            row[6],
            more,
        )

    def _status(self, kind: int, message: bytes) -> StatusMessage | CommandResult:
        decoded = decode_message(headers.headers_for(kind), message)
        if not isinstance(decoded, StatusMessage | CommandResult):
            raise TargetCorruptError(f"{self._connection.uri} contains an invalid confirmation")
        return decoded


class LedgerAdditions:
    """The part of a `Batch` that adds to the ledger: kept in memory until the commit writes it."""

    def __init__(self, restored: RestoreRecord | None) -> None:
        """Start with nothing; `restored`: see `Target.batch`."""
        self._restored = restored
        self._statuses: list[tuple[bytes]] = []
        self._given_up: list[GivenUp] = []
        self._resolved: list[Offset] = []
        self._after_calls: list[Offset] = []
        self._commands: list[tuple[OpenCommand, CommandResult | None]] = []
        self._builds: Sequence[OpenBuild] | None = None
        self._passed_over: list[str] = []
        self._jobs: list[NewJob] = []

    def add_status(self, message: StatusMessage) -> None:
        self._statuses.append((encode_message(message)[1],))

    def add_job(self, job: NewJob) -> None:
        self._jobs.append(job)

    def pass_over(self, publishers: Iterable[str]) -> None:
        self._passed_over += publishers

    def expect_after(self, offsets: Iterable[Offset]) -> None:
        self._after_calls += offsets

    def give_up(self, entry: GivenUp) -> None:
        self._given_up.append(entry)

    def resolve(self, offset: Offset) -> None:
        self._resolved.append(offset)

    def note_command(self, command: OpenCommand, answer: CommandResult | None = None) -> None:
        self._commands.append((command, answer))

    def note_builds(self, builds: Sequence[OpenBuild]) -> None:
        self._builds = builds

    def _write_ledger(
        self, connection: sqlite3.Connection, position: Position, changes: int, done: Mapping[Offset, Token]
    ) -> None:
        """Write it all with the position, in the transaction that is open on the connection."""
        connection.execute(_STORE_POSITION, _position_row(position, changes))
        connection.execute("DELETE FROM attempt")
        if self._restored is not None:  # before what the batch adds
            note_restore(connection, self._restored, position.next_offset)
        if self._statuses:
            connection.executemany("INSERT INTO pending_status (message) VALUES (?)", self._statuses)
        if self._jobs:
            note_jobs(connection, self._jobs)
        if done:
            note_done(connection, done, position.next_offset)
        for entry in self._given_up:
            paths = json.dumps([*entry.paths, entry.more_paths] if entry.more_paths else entry.paths)
            row = entry.offset, entry.package_id, entry.pub_agent_name, paths, cause_text(entry.cause)
            connection.execute(
                "INSERT OR REPLACE INTO given_up VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
                (*row, entry.attempts, entry.given_up_ms),
            )
        for publisher in self._passed_over:
            connection.execute("INSERT OR IGNORE INTO passed_over VALUES (?)", (publisher,))
        if self._after_calls:
            note_calls(connection, self._after_calls)
        connection.executemany("DELETE FROM given_up WHERE at_offset = ?", [(offset,) for offset in self._resolved])
        for command, answer in self._commands:
            settle_command(connection, command, answer)
        if self._builds is not None:
            connection.execute("DELETE FROM open_build")
            open_builds = [
                (build.publisher, build.build_id, build.done, build.total, build.last_ms) for build in self._builds
            ]
            connection.executemany("INSERT INTO open_build VALUES (?, ?, ?, ?, ?)", open_builds)


def _position_row(position: Position, changes: int) -> tuple[object, ...]:
    identity = position.identity
    return identity.cluster_id, identity.topic_id, position.next_offset, position.leader_epoch, changes
