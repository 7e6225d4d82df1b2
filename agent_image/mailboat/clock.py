"""Time as a dependency: a clock to ask, and a deadline to share.

Code never calls `time` or `datetime.now` by itself; it is given a `Clock`, so that a test can own the time
(`mailboat.testing.clocks.ManualClock`). Waiting is always waiting for an event, so that a stop is heard at once.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What may be asked about time. Implementations are safe to use from several threads."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC. For people and records; never for measuring."""

    def monotonic(self) -> float:
        """Seconds that only grow. For durations and deadlines."""

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """Wait until `event` is set or the time is over; True when the event is set."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """See `Clock.wait`."""
        return event.wait(timeout_seconds)


class Deadline:
    """One budget of seconds, shared by all the steps that must end together, such as those of a shutdown.

    Each step asks what is left instead of having a time-out of its own, so that the sum stays within the budget.
    """

    __slots__ = ("_clock", "_ends")

    def __init__(self, clock: Clock, seconds: float) -> None:
        """Start the budget now."""
        self._clock = clock
        self._ends = clock.monotonic() + seconds

    def remaining_seconds(self) -> float:
        """What is left, never below zero."""
        return max(0.0, self._ends - self._clock.monotonic())

    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return self.remaining_seconds() == 0.0
