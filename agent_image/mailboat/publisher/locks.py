"""Who of a publisher's threads and processes goes first: locks of the kernel on files beside its state.

The kernel lets go of a lock when its process dies, so nothing has to be repaired. Whoever has much to do and no hurry,
a build, gives way to those who wait, and takes small steps while a publication is under way.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from mailboat.clock import Clock, Deadline
from mailboat.folder_handle import PRIVATE_FILE
from mailboat.publisher.database import BUSY_TIMEOUT_SECONDS, PublisherBusyError, translated_failures

_LOOK_SECONDS: Final = 0.01


class PublisherLocks:
    """The locks of one publisher's state."""

    def __init__(self, path: Path, clock: Clock, guard: threading.RLock) -> None:
        """Lock files lie beside `path`; `guard` keeps the threads of this process apart."""
        self._path = path
        self._clock = clock
        self._guard = guard

    @contextmanager
    def exclusive(self, purpose: str = "append", timeout_seconds: float = BUSY_TIMEOUT_SECONDS) -> Iterator[None]:
        """Keep all other processes of this publisher out of the same `purpose`; the kernel lets go if we die.

        Raises: PublisherBusyError when another holds it for longer than `timeout_seconds`.
        """
        with self._guard:
            handle = self._open(f"{purpose}-lock")
            try:
                if not _try_lock(handle):
                    self._wait_for(handle, timeout_seconds, purpose)
                yield
            finally:
                os.close(handle)

    def give_way(self, purpose: str = "append", patience_seconds: float = 5.0) -> None:
        """Let who waits for `purpose` come first, while the patience lasts: for who has much to do and no hurry."""
        waiting = self._open(f"{purpose}-waiting")
        try:
            with suppress(PublisherBusyError):
                self._lock(waiting, Deadline(self._clock, patience_seconds), purpose)
        finally:
            os.close(waiting)

    @contextmanager
    def publication_under_way(self) -> Iterator[None]:
        """Tell builds that a publication is being made; see `probe_publication`."""
        handle = self._open("publishing")
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)  # held for an instant by who looks whether anybody publishes
            yield
        finally:
            os.close(handle)

    def probe_publication(self) -> bool:
        """Take and release the publications' lock: True where a publication holds it, here or in another process.

        A build takes small steps then. Two builds that probe at the same instant may take each other for one.
        """
        handle = self._open("publishing")
        try:
            return not _try_lock(handle)
        finally:
            os.close(handle)

    def _open(self, name: str) -> int:
        with translated_failures(self._path):
            file = self._path.with_name(f"{self._path.name}.{name}")
            return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)

    def _wait_for(self, handle: int, timeout_seconds: float, purpose: str) -> None:
        """Wait in the open: who gives way sees that somebody does."""
        waiting = self._open(f"{purpose}-waiting")
        try:
            fcntl.flock(waiting, fcntl.LOCK_SH)  # held for an instant by who looks whether anybody waits
            self._lock(handle, Deadline(self._clock, timeout_seconds), purpose)
        finally:
            os.close(waiting)

    def _lock(self, handle: int, deadline: Deadline, purpose: str) -> None:
        never = threading.Event()
        while not _try_lock(handle):
            if deadline.is_over():
                raise PublisherBusyError(f"another process holds {self._path} to {purpose}", retry_after_seconds=1.0)
            self._clock.wait(never, _LOOK_SECONDS)


def _try_lock(handle: int) -> bool:
    """Take the lock if it is free; True if it was taken."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
