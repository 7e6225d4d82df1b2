"""Where a topic's head may be put, and what lies behind each such place: sampled while the log is read.

A mark is a place between two records at which no package is half in and half out: none whose pieces stand on both
sides. It holds how many bytes came before it and when the record at it was appended. The number of marks is bounded;
when there are too many, every second one goes.

Removal by age, by size or by hand looks for such a place once, at records about to go (`whole_package_border`).
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import closing
from typing import Final, NamedTuple

from mailboat.clock import Clock, milliseconds_now
from mailboat.errors import PositionOutOfRangeError, UntrustedInputError
from mailboat.journal.port import SCAN_LIMITS, Journal, Record
from mailboat.model.identifiers import Offset, PackageId, SlingId, TopicName
from mailboat.model.pieces import PieceMessage, is_run, parse_run
from mailboat.queues.entries import readable_package
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.piece_messages import decode_piece

MAX_MARKS: Final = 4096

ORPHAN_SECONDS: Final = 3600.0
"""Pieces whose package has not come for so long, by the log's own times, hold nothing back: their publisher died."""

MAX_OPEN_RUNS: Final = 10_000
"""So many packages may have their pieces in the log and not yet their message; more are not waited for."""

RECORD_BYTES: Final = 70
"""Approximate overhead of a record in a log: offset, time, headers, its share of the batch's frame."""


class Mark(NamedTuple):
    """A place for a head.

    Attributes:
        offset: The first record behind it.
        appended_ms: When that record was appended, milliseconds since 1970 UTC.
        bytes_before: Bytes of the records before it, counted from where the sampling began.
    """

    offset: Offset
    appended_ms: int
    bytes_before: int


class PieceRange(NamedTuple):
    """A package in pieces: from its first piece to its message. No head may be put in between."""

    first_offset: int
    message_offset: int


