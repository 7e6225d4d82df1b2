"""How many requests the operator sends to the Kubernetes API: a token bucket, so that no storm of news becomes one.

Who wants to send waits for a token; waiters go in the order in which they came. The bucket is small, so that a thousand
objects take ten times as long as a hundred, and a lone change waits for nothing. Used from one event loop by `cluster`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_BURST_SECONDS: Final = 0.25
"""What the bucket holds: so many seconds' worth of tokens."""


class Budget:
    """Tokens, refilled at a rate."""

    def __init__(self, per_second: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Begin with a full bucket; `per_second` None sets no limit."""
        self._per_second = per_second
        self._monotonic = monotonic
        self._free_at = 0.0
        """When the bucket is full again, if no token is taken."""

    async def take(self) -> None:
        """Wait for a token."""
        if self._per_second is None:
            return
        now = self._monotonic()
        # GCRA: one time instead of a count of tokens; reserved before the sleep, so waiters keep their order
        self._free_at = max(self._free_at, now) + 1 / self._per_second
        pause = self._free_at - now - _BURST_SECONDS
        if pause > 0:
            await asyncio.sleep(pause)
