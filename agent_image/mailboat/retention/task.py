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
from mailboat.config.storage import ConsumptionPolicy, RetentionConfig
from mailboat.config.topic_settings import topic_retention
from mailboat.errors import JournalReplacedError, MailboatError, PositionOutOfRangeError, UsageError
from mailboat.journal.port import SCAN_LIMITS, Edge, Journal, JournalReader, NewRecord, Record, RecordBatch
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.messages import TopicRole
from mailboat.model.positions import Bounds, LogIdentity
from mailboat.model.registrations import Registration, RegistryMessage
from mailboat.queues.announced import ALIVE_SECONDS, read_announcement
from mailboat.queues.queue_names import QueueName
from mailboat.retention.head_plan import HeadPlan, Holder, plan_head
from mailboat.retention.marks import LogMarks
from mailboat.retention.registry import REGISTRY_KEY, Registry
from mailboat.wire.messages import encode_message, readable_message

CARRY_SECONDS: Final = 3600.0
"""The registry is written again at the latest after so long, so that the log's own retention never takes the last."""

RETURN_SECONDS: Final = 3600.0
"""After an outage, or a start, durable subscribers get so long to return before their silence counts."""

_LOG: Final = logging.getLogger(__name__)


class TurnInterruptedError(Exception):
    """The keeper was stopped during a turn. Nothing was moved; the next turn goes on where this one read to."""


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """What is kept.

    Attributes:
        package_topic: Whose head is moved.
        discovery_topic: Where subscribers announce themselves.
        config: The section `retention`, without age and size of packages where the log itself applies them.
        is_by_consumption: Whether subscribers are waited for; if not, the limits of age and size alone count.
    """

    package_topic: TopicName
    discovery_topic: TopicName
    config: RetentionConfig
    is_by_consumption: bool = True


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn found, and did unless it was a dry run.

    Attributes:
        bounds: The package topic before.
        plan: Where the head should be.
        freed_bytes: About what lies before it.
        dropped: Durable subscribers whose registration ended, as they were silent for too long.
        registrations: The subscribers that matter now, and whether durable.
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

    def count_turn(self) -> None:
        """A turn came to its end."""
        self.turns += 1

    def count_dropped(self, subscribers: int) -> None:
        """So many durable subscribers were deregistered."""
        self.dropped += subscribers

    def count_move(self, turn: Turn) -> None:
        """The head was moved, as the turn had planned."""
        self.moves += 1
        self.removed += turn.plan.head - turn.bounds.earliest_offset
        self.freed_bytes += turn.freed_bytes
        self.losses += len(turn.plan.losers)


def check_bounds(retention: RetentionConfig) -> None:
    """Refuse bounds that contradict each other. Raises: UsageError."""
    config = retention.consumption
    if config.max_seconds is not None and config.max_seconds < config.min_seconds:
        raise UsageError("retention.consumption.max_seconds is below min_seconds", key="retention.consumption")
    if config.max_bytes is not None and config.max_bytes < config.min_bytes:
        raise UsageError("retention.consumption.max_bytes is below min_bytes", key="retention.consumption")
    kept = topic_retention(TopicRole.DISCOVERY, retention).seconds
    # Twice the time between two registries: the next one may be late, and the last one must be there until then.
    if config.policy is not ConsumptionPolicy.OFF and kept is not None and kept < 2 * CARRY_SECONDS:
        raise UsageError(
            "announcements are kept for less than two hours: durable subscribers would be forgotten",
            key="retention.status_seconds" if retention.discovery is None else "retention.discovery",
        )


