"""Packages that do not travel in their message, and large binaries: fetched to disk, checked, a few ahead, in order.

Nothing of a package is parsed before all of it was read and has the digest and the length that the message promises.
Memory is bounded: up to 1 MiB of each is kept in memory, the rest on disk, a handful at a time. Prefetching of binaries
stops once the target skips one, which it has already, and resumes when it asks for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, cast

from mailboat.blobs.port import BlobStore
from mailboat.blobs.references import BlobReference, ReferenceCodec
from mailboat.content.foreign_failures import TranslatedFailures, discard
from mailboat.errors import (
    BlobMissingError,
    LimitExceededError,
    MailboatError,
    PackageCorruptError,
    RetryableError,
)
from mailboat.model.identifiers import Offset
from mailboat.model.messages import PackageMessage
from mailboat.model.nodes import Binary
from mailboat.model.pieces import is_run
from mailboat.subscriber.piece_store import SPOOL_BYTES, PieceStore
from mailboat.wire.node_bodies import OpenBinary

_READ_BYTES: Final = 256 * 1024
_AHEAD: Final = 4
"""Prefetched payloads: each has a thread, and a file of up to `_AHEAD_BYTES`."""
_MOST_RUNNING: Final = 2 * _AHEAD
"""Where so many fetches hang, dropped ones among them, none is begun ahead of time."""

_POLL_SECONDS: Final = 0.1
_AHEAD_BYTES: Final = 64 * 1024 * 1024
_BINARY: Final = "binary:"


class Payloads:
    """Fetches packages by reference, for one thread."""

    def __init__(self, blobs: BlobStore, references: ReferenceCodec, pieces: PieceStore, max_bytes: int) -> None:
        """Fetch nothing yet; packages larger than `max_bytes` are refused."""
        self.pieces = pieces
        self._blobs = blobs
        self._references = references
        self._max_bytes = max_bytes
        self._coming: dict[str, Fetch] = {}
        self._running: list[Fetch] = []
        self._are_binaries_asked_for = False

    def open(self, message: PackageMessage, offset: Offset, check: Callable[[], None]) -> BinaryIO:
        """The whole package, checked, as a seekable stream that the caller closes.

        Args:
            message: A message with a reference to its package.
            offset: Where it stands.
            check: Called now and then, also while a store makes the subscriber wait; raises at the timeout.

        Raises:
            BlobMissingError, BlobCorruptError, LimitExceededError, ReferenceRefusedError, StorageFullError.
            PackageCorruptError: The message has no reference, or one to another package than its digest says.
            RetryableError: No thread could be started.
            PiecesMissingError, JournalUnavailableError: Of a package that travels in pieces.
        """
        text = message.payload_ref
        if text is None:
            raise PackageCorruptError("the message carries no package, and no reference to one")
        if is_run(text):
            return self.pieces.open(message, offset, self._max_bytes, check)
        coming = self._coming.pop(text, None)
        if coming is None:
            reference = self._references.parse(text)
            _check_digest(message, reference)
            if reference.length_bytes > self._max_bytes:
                raise LimitExceededError(
                    f"a package of {reference.length_bytes} bytes is beyond the limit of {self._max_bytes}",
                    limit=self._max_bytes,
                )
            coming = self._begin(reference, "fetch")
        return coming.result(check)

    def expect(self, messages: Iterable[PackageMessage]) -> None:
        """Start to fetch the next messages. A failure is raised when the message is opened."""
        wanted = dict[str, BlobReference | None]()
        for message in messages:
            if message.payload_ref is not None:
                wanted.setdefault(message.payload_ref, self._reference_of(message))
            for binary in message.binaries:
                wanted.setdefault(_key_of(binary.digest), BlobReference(binary.digest, binary.length_bytes))
        for passed in [key for key in self._coming if key not in wanted]:
            self._coming.pop(passed).drop()  # skipped without being opened
            # A binary that nothing opened is one that the target has: those of the next packages are likely there, too.
            self._are_binaries_asked_for &= not passed.startswith(_BINARY)
        # A dropped fetch may still hang in its store: it counts until its thread ends.
        self._running = [fetch for fetch in self._running if fetch.is_running]
        for key, reference in wanted.items():
            if len(self._running) >= _MOST_RUNNING:
                return
            if reference is None or key in self._coming or len(self._coming) >= _AHEAD:
                continue
            is_asked_for = self._are_binaries_asked_for or not key.startswith(_BINARY)
            # A package beyond the limit is refused when its turn comes.
            if is_asked_for and reference.length_bytes <= min(_AHEAD_BYTES, self._max_bytes):
                self._coming[key] = self._begin(reference, "prefetch")

    def _reference_of(self, message: PackageMessage) -> BlobReference | None:
        """What it refers to; None where that is refused when its turn comes, or travels otherwise."""
        try:
            reference = self._references.parse(message.payload_ref or "")
            _check_digest(message, reference)
        except MailboatError:
            return None
        return reference

    def forget(self) -> None:
        """Drop what was fetched ahead. Does not wait for it."""
        dropped, self._coming = list(self._coming.values()), {}
        for fetch in dropped:
            fetch.drop()

    def close(self) -> None:
        """Drop what was fetched ahead. Does not wait for it."""
        self.forget()
        self.pieces.close()

    def opener(self, binaries: Sequence[Binary], check: Callable[[], None] = lambda: None) -> OpenBinary:
        """Opens the binaries of a message by digest. Raises when called: BlobMissingError, BlobCorruptError.

        `check`: as for `open`, while one is waited for that is fetched ahead.
        """
        lengths = {binary.digest: binary.length_bytes for binary in binaries}
        return lambda digest: self._open_blob(digest, lengths.get(digest), check)

    def _open_blob(self, digest: bytes, length_bytes: int | None, check: Callable[[], None]) -> BinaryIO:
        # The target lacks this one, and so probably binaries of the next packages.
        self._are_binaries_asked_for = True
        coming = self._coming.pop(_key_of(digest), None)
        if coming is not None:
            return coming.result(check)
        if length_bytes is None:
            known = self._blobs.stat(digest)
            if known is None:
                raise BlobMissingError(
                    f"the blob {digest.hex()} is not in {self._blobs.description}", digest=digest.hex()
                )
            length_bytes = known.length_bytes
        return self._blobs.open(digest, length_bytes)

    def _begin(self, reference: BlobReference, thread_name: str) -> Fetch:
        begun = Fetch(partial(self._fetch, reference), thread_name)
        self._running.append(begun)
        return begun

    def _fetch(self, reference: BlobReference, check: Callable[[], None]) -> BinaryIO:
        spool = cast("BinaryIO", SpooledTemporaryFile(SPOOL_BYTES, dir=self.pieces.spool))  # noqa: SIM115  # the caller closes it
        try:
            with (
                TranslatedFailures(self.pieces.place),
                self._blobs.open(reference.digest, reference.length_bytes) as stream,
            ):
                while chunk := stream.read(_READ_BYTES):
                    check()
                    spool.write(chunk)
                spool.seek(0)
        except BaseException:
            discard(spool)
            raise
        return spool


def _key_of(digest: bytes) -> str:
    return f"{_BINARY}{digest.hex()}"


def _check_digest(message: PackageMessage, reference: BlobReference) -> None:
    if message.package_digest is not None and message.package_digest != reference.digest:
        raise PackageCorruptError(
            "the reference names another blob than the message's digest", package=message.package_id
        )


# ----------------------------------------------------------------------------------------------------------- one fetch


class FetchDroppedError(Exception):
    """The result is not wanted any more. Never leaves the thread that fetches."""


class Fetch:
    """One fetch in a thread of its own, begun at once, so that an import can leave a store that hangs.

    The thread is a daemon: a process may end while it still waits for its store. Belongs to the thread that made it.
    """

    def __init__(self, fetch: Callable[[Callable[[], None]], BinaryIO], name: str) -> None:
        """Begin. `fetch` is called in the other thread, with a check to call now and then: it ends a dropped fetch.

        Raises: RetryableError: No thread could be started.
        """
        self._fetch = fetch
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._stream: BinaryIO | None = None
        self._error: BaseException | None = None
        self._is_dropped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # a limit of this machine, not a fault of the package
            raise RetryableError(f"the fetch of a package could not begin: {error}") from error

    @property
    def is_running(self) -> bool:
        """Whether the thread still runs, also after the fetch was dropped."""
        return self._thread.is_alive()

    def result(self, check: Callable[[], None]) -> BinaryIO:
        """Return what was fetched; the caller closes it. Raises: what `fetch` raises.

        `check` is called now and then while there is something to wait for; what it raises drops the fetch.
        """
        try:
            check()
            while not self._done.wait(_POLL_SECONDS):
                check()
        except BaseException:
            # The thread goes on, as its store may hang: what it still brings must be closed then.
            self.drop()
            raise
        if self._error is not None:
            raise self._error
        if self._stream is None:
            raise ValueError("the fetch was dropped")
        return self._stream

    def drop(self) -> None:
        """Close the result when it comes. Does not wait."""
        # under the lock, so that a result that comes at this moment is closed by exactly one of the two threads
        with self._lock:
            self._is_dropped = True
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _run(self) -> None:
        try:
            stream = self._fetch(self._check)
        except BaseException as error:  # noqa: BLE001  # it is raised where the result is asked for
            self._error = error
        else:
            with self._lock:
                is_dropped = self._is_dropped
                self._stream = None if is_dropped else stream
            if is_dropped:
                stream.close()
        # Last: after it `result` reads the stream and the error without the lock.
        self._done.set()

    def _check(self) -> None:
        # Without the lock: a drop that is seen late costs one more chunk.
        if self._is_dropped:
            raise FetchDroppedError
