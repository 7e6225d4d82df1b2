"""Importing only after a golden subscriber did: what it confirmed, and what that means for a package.

The golden subscriber's confirmations are read from the status topic, one byte a package, and kept from this
subscriber's position on. A package without a confirmation waits, also when later ones have theirs: a gap means
nothing. Retention may have removed a confirmation; then, and only for packages older than the oldest status that is
left, the golden subscriber's announced position counts. Called from the subscriber's thread.

Source: SLING-12024, where a gap is taken for an import.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mailboat.clock import Deadline, milliseconds_now
from mailboat.config.document import StagingConfig
from mailboat.errors import JournalReplacedError, PositionOutOfRangeError, RetryableError
from mailboat.journal.port import Edge, JournalReader, ReadLimits, Record, records_of
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import FailureCause, PackageMessage, PackageStatus, StatusMessage
from mailboat.queues.announced import RETAINED_ANNOUNCEMENTS, Announced, KnownLog, read_announcement
from mailboat.subscriber.subscriber_settings import SubscriberPorts, SubscriberSettings
from mailboat.wire.messages import readable_message
from mailboat.workers import heartbeat

_READ: Final = ReadLimits(max_records=1000)
_WAIT_SECONDS: Final = 1.0
_NONE, _IMPORTED, _REMOVED = 0, 1, 2
_STATUSES: Final = (None, PackageStatus.IMPORTED, PackageStatus.REMOVED)


class GoldenSilentError(RetryableError):
    """A subscriber waits for its golden subscriber, which may never confirm the package.

    The golden subscriber must run, be editable and follow the publisher. If it passed the package without a status,
    clear the queue of the waiting subscriber and publish the content again.
    """


class AdmissionDecision(enum.Enum):
    """What happens to a package: what the golden subscriber did decides, unless a clear command or a build does."""

    IMPORT = enum.auto()
    REMOVE = enum.auto()
    """A clear command drops it; it is confirmed as REMOVED."""

    SKIP = enum.auto()
    """The golden subscriber did not import it; it is confirmed as REMOVED, with that name."""

    WAIT = enum.auto()
    """Not yet: the batch ends before it."""


def decide_precondition(
    status: PackageStatus | None, offset: Offset, *, is_status_lost: bool, golden_next_offset: Offset | None
) -> AdmissionDecision:
    """Whether a package may be imported.

    Args:
        status: What the golden subscriber confirmed of it; None when nothing is known.
        offset: The package's.
        is_status_lost: Retention may have removed the confirmation.
        golden_next_offset: The offset that the golden subscriber announced to read next; None if it announced none.
    """
    if status is PackageStatus.IMPORTED:
        return AdmissionDecision.IMPORT
    if status is not None:
        return AdmissionDecision.SKIP
    is_past = golden_next_offset is not None and offset < golden_next_offset
    return AdmissionDecision.IMPORT if is_status_lost and is_past else AdmissionDecision.WAIT


class GoldenStatuses:
    """What one subscriber confirmed, from an offset on: a byte a package."""

    def __init__(self, base: Offset) -> None:
        """Know nothing, and keep what concerns packages from `base` on."""
        self.base = base
        self._codes = bytearray()

    def note(self, offset: Offset, status: PackageStatus) -> None:
        """Keep a confirmation; the newest of a package counts."""
        at = offset - self.base
        if at < 0:
            return
        if at >= len(self._codes):
            self._codes.extend(bytes(at + 1 - len(self._codes)))
        self._codes[at] = _IMPORTED if status is PackageStatus.IMPORTED else _REMOVED

    def of(self, offset: Offset) -> PackageStatus | None:
        at = offset - self.base
        return _STATUSES[self._codes[at]] if 0 <= at < len(self._codes) else None

    def trim(self, base: Offset) -> None:
        if base > self.base:
            del self._codes[: base - self.base]
            self.base = base

    def __len__(self) -> int:
        return len(self._codes)


class GoldenWatch:
    """Watches the golden subscriber of one staged subscriber."""

    def __init__(self, staging: StagingConfig, settings: SubscriberSettings, ports: SubscriberPorts) -> None:
        self._staging = staging
        self._settings = settings
        self._journal = ports.journal
        self._clock = ports.clock
        self._beat = heartbeat(ports.clock)
        self.name: Final = AgentName(staging.golden)
        self._mark = self.name.encode()
        self._statuses = GoldenStatuses(Offset(0))
        self._reader: JournalReader | None = None
        self._lost_before_ms: int | None = None
        self._log_next_offset = Offset(0)
        self._announcement: Announced | None = None
        self._asked_at = float("-inf")
        self._waits_at: Offset | None = None

    def start_at(self, position: Offset) -> None:
        """This subscriber stands there; it may have gone back. Raises: the journal's errors."""
        if self._reader is None or position < self._statuses.base:
            # Opened first: if that fails, what is known of the golden subscriber stays.
            self._open()
            self._statuses = GoldenStatuses(position)
        else:
            self._statuses.trim(position)

    def trim(self, position: Offset) -> None:
        """This subscriber has gone on to that position."""
        self._statuses.trim(position)

    def decide(self, offset: Offset, message: PackageMessage) -> AdmissionDecision:
        """Whether a package may be imported now. Raises: the journal's errors."""
        self._waits_at = offset
        # The log is read only for an unknown status: in a backlog one read answers for many packages.
        if self._statuses.of(offset) is None:
            self._read_all()
        status, before_ms = self._statuses.of(offset), self._lost_before_ms
        # A message without a time may be older than the oldest status that is left.
        may_be_lost = before_ms is not None and (message.created_ms is None or message.created_ms < before_ms)
        is_lost = status is None and may_be_lost
        announced = self._announced() if is_lost else None
        next_offset = None if announced is None else self._position(announced)
        return decide_precondition(status, offset, is_status_lost=is_lost, golden_next_offset=next_offset)

    def await_word(self, offset: Offset, is_over: Callable[[], bool]) -> None:
        """Wait for the package's status until it is known, the look is over, or `is_over`. Raises: as the journal."""
        deadline = Deadline(self._clock, self._staging.timeout_seconds)
        while not (is_over() or deadline.is_over()):
            # In short waits: `is_over` takes commands, and a clear may drop the package.
            self._read(min(_WAIT_SECONDS, deadline.remaining_seconds()))
            if self._statuses.of(offset) is not None:
                return

    def obstacle(self, message: PackageMessage) -> FailureCause | None:
        """Why waiting may not help, for people. Raises: the journal's errors."""
        golden, announced = self.name, self._announced()
        if announced is None:
            text = f"{golden} has not announced itself lately"
        elif announced.message is None or not announced.message.is_editable:
            text = f"{golden} is not editable, so it confirms nothing"
        elif not announced.follows(message.pub_agent_name):
            text = f"{golden} does not follow {message.pub_agent_name}"
        elif self._is_passed_silently(announced):
            text = f"{golden} is past the package at {self._waits_at} and never confirmed it; clear the queue up to it"
        else:
            return None
        return FailureCause.of_error(GoldenSilentError(text), message)

    def _is_passed_silently(self, announced: Announced) -> bool:
        """Whether no confirmation can come any more."""
        offset, golden_at = self._waits_at, self._position(announced)
        if offset is None or golden_at is None or golden_at <= offset:
            return False
        # After the announcement was read: a confirmation that was sent before it is in the topic now.
        self._read_all()
        return self._statuses.of(offset) is None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    # ---------------------------------------------------------------------------------------------------- statuses

    def _open(self) -> None:
        topic = self._settings.status_topic
        reader = self._journal.reader(topic, Edge.EARLIEST)  # until there is one, the old one is asked
        if self._reader is not None:
            self._reader.close()
        self._reader = reader
        self._lost_before_ms = None
        # Asked of the reader: retention may remove statuses after the bounds were asked for.
        if reader.next_offset > 0:
            self._lost_before_ms = milliseconds_now(self._clock)  # or what the oldest record says

    def _read_all(self) -> None:
        while self._read(0.0):
            pass

    def _read(self, wait_seconds: float) -> bool:
        """Read once; whether there is more."""
        if self._reader is None:
            raise ValueError("the watch was not started")
        try:
            batch = self._reader.read(_READ, wait_seconds)
        except PositionOutOfRangeError:  # retention was faster; what was read stays known
            self._open()
            return True
        except JournalReplacedError:  # the topic was created again: what it held and was not read is lost
            self._open()
            self._lost_before_ms = milliseconds_now(self._clock)
            return True
        for record in batch.records:
            self._note(record)
        if batch.records:
            self._beat(0.0)
        return not batch.is_at_end

    def _note(self, record: Record) -> None:
        if self._lost_before_ms is not None:
            self._lost_before_ms = min(self._lost_before_ms, record.appended_ms)
        # A search in the bytes is far cheaper than decoding the statuses of all subscribers.
        if self._mark not in record.value:
            return
        message = readable_message(record.headers, record.value)
        if (
            isinstance(message, StatusMessage)
            and message.sub_agent_name == self.name
            and self._is_in_log(message.offset)
        ):
            self._statuses.note(message.offset, message.status)

    def _is_in_log(self, offset: Offset) -> bool:
        """A status of a package that the log can't hold would cost memory up to its offset."""
        # Asked for offsets beyond the known end only: most statuses cost no request.
        if offset >= self._log_next_offset:
            self._log_next_offset = self._journal.bounds(self._settings.package_topic).next_offset
        return offset < self._log_next_offset

    # ------------------------------------------------------------------------------------------------ announcements

    def _position(self, announced: Announced) -> Offset | None:
        """What it reads next, if that can be."""
        claim = None if announced.message is None else announced.message.next_offset
        return KnownLog(self._journal, self._settings.package_topic).believed(announced, claim)

    def _announced(self) -> Announced | None:
        """What the golden subscriber announced last, looked up once a look."""
        now = self._clock.monotonic()
        if now - self._asked_at >= self._settings.announcement_seconds:
            # Set before the look-up: a failure is not repeated for every package.
            self._asked_at = now
            self._announcement = self._last_announcement()
        return self._announcement

    def _last_announcement(self) -> Announced | None:
        topic = self._settings.discovery_topic
        if topic is None:
            return None
        bounds = self._journal.bounds(topic)
        start = Offset(max(bounds.earliest_offset, bounds.next_offset - RETAINED_ANNOUNCEMENTS))
        found = None
        # retention may remove the first of them meanwhile: then the next look finds the others
        with suppress(PositionOutOfRangeError):
            for record in records_of(self._journal, topic, start, bounds.next_offset):
                read = read_announcement(record) if self._mark in record.value else None
                if read is not None and read.message is not None and read.queue_name.agent_name == self.name:
                    found = read
        return found
