"""Foreign failures of files and databases, told as ours: the border between the targets and the operating system."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from types import MappingProxyType, TracebackType
from typing import Final

from mailboat.errors import (
    MailboatError,
    StorageFailedError,
    StorageFullError,
    StorageReadOnlyError,
    TargetCorruptError,
)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})

Wrap = Callable[[str], MailboatError]

_SQLITE: Final[MappingProxyType[int, Wrap]] = MappingProxyType(
    {
        sqlite3.SQLITE_FULL: StorageFullError,
        sqlite3.SQLITE_READONLY: StorageReadOnlyError,
        sqlite3.SQLITE_CANTOPEN: StorageReadOnlyError,
        sqlite3.SQLITE_PERM: StorageReadOnlyError,
        sqlite3.SQLITE_CORRUPT: TargetCorruptError,
        sqlite3.SQLITE_NOTADB: TargetCorruptError,
        sqlite3.SQLITE_SCHEMA: TargetCorruptError,
    }
)


def translate_failure(error: OSError | sqlite3.Error, uri: str) -> MailboatError:
    """Our error for one of the operating system or of SQLite that struck the store at `uri`."""
    if isinstance(error, OSError):
        return _of_system(error, uri)
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return TargetCorruptError(f"{uri} holds what is not expected there: {error}")
    wrap = _SQLITE.get(code & 0xFF)
    if wrap is not None:
        return wrap(f"{uri}: {error}")
    if code & 0xFF == sqlite3.SQLITE_ERROR and "no such" in str(error):
        return TargetCorruptError(f"{uri} lacks a part of its state: {error}")
    return StorageFailedError(f"{uri}: {error}")


def _of_system(error: OSError, uri: str) -> MailboatError:
    text = f"{uri}: {error.strerror or error}"
    if error.errno in _FULL:
        return StorageFullError(text, file=error.filename)
    if error.errno in _READ_ONLY:
        return StorageReadOnlyError(text, file=error.filename)
    return StorageFailedError(text, file=error.filename)


class TranslatedFailures:
    """`with TranslatedFailures(uri):` raises our errors for foreign ones, their cause kept."""

    __slots__ = ("_uri",)

    def __init__(self, uri: str) -> None:
        """Name the store, as a user would give it."""
        self._uri = uri

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Translate what was raised, if it is foreign."""
        if isinstance(error, OSError | sqlite3.Error) and not isinstance(error, sqlite3.ProgrammingError):
            raise translate_failure(error, self._uri) from error
