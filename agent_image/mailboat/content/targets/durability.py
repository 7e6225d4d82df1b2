"""Making what was written durable, at a bounded price.

Few files and folders are synchronised one by one; from `MAX_SINGLE` on, one `syncfs` for the file system costs less
than many `fsync`, and the names need not be kept. The counts are for people and tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Final

MAX_SINGLE: Final = 16


class Durability:
    """Collects what was touched and synchronises it."""

    def __init__(self, folder: str) -> None:
        """Synchronise things on the file system of `folder`."""
        self._folder = folder
        self._touched: dict[str, None] = {}
        self.fsyncs = 0

    def touch(self, path: str) -> None:
        """A file was written, or a folder's entries changed."""
        if len(self._touched) <= MAX_SINGLE:
            self._touched[path] = None

    def sync(self) -> None:
        """Make durable all that was touched since the last call. Raises: OSError."""
        touched, self._touched = self._touched, {}
        if len(touched) > MAX_SINGLE:
            self._sync_all()
            return
        for path in touched:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # replaced or removed since
                self._sync_one(path)

    def forget(self) -> None:
        """What was touched was removed again."""
        self._touched.clear()

    def _sync_one(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        self.fsyncs += 1

    def _sync_all(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if syncfs is None:
                os.sync()
            elif syncfs(handle) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), self._folder)
        finally:
            os.close(handle)
        self.fsyncs += 1
