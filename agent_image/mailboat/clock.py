"""Time as a dependency: a clock to ask, and a deadline to share.

Code never calls `time` or `datetime.now`; it is given a `Clock`, so that a test can own the time
(`mailboat.testing.clocks.ManualClock`). Every wait is a wait for an event, so that a stop ends it at once.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mailboat.errors import RetryableError

if TYPE_CHECKING:
    import random

LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, with which Python's calendar ends."""

_LAST_YEAR: Final = 9998
"""Of a clock that can be right: durations are added to its time, and the calendar ends a year later."""

# 2**30 seconds are 34 years, beyond every longest pause.
_MOST_DOUBLINGS: Final = 30
_STEP: Final = "set the machine's clock, and have it kept by NTP"


class ClockImplausibleError(RetryableError):
    """The machine's clock is before 1970 or after 9998. Nothing was changed.

    Set the clock, and keep it by NTP (`timedatectl`).
    """


class Clock(Protocol):
    """What may be asked about time. Implementations are safe to use from several threads."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC. For people and records; never for measuring."""

    def monotonic(self) -> float:
        """Seconds that only grow. For durations and deadlines."""

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """Wait until `event` is set or the timeout ends; True when the event is set."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """See `Clock.now`. Raises: ClockImplausibleError."""
        try:
            now = datetime.now(UTC)
        except (OverflowError, ValueError) as error:
            raise ClockImplausibleError("the clock is after the year 9999", next_step=_STEP) from error
        if not 1970 <= now.year <= _LAST_YEAR:
            raise ClockImplausibleError(f"the clock is in the year {now.year}", next_step=_STEP)
        return now

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        return event.wait(timeout_seconds)


def thread_cpu_seconds() -> float:
    """CPU seconds that the calling thread has used: the cost of work, however busy the machine is."""
    return time.thread_time()


def moment_of(milliseconds: float) -> datetime:
    """The time so many milliseconds after 1970, in UTC; the first or the last possible one for what lies beyond.

    For times that others wrote: of files, of records in a log, of objects in a store.
    """
    return datetime.fromtimestamp(min(max(milliseconds, 0.0), LAST_MS) / 1000, UTC)


def milliseconds_of(moment: datetime) -> int:
    """Milliseconds from 1970 to that time: the inverse of `moment_of`."""
    return int(moment.timestamp() * 1000)


def milliseconds_now(clock: Clock) -> int:
    """The wall time in milliseconds since 1970 UTC, as records of the log have it."""
    return milliseconds_of(clock.now())


class Backoff(NamedTuple):
    """Pauses that double from the first one to the longest one."""

    first_seconds: float
    longest_seconds: float

    def pause(self, failures: int, jitter: random.Random | None = None) -> float:
        """Seconds to wait after so many failures in a row; with jitter between a half and the whole of that.

        Jitter keeps the members of a pool from trying again at the same moment.
        """
        # the exponent has a limit: 2.0 ** 1024 raises OverflowError, which hours of an outage would reach
        whole = min(self.first_seconds * 2.0 ** min(max(failures - 1, 0), _MOST_DOUBLINGS), self.longest_seconds)
        return whole if jitter is None else whole * jitter.uniform(0.5, 1.0)


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
