"""Per-caller backpressure: delays publish requests while an editable subscriber lags.

The delay of a request grows with the backlog, as in Sling (SLING-12218): none up to the limit, linear from
there, the longest from twice the limit on. Only subscribers whose queue can be cleared count (SLING-12429). What
differs: a caller with a long delay gets no thread but a time to retry; a retry after that time is admitted. Each
caller has a place in time of its own, so the pace of one is not the pace of another; requests that it sends at once
are admitted one after another. Without tokens callers name themselves, so fairness is voluntary then.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from typing import Final

from mailboat.clock import Clock
from mailboat.config.document import ThrottleConfig
from mailboat.errors import ThrottledError

MAX_HELD_SECONDS: Final = 1.0
"""A request that would be held up for longer is refused; the answer says when to come again."""

# Callers name themselves: without a bound, invented names would fill the memory.
MAX_CALLERS: Final = 10_000


def plan_delay(backlog: int, limit: int | None, max_delay_seconds: float) -> float:
    """Delay of a request in seconds, at that backlog of the slowest editable subscriber: the longest clearable queue.

    Delays begin at `limit` (None: never), and reach `max_delay_seconds` at twice the limit.
    """
    if limit is None or backlog <= limit:
        return 0.0
    return min(max_delay_seconds, (backlog - limit) * max_delay_seconds / limit)


class Throttle:
    """Lets the requests of one publisher in. Safe to use from several threads."""

    def __init__(self, settings: ThrottleConfig, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._places: OrderedDict[str, float] = OrderedDict()
        self._admitted: OrderedDict[str, float] = OrderedDict()

    def delay_seconds(self, backlog: int) -> float:
        """How long a request is held up at such a backlog."""
        return plan_delay(backlog, self._settings.max_queue_entries, self._settings.max_delay_seconds)

    def admit(self, caller: str, backlog: int) -> None:
        """Return when the caller's request may go on, at most `MAX_HELD_SECONDS` later.

        Raises:
            ThrottledError: It would have to wait longer. A retry after that time is admitted.
        """
        delay = self.delay_seconds(backlog)
        wait_seconds = self._place(caller, delay)
        if wait_seconds > MAX_HELD_SECONDS:
            raise ThrottledError(
                f"a subscriber whose queue can be cleared is {backlog} packages behind: a request is delayed by "
                f"{delay:.1f} seconds",
                # Retry-After is a whole number of seconds (RFC 9110, 10.2.3)
                retry_after_seconds=math.ceil(wait_seconds),
                backlog=backlog,
                limit=self._settings.max_queue_entries,
            )
        if wait_seconds > 0:
            self._clock.wait(threading.Event(), wait_seconds)

    def _place(self, caller: str, delay: float) -> float:
        """How long the caller has to wait; its place is used up when that is short enough to wait for."""
        now = self._clock.monotonic()
        with self._lock:
            # Only the reservation is locked: callers wait in parallel, outside of it.
            begins = max(now, self._admitted.pop(caller, now)) if delay > 0 else now
            place = min(self._places.pop(caller, math.inf), begins + delay)
            wait_seconds = max(0.0, place - now)
            if wait_seconds > MAX_HELD_SECONDS:
                _note(self._places, caller, place)
                if begins > now:
                    _note(self._admitted, caller, begins)
            elif delay > 0:
                _note(self._admitted, caller, now + wait_seconds)
            return wait_seconds


def _note(times: OrderedDict[str, float], caller: str, time_seconds: float) -> None:
    times[caller] = time_seconds
    while len(times) > MAX_CALLERS:
        times.popitem(last=False)
