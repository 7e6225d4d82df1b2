"""Liveness by heartbeats: whether threads make progress.

A `Worker` beats between its turns, before its pauses, and whenever a long turn asks whether to stop. Code below a turn
beats when it made progress: a record was read or imported. Reading the clock, or waiting, does not count: a loop that
polls without an end does both. A thread without a beat for long after its pause was over is stuck: in a call that does
not return, in such a loop, or in a lock that is never released. Every worker that was given this clock is watched from
its beginning to its end.
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


class HeartbeatClock:
    """See `Clock` and `WorkerMonitor`. Notes by worker until when it may be silent."""

    def __init__(self, clock: Clock, stall_seconds: float = STALL_SECONDS) -> None:
        """No thread is watched yet."""
        self._clock = clock
        self._stall_seconds = stall_seconds
        self._watched: dict[int, _Watched] = {}

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        return self._clock.wait(event, timeout_seconds)

    def began(self, name: str, stall_seconds: float | None) -> None:
        thread, now = threading.current_thread(), self._clock.monotonic()
        stall = self._stall_seconds if stall_seconds is None else stall_seconds
        self._watched[threading.get_ident()] = _Watched(thread, name, stall, now)

    def beat(self, wait_seconds: float = 0.0) -> None:
        watched = self._watched.get(threading.get_ident())
        if watched is not None:  # its own thread writes it, and `stuck` reads one float of it: no lock is needed
            watched.quiet_until = self._clock.monotonic() + wait_seconds

    def ended(self) -> None:
        self._watched.pop(threading.get_ident(), None)

    def stuck(self) -> Sequence[str]:
        """Those of the watched that should have moved long ago, or ended as they should not; sorted."""
        now = self._clock.monotonic()
        return sorted(
            one.name
            # a copy: workers start and end meanwhile, and iterating the dictionary itself would raise RuntimeError
            for one in list(self._watched.values())
            if one.quiet_until + one.stall_seconds < now or not one.thread.is_alive()
        )
