"""Moves a head by consumption, age and size: reads what is new, decides, moves the head, carries the registry forward.

Each turn may be broken off anywhere and done again: nothing is kept but what the log says, the head only moves on, and
two keepers at once do no more than one. A keeper that starts reads the package topic once, from its head. Called by the
agent from a thread of its own, and by `mailboat journal retention`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mailboat.clock import Clock, milliseconds_now
from mailboat.errors import JournalReplacedError, MailboatError, PositionOutOfRangeError, UntrustedInputError
from mailboat.journal.port import Edge, Journal, JournalReader, NewRecord, ReadLimits, Record, RecordBatch
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.positions import Bounds, LogIdentity
from mailboat.model.registrations import Registration, RegistryMessage
from mailboat.queues.announced import ALIVE_SECONDS, heard
from mailboat.retention.head_plan import ConsumptionBounds, HeadPlan, Holder, plan_head
from mailboat.retention.marks import LogMarks
from mailboat.retention.subscriber_registry import REGISTRY_KEY, Registry
from mailboat.wire.messages import decode_message, encode_message

CARRY_SECONDS: Final = 3600.0
"""The registry is written again at the latest after so long, so that the log's own retention never takes the last."""

_READ: Final = ReadLimits(max_records=500, max_bytes=8 * 1024 * 1024)
_LOG: Final = logging.getLogger(__name__)


