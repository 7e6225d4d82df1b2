"""The shared view of a package topic, used by all queues of a publisher's process.

It has two parts within one budget of bytes. The offsets of the packages (`offsets`) say how long each queue is; they
take half of the budget at most. The details (`columns`) are kept where callers read, which is the end, where new
packages arrive, and the beginnings of the queues; those that were not read for the longest time are dropped first. One
hundred subscribers share one view; each of them is only a position.

Nothing here waits or reads: all is arithmetic under a lock. `log_follower` fills it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.model.positions import Bounds
from mailboat.queues.columns import BLOCK_OFFSETS, EntryBlock, block_end
from mailboat.queues.entries import DecodedRecords, QueueEntry
from mailboat.queues.offsets import OffsetColumns, QueueSize

# Half for offsets, which count queues without the log; the rest for details, which the log can give again.
BUDGET_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class ViewCounts:
    """What happened to a view since it was made; for metrics."""

    unreadable_records: int = 0
    evicted_blocks: int = 0
    restarts: int = 0


class Stretch(NamedTuple):
    """The entries between two offsets: all there are, of the publishers in question."""

    entries: Sequence[QueueEntry]
    covers_from: Offset
    covers_to: Offset


@dataclass(slots=True)
class _OpenBlock:
    """The end of the log: entries that don't fill a block yet."""

    covers_from: int
    covers_to: int
    entries: list[QueueEntry] = field(default_factory=list)

    def extend(self, to: int) -> None:
        self.covers_to = to


