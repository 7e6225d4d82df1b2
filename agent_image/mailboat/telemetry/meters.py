"""Meters of a process: upkeep, publishers, subscribers and queues, and API requests.

Subscribers and queues are read from the agent's own state at each scrape: a scrape costs what one query of the status
costs, and nothing between scrapes. Routes of requests are the templates of the API (`/api/v1/queues/{publisher}`), so
their number is that of the API's operations; all other requests count as `other`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mailboat.blobs.sweep import SweepDecision
from mailboat.errors import MailboatError
from mailboat.model.messages import Action
from mailboat.publisher.distributed_notifier import EventStatistics
from mailboat.publisher.publisher_settings import PublicationMeter
from mailboat.retention.task import RetentionFigures
from mailboat.telemetry import catalogue
from mailboat.telemetry.event_delivery import DeliveryStatistics
from mailboat.telemetry.families import BulkHistogram, NamedCounts, Samples


class SweepCounts(Protocol):
    """What upkeep came to in this process; see `UpkeepFigures` in `maintenance/schedule.py`."""

    expired: int
    sweeps: int
    swept_blobs: int
    abandoned_uploads: int

    @property
    def kept(self) -> Mapping[SweepDecision, int]:
        """How many blobs the last sweep kept, by reason."""

    @property
    def kept_bytes(self) -> Mapping[SweepDecision, int]:
        """The bytes of those."""


class UpkeepMetrics:
    """A contributor to scrapes."""

    def __init__(self, retention: RetentionFigures, sweeps: SweepCounts) -> None:
        """Ask these at each scrape."""
        self._retention = retention
        self._sweeps = sweeps
        self._retention_failures: Callable[[], int] | None = None
        self._sweep_failures: Callable[[], int] | None = None

    def watch(self, sweep_failures: Callable[[], int], retention_failures: Callable[[], int] | None) -> None:
        """Export from now on; failures are asked at each scrape, None where no head is kept."""
        self._sweep_failures = sweep_failures
        self._retention_failures = retention_failures

    def collect(self, samples: Samples) -> None:
        """Add everything to a scrape."""
        head, sweeps = self._retention, self._sweeps
        if self._retention_failures is not None:
            samples.add(catalogue.RETENTION_TURNS, (), head.turns)
            samples.add(catalogue.RETENTION_MOVES, (), head.moves)
            samples.add(catalogue.RETENTION_REMOVED, (), head.removed)
            samples.add(catalogue.RETENTION_FREED, (), head.freed_bytes)
            samples.add(catalogue.RETENTION_LOSSES, (), head.losses)
            samples.add(catalogue.RETENTION_DROPPED, (), head.dropped)
            samples.add(catalogue.RETENTION_FAILURES, (), self._retention_failures())
        if self._sweep_failures is None:
            return
        samples.add(catalogue.RETENTION_EXPIRED, (), sweeps.expired)
        samples.add(catalogue.SWEEPS, (), sweeps.sweeps)
        samples.add(catalogue.SWEEP_REMOVED, (), sweeps.swept_blobs)
        samples.add(catalogue.SWEEP_UPLOADS, (), sweeps.abandoned_uploads)
        samples.add(catalogue.SWEEP_FAILURES, (), self._sweep_failures())
        for reason, count in sweeps.kept.items():
            samples.add(catalogue.SWEEP_KEPT, (str(reason),), count)
        for reason, kept_bytes in sweeps.kept_bytes.items():
            samples.add(catalogue.SWEEP_KEPT_BYTES, (str(reason),), kept_bytes)


class PublisherMetrics(PublicationMeter):
    """The metrics of one publisher. Safe to use from several threads."""

    def __init__(self, name: str) -> None:
        """Nothing is counted yet."""
        self._name = name
        self._bytes = BulkHistogram(catalogue.BYTES_BUCKETS)
        self._build_seconds = BulkHistogram(catalogue.SECONDS_BUCKETS)
        self._append_seconds = BulkHistogram(catalogue.SECONDS_BUCKETS)
        self._accepted = NamedCounts()
        self._in_pieces = NamedCounts()
        self._repeated = NamedCounts()
        self._refused = NamedCounts()
        self._events: Callable[[], EventStatistics] | None = None
        self._receivers: dict[str, Callable[[], DeliveryStatistics]] = {}

    def watch_events(self, statistics: Callable[[], EventStatistics]) -> None:
        """Export the counts of the events that are raised."""
        self._events = statistics

    def watch_receiver(self, name: str, statistics: Callable[[], DeliveryStatistics]) -> None:
        """Export the counts of a receiver of events."""
        self._receivers[name] = statistics

    def built(self, package_bytes: int, seconds: float) -> None:
        self._bytes.observe(package_bytes)
        self._build_seconds.observe(seconds)

    def appended(self, actions: Sequence[Action], seconds: float) -> None:
        self._append_seconds.observe(seconds)
        for action in actions:
            self._accepted.add(action)

    def appended_in_pieces(self, pieces: int) -> None:
        self._in_pieces.add("packages")
        self._in_pieces.add("pieces", pieces)

    def repeated(self) -> None:
        self._repeated.add("")

    def refused(self, error: Exception) -> None:
        self._refused.add(error.name if isinstance(error, MailboatError) else type(error).__name__)

    def collect(self, samples: Samples) -> None:
        """Add everything to a scrape."""
        labels = (self._name,)
        samples.add_histogram(catalogue.EXPORTED_BYTES, labels, self._bytes)
        samples.add_histogram(catalogue.BUILD_SECONDS, labels, self._build_seconds)
        samples.add_histogram(catalogue.APPEND_SECONDS, labels, self._append_seconds)
        samples.add(catalogue.REPEATED, labels, dict(self._repeated.items()).get("", 0))
        counted = dict(self._accepted.items())
        for action in Action:
            samples.add(catalogue.ACCEPTED, (self._name, action), counted.get(action, 0))
        in_pieces = dict(self._in_pieces.items())
        samples.add(catalogue.PIECES, labels, in_pieces.get("pieces", 0))
        samples.add(catalogue.IN_PIECES, labels, in_pieces.get("packages", 0))
        for error, count in self._refused.items():
            samples.add(catalogue.REFUSED, (self._name, error), count)
        self._collect_events(samples, labels)

    def _collect_events(self, samples: Samples, labels: tuple[str]) -> None:
        if self._events is not None:
            events = self._events()
            samples.add(catalogue.EVENTS_RAISED, labels, events.raised)
            samples.add(catalogue.EVENTS_MISSED, labels, events.missed)
            samples.add(catalogue.EVENTS_FAILURES, labels, events.failures)
            samples.add(catalogue.EVENTS_RAISING, labels, float(events.is_raising))
            samples.add(catalogue.EVENTS_NEXT, labels, events.next_offset)
        for name, statistics in self._receivers.items():
            counts = statistics()
            samples.add(catalogue.DELIVERED_EVENTS, (*labels, name, "delivered"), counts.delivered)
            samples.add(catalogue.DELIVERED_EVENTS, (*labels, name, "failed"), counts.failed)
            samples.add(catalogue.DELIVERED_EVENTS, (*labels, name, "refused"), counts.refused)
            samples.add(catalogue.WAITING_EVENTS, (*labels, name), counts.waiting)


QUEUE_STATES: Final = ("idle", "running", "blocked")


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One subscriber's queue.

    Attributes:
        state: `idle`, `running` or `blocked`.
        packages: How many wait.
        is_clearable: Whether its subscriber takes clear commands.
        oldest_ms: When the log took the first of them; None when it is empty or not known.
    """

    state: str
    packages: int
    is_clearable: bool = False
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """What one publisher sees.

    Attributes:
        publisher: Its name.
        now_ms: The time, in milliseconds since 1970 UTC.
        subscriber_states: The state of each subscriber that follows it.
        queues: Their queues.
        given_up: Packages in all error queues.
        delay_seconds: How long a request is held up at the moment.
    """

    publisher: str
    now_ms: int
    subscriber_states: Sequence[str] = ()
    queues: Sequence[QueueFigures] = ()
    given_up: int = 0
    delay_seconds: float = 0.0


