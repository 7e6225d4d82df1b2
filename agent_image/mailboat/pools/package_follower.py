"""Reads the packages of a shared pool: those that are not in its queue yet, and at a start those before them.

Each member reads them, as each may be the one that puts them into the queue next. Payloads are not kept.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from mailboat.clock import Clock
from mailboat.errors import JournalReplacedError, MailboatError, RetryableError
from mailboat.journal.port import Journal, JournalReader, ReadLimits, Record, records_of
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import Action
from mailboat.model.paths import ROOT
from mailboat.model.positions import LogIdentity, Position
from mailboat.pools.package_order import MAX_UNFINISHED, Package, touched
from mailboat.subscriber.continuity import ANY_PUBLISHER, MAX_PASSED_OVER
from mailboat.subscriber.importer import decode_record
from mailboat.subscriber.subscriber_settings import SubscriberSettings
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.workers import Worker, WorkerOptions

_LIMITS: Final = ReadLimits(max_records=256)
_WAIT_SECONDS: Final = 1.0
_FULL_SECONDS: Final = 0.2
_END_SECONDS: Final = 2.0
"""How often a follower that waits asks where the log ends: it is not read meanwhile."""

_MAX_PUBLISHERS: Final = 1_000
"""Names that a member keeps of publishers: any program can publish under any number of names."""


class _PublisherFilter:
    """Which publishers are followed; notes those that packages came of."""

    def __init__(self, follow: Collection[AgentName] | None) -> None:
        self._follow = follow
        self.met = set[AgentName]()
        self.passed_over = set[str]()

    def is_followed(self, publisher: AgentName | None) -> bool:
        if self._follow is not None and publisher not in self._follow:
            name = publisher or ""
            if name not in self.passed_over:
                is_full = len(self.passed_over) >= MAX_PASSED_OVER
                self.passed_over.add(ANY_PUBLISHER if is_full else name)
            return False
        if publisher is not None and len(self.met) < _MAX_PUBLISHERS:
            self.met.add(publisher)
        return True


class FedPackages:
    """The packages between the position of a target and the feed of its pool. For one thread."""

    def __init__(self, journal: Journal, settings: SubscriberSettings, check: Callable[[], None]) -> None:
        """Nothing is read yet. `check` is called for each record; what it raises ends the reading."""
        self._journal = journal
        self._topic = settings.package_topic
        self._filter = _PublisherFilter(settings.follow)
        self._check = check
        self._begin = self._end = Offset(0)
        self._offsets = array("q")

    @property
    def passed_over(self) -> frozenset[str]:
        """Publishers of packages that were read, and that are not followed."""
        return frozenset(self._filter.passed_over)

    def offsets(self, begin: Offset, end: Offset) -> Iterable[int]:
        """The offsets of those between two offsets, after reading what was not read yet. Raises: as `read`."""
        self.read(begin, end)
        return (offset for offset in self._offsets if begin <= offset < end)

    def read(self, begin: Offset, end: Offset) -> None:
        """Read on up to an offset. Raises: what `check` raises; as `JournalReader.read`."""
        if not self._begin <= begin <= self._end:
            self._begin = self._end = begin
            self._offsets = array("q")
        if self._end >= end:
            return
        with closing(records_of(self._journal, self._topic, self._end, end)) as records:
            for record in records:
                self._check()
                if package_of(record, self._filter.is_followed) is not None:
                    self._offsets.append(record.offset)
                self._end = Offset(record.offset + 1)


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
        self._filter = _PublisherFilter(settings.follow)
        self._when_found = when_found
        self._lock = threading.Lock()
        self._packages: deque[Package] = deque()
        self._next_offset = Offset(0)
        self._end = Offset(0)
        self._end_at = 0.0
        self._clock = clock
        self._log: LogIdentity | None = None
        self._reader: JournalReader | None = None
        self._error: MailboatError | None = None
        self.failure: Exception | None = None
        """Why nothing is read at the moment, while that is tried again."""
        options = WorkerOptions(
            "reading packages of a pool",
            longest_pause_seconds=5.0,
            interrupt=self._interrupt,
            on_failure=self._note_failure,
        )
        self._worker = Worker(f"pool-packages-{settings.name}", self._turn, clock, options)

    def start(self, position: Position) -> None:
        """Read from a position on. Raises: the journal's errors."""
        self._reader = self._journal.reader(self._topic, position)
        self._log, self._next_offset = position.identity, position.next_offset
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
            return frozenset(self._filter.passed_over)

    @property
    def publishers(self) -> frozenset[AgentName]:
        """Followed publishers of packages that were read."""
        with self._lock:
            return frozenset(self._filter.met)

    def unfed(self, next_offset: Offset) -> Unfed:
        """What follows an offset; what is before it is forgotten. Raises: the error that ended the reading."""
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
        if self._reader is None:
            return _FULL_SECONDS
        try:
            if is_full:
                if self._clock.monotonic() >= self._end_at:
                    self._check_identity()
                    self._find_end()
                    self.failure = None
                return _FULL_SECONDS
            batch = self._reader.read(_LIMITS, _WAIT_SECONDS)
            self.failure = None
        except RetryableError:
            raise
        except MailboatError as error:
            # No retry helps: `unfed` raises it in the thread of the member, which stops. Else the pool would be current
            # for as long as nothing is read.
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

    def _note_failure(self, error: Exception) -> None:
        self.failure = error

    def _check_identity(self) -> None:
        """Raises: JournalReplacedError: a reader would meet it, but none reads now, and packages are imported."""
        found = self._journal.identity(self._topic)
        if found != self._log:
            raise JournalReplacedError(
                f"the topic {self._topic} was {self._log}, and is {found}: it was created again", topic=self._topic
            )

    def _find_end(self) -> None:
        end = self._journal.bounds(self._topic).next_offset
        self._end_at = self._clock.monotonic() + _END_SECONDS
        with self._lock:
            self._end = end

    def _is_followed(self, publisher: AgentName | None) -> bool:
        with self._lock:
            return self._filter.is_followed(publisher)


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
