"""How fast this machine is, so that limits of CPU time hold on others: they are multiplied by `Pace.slowness`.

CPU seconds of the same work differ by half between machines, and grow on a busy one: cores that share caches and
arithmetic units are slower together than one of them alone. So a fixed piece of pure Python is timed in CPU seconds
while the measured processes run, and compared with what it takes on the machine where the limits were measured. Single
samples can be off by a factor of seven: the highest and the lowest do not count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from statistics import fmean
from typing import Self

REFERENCE_SECONDS = 0.012
"""CPU seconds of `work` where the limits were measured: CPython 3.11, two cores, quiet."""
FEWEST_SAMPLES = 5
"""A fifth of fewer is none, and one false sample would decide."""


def work(rounds: int = 1) -> float:
    """CPU seconds of this thread for a fixed piece of pure Python, done `rounds` times."""
    # CPU of this thread only: other threads of the process may work during a sample.
    started = time.thread_time()
    table: dict[int, str] = {}
    for number in range(100_000 * rounds):
        table[number % 1000] = str(number * number)
    return time.thread_time() - started


def slowness_of(samples: Collection[float]) -> float:
    """Mean without the highest and the lowest fifth ÷ the reference; 1.0 on a faster machine.

    A machine that is slow for half of the time costs half of the excess. CPU time scatters upwards, so what is left out
    makes the result smaller, and never larger, than what the machine lost.
    """
    left_out = len(samples) // FEWEST_SAMPLES
    return max(1.0, fmean(sorted(samples)[left_out : len(samples) - left_out]) / REFERENCE_SECONDS)


class Pace:
    """How much slower than the reference the machine is while the block runs; known when the block has ended."""

    def __init__(self, interval_seconds: float = 5.0, sample: Callable[[], float] = work) -> None:
        self._interval_seconds, self._sample = interval_seconds, sample
        self._samples = list[float]()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        """Take no further samples, but those that a short block lacks."""
        self._ended.set()
        self._thread.join()
        while len(self._samples) < FEWEST_SAMPLES:
            self._samples.append(self._sample())

    @property
    def slowness(self) -> float:
        """See `slowness_of`."""
        return slowness_of(self._samples)

    @property
    def cpu_seconds(self) -> float:
        """What the samples cost this process."""
        return sum(self._samples)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            self._samples.append(self._sample())
