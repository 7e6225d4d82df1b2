"""The figures of a subscriber: a snapshot, who observes and measures it, and whether it is ready to serve.

A subscriber becomes ready for the first of these reasons:

    caught-up    it has done all that the log held when it started
    latency      the last package it imported was young: it is close behind the publishers
    idle         it has nothing to do for a while, also because a golden subscriber holds it up
    blocked      a package has failed three times: it will not get further, and its content is as good as it gets
    forced       it had the time that the policy gives

It stays ready from then on. Only where the policy limits the lag it ceases to be, as `lagging`: when the oldest package
that waits for it is too old and its position has not moved for a while. One whose position moves stays ready however
long its queue is, so that a burst of packages does not take all subscribers out at once; taking out one that works
would not make it faster either. It returns when the lag has fallen to half of the limit. A journal that can't be
reached says nothing about any lag, and changes nothing.

Source: Sling's SubscriberReady, SLING-10180 and others (the reasons), without its latch that never opens again.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Sequence
from dataclasses import field
from typing import Final, NamedTuple, Protocol

from mailboat.clock import Clock
from mailboat.config.document import ReadinessConfig
from mailboat.content.port import ReportStarts
from mailboat.frozen import Frozen
from mailboat.journal.port import Record
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import Backlog, BulkPart, FailureCause, HookCalls, Suspension, is_blocking
from mailboat.model.positions import LogIdentity
from mailboat.subscriber.piece_store import PieceFigures


class SubscriberPhase(enum.StrEnum):
    """The named states. The same words stand in announcements, on the command line and in metrics."""

    STARTING = "starting"
    """The subscriber has not read anything yet."""

    IMPORTING = "importing"
    """The log holds packages that the subscriber has not imported yet."""

    CURRENT = "current"
    """The subscriber has imported everything that the log held at its last read."""

    RETRYING = "retrying"
    """A package failed and waits for its next attempt; later packages wait behind it to keep the order.

    `mailboat status` shows the error: repair its cause, or drop the package (`mailboat queues remove`).
    """

    WAITING = "waiting"
    """The journal or the storage is unavailable. No attempt is counted and nothing is given up.

    Check the brokers, the bucket or the disk that the error names: the subscriber retries.
    """

    WAITING_FOR = "waiting-for"
    """The subscriber waits until its golden subscriber, whose name follows, has imported the next package."""

    SUSPENDED = "suspended"
    """Imports are suspended by a command, until its time has passed or `mailboat subscribers resume` is called."""

    STOPPED = "stopped"
    """The subscriber ended: it was stopped, or going on could lose content; then its error is a named state."""


_HELD_UP: Final = frozenset({SubscriberPhase.CURRENT, SubscriberPhase.WAITING_FOR, SubscriberPhase.SUSPENDED})
"""The subscriber has nothing to do, or may not: neither makes it unfit to serve what it has."""


class SubscriberStatistics(Frozen):
    """A snapshot. Counts are of this run of the process.

    Attributes:
        phase: The named state.
        identity: The log; None before it is known.
        next_offset: Everything below it is done; None before the position is known.
        log_next_offset: Where the log ended when it was last seen; None before it was.
        imported: Packages imported: ADD, DELETE and INVALIDATE.
        removed: Nodes removed from the target.
        put: Nodes written to the target.
        failed: Packages given up.
        skipped: Messages of publishers that are not followed, and TESTs.
        dropped: Packages dropped by a clear or because of the golden subscriber.
        redriven: Entries of the error queue that were imported after all.
        still_given_up: Entries of the error queue that were tried again, and failed again.
        redrive_cause: Why the last one of them failed again.
        content_bytes: Bytes of nodes and binaries written.
        commits: Transactions.
        attempts: How often the current package has failed.
        failing_publisher: Whose package that is; None where it is not known.
        next_try_ms: When it is tried again, milliseconds since 1970 UTC; None when nothing waits.
        cause: Why it is retrying, waiting or stopped.
        after: Calls of the hook `after` that are still to be made; None where there are none.
        waiting_for: The golden subscriber that it waits for.
        is_ready: Whether it may serve.
        ready_reason: Why, or why not: a `ReadyReason`.
        publishers: Of one that follows all: some of the publishers whose packages it has read, in the end all.
        stored_offset: The position that the target holds: where a killed subscriber goes on. Skipped messages are not
            stored one by one, so it lags behind `next_offset`.
        build: The current bulk build, by its last package that was done in this run; None when that was its last one.
        held_back: Bulk builds whose end is waited for before readers are shown anything new.
        pieces: Figures of packages in pieces; None before there is a run.
        report_starts: From where on it reports packages that it passes without importing them.
        suspension: Of one whose imports are suspended.
        backlog: Of a shared pool.
    """

    phase: SubscriberPhase = SubscriberPhase.STARTING
    identity: LogIdentity | None = None
    next_offset: Offset | None = None
    log_next_offset: Offset | None = None
    imported: int = 0
    removed: int = 0
    put: int = 0
    failed: int = 0
    skipped: int = 0
    dropped: int = 0
    redriven: int = 0
    still_given_up: int = 0
    redrive_cause: FailureCause | None = None
    content_bytes: int = 0
    commits: int = 0
    attempts: int = 0
    failing_publisher: AgentName | None = None
    next_try_ms: int | None = None
    cause: FailureCause | None = None
    after: HookCalls | None = None
    waiting_for: AgentName | None = None
    is_ready: bool = False
    ready_reason: str = "starting"
    publishers: frozenset[AgentName] = frozenset()
    stored_offset: Offset | None = None
    build: BulkPart | None = None
    held_back: int = 0
    pieces: PieceFigures | None = None
    report_starts: ReportStarts = field(default_factory=dict)
    suspension: Suspension | None = None
    backlog: Backlog | None = None

    @property
    def state(self) -> str:
        """The phase, with the name of the subscriber that is waited for."""
        return self.phase if self.waiting_for is None else f"{self.phase} {self.waiting_for}"

    @property
    def lag(self) -> int | None:
        """Offsets that are not done: from the position to the end of the log; None before both are known."""
        if self.next_offset is None or self.log_next_offset is None:
            return None
        if self.backlog is not None:  # a pool has done packages above its position, too
            return self.backlog.queued + max(0, self.log_next_offset - self.backlog.next_offset)
        return max(0, self.log_next_offset - self.next_offset)


class ImportedBatch(NamedTuple):
    """Packages that one transaction has imported.

    Attributes:
        records: The records that brought them.
        sizes_bytes: Size of each package; that of its message where it travelled in it.
        began_ms: When the transaction began, milliseconds since 1970 UTC.
        committed_ms: When it was durable.
        seconds: How long it took.
    """

    records: Sequence[Record]
    sizes_bytes: Sequence[int]
    began_ms: int
    committed_ms: int
    seconds: float


class ImportMeter(Protocol):
    """Measures imports. Called from the subscriber's thread, once a commit; must not block."""

    def began(self) -> None:
        """A transaction begins."""

    def imported(self, batch: ImportedBatch) -> None:
        """A transaction that imported packages is durable."""

    def confirmed(self, seconds: float) -> None:
        """The confirmations that were pending are in the log."""


