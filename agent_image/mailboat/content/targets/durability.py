"""Making what was written durable, at a bounded price.

Few files and folders are synchronised one by one; from `MAX_SINGLE` on, one `syncfs` for the file system costs less
than many `fsync`, and the names need not be kept. What was touched is remembered until it is synchronised, under the
name that it was moved to; where a name leads nowhere any more, the whole file system is synchronised, since what was
written may have any name now. The counts are for people and tests.
"""

from __future__ import annotations

import os
from typing import Final

MAX_SINGLE: Final = 16


class Durability:
    """Collects what was touched and synchronises it."""

    def __init__(self, folder: str) -> None:
        """Synchronise things on the file system of `folder`."""
        self._folder = folder
        self._touched: dict[str, None] = {}
        self._is_everything = False
        self.fsyncs = 0

    def touch(self, path: str) -> None:
        """A file was written, or a folder's entries changed."""
        if not self._is_everything:
            self._touched[path] = None
            self._is_everything = len(self._touched) > MAX_SINGLE

    def touch_everything(self) -> None:
        """More may have been touched than is known: by an earlier process, that is."""
        self._is_everything = True

    def move(self, old: str, new: str) -> None:
        """A file got another name; it is synchronised under that one, if it was touched."""
        # Under the old name `sync` would not find it, and would have to synchronise the whole file system.
        if old in self._touched:
            del self._touched[old]
            self._touched[new] = None

    def sync(self) -> None:
        """Sync all touched files. Raises: OSError; the rest stays to be synced."""
        if self._is_everything or not self._sync_each():
            self._sync_all()
        self.forget()

    def forget(self) -> None:
        """What was touched was removed again, or is durable."""
        self._touched.clear()
        self._is_everything = False

    def _sync_each(self) -> bool:
        """Synchronise one by one; False where something has not its name any more."""
        for path in list(self._touched):
            try:
                # O_NONBLOCK: opening a pipe that took the place of the file must not block
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                # Renamed or removed since: it can't be opened by this name, so the whole file system is synchronised.
                return False
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            self.fsyncs += 1
            del self._touched[path]
        return True

    def _sync_all(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            import ctypes  # noqa: PLC0415  # most targets never need it

            syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if syncfs is None:
                os.sync()
            # before Linux 5.8 it reports no write errors: https://man7.org/linux/man-pages/man2/syncfs.2.html
            elif syncfs(handle) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), self._folder)
        finally:
            os.close(handle)
        self.fsyncs += 1
