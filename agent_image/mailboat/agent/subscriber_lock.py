"""Holding a subscriber's name on a home while it runs: a lock that the kernel drops when its process ends, however.

The importing subscriber locks its target. That does not keep two subscribers of one name on two targets apart,
whose announcements, commands and confirmations would be indistinguishable. Called by `subscriber.py`.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from mailboat.errors import StopError
from mailboat.folder_handle import PRIVATE_FILE
from mailboat.model.identifiers import AgentName


class SubscriberBusyError(StopError):
    """A subscriber with this name already runs on this home, with another target.

    Stop it, or use another name.
    """

    exit_code = 5


class SubscriberLock:
    """An exclusive `flock` on a file, which is never removed. On a home that can't be written nothing is held."""

    def __init__(self, file: Path, name: AgentName) -> None:
        """Hold the name. Raises: SubscriberBusyError."""
        self._handle: int | None = None
        try:
            self._handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise SubscriberBusyError(
                f"a subscriber {name} runs on this home already, into another target",
                next_step="stop it, or choose another name",
                lock=file,
            ) from error
        # a read-only home: the lock of the target still keeps a second importer out
        except OSError:
            self.release()

    def release(self) -> None:
        """Let others of that name run."""
        handle, self._handle = self._handle, None
        if handle is not None:
            # closing drops the lock; the file stays: with a new file two processes could lock two inodes
            os.close(handle)
