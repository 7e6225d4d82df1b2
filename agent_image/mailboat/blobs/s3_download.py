"""Downloads of large content by ranges, several at a time, delivered in order.

One connection to a distant server is slower than the line. Each range is taken by a thread of its own, which goes on
where a cut connection left it; a few ranges are in memory at a time. The threads are daemons, and end soon after the
stream is closed: a process may end while a server lets one of them wait.
"""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from mailboat.blobs.checked_content import CHUNK_BYTES
from mailboat.blobs.s3_connection import ResumingBody, S3Connection, vanished
from mailboat.blobs.s3_errors import RequestAnsweredError
from mailboat.config.section_keys import MEBIBYTE

RANGE_BYTES: Final = 4 * MEBIBYTE
FIRST_RANGE: Final = (0, RANGE_BYTES)
# four on their way and one being read: about 20 MiB for each open stream
RANGES_AT_ONCE: Final = 4
PARALLEL_FROM_BYTES: Final = 4 * RANGE_BYTES
"""What is smaller comes by one request."""


class RangedBody(io.RawIOBase):
    """The bytes of one large object. For one thread.

    Attributes:
        length_bytes: What the server says that the object has.
    """

    def __init__(self, connection: S3Connection, key: str, doing: str, first: ResumingBody) -> None:
        """Begin with the first range, which is open: `FIRST_RANGE` of the object."""
        super().__init__()
        self._connection = connection
        self._key = key
        self._doing = doing
        self._is_over = threading.Event()
        self.length_bytes = first.object_bytes
        self._coming = deque([_Range(lambda: first, doing, self._is_over)])
        self._next = RANGE_BYTES
        self._at_hand = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; without a size what was received. Raises: as `S3Connection.call`."""
        self._begin_more()  # before the wait for a range: the ones after it are on their way meanwhile
        if not self._at_hand and self._coming:
            self._at_hand = memoryview(self._coming.popleft().result())
        taken = self._at_hand if size < 0 else self._at_hand[:size]
        self._at_hand = self._at_hand[len(taken) :]
        return bytes(taken)

    def close(self) -> None:
        """Let the threads end; does not wait for them."""
        self._is_over.set()
        self._coming.clear()
        super().close()

    def _begin_more(self) -> None:
        while self._next < self.length_bytes and len(self._coming) < RANGES_AT_ONCE:
            end = min(self._next + RANGE_BYTES, self.length_bytes)
            opened = partial(self._connection.body, self._key, self._doing, (self._next, end))
            self._coming.append(_Range(opened, self._doing, self._is_over))
            self._next = end


class _Range:
    """One range on its way."""

    def __init__(self, opened: Callable[[], ResumingBody], doing: str, is_over: threading.Event) -> None:
        self._opened = opened
        self._doing = doing
        self._is_over = is_over
        self._data = b""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="download", daemon=True)
        self._thread.start()

    def result(self) -> bytes:
        """The bytes, once they are there. Raises: what went wrong."""
        self._thread.join()
        if isinstance(self._error, RequestAnsweredError):
            raise vanished(self._doing) from self._error
        if self._error is not None:
            raise self._error
        return self._data

    def _run(self) -> None:
        try:
            with self._opened() as body:
                pieces = []
                while not self._is_over.is_set() and (piece := body.read(CHUNK_BYTES)):
                    pieces.append(piece)
                self._data = b"".join(pieces)
        except BaseException as error:  # noqa: BLE001  # it is raised where the result is asked for
            self._error = error
