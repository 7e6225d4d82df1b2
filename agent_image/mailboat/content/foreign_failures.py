"""Maps errors of the operating system and of SQLite to ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import BinaryIO, Final

from mailboat.errors import (
    MailboatError,
    StorageFailedError,
    StorageFullError,
    StorageReadOnlyError,
    TargetCorruptError,
)
from mailboat.faults import Fault, fault_at
from mailboat.folder_handle import ForeignEntryError

_ERRORS: Final[Mapping[Fault, type[MailboatError]]] = MappingProxyType(
    {
        Fault.FULL: StorageFullError,
        Fault.READ_ONLY: StorageReadOnlyError,
        Fault.NOT_OPENED: StorageReadOnlyError,
        Fault.DAMAGED: TargetCorruptError,
    }
)


ForeignFailure = OSError | sqlite3.Error | UnicodeDecodeError
"""The last is what Python raises where SQLite's message about a damaged schema is not UTF-8."""


def translate_failure(error: ForeignFailure, uri: str) -> MailboatError:
    """Our error for one of the operating system or of SQLite that struck the store at `uri`."""
    kind = _ERRORS.get(fault_at(error, Path(uri.partition(":")[2] or uri)), StorageFailedError)
    if isinstance(error, ForeignEntryError):
        return TargetCorruptError(
            f"{error.filename} {error.strerror} that the target did not make; nothing is written through it",
            next_step=f"remove {error.filename}, or restore the target from a snapshot",
            store=uri,
        )
    if isinstance(error, OSError):
        return kind(f"{uri}: {error.strerror or error}", file=error.filename)
    if isinstance(error, UnicodeDecodeError):
        return TargetCorruptError(f"{uri} is damaged: SQLite's message about it is not UTF-8")
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return TargetCorruptError(f"{uri} holds what is not expected there: {error}")
    if code & 0xFF == sqlite3.SQLITE_SCHEMA or (code & 0xFF == sqlite3.SQLITE_ERROR and "no such" in str(error)):
        return TargetCorruptError(f"{uri} lacks a part of its state: {error}")
    return kind(f"{uri}: {error}")


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
        if isinstance(error, ForeignFailure) and not isinstance(error, sqlite3.ProgrammingError):
            raise translate_failure(error, self._uri) from error


def discard(file: BinaryIO) -> None:
    """Close a temporary file whose content is not needed. On a full disk its last bytes can't be written."""
    with suppress(OSError):
        file.close()
