"""Wakes the readers of a topic in all processes of a machine, within a millisecond and without polling.

A named pipe stands for each topic. A reader that has nothing to do opens it for reading and sleeps in `poll`; an
appender, once it has committed, opens it for writing and closes it again. Linux then reports the end of input to
everyone who had it open: one open and one close wake any number of readers, without a registry, and a reader that
was killed leaves nothing behind. Nothing is ever written into the pipe. When there is no
reader, the open fails at once.

A lost wake-up, or a file system without named pipes, costs what the caller allows for: it polls after
some time. So nothing here raises but at closing.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from mailboat.folder_handle import PRIVATE_FOLDER

# O_NONBLOCK: opening a pipe waits for the opposite side otherwise. O_NOFOLLOW: the path may be a planted link.
_RING_FLAGS: Final = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_LISTEN_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_MODE: Final = 0o600  # as for the journal's file
_FALSE_ALARMS: Final = 32  # more in a row and the pipe does not work as it should


def ring(bell: Path | str) -> None:
    """Wake everyone who listens at the named pipe."""
    with suppress(OSError):  # no reader (ENXIO), no pipe (ENOENT), or readers poll in the end
        os.close(os.open(bell, _RING_FLAGS))


class Listener:
    """One reader's ear. `interrupt` may be called from any thread, the rest from the reader's own.

    Use: `arm`, look whether there is something, and only if not `wait`. What is appended after `arm` ends the wait.
    """

    def __init__(self, bell: Path) -> None:
        """Listen at the named pipe, which is made when it isn't there."""
        self._bell = bell
        self._ear: int | None = None
        self._false_alarms = 0
        self._is_closed = False
        self._closing = threading.Lock()  # the number of a closed descriptor may be in use again by now
        self._interrupt_reads, self._interrupt_writes = os.pipe()
        os.set_blocking(self._interrupt_reads, False)
        # An interrupt must not wait for a reader that is not waiting itself: a full pipe is enough.
        os.set_blocking(self._interrupt_writes, False)
        self._descriptors = {self._interrupt_reads, self._interrupt_writes}
        self._close_all = weakref.finalize(self, _close, self._descriptors)  # also without a call of `close`

    @property
    def is_armed(self) -> bool:
        """Whether `wait` would notice what is appended from now on."""
        return self._ear is not None

    def arm(self) -> None:
        """Begin to listen; without effect while listening, or when there can't be a pipe."""
        # On a file system whose pipes always report the end, each wait would return at once: then only the time-out
        # counts.
        if self._ear is None and self._false_alarms < _FALSE_ALARMS:
            self._ear = _open_ear(self._bell)
            self._descriptors |= set() if self._ear is None else {self._ear}

    def wait(self, timeout_seconds: float) -> None:
        """Sleep until a ring, an interrupt, or the time-out."""
        poll = select.poll()
        poll.register(self._interrupt_reads, select.POLLIN)
        if self._ear is not None:
            poll.register(self._ear, 0)  # the end of input is always reported
        ready = dict(poll.poll(max(0.0, timeout_seconds) * 1000))
        if self._ear is not None and self._ear in ready:
            # `found_something` resets the count; after `_FALSE_ALARMS` rings without an append the pipe is not armed.
            self._false_alarms += 1
            self._disarm(self._ear)  # the end of input stays, so the next wait needs a new ear

    def found_something(self) -> None:
        """The last wake-up was worth it."""
        self._false_alarms = 0

    def interrupt(self) -> None:
        """End the current wait, or the next, until `heard_interrupt`."""
        with self._closing, suppress(BlockingIOError):  # full: then it is interrupted many times over
            if not self._is_closed:
                os.write(self._interrupt_writes, b"!")

    def heard_interrupt(self) -> None:
        """Make `wait` sleep again."""
        with suppress(BlockingIOError):
            while os.read(self._interrupt_reads, 4096):
                pass

    def close(self) -> None:
        """Release the descriptors. An interrupt after that does nothing."""
        with self._closing:
            self._is_closed = True
            self._close_all()

    def _disarm(self, ear: int) -> None:
        self._ear = None
        self._descriptors.discard(ear)
        os.close(ear)


def _close(descriptors: set[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _open_ear(bell: Path) -> int | None:
    try:
        if not bell.exists():
            bell.parent.mkdir(PRIVATE_FOLDER, exist_ok=True)
            # Several readers may make the pipe at once.
            with suppress(FileExistsError):
                os.mkfifo(bell, _MODE)
        ear = os.open(bell, _LISTEN_FLAGS)
    except OSError:
        return None
    # Checked on the descriptor: the path may have been swapped since.
    if stat.S_ISFIFO(os.fstat(ear).st_mode):
        return ear
    os.close(ear)
    return None
