"""A token bucket: how often something may happen, with bursts. For callers of the API and requests of the operator."""

from __future__ import annotations

from typing import Final

_NOTHING_SECONDS: Final = 1e-9
"""Sums of intervals are not exact: a token that is less than this away is there."""


class TokenBucket:
    """Tokens that are refilled at a steady rate, up to a burst. Begins full. Used under one lock or in one thread."""

    __slots__ = ("_interval_seconds", "_slack_seconds", "_used_until")

    def __init__(self, per_second: float, burst: float) -> None:
        """Hold `burst` tokens, and get `per_second` more."""
        self._interval_seconds = 1.0 / per_second
        self._slack_seconds = (burst - 1.0) / per_second
        # GCRA: one time instead of a count of tokens and its age
        self._used_until = 0.0

    def delay_seconds(self, now: float) -> float:
        """How long until there is a token; 0.0 when there is one. `now` is monotonic."""
        delay = max(self._used_until, now) - self._slack_seconds - now
        return delay if delay > _NOTHING_SECONDS else 0.0

    def take(self, now: float) -> float:
        """Take a token, or reserve the next one; returns how long until it is there."""
        delay = self.delay_seconds(now)
        self._used_until = max(self._used_until, now) + self._interval_seconds
        return delay
