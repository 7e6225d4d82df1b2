"""What the operating system and SQLite say of a failure, in the few words that matter to us.

The one place that reads error numbers. Each adapter maps a fault to an error of its own port, with its own text:
journal, blobs, targets, publisher's state. Codes are SQLite's primary ones (sqlite.org/rescode.html), written as
numbers so that this needs no database.
"""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final


class Fault(enum.Enum):
    """What is the matter."""

    FULL = enum.auto()
    """No space is left, or none for this user or this file."""
    READ_ONLY = enum.auto()
    """It may not be written."""
    NOT_OPENED = enum.auto()
    """SQLite can't open a file, and does not say why."""
    BUSY = enum.auto()
    """Another process holds the lock."""
    DAMAGED = enum.auto()
    """The stored bytes are not those written."""
    OTHER = enum.auto()
    """Anything else."""


_PRIMARY_CODE: Final = 0xFF
_OF_SYSTEM: Final[Mapping[int, Fault]] = MappingProxyType(
    {
        errno.ENOSPC: Fault.FULL,
        errno.EDQUOT: Fault.FULL,
        errno.EFBIG: Fault.FULL,
        errno.EROFS: Fault.READ_ONLY,
        errno.EACCES: Fault.READ_ONLY,
        errno.EPERM: Fault.READ_ONLY,
    }
)
_OF_SQLITE: Final[Mapping[int, Fault]] = MappingProxyType(
    {
        3: Fault.READ_ONLY,  # PERM
        5: Fault.BUSY,  # BUSY
        6: Fault.BUSY,  # LOCKED
        8: Fault.READ_ONLY,  # READONLY
        11: Fault.DAMAGED,  # CORRUPT
        13: Fault.FULL,  # FULL
        14: Fault.NOT_OPENED,  # CANTOPEN
        26: Fault.DAMAGED,  # NOTADB
    }
)


_SQLITE_IO_ERROR: Final = 10
_NO_ROOM_BYTES: Final = 64 * 1024
"""Two regions of SQLite's index of the write-ahead log, of 32 KiB: the largest step in which its files grow."""


def fault_of(error: Exception) -> Fault:
    """What an OSError or an sqlite3.Error is about."""
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0, Fault.OTHER)
    # Python raises it where SQLite's message quotes a damaged schema.
    if isinstance(error, UnicodeDecodeError):
        return Fault.DAMAGED
    return _OF_SQLITE.get(_primary_code(error), Fault.OTHER)


def fault_at(error: Exception, place: Path) -> Fault:
    """As `fault_of`, for a database at `place`."""
    fault = fault_of(error)
    # SQLite says "disk I/O error" where its shared index can't grow (SQLITE_IOERR_SHMSIZE), and Python does not give
    # the system's error number. So an I/O error on a file system without room counts as a full one.
    if fault is Fault.OTHER and _primary_code(error) == _SQLITE_IO_ERROR and _has_no_room(place):
        return Fault.FULL
    return fault


def _primary_code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & _PRIMARY_CODE


def _has_no_room(place: Path) -> bool:
    # the database may not exist yet, nor its folder
    for folder in (place, *place.parents):
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        return found.f_bavail * found.f_frsize < _NO_ROOM_BYTES
    return False