class LogView:
    """What is known of one package topic, for the publishers of this process. Safe to use from several threads."""

    def __init__(
        self,
        topic: TopicName,
        publishers: Collection[AgentName],
        bounds: Bounds,
        budget_bytes: int = BUDGET_BYTES,
    ) -> None:
        """Know that the topic has these bounds, and nothing else; offsets take half of the budget at most."""
        self.topic = topic
        self.publishers = frozenset(publishers)
        self.counts = ViewCounts()
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._bounds = bounds
        self._offsets = OffsetColumns(self.publishers, bounds.next_offset, self._budget_bytes // 2)
        self._open = _OpenBlock(bounds.next_offset, bounds.next_offset)
        self._blocks: OrderedDict[int, EntryBlock] = OrderedDict()
        self._details_bytes = 0

    @property
    def bounds(self) -> Bounds:
        """The topic's bounds when they were last read."""
        # One reference, replaced as a whole: readable without the lock.
        return self._bounds

    @property
    def generation(self) -> int:
        """Changes with each `restart`, so that batches of a log that is gone are not applied."""
        return self.counts.restarts

    @property
    def known_from(self) -> Offset:
        """Where the stretch begins whose packages are counted."""
        return self._offsets.known_from

    @property
    def known_to(self) -> Offset:
        """Where it ends: the offset that the follower reads next."""
        return self._offsets.known_to

    @property
    def is_past_counted(self) -> bool:
        """Whether the past is counted as far back as the log, or the memory, goes."""
        with self._lock:
            return self._offsets.is_full or self._offsets.known_from <= self._bounds.earliest_offset

    @property
    def size_bytes(self) -> int:
        """What the view costs, but for the few entries at the end that are not packed yet."""
        with self._lock:
            return self._offsets.size_bytes + self._details_bytes

    def restart(self, bounds: Bounds) -> None:
        """Forget everything: the log is another one, or lost its end."""
        with self._lock:
            self.counts.restarts += 1
            self._bounds = bounds
            self._offsets = OffsetColumns(self.publishers, bounds.next_offset, self._budget_bytes // 2)
            self._open = _OpenBlock(bounds.next_offset, bounds.next_offset)
            self._blocks.clear()
            self._details_bytes = 0

    def extend(self, decoded: DecodedRecords, known_to: Offset) -> None:
        """Apply the follower's batch, in order and up to `known_to`, which moves last."""
        with self._lock:
            self._extend_details(decoded.entries, self._offsets.known_to, known_to)
            self._bounds = Bounds(self._bounds.earliest_offset, max(self._bounds.next_offset, known_to))
            self.counts.unreadable_records += decoded.unreadable_count
            self._offsets.extend(decoded.entries, known_to, decoded.pieces)
            self._evict()

    def extend_back(self, decoded: DecodedRecords, known_from: Offset, known_to: Offset, generation: int) -> bool:
        """Add a part of the past, if it ends where the known stretch begins; otherwise another thread was faster."""
        with self._lock:
            if known_to != self._offsets.known_from or known_from >= known_to or generation != self.generation:
                return False
            self._offsets.extend_back(decoded.entries, known_from, decoded.pieces)
            self._evict()
            return True

    def trim(self, earliest: Offset) -> None:
        """Forget what retention removed."""
        with self._lock:
            if earliest <= self._bounds.earliest_offset:
                return
            self._bounds = Bounds(earliest, max(earliest, self._bounds.next_offset))
            if earliest > self._offsets.known_to:  # the follower was overtaken; what it saw is gone
                self._open = _OpenBlock(earliest, earliest)
            self._offsets.trim(earliest)
            for number in [number for number, block in self._blocks.items() if block.covers_to <= earliest]:
                self._drop(number)

    def size_after(self, publisher: AgentName, last_done: int) -> QueueSize:
        """How many packages of a publisher a subscriber at this position has before it."""
        self._check(publisher)
        with self._lock:
            return self._offsets.size_after(publisher, last_done, self._bounds)

    def messages_from(self, offset: int) -> int:
        """How many messages there are from an offset on. Pieces of packages count only where they are not known yet."""
        with self._lock:
            return self._offsets.messages_from(offset, self._bounds)

    def nth_after(self, publisher: AgentName, last_done: int, number: int) -> Offset | None:
        """The `number`-th package after a position; None when that is not known, or there are not so many."""
        self._check(publisher)
        with self._lock:
            # Uncounted packages behind the position would make every number too small.
            if last_done + 1 < self._offsets.known_from and self._offsets.known_from > self._bounds.earliest_offset:
                return None
            return self._offsets.nth_after(publisher, last_done, number)

    def last_after(self, publisher: AgentName, last_done: int) -> Offset | None:
        """The newest package of a publisher after a position; None if absent.

        While the past is not counted, it may be the end of the known stretch that is given.
        """
        self._check(publisher)
        with self._lock:
            last = self._offsets.last(publisher)
            if last is None and last_done + 1 < self._offsets.known_from > self._bounds.earliest_offset:
                last = Offset(self._offsets.known_from - 1)
            return None if last is None or last <= last_done else last

    def skip_to_next(self, publisher: AgentName, offset: int) -> int:
        """The first offset at or after this one that may hold a package of the publisher; the end when none does."""
        self._check(publisher)
        with self._lock:
            # Of the uncounted past every offset may hold a package.
            if offset < self._offsets.known_from:
                return offset
            found = self._offsets.next_from(publisher, offset)
            return max(offset, self._offsets.known_to) if found is None else found

    def find_details(self, publisher: AgentName, offset: int, max_entries: int) -> Stretch | None:
        """The publisher's first entries from an offset on, as far as they are kept; None when nothing is kept there."""
        with self._lock:
            block = self._blocks.get(offset // BLOCK_OFFSETS)
            if block is not None and block.covers_from <= offset < block.covers_to:
                self._blocks.move_to_end(offset // BLOCK_OFFSETS)
                return _first_of(block.entries(publisher, offset), max_entries, offset, block.covers_to)
            tail = self._open
            if tail.covers_from <= offset < tail.covers_to:
                wanted = (entry for entry in tail.entries if entry.publisher == publisher and entry.offset >= offset)
                return _first_of(wanted, max_entries, offset, tail.covers_to)
            return None

    def offer_details(self, stretch: Stretch, generation: int) -> None:
        """Keep what a page read from the log, which must lie within one block, for who looks next."""
        if stretch.covers_from < stretch.covers_to <= block_end(stretch.covers_from):
            with self._lock:
                # A page that was read before a restart may be of another log.
                if generation == self.generation:
                    self._keep(stretch)

    def _extend_details(self, entries: Sequence[QueueEntry], begin: int, end: int) -> None:
        """Distribute the entries over the open block and those that follow; all but the last are sealed."""
        place = 0
        while begin < end:
            stop = min(end, block_end(begin))
            if begin == block_end(begin - 1):
                self._seal(begin)
            while place < len(entries) and entries[place].offset < stop:
                self._open.entries.append(entries[place])
                place += 1
            self._open.extend(stop)
            begin = stop

    def _seal(self, next_begin: int) -> None:
        done, self._open = self._open, _OpenBlock(next_begin, next_begin)
        if done.covers_from < done.covers_to:
            self._keep(Stretch(done.entries, Offset(done.covers_from), Offset(done.covers_to)))

    def _keep(self, stretch: Stretch) -> None:
        """Pack a stretch, joined with what is kept of the same block if they touch; else the longer one stays."""
        number = stretch.covers_from // BLOCK_OFFSETS
        kept = self._blocks.get(number)
        if kept is not None:
            stretch = _joined(kept, stretch)
        self._drop(number)
        block = EntryBlock(stretch.entries, stretch.covers_from, stretch.covers_to)
        self._blocks[number] = block
        self._details_bytes += block.size_bytes
        self._evict()

    def _evict(self) -> None:
        while self._blocks and self._details_bytes > self._budget_bytes - self._offsets.size_bytes:
            # The least recently used: `find_details` moves what it returns to the end.
            self._drop(next(iter(self._blocks)))
            self.counts.evicted_blocks += 1

    def _drop(self, number: int) -> None:
        gone = self._blocks.pop(number, None)
        if gone is not None:
            self._details_bytes -= gone.size_bytes

    def _check(self, publisher: AgentName) -> None:
        if publisher not in self.publishers:
            raise UsageError(f"the publisher {publisher} is not one of this process", publisher=publisher)


def _first_of(entries: Iterable[QueueEntry], max_entries: int, covers_from: int, covers_to: int) -> Stretch:
    """The first of some entries; cut short, the stretch ends after the last of them."""
    first = list(islice(entries, max_entries))
    end = first[-1].offset + 1 if len(first) == max_entries else covers_to
    return Stretch(first, Offset(covers_from), Offset(end))


def _joined(kept: EntryBlock, stretch: Stretch) -> Stretch:
    if kept.covers_to < stretch.covers_from or stretch.covers_to < kept.covers_from:
        # A block covers one range: of two that do not touch, one is dropped.
        kept_is_longer = kept.covers_to - kept.covers_from > stretch.covers_to - stretch.covers_from
        return _unpacked(kept) if kept_is_longer else stretch
    entries = {entry.offset: entry for entry in (*kept.all_entries(), *stretch.entries)}
    return Stretch(
        [entries[offset] for offset in sorted(entries)],
        Offset(min(kept.covers_from, stretch.covers_from)),
        Offset(max(kept.covers_to, stretch.covers_to)),
    )


def _unpacked(block: EntryBlock) -> Stretch:
    return Stretch(list(block.all_entries()), Offset(block.covers_from), Offset(block.covers_to))
