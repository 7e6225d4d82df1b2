"""Announced positions: a position may be trusted once the statuses up to it must be in the log.

A subscriber announces a position on one topic and what it gave up or dropped on another, so a reader may meet the
position first. A confirmed package counts at once, as all about it is reported; else a position counts a moment after
it was announced (docs/decisions/0010-distributed-events.md). Used by the control service, by HTTP and by events.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

SETTLING_SECONDS: Final = 1.0
"""A position counts when it was announced so long ago: the statuses that belong to it are in the log by then."""

MAX_CLAIMS: Final = 64
"""Of one subscriber. More announcements within two settling times are a flood."""


@dataclass(frozen=True, slots=True)
class PositionClaims:
    """What one subscriber announced, ascending: when, in seconds of any clock, and that all below an offset is done."""

    entries: tuple[tuple[float, int], ...] = ()

    @classmethod
    def certain(cls, next_offset: int) -> PositionClaims:
        """A position that counts already."""
        return cls(((-math.inf, next_offset),))

    @property
    def claimed(self) -> int:
        """The last claim."""
        return self.entries[-1][1] if self.entries else 0

    def and_then(self, next_offset: int, at_seconds: float) -> PositionClaims:
        """With one more announcement; going back takes back at once what was claimed beyond."""
        # The first claim of a position counts: repeated ones must not put off the moment when it settles.
        if self.entries and next_offset == self.claimed:
            return self
        if next_offset < self.claimed:
            settled = min(self.settled(at_seconds), next_offset)
            return PositionClaims((*self.certain(settled).entries, (at_seconds, next_offset)))
        # At the limit the oldest claims stay: a flood of announcements must not keep a position from settling.
        known = self.without_past(at_seconds - 2 * SETTLING_SECONDS).entries[: MAX_CLAIMS - 1]
        return PositionClaims((*known, (at_seconds, next_offset)))

    def settled(self, at_seconds: float) -> int:
        """All below was claimed so long before that time that it counts."""
        return max((offset for since, offset in self.entries if since + SETTLING_SECONDS <= at_seconds), default=0)

    def done_to(self, confirmed: int, at_seconds: float) -> int:
        """All below is done, and all that the subscriber reports about it was read.

        Args:
            confirmed: The last package that it said something about; -1 when none.
            at_seconds: A time up to which all statuses were read.
        """
        return max(self.settled(at_seconds), min(self.claimed, confirmed + 1))

    def is_settling(self, at_seconds: float) -> bool:
        """Whether something was announced that does not count yet."""
        return any(since + SETTLING_SECONDS > at_seconds for since, _ in self.entries)

    def without_past(self, at_seconds: float) -> PositionClaims:
        """Without the claims that later ones had replaced by that time."""
        settled = [entry for entry in self.entries if entry[0] + SETTLING_SECONDS <= at_seconds]
        return PositionClaims(self.entries[max(0, len(settled) - 1) :])
