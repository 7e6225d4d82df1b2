"""Lag and throughput of the last hour, sampled in memory: what the dashboard plots.

A process starts without samples, so a plot begins when the agent started. Memory is bounded: 9 kB per subscriber, for
the first 1,000 of them; the totals include all. A Prometheus server keeps more (docs/metrics.md).
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from mailboat.api.process_views import HistorySample, HistoryView
from mailboat.api.records import StatusView
from mailboat.clock import Clock, milliseconds_now, moment_of
from mailboat.errors import AgentMissingError

SAMPLE_SECONDS: Final = 10.0
# The last hour.
SAMPLES: Final = 360
MAX_SUBSCRIBERS: Final = 1_000
_SAMPLE_BYTES: Final = 3 * 8
MAX_BYTES: Final = MAX_SUBSCRIBERS * SAMPLES * _SAMPLE_BYTES

_SHARE: Final = 20
"""Pauses are at least this many times as long as reading the status takes: sampling costs at most 5 % of a core."""

_UNKNOWN: Final = -1


class _Series:
    """Times, positions and lags of a subscriber, oldest first."""

    def __init__(self) -> None:
        self.times = array("q")
        self.positions = array("q")
        self.lags = array("q")

    def add(self, at_ms: int, position: int | None, lag: int | None) -> int:
        """Add a sample. Returns: the packages processed since the one before."""
        before = self.positions[-1] if self.positions else _UNKNOWN
        for figures, value in ((self.times, at_ms), (self.positions, position), (self.lags, lag)):
            figures.append(_UNKNOWN if value is None else value)
            if len(figures) > SAMPLES:
                del figures[0]
        return max(0, self.positions[-1] - before) if before != _UNKNOWN else 0

    def samples(self) -> Iterator[HistorySample]:
        """The samples as users read them."""
        before_ms, before = 0, _UNKNOWN
        for at_ms, position, lag in zip(self.times, self.positions, self.lags, strict=True):
            is_known = _UNKNOWN not in {before, position} and at_ms > before_ms
            rate = max(0, position - before) * 1000 / (at_ms - before_ms) if is_known else None
            yield HistorySample(moment_of(at_ms), None if lag == _UNKNOWN else lag, rate)
            before_ms, before = at_ms, position


class LagHistory:
    """Samples of the status. Safe to use from several threads."""

    def __init__(self, status: Callable[[], StatusView], clock: Clock) -> None:
        """No sample yet."""
        self._status = status
        self._clock = clock
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str | None], _Series] = {}
        self._totals: deque[HistorySample] = deque(maxlen=SAMPLES)

    def sample(self) -> float:
        """Take a sample. Returns: seconds until the next one. Raises: the errors of the status."""
        began = self._clock.monotonic()
        # without the lock: a page that asks for the history must not wait for the journal
        status = self._status()
        now_ms = milliseconds_now(self._clock)
        with self._lock:
            self._add(status, now_ms)
        return max(SAMPLE_SECONDS, _SHARE * (self._clock.monotonic() - began))

    @property
    def size_bytes(self) -> int:
        """What the samples of subscribers take; `MAX_BYTES` at most."""
        with self._lock:
            return sum(len(series.times) for series in self._series.values()) * _SAMPLE_BYTES

    def total(self) -> HistoryView:
        """Lag and throughput of all subscribers."""
        with self._lock:
            return HistoryView(tuple(self._totals))

    def of(self, subscriber: str, instance: str | None = None) -> HistoryView:
        """Lag and throughput of a subscriber; default: its first instance. Raises: AgentMissingError."""
        with self._lock:
            for (name, sling_id), series in self._series.items():
                if name == subscriber and instance in {None, sling_id}:
                    return HistoryView(tuple(series.samples()))
        raise AgentMissingError(f"no sample of subscriber {subscriber} was taken", subscriber=subscriber)

    def _add(self, status: StatusView, now_ms: int) -> None:
        processed = 0
        for subscriber in status.subscribers:
            key = (subscriber.name, subscriber.sling_id)
            if key not in self._series and len(self._series) < MAX_SUBSCRIBERS:
                self._series[key] = _Series()
            if key in self._series:
                processed += self._series[key].add(now_ms, subscriber.next_offset, subscriber.lag)
        # one that has gone leaves its place to others, but not before its plot has ended
        oldest_ms = now_ms - int(SAMPLES * SAMPLE_SECONDS * 1000)
        for key in [key for key, series in self._series.items() if series.times[-1] < oldest_ms]:
            del self._series[key]
        at = moment_of(now_ms)
        seconds = (at - self._totals[-1].at).total_seconds() if self._totals else 0.0
        lag = sum(subscriber.lag or 0 for subscriber in status.subscribers)
        self._totals.append(HistorySample(at, lag, processed / seconds if seconds > 0 else None))