class TurnInterruptedError(Exception):
    """The keeper was stopped during a turn. Nothing was moved; the next turn goes on where this one read to."""


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """What is kept.

    Attributes:
        package_topic: Whose head is moved.
        discovery_topic: Where subscribers announce themselves.
        limits: What stays and what goes regardless of the subscribers.
        subscriber_timeout_seconds: A durable subscriber silent for so long is dropped; None: never.
        is_by_consumption: Whether anybody is waited for; if not, the limits of age and size alone count.
    """

    package_topic: TopicName
    discovery_topic: TopicName
    limits: ConsumptionBounds
    subscriber_timeout_seconds: float | None = None
    is_by_consumption: bool = True


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn found, and did unless it was a dry run.

    Attributes:
        bounds: The package topic before.
        plan: Where the head should be.
        freed_bytes: About what lies before it.
        dropped: Durable subscribers whose registration ended, as they were silent for too long.
        registrations: Who matters now, and whether durable.
    """

    bounds: Bounds
    plan: HeadPlan
    freed_bytes: int
    dropped: tuple[Registration, ...]
    registrations: tuple[tuple[Registration, bool], ...]


@dataclass(slots=True)
class RetentionFigures:
    """What a keeper did, in this run.

    Attributes:
        turns: Turns that came to their end.
        moves: How often the head was moved.
        removed: Messages removed by these moves, pieces among them.
        freed_bytes: About how many bytes.
        losses: How often a subscriber lost packages, as the ceiling won over it.
        dropped: Durable subscribers that were silent for too long.
    """

    turns: int = 0
    moves: int = 0
    removed: int = 0
    freed_bytes: int = 0
    losses: int = 0
    dropped: int = 0


class RetentionTask:
    """Keeps one package topic. Belongs to one thread."""

    def __init__(self, journal: Journal, settings: RetentionSettings, clock: Clock) -> None:
        """Nothing is read yet."""
        self.figures = RetentionFigures()
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._identity: LogIdentity | None = None
        self._packages: JournalReader | None = None
        self._discovery: JournalReader | None = None
        self._is_stopping: Callable[[], bool] = lambda: False
        self._marks = LogMarks(Offset(0))
        self._registry = Registry(LogIdentity("", ""))
        self._carried: frozenset[tuple[str, str]] = frozenset()
        self._carried_at = float("-inf")
        self._has_failed = False
        self._recovered_at = float("-inf")

    def turn(self, *, is_applied: bool = True, is_stopping: Callable[[], bool] = lambda: False) -> Turn:
        """Read what is new, decide, and unless it is for show, move the head and carry the registry forward.

        Args:
            is_applied: Whether to do what was decided.
            is_stopping: Asked between reads, as the first turn reads the whole topic.

        Raises:
            TurnInterruptedError: It is stopping.
            JournalUnavailableError: Try again; nothing is lost.
            TopicMissingError: The topics were never made.
        """
        self._is_stopping = is_stopping
        bounds = self._catch_up_noting_outages()
        now_ms = milliseconds_now(self._clock)
        timeout = self._settings.subscriber_timeout_seconds
        self._marks.forget_orphans(now_ms)
        dropped: tuple[Registration, ...] = ()
        holders: Sequence[Holder] = ()
        if self._settings.is_by_consumption:
            dropped = tuple(self._registry.expire(now_ms, timeout, are_all_heard=self._are_all_heard()))
            holders = self._registry.holders()
        plan = plan_head(bounds, holders, self._marks, self._settings.limits, now_ms)
        freed = self._marks.bytes_behind(bounds.earliest_offset) - self._marks.bytes_behind(plan.head)
        turn = Turn(bounds, plan, freed, dropped, tuple(self._registry.registrations()))
        if is_applied:
            self._apply(turn)
        self.figures.turns += 1
        return turn

    def close(self) -> None:
        """Release the readers."""
        for reader in (self._packages, self._discovery):
            if reader is not None:
                reader.close()
        self._packages = self._discovery = None

    # ------------------------------------------------------------------------------------------------------- reading

    def _catch_up_noting_outages(self) -> Bounds:
        """As `_catch_up`; notes the end of an outage, in which no subscriber could announce itself."""
        try:
            bounds = self._catch_up()
        except MailboatError:
            self._has_failed = True
            raise
        if self._has_failed:
            self._has_failed, self._recovered_at = False, self._clock.monotonic()
        return bounds

    def _are_all_heard(self) -> bool:
        # after an outage subscribers get this time to announce themselves before their silence counts
        return self._clock.monotonic() - self._recovered_at > ALIVE_SECONDS

    def _catch_up(self) -> Bounds:
        topic = self._settings.package_topic
        identity = self._journal.identity(topic)
        if identity != self._identity:
            self._start(identity)
        try:
            self._read_all(self._packages, self._marks_see)
            self._read_all(self._discovery, self._hear)
        except (PositionOutOfRangeError, JournalReplacedError):  # retention overtook us, or the log is another
            self._start(self._journal.identity(topic))
            self._read_all(self._packages, self._marks_see)
            self._read_all(self._discovery, self._hear)
        bounds = self._journal.bounds(topic)
        self._marks.trim(bounds.earliest_offset)
        # ends where the marks end, not where the log ends: records appended since have no marks yet
        return Bounds(bounds.earliest_offset, max(bounds.earliest_offset, self._marks.next_offset))

    def _start(self, identity: LogIdentity) -> None:
        self.close()
        self._identity = identity
        self._registry = Registry(identity)
        earliest = self._journal.bounds(self._settings.package_topic).earliest_offset
        self._marks = LogMarks(earliest)
        self._packages = self._journal.reader(self._settings.package_topic, earliest)
        self._discovery = self._journal.reader(self._settings.discovery_topic, Edge.EARLIEST)

    def _read_all(self, reader: JournalReader | None, see: Callable[[RecordBatch], None]) -> None:
        is_at_end = reader is None
        while reader is not None and not is_at_end:
            if self._is_stopping():
                raise TurnInterruptedError
            batch = reader.read(_READ, 0.0)
            see(batch)
            is_at_end = batch.is_at_end

    def _marks_see(self, batch: RecordBatch) -> None:
        self._marks.see(batch.records, batch.next_offset)

    def _hear(self, batch: RecordBatch) -> None:
        # asked after the batch was read: an honest position in it can't lie beyond this end
        bounds = self._journal.bounds(self._settings.package_topic) if batch.records else None
        for record in batch.records:
            if bounds is not None:
                self._hear_one(record, bounds)

    def _hear_one(self, record: Record, bounds: Bounds) -> None:
        announced = heard(record)
        if announced is not None:
            self._registry.hear(announced, bounds)
        elif record.key == REGISTRY_KEY:
            self._hear_registry(record)

    def _hear_registry(self, record: Record) -> None:
        try:
            message = decode_message(record.headers, record.value)
        except UntrustedInputError:
            return  # anyone may write here; `journal verify` names it
        if isinstance(message, RegistryMessage):
            self._registry.hear_registry(message)

    # ------------------------------------------------------------------------------------------------------ applying

    def _apply(self, turn: Turn) -> None:
        self.figures.dropped += len(turn.dropped)
        for one in turn.dropped:
            _LOG.warning(
                "topic %s: %s was silent for too long and is deregistered at offset %d",
                self._settings.package_topic,
                one.name,
                one.next_offset,
            )
        self._carry_registry()
        if turn.plan.head <= turn.bounds.earliest_offset:
            return
        # logged before the truncation: after a crash in between the log still names the losers
        for loser in turn.plan.losers:
            _LOG.warning(
                "topic %s: %s at offset %d loses the packages before %d, which exceed the limits of age or size",
                self._settings.package_topic,
                loser.name,
                loser.next_offset,
                turn.plan.head,
            )
        self._journal.truncate(self._settings.package_topic, turn.plan.head)
        self.figures.moves += 1
        self.figures.removed += turn.plan.head - turn.bounds.earliest_offset
        self.figures.freed_bytes += turn.freed_bytes
        self.figures.losses += len(turn.plan.losers)

    def _carry_registry(self) -> None:
        """Before the head moves: a keeper elsewhere must know whom this one knew."""
        durable, now = self._registry.durable(), self._clock.monotonic()
        if not self._settings.is_by_consumption or (not durable and not self._carried):
            return
        if durable == self._carried and now - self._carried_at < CARRY_SECONDS:
            return
        as_of = Offset(0) if self._discovery is None else self._discovery.next_offset
        records = []
        for message in self._registry.messages(as_of):
            headers, value = encode_message(message)
            records.append(NewRecord(value, headers, REGISTRY_KEY))
        self._journal.append(self._settings.discovery_topic, records)
        self._carried, self._carried_at = durable, now