class Observer(Protocol):
    """Receives figures. Called from the subscriber's thread, at most once a commit; must not block."""

    def on_progress(self, statistics: SubscriberStatistics) -> None:
        """Something changed: a commit, a failure, or the phase."""

    def on_given_up(self, statistics: SubscriberStatistics) -> None:
        """A package went to the error queue; `cause` says why."""


class SilentObserver:
    """Observes nothing."""

    def on_progress(self, statistics: SubscriberStatistics) -> None:
        """See `Observer`."""

    def on_given_up(self, statistics: SubscriberStatistics) -> None:
        """See `Observer`."""


class ReadyReason(enum.StrEnum):
    """Why a subscriber is ready, or is not."""

    STARTING = "starting"
    BEHIND = "behind"
    LAGGING = "lagging"
    STOPPED = "stopped"
    CAUGHT_UP = "caught-up"
    LATENCY = "latency"
    IDLE = "idle"
    BLOCKED = "blocked"
    FORCED = "forced"


class ReadinessFacts(Frozen):
    """What the decision depends on. None where something is not known, or does not apply.

    Attributes:
        running_seconds: Since the start; None when it has ended.
        next_offset: Everything below it is done.
        goal_offset: Where the log ended when the subscriber started.
        idle_seconds: For how long there was nothing to do.
        still_seconds: For how long it has not got on.
        attempts: How often the current package has failed.
        latency_seconds: Age of the last package when it was imported.
        waiting_seconds: Age of the current package.
    """

    running_seconds: float | None
    next_offset: Offset | None = None
    goal_offset: Offset | None = None
    idle_seconds: float | None = None
    still_seconds: float = 0.0
    attempts: int = 0
    latency_seconds: float | None = None
    waiting_seconds: float | None = None


class Readiness(Frozen):
    """Whether a subscriber is ready, and why or why not."""

    is_ready: bool = False
    reason: ReadyReason = ReadyReason.STARTING


