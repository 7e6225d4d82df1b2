"""Wakes waiters when a record was read: a wait ends within milliseconds, without polling."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from mailboat.clock import Clock, Deadline

_T = TypeVar("_T")
_LONGEST_PAUSE_SECONDS: Final = 0.25
"""Some things become true by time alone, such as that a position counts; no bell rings for them."""


class ChangeNotifier:
    """A bell for any number of waiters. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        """No waiters yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters: set[threading.Event] = set()

    def notify_all(self) -> None:
        """Wake all waiters."""
        with self._lock:
            for one in self._waiters:
                one.set()

    def wait_until(self, look: Callable[[], _T], is_enough: Callable[[_T], bool], seconds: float) -> _T:
        """What `look` finds when it is enough, or when the time is over.

        It looks again whenever the bell rings, and now and then.
        """
        deadline, heard = Deadline(self._clock, seconds), threading.Event()
        with self._lock:
            self._waiters.add(heard)
        try:
            while True:
                found = look()
                if is_enough(found) or deadline.is_over():
                    return found
                self._clock.wait(heard, min(deadline.remaining_seconds(), _LONGEST_PAUSE_SECONDS))
                # cleared before the next look: a ring between the look and the wait ends that wait
                heard.clear()
        finally:
            with self._lock:
                self._waiters.discard(heard)
