"""Metrics of a subscriber: its figures at the scrape, its reports at each commit.

`SubscriberMetrics` is an `ImportMeter` and takes the progress of one subscriber. Nothing is looked up for a package: a
batch costs one call, and each of its packages two searches in a short list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mailboat.clock import Clock
from mailboat.errors import MailboatError
from mailboat.model.messages import is_blocking
from mailboat.subscriber.figures import ImportedBatch, SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.piece_store import PieceFigures
from mailboat.subscriber.subscriber_settings import ProcessedPackage, Processor, Processors
from mailboat.telemetry import catalogue
from mailboat.telemetry.families import BulkHistogram, NamedCounts, Samples

HOOKS: Final = ("before", "after", "invalidate")


class SubscriberMetrics:
    """The metrics of one subscriber. `imported` and `progressed` are called by its thread, `collect` by any."""

    def __init__(self, name: str, statistics: Callable[[], SubscriberStatistics], clock: Clock) -> None:
        """Ask `statistics` at each scrape."""
        self._name = name
        self.statistics = statistics
        self._clock = clock
        self._started = clock.monotonic()
        self._ready_seconds: float | None = None
        self._bytes = BulkHistogram(catalogue.BYTES_BUCKETS)
        self._ages = BulkHistogram(catalogue.AGE_BUCKETS)
        self._seconds = BulkHistogram(catalogue.SECONDS_BUCKETS)
        self._packages = BulkHistogram(catalogue.COUNT_BUCKETS)
        self._confirm_seconds = BulkHistogram(catalogue.SECONDS_BUCKETS)
        self._hooks = {hook: BulkHistogram(catalogue.SECONDS_BUCKETS) for hook in HOOKS}
        self._hook_outcomes = NamedCounts()
        self._began: float | None = None
        self._failures = NamedCounts()
        self._waits = NamedCounts()
        self._recovered = self._blocking = 0
        self._attempts = 0
        self._phase = SubscriberPhase.STARTING
        self._failed_announcements: Callable[[], int] | None = None

    def continue_with(self, statistics: Callable[[], SubscriberStatistics]) -> None:
        """Ask these at each scrape from now on: the subscriber was opened again."""
        self.statistics = statistics

    def watch_announcements(self, failures: Callable[[], int]) -> None:
        """Export how many announcements could not be sent; asked at each scrape."""
        self._failed_announcements = failures

    def began(self) -> None:
        self._began = self._clock.monotonic()

    def confirmed(self, seconds: float) -> None:
        self._confirm_seconds.observe(seconds)

    def hook_ran(self, hook: str, seconds: float, *, is_done: bool) -> None:
        """A hook of the kind `before`, `after` or `invalidate` ended."""
        self._hooks[hook].observe(seconds)
        self._hook_outcomes.add(f"{hook} {'done' if is_done else 'failed'}")

    def imported(self, batch: ImportedBatch) -> None:
        now_ms = batch.committed_ms
        self._bytes.observe_all(batch.sizes_bytes)
        self._ages.observe_all([max(0, now_ms - record.appended_ms) / 1000 for record in batch.records])
        self._seconds.observe(batch.seconds)
        self._packages.observe(len(batch.records))

    def progressed(self, statistics: SubscriberStatistics) -> None:
        """Apply a snapshot: counts failures as they come and go."""
        self._began = None
        attempts, cause = statistics.attempts, statistics.cause
        if self._ready_seconds is None and statistics.is_ready:
            self._ready_seconds = self._clock.monotonic() - self._started
        if attempts > self._attempts:
            self._failures.add(cause.code if cause is not None else MailboatError.__name__)
            self._blocking += is_blocking(attempts) and not is_blocking(self._attempts)
        elif self._attempts and not attempts and self._phase is SubscriberPhase.RETRYING:
            self._recovered += 1
        if statistics.phase is SubscriberPhase.WAITING and cause is not None and cause.code:
            self._waits.add(cause.code)
        self._attempts, self._phase = attempts, statistics.phase

    def given_up(self, statistics: SubscriberStatistics) -> None:
        """Count a package that went to the error queue: its last failure counts, and it did not recover."""
        self.progressed(statistics)
        self._attempts, self._phase = 0, SubscriberPhase.IMPORTING

    def collect(self, samples: Samples) -> None:
        """Add everything to a scrape."""
        labels = (self._name,)
        self._collect_figures(samples, labels)
        for histogram, metric in (
            (self._bytes, catalogue.IMPORTED_BYTES),
            (self._ages, catalogue.IMPORT_AGE_SECONDS),
            (self._seconds, catalogue.BATCH_SECONDS),
            (self._packages, catalogue.BATCH_PACKAGES),
            (self._confirm_seconds, catalogue.CONFIRM_SECONDS),
        ):
            samples.add_histogram(metric, labels, histogram)
        for metric, counts in ((catalogue.FAILURES, self._failures), (catalogue.WAITS, self._waits)):
            for error, count in counts.items():
                samples.add(metric, (self._name, error), count)
        outcomes = dict(self._hook_outcomes.items())
        for hook, histogram in self._hooks.items():
            samples.add_histogram(catalogue.HOOK_SECONDS, (self._name, hook), histogram)
            for outcome in ("done", "failed"):
                samples.add(catalogue.HOOKS, (self._name, hook, outcome), outcomes.get(f"{hook} {outcome}", 0))
        # one read: the subscriber's thread resets it meanwhile
        began = self._began
        samples.add(catalogue.IMPORTING_SECONDS, labels, 0.0 if began is None else self._clock.monotonic() - began)
        samples.add(catalogue.RECOVERED, labels, self._recovered)
        samples.add(catalogue.BLOCKED, labels, self._blocking)
        if self._failed_announcements is not None:
            samples.add(catalogue.ANNOUNCE_FAILURES, labels, self._failed_announcements())

    def _collect_pieces(self, samples: Samples, labels: tuple[str], pieces: PieceFigures) -> None:
        samples.add(catalogue.PIECES_SEEN, labels, pieces.pieces)
        samples.add(catalogue.COLLECTING, labels, pieces.collecting)
        samples.add(catalogue.COLLECTING_BYTES, labels, pieces.collecting_bytes)
        for outcome in ("collected", "read_again", "dropped", "expired", "missing", "corrupt"):
            samples.add(catalogue.PACKAGES_IN_PIECES, (*labels, outcome), getattr(pieces, outcome))

    def _collect_figures(self, samples: Samples, labels: tuple[str]) -> None:
        figures = self.statistics()
        build = figures.build
        for metric, value in (
            (catalogue.IMPORTED, figures.imported),
            (catalogue.SKIPPED, figures.skipped),
            (catalogue.DROPPED, figures.dropped),
            (catalogue.GIVEN_UP, figures.failed),
            (catalogue.REDRIVEN, figures.redriven),
            (catalogue.NODES_PUT, figures.put),
            (catalogue.NODES_REMOVED, figures.removed),
            (catalogue.CONTENT_BYTES, figures.content_bytes),
            (catalogue.COMMITS, figures.commits),
            (catalogue.ATTEMPTS, figures.attempts),
            (catalogue.NEXT_OFFSET, figures.next_offset),
            (catalogue.LAG_OFFSETS, figures.lag_offsets),
            (catalogue.BUILD_IMPORTED, 0 if build is None else build.sequence + 1),
            (catalogue.BUILD_PACKAGES, 0 if build is None else build.total),
            (catalogue.HELD_BACK, figures.held_back),
        ):
            samples.add(metric, labels, value)
        self._collect_pieces(samples, labels, figures.pieces or PieceFigures())
        samples.add_choice(catalogue.PHASE, labels, SubscriberPhase, figures.phase)
        samples.add(catalogue.READY, (*labels, figures.ready_reason), float(figures.is_ready))
        samples.add(catalogue.READY_SECONDS, labels, self._ready_seconds)


# -------------------------------------------------------------------------------------------------------------- hooks


class MeasuredProcessor:
    """Runs a hook, and measures how long it took and how it ended. See `Processor`."""

    def __init__(self, hook: str, processor: Processor, meter: SubscriberMetrics, clock: Clock) -> None:
        """Stand in front of `processor`; `hook` is `before`, `after` or `invalidate`."""
        self._hook = hook
        self._processor = processor
        self._meter = meter
        self._clock = clock

    def process(self, package: ProcessedPackage) -> None:
        """See `Processor`."""
        began, is_done = self._clock.monotonic(), False
        try:
            self._processor.process(package)
            is_done = True
        finally:
            self._meter.hook_ran(self._hook, self._clock.monotonic() - began, is_done=is_done)


def measured(processors: Processors, meter: SubscriberMetrics, clock: Clock) -> Processors:
    """The same hooks, measured."""
    there = {
        hook: MeasuredProcessor(hook, processor, meter, clock)
        for hook in ("before", "after", "invalidate")
        if (processor := getattr(processors, hook)) is not None
    }
    return replace(processors, **there)
