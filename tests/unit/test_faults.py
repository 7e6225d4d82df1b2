"""Error numbers mean the same wherever they strike."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest
from mailboat.faults import Fault, fault_at, fault_of

SQLITE = {
    Fault.FULL: ["SQLITE_FULL"],
    Fault.READ_ONLY: ["SQLITE_READONLY", "SQLITE_READONLY_DBMOVED", "SQLITE_PERM"],
    Fault.NOT_OPENED: ["SQLITE_CANTOPEN", "SQLITE_CANTOPEN_ISDIR"],
    Fault.BUSY: ["SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_LOCKED", "SQLITE_LOCKED_SHAREDCACHE"],
    Fault.DAMAGED: ["SQLITE_CORRUPT", "SQLITE_CORRUPT_INDEX", "SQLITE_NOTADB"],
    Fault.OTHER: ["SQLITE_ERROR", "SQLITE_IOERR", "SQLITE_SCHEMA"],
}


@pytest.mark.parametrize(("fault", "name"), [(fault, name) for fault, names in SQLITE.items() for name in names])
def test_a_code_of_sqlite_is_one_fault_with_all_its_extensions(fault: Fault, name: str) -> None:
    error = sqlite3.OperationalError("no")
    error.sqlite_errorcode = getattr(sqlite3, name)
    assert fault_of(error) is fault


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        (errno.ENOSPC, Fault.FULL),
        (errno.EDQUOT, Fault.FULL),
        (errno.EFBIG, Fault.FULL),
        (errno.EROFS, Fault.READ_ONLY),
        (errno.EACCES, Fault.READ_ONLY),
        (errno.EPERM, Fault.READ_ONLY),
        (errno.EIO, Fault.OTHER),
        (None, Fault.OTHER),
    ],
)
def test_an_error_number_of_the_system_is_one_fault(number: int | None, fault: Fault) -> None:
    error = OSError() if number is None else OSError(number, "no")
    assert fault_of(error) is fault


def test_an_error_without_a_code_says_nothing() -> None:
    assert fault_of(sqlite3.ProgrammingError("no")) is Fault.OTHER


def test_an_io_error_of_sqlite_is_a_full_disk_where_no_room_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    assert fault_at(error, tmp_path / "absent/state.db") is Fault.OTHER
    real = os.statvfs(tmp_path)
    full = os.statvfs_result([real.f_bsize, real.f_frsize, real.f_blocks, 0, 0, *tuple(real)[5:]])
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert fault_at(error, tmp_path / "absent/state.db") is Fault.FULL
    assert fault_at(OSError(errno.EIO, "no"), tmp_path) is Fault.OTHER


def test_a_message_that_is_not_utf_8_is_damage() -> None:
    assert fault_of(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")) is Fault.DAMAGED