def decide_readiness(before: Readiness, facts: ReadinessFacts, policy: ReadinessConfig) -> Readiness:
    """What a subscriber is now, given what it was."""
    if facts.running_seconds is None:
        return Readiness(is_ready=False, reason=ReadyReason.STOPPED)
    if before.is_ready:
        return Readiness(is_ready=False, reason=ReadyReason.LAGGING) if _has_fallen_behind(facts, policy) else before
    if before.reason is ReadyReason.LAGGING:
        return Readiness(is_ready=True, reason=ReadyReason.CAUGHT_UP) if _has_recovered(facts, policy) else before
    reason = _reason_to_begin(facts, policy)
    if reason is not None:
        return Readiness(is_ready=True, reason=reason)
    is_known = facts.next_offset is not None
    return Readiness(is_ready=False, reason=ReadyReason.BEHIND if is_known else ReadyReason.STARTING)


def _has_fallen_behind(facts: ReadinessFacts, policy: ReadinessConfig) -> bool:
    limit, waiting = policy.max_lag_seconds, facts.waiting_seconds
    is_too_old = limit is not None and waiting is not None and waiting > limit
    # Only one that stands still: taking out one that works would not make it faster.
    return is_too_old and facts.still_seconds >= policy.idle_seconds


def _has_recovered(facts: ReadinessFacts, policy: ReadinessConfig) -> bool:
    limit, waiting = policy.max_lag_seconds, facts.waiting_seconds
    # Hysteresis: at half of the limit, so that a subscriber near the limit does not flap.
    return waiting is None or limit is None or waiting <= limit / 2


def _reason_to_begin(facts: ReadinessFacts, policy: ReadinessConfig) -> ReadyReason | None:
    if facts.next_offset is not None and facts.goal_offset is not None and facts.next_offset >= facts.goal_offset:
        return ReadyReason.CAUGHT_UP
    if facts.latency_seconds is not None and facts.latency_seconds <= policy.max_latency_seconds:
        return ReadyReason.LATENCY
    if facts.idle_seconds is not None and facts.idle_seconds >= policy.idle_seconds:
        return ReadyReason.IDLE
    if is_blocking(facts.attempts):
        return ReadyReason.BLOCKED
    is_forced = policy.force_seconds is not None and (facts.running_seconds or 0.0) >= policy.force_seconds
    return ReadyReason.FORCED if is_forced else None


class ReadinessGauge:
    """Decides on readiness. Written by the subscriber's thread, read by any."""

    def __init__(self, policy: ReadinessConfig, clock: Clock) -> None:
        """The subscriber starts now."""
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._started_at = self._advanced_at = clock.monotonic()
        self._idle_at: float | None = None
        self._goal: Offset | None = None
        self._next_offset: Offset | None = None
        self._latency_seconds: float | None = None
        self._at_hand_ms: int | None = None
        self._readiness = Readiness()

    def opened(self, log_next_offset: Offset) -> None:
        """The log was opened, and ends there; the first time it is the goal."""
        with self._lock:
            # Only the first end: a goal that moves with the log would never be reached under load.
            if self._goal is None:
                self._goal = log_next_offset

    def take_up(self, appended_ms: int | None) -> None:
        """The current package was appended then, milliseconds since 1970 UTC; None if absent."""
        with self._lock:
            self._at_hand_ms = appended_ms

    def imported(self, appended_ms: int) -> None:
        """The last package imported was appended then."""
        with self._lock:
            self._latency_seconds = self._age_seconds(appended_ms)

    def heed(self, statistics: SubscriberStatistics) -> None:
        """The figures have changed."""
        now = self._clock.monotonic()
        with self._lock:
            has_advanced = statistics.next_offset != self._next_offset
            if has_advanced:
                self._next_offset = statistics.next_offset
                self._advanced_at = now
            if statistics.phase not in _HELD_UP:
                self._idle_at = None
            elif self._idle_at is None or has_advanced:
                self._idle_at = now

    def readiness(self, statistics: SubscriberStatistics) -> Readiness:
        """Whether the subscriber is ready now."""
        now = self._clock.monotonic()
        with self._lock:
            # When it is asked, not with the figures: time alone can change the answer.
            self._readiness = decide_readiness(self._readiness, self._facts(statistics, now), self._policy)
            return self._readiness

    def _facts(self, statistics: SubscriberStatistics, now: float) -> ReadinessFacts:
        is_held_up = statistics.phase in _HELD_UP
        return ReadinessFacts(
            running_seconds=None if statistics.phase is SubscriberPhase.STOPPED else now - self._started_at,
            next_offset=statistics.next_offset,
            goal_offset=self._goal,
            idle_seconds=None if self._idle_at is None else now - self._idle_at,
            still_seconds=now - self._advanced_at,
            attempts=statistics.attempts,
            latency_seconds=self._latency_seconds,
            # Where it has nothing to do, or may not, what waits says nothing about this subscriber.
            waiting_seconds=None if is_held_up or self._at_hand_ms is None else self._age_seconds(self._at_hand_ms),
        )

    def _age_seconds(self, appended_ms: int) -> float:
        return max(0.0, self._clock.now().timestamp() - appended_ms / 1000)