def collect_fleet(figures: FleetFigures, samples: Samples) -> None:
    """Add what one publisher sees to a scrape."""
    labels = (figures.publisher,)
    for state, count in sorted(Counter(figures.subscriber_states).items()):
        samples.add(catalogue.SUBSCRIBERS, (*labels, state), count)
    for is_clearable in (True, False):
        sizes = [queue.packages for queue in figures.queues if queue.is_clearable is is_clearable]
        samples.add(catalogue.QUEUE_PACKAGES, (*labels, str(is_clearable).lower()), max(sizes, default=0))
    states = Counter(queue.state for queue in figures.queues)
    for state in QUEUE_STATES:
        samples.add(catalogue.QUEUES, (*labels, state), states[state])
    oldest = min((queue.oldest_ms for queue in figures.queues if queue.oldest_ms is not None), default=figures.now_ms)
    samples.add(catalogue.OLDEST_SECONDS, labels, max(0.0, (figures.now_ms - oldest) / 1000))
    samples.add(catalogue.GIVEN_UP_QUEUED, labels, figures.given_up)
    samples.add(catalogue.DELAY_SECONDS, labels, figures.delay_seconds)


_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
# More than the API has: a bound against a mistake in naming them.
_MOST_ROUTES: Final = 200
OTHER_ROUTE: Final = "other"


class RequestRecorder:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._seconds: dict[str, BulkHistogram] = {}

    def record(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count one request, when its answer is sent.

        Args:
            method: As the caller gave it; unknown ones count as `OTHER`.
            route: The template of the operation; None if absent.
            status: Of the answer.
            seconds: From the first byte of the request to the last of the answer.
        """
        method = method if method in _METHODS else "OTHER"
        with self._lock:
            route = route or OTHER_ROUTE
            if route not in self._seconds:
                route = route if len(self._seconds) < _MOST_ROUTES else OTHER_ROUTE
                self._seconds.setdefault(route, BulkHistogram(catalogue.SECONDS_BUCKETS))
            self._counts[method, route, str(status)] += 1
            self._seconds[route].observe(seconds)

    def collect(self, samples: Samples) -> None:
        """Add everything to a scrape."""
        with self._lock:
            counts, seconds = sorted(self._counts.items()), sorted(self._seconds.items())
        for labels, count in counts:
            samples.add(catalogue.HTTP_REQUESTS, labels, count)
        for route, histogram in seconds:
            samples.add_histogram(catalogue.HTTP_SECONDS, (route,), histogram)
