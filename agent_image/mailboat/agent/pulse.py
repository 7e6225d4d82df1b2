"""Tells whether threads make progress, by the clock that they are given.

Every loop of the engine asks the time or waits on the clock, and says for how long. So a thread that has done neither
for long after its wait was over is stuck: in a call that does not return, or in a lock that nobody gives back. Every
`Worker` that was given this clock is watched from its beginning to its end. The process goes by it for its liveness.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mailboat.clock import Clock

STALL_SECONDS: Final = 300.0
"""Silence of a thread beyond its own wait that counts as stuck. Importing one large binary is silent for long."""


@dataclass(slots=True)
class _Watched:
    """A worker: its thread, its name, how long it may be silent, and until when it is for its own wait."""

    thread: threading.Thread
    name: str
    stall_seconds: float
    quiet_until: float


class PulsingClock:
    """See `Clock` and `Watching`. Notes by worker until when it may be silent."""

    def __init__(self, clock: Clock, stall_seconds: float = STALL_SECONDS) -> None:
        """Nobody is watched yet."""
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._watched: dict[int, _Watched] = {}

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

    def began(self, name: str, stall_seconds: float | None) -> None:
        """See `Watching`."""
        thread, now = threading.current_thread(), self._clock.monotonic()
        stall = self._stall_seconds if stall_seconds is None else stall_seconds
        self._watched[threading.get_ident()] = _Watched(thread, name, stall, now)

    def ended(self) -> None:
        """See `Watching`."""
        self._watched.pop(threading.get_ident(), None)

    def stuck(self) -> Sequence[str]:
        """Those of the watched that should have moved long ago, or ended as they should not; sorted."""
        now = self._clock.monotonic()
        return sorted(
            one.name
            for one in list(self._watched.values())
            if one.quiet_until + one.stall_seconds < now or not one.thread.is_alive()
        )

    def _beat(self, wait_seconds: float = 0.0) -> float:
        now = self._clock.monotonic()
        watched = self._watched.get(threading.get_ident())
        if watched is not None:
            watched.quiet_until = now + wait_seconds
        return now
