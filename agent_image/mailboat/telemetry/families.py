"""Building blocks of metrics: figures that are read at each scrape, and histograms fed in bulk.

A subscriber imports tens of thousands of packages a second, and observing one value through prometheus_client costs
more than a microsecond. So a `BulkHistogram` takes a whole batch of values at its commit, and everything that an agent
counts anyway is not counted twice but asked for at the scrape.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family

from mailboat.clock import Clock
from mailboat.errors import JournalUnavailableError
from mailboat.telemetry.catalogue import Metric, MetricKind

OTHER: Final = "Other"
# Each name is a time series, which Prometheus keeps; senders of packages can invent names.
_MOST_NAMES: Final = 50

READING_SECONDS: Final = 4.0
"""How long a scrape waits for figures of the journal. Queues and jobs are two readings, and scrapers wait 10 s."""

_T = TypeVar("_T")


class TimedReading(Generic[_T]):
    """Reads figures of the journal for a scrape, within a time limit. Safe to use from several threads.

    Brokers that are away take longer to say so than scrapers wait: all metrics would be missing with these few.
    """

    def __init__(self, read: Callable[[], _T], clock: Clock, seconds: float = READING_SECONDS) -> None:
        """Read nothing yet."""
        self._read = read
        self._clock = clock
        self._seconds = seconds
        self._lock = threading.Lock()
        self._reading: Future[_T] | None = None
        self._was_slow = False

    def result(self) -> _T:
        """The figures; those of the scrape before where that one did not wait for them.

        Raises: as `read`; JournalUnavailableError: reading them takes too long.
        """
        with self._lock:
            reading = self._reading
            # One thread at a time: in an outage they would pile up.
            if reading is None or reading.done():
                started: Future[_T] = Future()
                threading.Thread(target=self._run, args=(started,), name="scrape", daemon=True).start()
                self._reading = started  # where no thread could start, the next scrape tries again
                # After a slow one its figures are given: those of a very large fleet would never come otherwise.
                reading = reading if reading is not None and self._was_slow else started
        try:
            return reading.result(self._seconds)
        except TimeoutError as error:
            raise JournalUnavailableError(f"reading them takes longer than {self._seconds:g} seconds") from error

    def _run(self, reading: Future[_T]) -> None:
        began = self._clock.monotonic()
        try:
            found = self._read()
        except BaseException as error:  # noqa: BLE001  # it is raised where the result is asked for
            self._was_slow = False  # the next scrape waits for its own reading instead of raising this again
            reading.set_exception(error)
        else:
            self._was_slow = self._clock.monotonic() - began > self._seconds
            reading.set_result(found)


class BulkHistogram:
    """A histogram of one child, to which many values are added at once. Safe to use from several threads."""

    def __init__(self, buckets: Sequence[float]) -> None:
        """No value yet; `buckets` are upper bounds, ascending."""
        self._bounds = tuple(buckets)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe_all(self, values: Sequence[float]) -> None:
        """Add values; a bucket holds what is less than or equal to its bound."""
        bounds, counts = self._bounds, self._counts
        with self._lock:
            for value in values:
                # Bounds are inclusive (`le`): `bisect_left` puts a value that equals one into its bucket.
                counts[bisect_left(bounds, value)] += 1
            self._sum += sum(values)

    def observe(self, value: float) -> None:
        """Add one value."""
        self.observe_all((value,))

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Upper bound → how many values up to it; and the sum of all."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        # Prometheus' buckets are cumulative: each counts what is in those before it, too.
        found, running = [], 0
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            running += count
            found.append((_bound_of(bound), float(running)))
        return found, total


class NamedCounts:
    """Counts by a name that comes from outside, with a limited number of names. Safe to use from several threads."""

    def __init__(self, most: int = _MOST_NAMES) -> None:
        """Nothing is counted yet."""
        self._most = most
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, name: str, count: int = 1) -> None:
        """Count; beyond the bound, under `Other`."""
        with self._lock:
            if name not in self._counts and len(self._counts) >= self._most:
                name = OTHER
            self._counts[name] = self._counts.get(name, 0) + count

    def items(self) -> list[tuple[str, int]]:
        """Name and count, by name."""
        with self._lock:
            return sorted(self._counts.items())


def family_of(metric: Metric) -> Family:
    """The family that samples of a metric are added to."""
    if metric.kind is MetricKind.COUNTER:
        return CounterMetricFamily(metric.name, metric.text, labels=metric.labels)
    if metric.kind is MetricKind.GAUGE:
        return GaugeMetricFamily(metric.name, metric.text, labels=metric.labels)
    return HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)


class Samples:
    """Collects the samples of one scrape, family by family."""

    def __init__(self) -> None:
        """None yet."""
        self._families: dict[str, Family] = {}

    def add(self, metric: Metric, labels: Sequence[str], value: float | None) -> None:
        """Add the value of a counter or gauge; None is not known, and then there is no sample."""
        family = self._family(metric)
        if value is not None:
            family.add_metric(list(labels), value)  # type: ignore[attr-defined]  # of counters and gauges alike

    def add_histogram(self, metric: Metric, labels: Sequence[str], histogram: BulkHistogram) -> None:
        """Add a histogram."""
        buckets, total = histogram.buckets()
        self._family(metric).add_metric(list(labels), buckets, total)  # type: ignore[attr-defined]  # of histograms

    def families(self) -> Iterator[Family]:
        """All families, in the order in which they were first used."""
        yield from self._families.values()

    def add_choice(self, metric: Metric, labels: Sequence[str], choices: Iterable[str], chosen: str) -> None:
        """Add a gauge for each of some words: 1 for the one that holds, 0 for the others."""
        for choice in choices:
            self.add(metric, (*labels, choice), float(choice == chosen))

    def _family(self, metric: Metric) -> Family:
        return self._families.setdefault(metric.name, family_of(metric))


def _bound_of(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))
