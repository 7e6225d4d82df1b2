"""SHA-256 of much content, computed by a second thread while another reads or writes it.

Hashing a gigabyte takes about as long as moving it, and both leave Python's lock alone; so with a second core the one
adds no time. Little content is hashed where it is. Used for content of any size.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hashlib import _Hash

_BESIDE_FROM_BYTES: Final = 4 * 1024 * 1024
"""What comes before is little: starting a thread would cost more than it saves."""

_LEAST_BYTES: Final = 128 * 1024
"""Smaller ones are hashed sooner than handed over."""


class ContentHash:
    """A SHA-256 to add to, as those of `hashlib`. For one thread; the other one ends with this object."""

    def __init__(self, begun: _Hash | None = None) -> None:
        """Continue a hash, or begin one; the caller must not add to `begun` from now on."""
        self._total = hashlib.sha256() if begun is None else begun
        self._length_bytes = 0
        self._executor: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None

    def update(self, data: bytes) -> None:
        """Add bytes. They may still be read after the return, and so must not change."""
        self._wait()
        self._length_bytes += len(data)
        if self._length_bytes < _BESIDE_FROM_BYTES or len(data) < _LEAST_BYTES:
            self._total.update(data)
        else:
            self._pending = self._thread().submit(self._total.update, data)

    def digest(self) -> bytes:
        """Of all that was added, 32 bytes."""
        self._wait()
        return self._total.digest()

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _thread(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "hash")
        return self._executor
