"""Failpoints that do fail: by killing the process, or by raising, at the n-th time that a step is reached.

`KillingFailpoints` is what etcd's gofail calls a kill: SIGKILL to the own process, so nothing is flushed, closed or
unlocked by us. `RaisingFailpoints` raises a passing fault at steps that a seed chooses, for simulated runs.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Collection

from mailboat.errors import JournalUnavailableError, StorageFullError
from mailboat.failpoints import Failpoint


class KillingFailpoints:
    """Kills the process, or stops it (SIGSTOP), when a step is reached for the n-th time."""

    def __init__(self, failpoint: Failpoint, count: int = 1, number: int = signal.SIGKILL) -> None:
        """Wait for `failpoint`, `count` times."""
        self._failpoint = failpoint
        self._left = count
        self._number = number

    def reach(self, failpoint: Failpoint) -> None:
        """Die, if this is it."""
        if failpoint is self._failpoint:
            self._left -= 1
            if self._left == 0:
                # to this thread, which takes it before it goes on; one to the process may first reach another thread
                signal.raise_signal(self._number)


class CrashError(BaseException):
    """The process would be dead now. Not an Exception, so that nothing handles it."""


class RaisingFailpoints:
    """Raises at random steps: mostly passing faults, sometimes a crash.

    Attributes:
        reached: How often each step was reached.
    """

    def __init__(self, chance: random.Random, rate: float, only: Collection[Failpoint] = tuple(Failpoint)) -> None:
        """Raise at each step in `only` with the probability `rate`; zero never raises."""
        self.reached: Counter[Failpoint] = Counter()
        self._chance = chance
        self._rate = rate
        self._only = frozenset(only)

    def calm(self) -> None:
        """Raise no more."""
        self._rate = 0.0

    def reach(self, failpoint: Failpoint) -> None:
        """Count, and perhaps raise."""
        self.reached[failpoint] += 1
        if failpoint not in self._only or self._chance.random() >= self._rate:
            return
        match self._chance.randrange(4):
            case 0 | 1:
                raise CrashError(failpoint)
            case 2:
                raise StorageFullError(f"simulated at {failpoint}")
            case _:
                raise JournalUnavailableError(f"simulated at {failpoint}")
