"""How fast this machine is, so that limits of CPU time hold on others: `slowness()` scales them.

CPU seconds of the same work differ by half between machines, and grow on a busy one. A fixed piece of pure Python is
timed in CPU seconds and compared with what it takes on the machine where the limits were measured.
"""

from __future__ import annotations

import time
from functools import cache

REFERENCE_SECONDS = 0.012
"""CPU seconds of `_work` where the limits were measured: CPython 3.11, two cores, quiet."""


@cache
def slowness() -> float:
    """CPU time on this machine ÷ CPU time where the limits were measured; 1.0 on a faster one."""
    return max(1.0, min(_work() for _ in range(5)) / REFERENCE_SECONDS)


def _work() -> float:
    started = time.process_time()
    table: dict[int, str] = {}
    for number in range(100_000):
        table[number % 1000] = str(number * number)
    return time.process_time() - started
