"""What the operating system and SQLite say of a failure, in the few words that matter to us.

The one place that reads error numbers. Each adapter tells a fault as an error of its own port, with its own text:
journal, blobs, targets, publisher's state. Codes are SQLite's primary ones (sqlite.org/rescode.html), written as
numbers so that this needs no database.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Mapping
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
    """Somebody else has the lock."""
    DAMAGED = enum.auto()
    """What is there is not what was written."""
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


def fault_of(error: Exception) -> Fault:
    """What an OSError or an sqlite3.Error is about."""
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0, Fault.OTHER)
    return _OF_SQLITE.get(getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE, Fault.OTHER)
