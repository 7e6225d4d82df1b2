"""Whether a subscriber is ready to serve, and why or why not.

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
from typing import Final

from mailboat.clock import Clock
from mailboat.config.document import ReadinessConfig
from mailboat.frozen import Frozen
from mailboat.model.identifiers import Offset
from mailboat.model.messages import is_blocking
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics

_HELD_UP: Final = frozenset({SubscriberPhase.CURRENT, SubscriberPhase.WAITING_FOR, SubscriberPhase.SUSPENDED})
"""The subscriber has nothing to do, or may not: neither makes it unfit to serve what it has."""


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
        now = self._clock.monotonic()
        with self._lock:
            has_advanced = statistics.next_offset != self._next_offset
            if has_advanced:
                self._next_offset = statistics.next_offset
                self._advanced_at = now
            if statistics.phase is SubscriberPhase.CURRENT:
                # What was imported does not wait: in an outage of the journal its age would look like lag.
                self._at_hand_ms = None
            if statistics.phase not in _HELD_UP:
                self._idle_at = None
            elif self._idle_at is None or has_advanced:
                self._idle_at = now

    def readiness(self, statistics: SubscriberStatistics) -> Readiness:
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
