"""What a publisher's metrics are made of: a `PublicationMeter`, and the figures of its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mailboat.errors import MailboatError
from mailboat.model.messages import Action
from mailboat.publisher.distributed_notifier import EventStatistics
from mailboat.telemetry import catalogue
from mailboat.telemetry.event_delivery import DeliveryStatistics
from mailboat.telemetry.families import BulkHistogram, NamedCounts, Samples


class PublisherMetrics:
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
        self.events: Callable[[], EventStatistics] | None = None
        self._receivers: dict[str, Callable[[], DeliveryStatistics]] = {}

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
        if self.events is not None:
            events = self.events()
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