class RetentionTask:
    """Keeps one package topic. Belongs to one thread."""

    def __init__(
        self, journal: Journal, settings: RetentionSettings, clock: Clock, figures: RetentionFigures | None = None
    ) -> None:
        """Nothing is read yet; what is done is counted in `figures`."""
        self.figures: Final = RetentionFigures() if figures is None else figures
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._identity: LogIdentity | None = None
        self._packages: JournalReader | None = None
        self._discovery: JournalReader | None = None
        self._is_stopping: Callable[[], bool] = lambda: False
        self._marks = LogMarks(Offset(0))
        self._registry = Registry(LogIdentity("", ""))
        self._carried: frozenset[QueueName] = frozenset()
        self._carried_at = float("-inf")
        self._carried_offset = Offset(0)
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
        heard_seconds = self._clock.monotonic() - self._recovered_at
        timeout = self._settings.config.consumption.subscriber_timeout_seconds
        # Also where no record comes any more: pieces of a dead publisher would hold the head back without end.
        self._marks.forget_orphans(now_ms)
        dropped: tuple[Registration, ...] = ()
        holders: Sequence[Holder] = ()
        if self._settings.is_by_consumption:
            limit = timeout if heard_seconds > RETURN_SECONDS else None
            dropped = tuple(self._registry.expire(now_ms, limit, are_all_heard=heard_seconds > ALIVE_SECONDS))
            holders = self._registry.holders()
        plan = plan_head(bounds, holders, self._marks, self._settings.config, now_ms)
        freed = self._marks.bytes_behind(bounds.earliest_offset) - self._marks.bytes_behind(plan.head)
        turn = Turn(bounds, plan, freed, dropped, tuple(self._registry.registrations()))
        if is_applied:
            self._apply(turn)
        self.figures.count_turn()
        return turn

    def await_announcements(self) -> None:
        """Count no silence for a while: after an outage, or a start of all agents, subscribers have yet to return."""
        self._recovered_at = self._clock.monotonic()

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
            self._has_failed = False
            self.await_announcements()
        return bounds

    def _catch_up(self) -> Bounds:
        topic = self._settings.package_topic
        identity = self._journal.identity(topic)
        # Also after a start that failed half-way: without both readers no subscriber would be known, nor a package.
        if identity != self._identity or self._packages is None or self._discovery is None:
            self._start(identity)
        try:
            self._read_new()
        except (PositionOutOfRangeError, JournalReplacedError):  # retention overtook us, or the log is another
            self._start(self._journal.identity(topic))
            self._read_new()
        bounds = self._journal.bounds(topic)
        self._marks.trim(bounds.earliest_offset)
        # ends where the marks end, not where the log ends: records appended since have no marks yet
        return Bounds(bounds.earliest_offset, max(bounds.earliest_offset, self._marks.next_offset))

    def _start(self, identity: LogIdentity) -> None:
        self.close()
        if identity == self._identity:
            # A discovery topic that was created again holds no announcement of a subscriber that is away.
            self._registry.read_again()
        else:
            self._identity, self._registry = identity, Registry(identity)
        self._carried_at = float("-inf")  # the topic may lack what was carried forward
        earliest = self._journal.bounds(self._settings.package_topic).earliest_offset
        self._marks = LogMarks(earliest)
        self._packages = self._journal.reader(self._settings.package_topic, earliest)
        self._discovery = self._journal.reader(self._settings.discovery_topic, Edge.EARLIEST)

    def _read_new(self) -> None:
        self._read_all(self._packages, self._see)
        self._read_all(self._discovery, self._receive)

    def _read_all(self, reader: JournalReader | None, see: Callable[[RecordBatch], None]) -> None:
        is_at_end = reader is None
        while reader is not None and not is_at_end:
            if self._is_stopping():
                raise TurnInterruptedError
            batch = reader.read(SCAN_LIMITS, 0.0)
            see(batch)
            is_at_end = batch.is_at_end

    def _see(self, batch: RecordBatch) -> None:
        self._marks.see(batch.records, batch.next_offset, milliseconds_now(self._clock))

    def _receive(self, batch: RecordBatch) -> None:
        # asked after the batch was read: an honest position in it can't lie beyond this end
        bounds = self._journal.bounds(self._settings.package_topic) if batch.records else None
        for record in batch.records:
            if bounds is not None:
                self._receive_one(record, bounds)

    def _receive_one(self, record: Record, bounds: Bounds) -> None:
        announced = read_announcement(record)
        if announced is not None:
            self._registry.apply(announced, bounds)
        elif record.key == REGISTRY_KEY:
            message = readable_message(record.headers, record.value)
            if isinstance(message, RegistryMessage):
                self._registry.hear_registry(message)

    # ------------------------------------------------------------------------------------------------------ applying

    def _apply(self, turn: Turn) -> None:
        self.figures.count_dropped(len(turn.dropped))
        for registration in turn.dropped:
            _LOG.warning(
                "topic %s: %s was silent for too long and is deregistered at offset %d",
                self._settings.package_topic,
                registration.name,
                registration.next_offset,
            )
        # Before the head moves: a keeper elsewhere must know whom this one knew.
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
        self.figures.count_move(turn)

    def _carry_registry(self) -> None:
        """Append the registry, unless the last one still says the same, is young, and is still in the topic."""
        durable, now = self._registry.durable(), self._clock.monotonic()
        if not self._settings.is_by_consumption or (not durable and not self._carried):
            return
        topic = self._settings.discovery_topic
        is_young = durable == self._carried and now - self._carried_at < CARRY_SECONDS
        # many subscribers fill the topic up to its size limit in less time than that
        if is_young and self._carried_offset >= self._journal.bounds(topic).earliest_offset:
            return
        as_of = Offset(0) if self._discovery is None else self._discovery.next_offset
        encoded = map(encode_message, self._registry.messages(as_of))
        records = [NewRecord(value, headers, REGISTRY_KEY) for headers, value in encoded]
        self._carried_offset = self._journal.append(topic, records)[0]
        self._carried, self._carried_at = durable, now
