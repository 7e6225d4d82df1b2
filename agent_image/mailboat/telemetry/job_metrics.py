"""Metrics of durable jobs: counts of queues at each scrape, and what happened since the agent started.

Every agent that reads the job topic sees all jobs, so agents export the same figures; take the largest, not the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from mailboat.api.job_views import JobQueueView
from mailboat.clock import Clock
from mailboat.errors import MailboatError
from mailboat.jobs.fold import LEASE_EXPIRED, JobFold
from mailboat.jobs.job_changes import Applied, Transition
from mailboat.model.jobs import JobState
from mailboat.telemetry import catalogue
from mailboat.telemetry.families import OTHER, BulkHistogram, NamedCounts, Samples, TimedReading

_MOST_QUEUES: Final = 200
"""Queues with metrics of their own; anyone who may change queues could make more of them."""
_UNKNOWN: Final = "unknown"


class JobMetrics:
    """A contributor to scrapes. Safe to use from several threads."""

    def __init__(self, queues: Callable[[], Sequence[JobQueueView]], clock: Clock) -> None:
        """Nothing happened yet; `queues` is asked at each scrape."""
        self._queues = TimedReading(queues, clock)
        self._wait_seconds: dict[str, BulkHistogram] = {}
        self._run_seconds: dict[str, BulkHistogram] = {}
        self._ended = {state: NamedCounts(_MOST_QUEUES) for state in JobState if state.final}
        self._retries = NamedCounts(_MOST_QUEUES)
        self._expired = NamedCounts(_MOST_QUEUES)
        self._wasted = NamedCounts(_MOST_QUEUES)

    def see(self, fold: JobFold, applied: Applied) -> None:
        """Count what a record did; a `Listener` of the job topic."""
        for transition in applied.transitions:
            self._count(transition)
        for job in applied.void:
            self._wasted.add(fold.queue(job).settings.name if fold.table.row(job) >= 0 else _UNKNOWN)

    def _count(self, transition: Transition) -> None:
        queue, seconds = transition.queue, transition.duration_ms / 1000
        if transition.state is JobState.ACTIVE:
            _histogram_of(self._wait_seconds, queue).observe(seconds)
            return
        if seconds or transition.state is JobState.QUEUED:
            _histogram_of(self._run_seconds, queue).observe(seconds)
        if transition.state is JobState.QUEUED:
            self._retries.add(queue)
        else:
            self._ended[transition.state].add(queue)
        if transition.reason == LEASE_EXPIRED:
            self._expired.add(queue)

    def collect(self, samples: Samples) -> None:
        """Add everything to a scrape; without gauges while the topic cannot be read."""
        try:
            queues = self._queues.result()
        except MailboatError:
            queues = ()
        for queue in islice(queues, _MOST_QUEUES):
            samples.add(catalogue.JOBS_QUEUED, (queue.queue,), queue.queued)
            samples.add(catalogue.JOBS_DUE, (queue.queue,), queue.due)
            samples.add(catalogue.JOBS_ACTIVE, (queue.queue,), queue.active)
            samples.add(catalogue.JOBS_OLDEST, (queue.queue,), queue.oldest_seconds or 0.0)
            samples.add(catalogue.JOBS_WORKERS, (queue.queue,), queue.workers)
            samples.add(catalogue.JOBS_GIVEN_UP, (queue.queue,), queue.given_up)
        for metric, histograms in (
            (catalogue.JOBS_WAIT_SECONDS, self._wait_seconds),
            (catalogue.JOBS_RUN_SECONDS, self._run_seconds),
        ):
            for name, histogram in sorted(histograms.items()):
                samples.add_histogram(metric, (name,), histogram)
        for state, counts in self._ended.items():
            for name, count in counts.items():
                samples.add(catalogue.JOBS_ENDED, (name, state.label), count)
        for metric, counts in (
            (catalogue.JOBS_RETRIES, self._retries),
            (catalogue.JOBS_EXPIRED, self._expired),
            (catalogue.JOBS_WASTED, self._wasted),
        ):
            for name, count in counts.items():
                samples.add(metric, (name,), count)


def _histogram_of(histograms: dict[str, BulkHistogram], queue: str) -> BulkHistogram:
    if queue not in histograms and len(histograms) >= _MOST_QUEUES:
        queue = OTHER
    return histograms.setdefault(queue, BulkHistogram(catalogue.AGE_BUCKETS))
