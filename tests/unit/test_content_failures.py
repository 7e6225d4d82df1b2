"""Foreign failures, told as ours: one row for each."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing

import pytest
from mailboat.content.foreign_failures import TranslatedFailures, translate_failure
from mailboat.errors import (
    MailboatError,
    StorageFailedError,
    StorageFullError,
    StorageReadOnlyError,
    TargetCorruptError,
)

SYSTEM = [
    (errno.ENOSPC, StorageFullError),
    (errno.EDQUOT, StorageFullError),
    (errno.EFBIG, StorageFullError),
    (errno.EROFS, StorageReadOnlyError),
    (errno.EACCES, StorageReadOnlyError),
    (errno.EPERM, StorageReadOnlyError),
    (errno.ENAMETOOLONG, StorageFailedError),
    (errno.EIO, StorageFailedError),
    (errno.EMFILE, StorageFailedError),
]
SQLITE = [
    (sqlite3.SQLITE_FULL, StorageFullError),
    (sqlite3.SQLITE_READONLY_DBMOVED, StorageReadOnlyError),
    (sqlite3.SQLITE_CANTOPEN, StorageReadOnlyError),
    (sqlite3.SQLITE_CORRUPT_VTAB, TargetCorruptError),
    (sqlite3.SQLITE_NOTADB, TargetCorruptError),
    (sqlite3.SQLITE_IOERR_FSYNC, StorageFailedError),
    (sqlite3.SQLITE_BUSY, StorageFailedError),
]


@pytest.mark.parametrize(("number", "expected"), SYSTEM)
def test_failures_of_the_system(number: int, expected: type[MailboatError]) -> None:
    error = translate_failure(OSError(number, os.strerror(number), "/srv/web/a"), "files:/srv/web")
    assert type(error) is expected
    assert "files:/srv/web" in error.message
    assert error.where["file"] == "/srv/web/a"


@pytest.mark.parametrize(("code", "expected"), SQLITE)
def test_failures_of_sqlite(code: int, expected: type[MailboatError]) -> None:
    foreign = sqlite3.OperationalError("it says so")
    foreign.sqlite_errorcode = code
    error = translate_failure(foreign, "sqlite:/srv/c.db")
    assert type(error) is expected
    assert "it says so" in error.message


def test_a_missing_table_is_a_damaged_target() -> None:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(TargetCorruptError, match="no such table") as caught,
        TranslatedFailures("sqlite:x"),
    ):
        connection.execute("SELECT * FROM nodes")
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)


def test_what_sqlite3_itself_refuses_to_read_is_a_damaged_target() -> None:
    assert isinstance(translate_failure(sqlite3.DatabaseError("bad"), "sqlite:x"), TargetCorruptError)


@pytest.mark.parametrize("error", [ValueError("ours"), sqlite3.ProgrammingError("ours"), StorageFullError("ours")])
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error), match="ours") as caught, TranslatedFailures("sqlite:x"):
        raise error
    assert caught.value is error
