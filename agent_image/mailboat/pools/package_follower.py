"""Reads the packages that a shared pool has not put into its queue yet.

Each member reads them, as each may be the one that puts them into the queue next. Payloads are not kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mailboat.clock import Clock
from mailboat.errors import JournalReplacedError, MailboatError, PositionOutOfRangeError
from mailboat.journal.port import Journal, JournalReader, ReadLimits, Record
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import Action
from mailboat.model.paths import ROOT
from mailboat.model.positions import Position
from mailboat.pools.package_order import MAX_UNFINISHED, Package, touched
from mailboat.subscriber.importer import decode_record
from mailboat.subscriber.subscriber_settings import SubscriberSettings
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.workers import Worker, WorkerOptions

_LIMITS: Final = ReadLimits(max_records=256)
_WAIT_SECONDS: Final = 1.0
_FULL_SECONDS: Final = 0.2
_END_SECONDS: Final = 2.0
"""How often a follower that waits asks where the log ends: it is not read meanwhile."""

MAX_PUBLISHERS: Final = 1_000
"""Names that a member keeps of publishers: any program can publish under any number of names."""


class Unfed(NamedTuple):
    """What follows in the log.

    Attributes:
        packages: Those to put into the queue, oldest first.
        next_offset: All packages below it are among them.
        read_offset: What was read: below `next_offset` where another member put packages into the queue first.
    """

    packages: Sequence[Package]
    next_offset: Offset
    read_offset: Offset


class PackageFollower:
    """Follows the package topic. `start` and `close` from one thread, the rest from any."""

    def __init__(
        self,
        journal: Journal,
        settings: SubscriberSettings,
        clock: Clock,
        when_found: Callable[[], None],
    ) -> None:
        """Nothing is read yet. `when_found` is called in the thread of the follower when there is something new."""
        self._journal = journal
        self._topic = settings.package_topic
        self._follow = settings.follow
        self._when_found = when_found
        self._lock = threading.Lock()
        self._packages: deque[Package] = deque()
        self._next_offset = Offset(0)
        self._end = Offset(0)
        self._end_at = 0.0
        self._clock = clock
        self._passed_over: set[str] = set()
        self._publishers: set[AgentName] = set()
        self._reader: JournalReader | None = None
        self._error: MailboatError | None = None
        options = WorkerOptions("reading packages of a pool", longest_pause_seconds=5.0, interrupt=self._interrupt)
        self._worker = Worker(f"pool-packages-{settings.name}", self._turn, clock, options)

    def start(self, position: Position) -> None:
        """Read from a position on. Raises: the journal's errors."""
        self._reader = self._journal.reader(self._topic, position)
        self._next_offset = position.next_offset
        # Before the first read: else a member that just started would say that the pool has no lag, and is current.
        self._find_end()
        self._worker.start()

    @property
    def end(self) -> Offset:
        """Where the log ended when it was last asked or read."""
        with self._lock:
            return max(self._end, self._next_offset)

    @property
    def passed_over(self) -> frozenset[str]:
        """Publishers of packages that were read, and that are not followed."""
        with self._lock:
            return frozenset(self._passed_over)

    @property
    def publishers(self) -> frozenset[AgentName]:
        """Followed publishers of packages that were read."""
        with self._lock:
            return frozenset(self._publishers)

    def unfed(self, next_offset: Offset) -> Unfed:
        """What follows an offset; what is before it is forgotten. Raises: a StopError that ended the reading."""
        with self._lock:
            if self._error is not None:
                raise self._error
            while self._packages and self._packages[0].offset < next_offset:
                self._packages.popleft()
            return Unfed(tuple(self._packages), max(self._next_offset, next_offset), self._next_offset)

    def close(self) -> None:
        """End the thread, and release the reader."""
        self._worker.stop(5.0)
        if self._reader is not None:
            self._reader.close()

    def _interrupt(self) -> None:
        if self._reader is not None:
            self._reader.interrupt()

    def _turn(self) -> float | None:
        with self._lock:
            # A backlog of any length: more packages than the queue can take stay in the log, where they cost no memory.
            is_full = len(self._packages) >= MAX_UNFINISHED
        if is_full or self._reader is None:
            if self._clock.monotonic() >= self._end_at:
                self._find_end()
            return _FULL_SECONDS
        try:
            batch = self._reader.read(_LIMITS, _WAIT_SECONDS)
        except (PositionOutOfRangeError, JournalReplacedError) as error:
            # No retry helps: `unfed` raises it in the thread of the member, which stops in a named state.
            self._error = error
            self._when_found()
            return None
        found = (package_of(record, self._is_followed) for record in batch.records)
        packages = [package for package in found if package is not None]
        with self._lock:
            self._packages.extend(packages)
            self._next_offset = batch.next_offset
        if batch.records:
            self._when_found()
        return 0.0

    def _find_end(self) -> None:
        end = self._journal.bounds(self._topic).next_offset
        self._end_at = self._clock.monotonic() + _END_SECONDS
        with self._lock:
            self._end = end

    def _is_followed(self, publisher: AgentName | None) -> bool:
        with self._lock:
            if self._follow is not None and publisher not in self._follow:
                if len(self._passed_over) < MAX_PUBLISHERS:
                    self._passed_over.add(publisher or "")
                return False
            if publisher is not None and len(self._publishers) < MAX_PUBLISHERS:
                self._publishers.add(publisher)
        return True


def package_of(record: Record, is_followed: Callable[[AgentName | None], bool]) -> Package | None:
    """The package of a record; None where it means nothing to the pool."""
    if record.headers == PIECE_HEADERS:
        return None
    try:
        message = decode_record(record)
    except MailboatError:
        # its import fails, and is decided on; until then it may touch anything
        return Package(record.offset, (ROOT,))
    if message.action is Action.TEST or not is_followed(message.pub_agent_name):
        return None
    return Package(record.offset, touched(message.paths))
