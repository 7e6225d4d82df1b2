"""Exactly one commit for a job in a database of the user: the job's id and fencing token join the transaction.

For DB-API connections to SQLite (sqlite3) and PostgreSQL (psycopg).
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from mailboat.errors import UsageError
from mailboat.model.jobs import JobLeaseLostError, Token

_TABLE: Final = "CREATE TABLE IF NOT EXISTS mailboat_job (job TEXT PRIMARY KEY, token BIGINT, committed_ms BIGINT)"
_LOCK: Final = 0x6D61696C626F6174
"""Of PostgreSQL's advisory locks, a number that other programs hardly use: `mailboat` in ASCII."""
_PQTRANS_IDLE: Final = 0
"""Of libpq, whose status the drivers show."""
_KEPT_MS: Final = 90 * 24 * 3600 * 1000
"""Longer than the longest pause between two attempts, 49 days, and the longest lease, a day."""


class EffectExistsError(Exception):
    """An earlier attempt has committed: the handler ends, and the job succeeds."""


class TransactionSplitError(UsageError):
    """The job's token and its effect would not be committed together. The job ends as `error`.

    Open the connection without autocommit, leave commits to `ctx.transaction`, then `mailboat jobs retry`.
    """


class DbConnection(Protocol):
    """A DB-API connection, as far as it is used here."""

    def cursor(self) -> Any:
        """A new cursor."""
        ...

    def commit(self) -> None:
        """End the transaction."""
        ...

    def rollback(self) -> None:
        """Undo the transaction."""
        ...


@contextmanager
def commit_once(connection: DbConnection, job: str, token: Token, now_ms: int) -> Generator[None]:
    """A transaction that commits only if none of this job has committed before.

    Raises:
        EffectExistsError: An earlier attempt has committed.
        JobLeaseLostError: A later attempt, or this one, has committed.
        TransactionSplitError: The connection commits each statement, or the handler committed meanwhile.
        UsageError: A transaction is open already.
    """
    style = _parameter_style(connection)
    _begin(connection, style)
    try:
        _take(connection.cursor(), style, job, token, now_ms)
        yield
    except BaseException:
        connection.rollback()
        raise
    # `executescript` of sqlite3 commits before it begins.
    if _is_in_transaction(connection) is False:
        raise TransactionSplitError(
            "the handler committed inside of ctx.transaction, so what follows is not part of it",
            next_step="leave out commit(), rollback() and executescript() there",
        )
    connection.commit()


def _begin(connection: DbConnection, style: str) -> None:
    # Otherwise `commit` does nothing, and the token would be committed apart from the effect.
    if getattr(connection, "autocommit", False) is True:
        raise TransactionSplitError(
            "the connection is in autocommit mode, so the token and the effect would be committed apart",
            next_step="open the connection with the driver's default",
        )
    if _is_in_transaction(connection):
        raise UsageError("a transaction is open on the connection; begin it with ctx.transaction")
    if style == "?":
        # Writes from the start: SQLite could refuse to turn a read transaction into one that writes.
        connection.cursor().execute("BEGIN IMMEDIATE")


def _is_in_transaction(connection: DbConnection) -> bool | None:
    """Whether a transaction is open; None where the driver does not say."""
    if hasattr(connection, "in_transaction"):
        return bool(connection.in_transaction)
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    return None if status is None else status != _PQTRANS_IDLE


def _ensure_table(cursor: Any, style: str) -> None:
    if style != "?":
        # First a look: CREATE TABLE IF NOT EXISTS needs a right over the schema, also where the table is there.
        cursor.execute("SELECT to_regclass('mailboat_job')")
        if cursor.fetchone()[0] is not None:
            return
        # Two sessions that create one table at the same time fail; a lock of the transaction makes the second one wait
        cursor.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
    cursor.execute(_TABLE)


def _take(cursor: Any, style: str, job: str, token: Token, now_ms: int) -> None:
    _ensure_table(cursor, style)
    # Waits for another attempt that has inserted the row and not yet committed.
    values = ", ".join([style] * 3)
    cursor.execute(f"INSERT INTO mailboat_job VALUES ({values}) ON CONFLICT DO NOTHING", (job, token, now_ms))
    if cursor.rowcount == 1:
        cursor.execute(f"DELETE FROM mailboat_job WHERE committed_ms < {style}", (now_ms - _KEPT_MS,))
        return
    cursor.execute(f"SELECT token FROM mailboat_job WHERE job = {style}", (job,))
    (known,) = cursor.fetchone()
    if known < token:
        raise EffectExistsError(job)
    raise JobLeaseLostError(f"attempt {known} of job {job} has committed; this is attempt {token}", job=job)


def _parameter_style(connection: DbConnection) -> str:
    """The placeholder of the connection's driver, which PEP 249 has it declare."""
    drivers = [sys.modules[each.__module__.partition(".")[0]] for each in type(connection).__mro__]
    styles = [style for driver in drivers if (style := getattr(driver, "paramstyle", None)) is not None]
    if not styles or styles[0] not in ("qmark", "format", "pyformat"):
        raise UsageError(f"{drivers[0].__name__} is not a database driver with the parameter style qmark or format")
    return "?" if styles[0] == "qmark" else "%s"
