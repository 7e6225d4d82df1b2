"""One writer at a time: a lock on a file, which the kernel drops when its process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os

from mailboat.errors import TargetBusyError
from mailboat.folder_handle import FolderHandle


class TargetLock:
    """An exclusive `flock`; the file has the holder's process id for messages, and is never removed."""

    def __init__(self, folder: FolderHandle, name: str, uri: str) -> None:
        """Take the lock. Raises: TargetBusyError, naming the process that holds it; OSError."""
        self._handle = folder.open_lock(name)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # for the message only: the holder may not have written its id yet
            holder = os.pread(self._handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._handle)
            if not isinstance(error, BlockingIOError):  # such as NFS without its lock service
                raise
            raise TargetBusyError(
                f"process {holder} imports into {uri}", next_step=f"stop process {holder}, or choose another target"
            ) from error
        with contextlib.suppress(OSError):  # on a full disk the lock is held all the same
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        os.close(self._handle)
