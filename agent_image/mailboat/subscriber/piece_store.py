"""Packages in pieces, put together again for one subscriber.

The log is the only truth: where a package's message says that its pieces stand, there they are read. Pieces that go by
are collected on disk as well, so that most packages need no second reading; that collection is bounded in number, size
and age, and dropping any of it loses nothing. So orphans of dead publishers, interleaved publishers, duplicates and
restarts in the middle need no protocol of their own. Length, count and digest are checked before a byte is parsed.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, NamedTuple, cast

from mailboat.clock import Clock
from mailboat.config.document import PiecesConfig
from mailboat.content.foreign_failures import TranslatedFailures, discard
from mailboat.errors import (
    LimitExceededError,
    MailboatError,
    MessageCorruptError,
    PackageCorruptError,
    PositionOutOfRangeError,
    RetryableError,
    UntrustedInputError,
)
from mailboat.journal.port import Journal, ReadLimits, Record
from mailboat.model.content_hash import ContentHash
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import PackageMessage
from mailboat.model.pieces import PieceMessage, PieceRun, parse_run
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.piece_messages import decode_piece

SPOOL_BYTES: Final = 1024 * 1024
"""So much of each package is in memory."""

_READ: Final = ReadLimits(max_records=100)
_LOG: Final = logging.getLogger(__name__)


class PiecesMissingError(UntrustedInputError):
    """The journal no longer holds all pieces of a package, or they do not form a package.

    The package was not imported: publish its paths again.
    """


@dataclass(slots=True)
class PieceFigures:
    """Counts of pieces in this run.

    Attributes:
        pieces: Pieces read, of publishers that are followed.
        collected: Packages that were complete when their message came.
        read_again: Packages whose pieces were read from the log again.
        dropped: Packages whose collection was given up: too many, too large, out of order, no room on disk.
        expired: Packages of which nothing came any more: their publisher died.
        missing: Packages whose pieces are gone, or do not make it up.
        corrupt: Packages whose pieces have another digest than was promised.
        collecting: Packages of which pieces are kept at the moment.
        collecting_bytes: Of all of them.
    """

    pieces: int = 0
    collected: int = 0
    read_again: int = 0
    dropped: int = 0
    expired: int = 0
    missing: int = 0
    corrupt: int = 0
    collecting: int = 0
    collecting_bytes: int = 0


class _Key(NamedTuple):
    sling_id: SlingId
    package_id: PackageId


class _Collection:
    """The pieces of one package so far, in order."""

    def __init__(self, first_offset: Offset, now: float, spool: str | None) -> None:
        self.first_offset = first_offset
        self.touched = now
        self.count = 0
        self.length_bytes = 0
        self.file = cast("BinaryIO", SpooledTemporaryFile(SPOOL_BYTES, dir=spool))  # noqa: SIM115  # closed by its owner
        self._total = ContentHash()

    def add(self, content: bytes) -> None:
        """Raises: OSError."""
        self.file.write(content)
        self._total.update(content)
        self.count += 1
        self.length_bytes += len(content)

    def digest(self) -> bytes:
        return self._total.digest()

    def is_run(self, run: PieceRun) -> bool:
        return self.first_offset == run.first_offset and (self.count, self.length_bytes) == (
            run.count,
            run.length_bytes,
        )


class PieceStore:
    """Puts packages together for one subscriber, from one thread."""

    def __init__(
        self,
        journal: Journal,
        topic: TopicName,
        clock: Clock,
        limits: PiecesConfig | None = None,
        spool: str | None = None,
    ) -> None:
        """Nothing collected. What is too large for memory is in files without a name on the disk of `spool`."""
        self.figures = PieceFigures()
        self.spool: Final = spool
        self.place: Final = spool or "the folder for temporary files"
        self._journal = journal
        self._topic = topic
        self._clock = clock
        self._limits = limits or PiecesConfig()
        self._collections: OrderedDict[_Key, _Collection] = OrderedDict()
        self.collected_bytes = 0
        """What is collected at the moment."""

    @property
    def collecting(self) -> int:
        """Packages of which pieces are collected at the moment."""
        return len(self._collections)

    def told(self) -> PieceFigures:
        """The figures of this moment; for any thread."""
        return replace(self.figures, collecting=self.collecting, collecting_bytes=self.collected_bytes)

    def take(self, record: Record, follow: frozenset[AgentName] | None) -> None:
        """Collect a piece. Never fails: what can't be collected is read again when it is needed."""
        self.expire()
        try:
            piece = decode_piece(record.value)
        except MessageCorruptError as error:
            _LOG.warning("topic %s offset %d is not a piece: %s", self._topic, record.offset, error)
            return
        if follow is not None and piece.pub_agent_name not in follow:
            return
        self.figures.pieces += 1
        key = _Key(piece.pub_sling_id, piece.package_id)
        collection = self._collections.get(key)
        # After a repeated first append the message names the offset of the repetition.
        if piece.index == 0 and (collection is None or record.offset > collection.first_offset):
            self._drop(key)  # the publisher appended the beginning again
            while len(self._collections) >= self._limits.max_packages:
                self._give_up(next(iter(self._collections)))
            collection = _Collection(record.offset, self._clock.monotonic(), self.spool)
            self._collections[key] = collection
        # A publisher repeats an append without an answer: of equal pieces the first one counts.
        if collection is None or piece.index < collection.count:
            return
        if piece.index > collection.count:
            self._give_up(key)
            return
        self._add(key, collection, piece)

    def open(self, message: PackageMessage, offset: Offset, max_bytes: int, check: Callable[[], None]) -> BinaryIO:
        """The whole package, checked, as a seekable stream that the caller closes.

        Args:
            message: Its `payload_ref` names the pieces.
            offset: The offset of the message; its pieces have lower offsets.
            max_bytes: The largest package that is taken.
            check: Called between reads; raises at the timeout.

        Raises:
            PiecesMissingError, PackageCorruptError, LimitExceededError: The package can't be had.
            JournalUnavailableError, StorageFullError: Try again.
        """
        run = parse_run(message.payload_ref or "", offset)
        if run.length_bytes > max_bytes:
            raise LimitExceededError(
                f"a package of {run.length_bytes} bytes is beyond the limit of {max_bytes}", limit=max_bytes
            )
        # Pieces of another attempt differ from those of this one by the digest of the whole alone.
        if message.package_digest is None or message.package_length_bytes != run.length_bytes:
            raise PackageCorruptError("a package in pieces needs its length and digest", package=message.package_id)
        key = _Key(message.pub_sling_id, message.package_id)
        collection = self._take_collected(key, run)
        if collection is None:
            self.figures.read_again += 1
            collection = self._read_again(key, run, check)
        if collection.digest() != message.package_digest:
            discard(collection.file)
            self.figures.corrupt += 1
            raise PackageCorruptError(
                "the pieces do not have the digest that the message promises",
                package=message.package_id,
                topic=self._topic,
            )
        with TranslatedFailures(self.place):
            collection.file.seek(0)
        return collection.file

    def expire(self) -> None:
        """Drop the collections of which nothing came for long."""
        now = self._clock.monotonic()
        while self._collections:
            # `_add` moves a collection to the end, so the first one has waited longest.
            key, oldest = next(iter(self._collections.items()))
            if now - oldest.touched < self._limits.expire_seconds:
                return
            self.figures.expired += 1
            _LOG.warning("package %s: %d pieces from offset %d on, and then none", *_words(key, oldest))
            self._drop(key)

    def expires_in_seconds(self) -> float:
        """When `expire` has something to do; infinite while nothing is collected."""
        if not self._collections:
            return math.inf
        oldest = next(iter(self._collections.values()))
        return max(0.0, oldest.touched + self._limits.expire_seconds - self._clock.monotonic())

    def close(self) -> None:
        for key in list(self._collections):
            self._drop(key)

    def _add(self, key: _Key, collection: _Collection, piece: PieceMessage) -> None:
        collection.touched = self._clock.monotonic()
        self._collections.move_to_end(key)  # the one of which nothing came for longest stands first
        try:
            collection.add(piece.content)
        except OSError as error:
            _LOG.warning("%s takes no pieces: %s", self.place, error)
            self._give_up(key)
            return
        self.collected_bytes += len(piece.content)
        while self.collected_bytes > self._limits.max_bytes:
            self._give_up(next(iter(self._collections)))

    def _give_up(self, key: _Key) -> None:
        self.figures.dropped += 1
        _LOG.info("package %s: %d pieces from offset %d on are not kept", *_words(key, self._collections[key]))
        self._drop(key)

    def _drop(self, key: _Key) -> None:
        collection = self._collections.pop(key, None)
        if collection is not None:
            self.collected_bytes -= collection.length_bytes
            discard(collection.file)

    def _take_collected(self, key: _Key, run: PieceRun) -> _Collection | None:
        collection = self._collections.get(key)
        # The message decides: pieces of another attempt are dropped, and the named ones read from the log.
        if collection is None or not collection.is_run(run):
            self._drop(key)
            return None
        del self._collections[key]
        self.collected_bytes -= collection.length_bytes
        self.figures.collected += 1
        return collection

    def _read_again(self, key: _Key, run: PieceRun, check: Callable[[], None]) -> _Collection:
        found = _Collection(run.first_offset, self._clock.monotonic(), self.spool)
        try:
            with TranslatedFailures(self.place):
                for piece in self._pieces(key, run, check):
                    # A lower index is a repeated append; a higher one is a hole, which ends the search.
                    if piece.index == found.count:
                        found.add(piece.content)
                    is_over = found.count > run.count or found.length_bytes > run.length_bytes
                    if found.is_run(run) or piece.index > found.count or is_over:
                        break
            if not found.is_run(run):
                raise self._missing(
                    key,
                    f"of the {run.count} pieces from {run.first_offset} to {run.last_offset} only {found.count} make up"
                    " the package",
                )
        except BaseException:
            discard(found.file)
            raise
        return found

    def _pieces(self, key: _Key, run: PieceRun, check: Callable[[], None]) -> Iterator[PieceMessage]:
        for record in self._records(key, run, check):
            piece = None
            if record.headers == PIECE_HEADERS:
                with suppress(MailboatError):
                    piece = decode_piece(record.value)
            if piece is not None and (piece.pub_sling_id, piece.package_id) == key:
                yield piece
            elif record.offset == run.first_offset:
                return  # a false reference: the log is not read for a mere claim

    def _records(self, key: _Key, run: PieceRun, check: Callable[[], None]) -> Iterator[Record]:
        with closing(self._journal.reader(self._topic, run.first_offset)) as reader:
            while reader.next_offset <= run.last_offset:
                check()
                try:
                    batch = reader.read(_READ, 0.0)
                except PositionOutOfRangeError as error:
                    raise self._missing(
                        key,
                        f"retention removed the first of the {run.count} pieces, from {run.first_offset} on, and left"
                        " the message",
                    ) from error
                yield from (record for record in batch.records if record.offset <= run.last_offset)
                # The message was read, so its pieces exist: this read got an older end of the log, which is transient.
                if not batch.records and batch.is_at_end:
                    raise RetryableError("the journal returned no pieces before a package's message", topic=self._topic)

    def _missing(self, key: _Key, what: str) -> PiecesMissingError:
        self.figures.missing += 1
        return PiecesMissingError(what, next_step="publish its paths again", topic=self._topic, package=key.package_id)


def _words(key: _Key, collection: _Collection) -> tuple[str, int, int]:
    return key.package_id[:80], collection.count, collection.first_offset
