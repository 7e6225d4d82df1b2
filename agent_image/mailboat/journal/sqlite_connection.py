"""Connections to the SQLite journal, and what its errors mean in ours.

Readers and the writer have connections of their own, since one connection would make a read wait for a commit.
A connection may be handed from thread to thread, but is used by one at a time; who owns it has the lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mailboat.errors import (
    JournalCorruptError,
    JournalUnavailableError,
    MailboatError,
    StorageFullError,
    StorageReadOnlyError,
)
from mailboat.faults import Fault, fault_at, fault_of

_CHECKPOINT_PAGES: Final = 4000  # 16 MB of write-ahead log between two check-points
_WAL_KEPT_BYTES: Final = 64 * 1024 * 1024
_READER_CACHE_KIB: Final = 512  # a reader goes through the log once, it has no use for more


def connect(path: Path, busy_timeout_seconds: float, synchronous: str = "FULL") -> sqlite3.Connection:
    """A connection for writing to a file that is there. Raises: JournalUnavailableError and the others of the port."""
    return _connect(
        path,
        busy_timeout_seconds,
        f"PRAGMA synchronous = {synchronous}",
        f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        # Debian's SQLite overwrites what is removed, and so writes all of it again, into the write-ahead log:
        # retention would hold the lock for seconds, and nothing could be removed on a full disk.
        "PRAGMA secure_delete = OFF",
        # Without a limit the log file keeps its largest size: https://sqlite.org/pragma.html#pragma_journal_size_limit
        f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}",
    )


def connect_for_reading(path: Path, busy_timeout_seconds: float) -> sqlite3.Connection:
    """A connection that can't write, with a small cache: there may be a hundred of them."""
    # A negative cache_size counts KiB, a positive one pages: https://sqlite.org/pragma.html#pragma_cache_size
    # query_only: a mistake in a reader fails, instead of taking the write lock that appenders wait for.
    return _connect(path, busy_timeout_seconds, "PRAGMA query_only = ON", f"PRAGMA cache_size = -{_READER_CACHE_KIB}")


@contextmanager
def mapped_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and the operating system raise into errors of the port, with the cause kept."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise map_sqlite_error(error, path) from error
    except OSError as error:
        raise _map_os_error(error, path) from error


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process has the lock."""
    return fault_of(error) is Fault.BUSY


def map_sqlite_error(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> MailboatError:
    """The error of the port that says the same as SQLite's."""
    fault = fault_at(error, path)
    kind = getattr(error, "sqlite_errorname", type(error).__name__)
    if fault is Fault.FULL:
        return StorageFullError(f"no space is left for the journal {path}", path=path)
    if fault is Fault.READ_ONLY:
        return StorageReadOnlyError(f"the journal {path} can't be written", path=path, cause=kind)
    if fault is Fault.DAMAGED:
        return JournalCorruptError(f"the journal {path} is damaged: {error}", path=path, cause=kind)
    if fault is Fault.BUSY:
        return JournalUnavailableError(f"the journal {path} is locked by another process", path=path, cause=kind)
    return JournalUnavailableError(f"the journal {path} can't be used: {error}", path=path, cause=kind)


def _map_os_error(error: OSError, path: Path) -> MailboatError:
    fault = fault_of(error)
    if fault is Fault.FULL:
        return StorageFullError(f"no space is left for the journal {path}", path=path)
    if fault is Fault.READ_ONLY:
        return StorageReadOnlyError(f"the journal {path} can't be written: {error.strerror}", path=path)
    return JournalUnavailableError(f"the journal {path} can't be used: {error}", path=path)


def _connect(path: Path, busy_timeout_seconds: float, *settings: str) -> sqlite3.Connection:
    with mapped_errors(path):
        connection = sqlite3.connect(
            # never makes a file: `rwc` would
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=busy_timeout_seconds,
            # the sqlite3 module must not begin transactions of its own
            isolation_level=None,
            # its owner hands it from thread to thread under a lock
            check_same_thread=False,
        )
        try:
            # A file may come from elsewhere: its schema must not call functions with side effects.
            for setting in ("PRAGMA trusted_schema = OFF", *settings):
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection
