"""How fast this machine is, so that limits of CPU time hold on others: `slowness()` scales them.

CPU seconds of the same work differ by half between machines, and grow on a busy one. A fixed piece of pure Python is
timed in CPU seconds and compared with what it takes on the machine where the limits were measured. `Pace` does so while
other processes work: cores that share caches and arithmetic units are slower together than one of them alone.
"""

from __future__ import annotations

import threading
import time
from functools import cache
from statistics import fmean
from typing import Self

REFERENCE_SECONDS = 0.012
"""CPU seconds of `work` where the limits were measured: CPython 3.11, two cores, quiet."""


@cache
def slowness() -> float:
    """CPU time on this machine ÷ CPU time where the limits were measured; 1.0 on a faster one."""
    return max(1.0, min(work() for _ in range(5)) / REFERENCE_SECONDS)


class Pace:
    """How much slower than the reference the machine is on average while the block runs; 1.0 on a faster one."""

    def __init__(self, interval_seconds: float = 5.0) -> None:
        self._interval_seconds, self._samples = interval_seconds, list[float]()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        """Take no more samples."""
        self._ended.set()
        self._thread.join()

    @property
    def slowness(self) -> float:
        """Mean of the samples ÷ the reference: a machine that is slow for half of the time costs half of the excess."""
        return max(1.0, fmean(self._samples) / REFERENCE_SECONDS) if self._samples else slowness()

    @property
    def cpu_seconds(self) -> float:
        """What the samples cost this process."""
        return sum(self._samples)

    def _sample(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            self._samples.append(work())


def work(rounds: int = 1) -> float:
    """CPU seconds of this thread for a fixed piece of pure Python, done `rounds` times."""
    # CPU of this thread only: other threads of the process may work during a sample.
    started = time.thread_time()
    table: dict[int, str] = {}
    for number in range(100_000 * rounds):
        table[number % 1000] = str(number * number)
    return time.thread_time() - started
