"""Tells whether threads make progress, by the clock that they are given.

Every loop of the engine asks the time or waits on the clock, and says for how long. So a thread that has done neither
for long after its wait was over is stuck: in a call that does not return, or in a lock that nobody gives back. Used by
the agent's process for its liveness.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from mailboat.clock import Clock

STALL_SECONDS: Final = 300.0
"""Silence of a thread beyond its own wait that counts as stuck. Importing one large binary is silent for long."""


class PulsingClock:
    """See `Clock`. Notes by thread until when it may be silent."""

    def __init__(self, clock: Clock, stall_seconds: float = STALL_SECONDS) -> None:
        """Nobody was heard yet."""
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._quiet_until: dict[str, float] = {}

    def now(self) -> datetime:
        """See `Clock`."""
        self._beat()
        return self._clock.now()

    def monotonic(self) -> float:
        """See `Clock`."""
        return self._beat()

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """See `Clock`."""
        self._beat(timeout_seconds)
        try:
            return self._clock.wait(event, timeout_seconds)
        finally:
            self._beat()

    def stuck(self, names: Collection[str]) -> Sequence[str]:
        """Those of the threads named that should have moved long ago, or have ended; sorted."""
        now = self._clock.monotonic()
        alive = {one.name for one in threading.enumerate()}
        silent = {name for name in names if self._quiet_until.get(name, now) + self._stall_seconds < now}
        return sorted(silent | (set(names) - alive))

    def _beat(self, wait_seconds: float = 0.0) -> float:
        now = self._clock.monotonic()
        self._quiet_until[threading.current_thread().name] = now + wait_seconds
        return now
