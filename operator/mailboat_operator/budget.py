"""How many requests a second the operator sends to the Kubernetes API, however many objects change at once.

A request waits for a token; waiters go in the order in which they came. The bucket is small, so that a thousand
objects take ten times as long as a hundred, and a lone change waits for nothing. Used from one event loop by `cluster`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from mailboat.token_bucket import TokenBucket

_BURST_SECONDS: Final = 0.25
"""What the bucket holds: so many seconds' worth of tokens, and at least one."""


class RequestBudget:
    """A token bucket that is waited for."""

    def __init__(self, per_second: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Begin with a full bucket; `per_second` None sets no limit."""
        self._bucket = None if per_second is None else TokenBucket(per_second, max(1.0, per_second * _BURST_SECONDS))
        self._monotonic = monotonic

    async def take(self) -> None:
        """Wait for a token."""
        if self._bucket is None:
            return
        pause = self._bucket.take(self._monotonic())  # reserved before the sleep, so waiters keep their order
        if pause > 0.0:
            await asyncio.sleep(pause)