class LogMarks:
    """The marks of one topic, for one thread."""

    def __init__(self, start: Offset, max_marks: int = MAX_MARKS) -> None:
        """No record was read; the next one has the offset `start` or a later one."""
        self.next_offset = start
        self.total_bytes = 0
        self._max = max_marks
        self._marks: list[Mark] = []
        self._spans: list[PieceRange] = []
        self._open: OrderedDict[tuple[SlingId, PackageId], tuple[int, int]] = OrderedDict()
        self._step = 1
        self._since_mark = 0
        self._last_ms = 0

    def see(self, records: Sequence[Record], next_offset: Offset, now_ms: int) -> None:
        """Records go by, in order, at the time `now_ms`, and the log goes on at `next_offset`."""
        for record in records:
            self._mark(record)
            self.total_bytes += len(record.value) + RECORD_BYTES
            self._follow_pieces(record)
        self.next_offset = next_offset
        # Where the log goes on in the past, a wrong clock stamped them; else the clock here may be behind.
        if records and records[-1].appended_ms <= now_ms < self._last_ms:
            self._correct_future(now_ms)

    def trim(self, earliest: Offset) -> None:
        """The head is at `earliest` now."""
        # The newest one before the head stays: it says how many bytes are gone.
        del self._marks[: max(0, bisect.bisect_right(self._marks, earliest, key=lambda mark: mark.offset) - 1)]
        self._spans = [span for span in self._spans if span.message_offset >= earliest]

    def is_undecided(self, offset: int) -> bool:
        """Whether packages have pieces before `offset` and their message has not gone by."""
        return any(first < offset for first, _ in self._open.values())

    def border(self, offset: int) -> Offset:
        """The last place at `offset` or before it where no package is cut through."""
        crossing = [first for first, _ in self._open.values() if first < offset]
        border = min([offset, *crossing])
        # From the newest span: a border that moves before one package may cut an older one.
        for span in sorted(self._spans, key=lambda one: one.message_offset, reverse=True):
            if span.first_offset < border <= span.message_offset:
                border = span.first_offset
        return Offset(border)

    def newest_older_than(self, appended_ms: int) -> Offset | None:
        """The newest place before which all is older than that time; None when nothing is."""
        if self._last_ms < appended_ms:
            return self.next_offset
        at = bisect.bisect_left(self._marks, appended_ms, key=lambda mark: mark.appended_ms)
        return self._marks[at - 1].offset if at else None

    def newest_with_bytes_behind(self, size_bytes: int) -> Offset | None:
        """The newest place behind which at least so many bytes are; None when there are fewer in all."""
        at = bisect.bisect_right(self._marks, self.total_bytes - size_bytes, key=lambda mark: mark.bytes_before)
        return self._marks[at - 1].offset if at else None

    def bytes_behind(self, offset: int) -> int:
        """About how many bytes the log holds from an offset on."""
        at = bisect.bisect_right(self._marks, offset, key=lambda mark: mark.offset)
        return self.total_bytes - (self._marks[at - 1].bytes_before if at else 0)

    def _mark(self, record: Record) -> None:
        self._since_mark += 1
        self._last_ms = max(self._last_ms, record.appended_ms)  # clocks jump back
        # No mark inside a package in pieces: a head there would remove its first pieces.
        if self._open or (self._marks and self._since_mark < self._step):
            return
        self._marks.append(Mark(record.offset, self._last_ms, self.total_bytes))
        self._since_mark = 0
        # keeps every second mark and samples half as often from now on: memory stays bounded, borders get coarser
        if len(self._marks) > self._max:
            self._marks = self._marks[::2]
            self._step *= 2

    def _correct_future(self, now_ms: int) -> None:
        """Take records from the future for as old as now: a wrong clock stamped them, and all behind would stay."""
        self._last_ms = now_ms
        at = bisect.bisect_right(self._marks, now_ms, key=lambda mark: mark.appended_ms)
        self._marks[at:] = [mark._replace(appended_ms=now_ms) for mark in self._marks[at:]]

    def _follow_pieces(self, record: Record) -> None:
        if record.headers == PIECE_HEADERS:
            self._open_run(record)
        # most messages refer to no pieces, and decoding each of them would cost more than reading the topic
        elif self._open or b"pieces:" in record.value:
            self._close_run(record)

    def _open_run(self, record: Record) -> None:
        try:
            piece: PieceMessage = decode_piece(record.value)
        except UntrustedInputError:
            return
        key = piece.pub_sling_id, piece.package_id
        # An append without an answer is repeated, and its pieces may still come: the message says which copy counts.
        first = self._open.get(key, (record.offset, 0))[0]
        self._open[key] = first, record.appended_ms
        self._open.move_to_end(key)  # the one of which nothing came for longest stands first
        if len(self._open) > MAX_OPEN_RUNS:
            self._open.popitem(last=False)
        self.forget_orphans(record.appended_ms)

    def _close_run(self, record: Record) -> None:
        self.forget_orphans(record.appended_ms)
        message = readable_package(record)
        if message is None or not is_run(message.payload_ref or ""):
            return
        begun = self._open.pop((message.pub_sling_id, message.package_id), None)
        try:
            run = parse_run(message.payload_ref or "", record.offset)
        except UntrustedInputError:
            return
        if begun is not None and begun[0] <= run.first_offset:  # the pieces were seen: anyone may claim some
            self._spans.append(PieceRange(run.first_offset, record.offset))

    def forget_orphans(self, now_ms: int) -> None:
        """It is `now_ms`: pieces that have waited for their message for too long hold nothing back."""
        oldest = now_ms - int(ORPHAN_SECONDS * 1000)
        while self._open and next(iter(self._open.values()))[1] < oldest:
            self._open.popitem(last=False)


def whole_package_border(journal: Journal, topic: TopicName, before: Offset, clock: Clock) -> Offset:
    """The last place at `before` or in front of it where no package is cut through.

    Pieces that are being appended hold their place; those whose publisher died an hour ago or earlier hold nothing.

    Raises: JournalUnavailableError, TopicMissingError.
    """
    bounds = journal.bounds(topic)
    if before <= bounds.earliest_offset:
        return before
    marks = LogMarks(bounds.earliest_offset)
    end = bounds.next_offset
    try:
        with closing(journal.reader(topic, marks.next_offset)) as reader:
            # Beyond `before`, until the packages that began in front of it have their messages: only those say which
            # pieces belong together.
            while marks.next_offset < end and (marks.next_offset < before or marks.is_undecided(before)):
                batch = reader.read(SCAN_LIMITS, 0.0)
                marks.see(batch.records, batch.next_offset, milliseconds_now(clock))
                if batch.is_at_end:
                    break
    except PositionOutOfRangeError:  # another process removed records meanwhile: the next time
        return bounds.earliest_offset
    marks.forget_orphans(milliseconds_now(clock))
    return max(bounds.earliest_offset, marks.border(before))
