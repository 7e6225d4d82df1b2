"""Watches what a subscriber does, and says whether it is ready: the state behind `decide_readiness`."""

from __future__ import annotations

import threading

from mailboat.clock import Clock
from mailboat.model.identifiers import Offset
from mailboat.subscriber.progress import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.readiness import Readiness, ReadinessFacts, ReadinessPolicy, decide_readiness


class ReadinessGauge:
    """Told by the subscriber's thread, asked by any."""

    def __init__(self, policy: ReadinessPolicy, clock: Clock) -> None:
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
            if self._goal is None:
                self._goal = log_next_offset

    def take_up(self, appended_ms: int | None) -> None:
        """The package at hand was appended then, milliseconds since 1970 UTC; None when there is none."""
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
            if statistics.phase not in {SubscriberPhase.CURRENT, SubscriberPhase.WAITING_FOR}:
                self._idle_at = None
            elif self._idle_at is None or has_advanced:
                self._idle_at = now

    def readiness(self, statistics: SubscriberStatistics) -> Readiness:
        """Whether the subscriber is ready now."""
        now = self._clock.monotonic()
        with self._lock:
            self._readiness = decide_readiness(self._readiness, self._facts(statistics, now), self._policy)
            return self._readiness

    def _facts(self, statistics: SubscriberStatistics, now: float) -> ReadinessFacts:
        is_held_up = statistics.phase in {SubscriberPhase.CURRENT, SubscriberPhase.WAITING_FOR}
        return ReadinessFacts(
            running_seconds=None if statistics.phase is SubscriberPhase.STOPPED else now - self._started_at,
            next_offset=statistics.next_offset,
            goal_offset=self._goal,
            idle_seconds=None if self._idle_at is None else now - self._idle_at,
            still_seconds=now - self._advanced_at,
            attempts=statistics.attempts,
            latency_seconds=self._latency_seconds,
            waiting_seconds=None if is_held_up or self._at_hand_ms is None else self._age_seconds(self._at_hand_ms),
        )

    def _age_seconds(self, appended_ms: int) -> float:
        return max(0.0, self._clock.now().timestamp() - appended_ms / 1000)
