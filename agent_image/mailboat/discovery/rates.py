"""How fast subscribers are: from the positions that they announced during the last minute."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

WINDOW_MS: Final = 60_000
_FINEST_MS: Final = 2_000
"""Announcements that come faster count as one, so a window holds at most some 30 of them."""


class _Sample(NamedTuple):
    heard_ms: int
    last_done: int


class Rate:
    """The speed of one subscriber. Not safe for several threads."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        """Start without samples."""
        self._samples: deque[_Sample] = deque()

    def hear(self, heard_ms: int, last_done: int) -> None:
        """Take in a position."""
        samples = self._samples
        if len(samples) > 1 and heard_ms - samples[-2].heard_ms < _FINEST_MS:
            samples.pop()
        samples.append(_Sample(heard_ms, last_done))
        while samples[0].heard_ms < heard_ms - WINDOW_MS:
            samples.popleft()

    def per_second(self) -> float | None:
        """Packages a second between the first and the last of the window; None where unknown or nothing moved."""
        if not self._samples:
            return None
        first, last = self._samples[0], self._samples[-1]
        if last.heard_ms <= first.heard_ms or last.last_done <= first.last_done:
            return None
        return (last.last_done - first.last_done) * 1000 / (last.heard_ms - first.heard_ms)
