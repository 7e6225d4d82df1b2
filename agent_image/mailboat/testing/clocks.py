"""Clocks that a test owns.

`ManualClock` stands still until the test advances it; who waits on it is woken by that or by the event. `SkippingClock`
lets every wait pass at once, for code whose pauses are of no interest. Both are safe to use from several threads.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final

from mailboat.testing.wait import PATIENCE_SECONDS

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_POLL_SECONDS: Final = 0.002  # how soon a waiter sees that its event, which has no callback, was set


class ManualClock:
    """Time that moves only by `advance` (both clocks) or `jump` (the wall clock alone)."""

    def __init__(self, start: datetime = _START) -> None:
        """Begin at `start` (aware); the monotonic clock begins at 1,000 seconds."""
        self._now = start
        self._monotonic = 1000.0
        self._moved = threading.Condition()
        self._waiting = 0

    def now(self) -> datetime:
        with self._moved:
            return self._now

    def monotonic(self) -> float:
        with self._moved:
            return self._monotonic

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """Wait until `event` is set, or until the test has advanced the time far enough."""
        with self._moved:
            ends = self._monotonic + timeout_seconds
            self._waiting += 1
            self._moved.notify_all()
            try:
                while not event.is_set() and self._monotonic < ends:
                    self._moved.wait(_POLL_SECONDS)
            finally:
                self._waiting -= 1
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake those whose wait is over."""
        with self._moved:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds
            self._moved.notify_all()

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does; durations are not touched."""
        with self._moved:
            self._now += timedelta(seconds=seconds)

    def await_waiters(self, count: int = 1) -> bool:
        """Wait (in real time) until at least `count` threads wait on this clock; whether they do."""
        with self._moved:
            return self._moved.wait_for(lambda: self._waiting >= count, PATIENCE_SECONDS)


class SkippingClock(ManualClock):
    """A clock on which every wait is over at once: the time jumps to its end."""

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """Advance by the whole wait, unless the event is set."""
        if not event.is_set():
            self.advance(max(0.0, timeout_seconds))
        return event.is_set()
