"""The metrics of one process: who contributes, and the text that a scraper gets.

One registry of prometheus_client, made here or passed in, never the global one. What a scraper accepts decides on the
format: OpenMetrics where it asks for it, else the Prometheus text format.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder

import mailboat
from mailboat.clock import Clock
from mailboat.errors import MailboatError
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.telemetry import catalogue
from mailboat.telemetry.families import READING_SECONDS, Samples, TimedReading
from mailboat.telemetry.meters import FleetFigures, PublisherMetrics, RequestRecorder, collect_fleet
from mailboat.telemetry.subscriber_metrics import SubscriberMetrics

_LOG: Final = logging.getLogger(__name__)


class Exposition(NamedTuple):
    """What a scraper gets: the bytes, and the value of `Content-Type`."""

    content: bytes
    content_type: str


class Contributor(Protocol):
    """A source of samples."""

    def collect(self, samples: Samples) -> None:
        """Add it."""


class AgentMetrics:
    """All metrics of a process. Agents register while they are built; `render` may be called from any thread.

    Attributes:
        requests: Counts API requests; for the HTTP server to call.
    """

    def __init__(
        self, clock: Clock, registry: CollectorRegistry | None = None, reading_seconds: float = READING_SECONDS
    ) -> None:
        """Use the registry, or make one, and add what is known of the process itself."""
        self._clock = clock
        self.requests = RequestRecorder()
        self._registry = CollectorRegistry() if registry is None else registry
        self._lock = threading.Lock()
        self._contributors: list[Contributor] = [self.requests]
        self._subscribers: dict[str, SubscriberMetrics] = {}
        self._reading_seconds = reading_seconds
        self._fleet: TimedReading[Sequence[FleetFigures]] | None = None
        self._failed_scrapes = 0
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(_Collector(self._families))

    def subscriber(self, name: str, statistics: Callable[[], SubscriberStatistics]) -> SubscriberMetrics:
        """The metrics of a subscriber; give them to it as its meter. One that is made again goes on with them."""
        with self._lock:
            found = self._subscribers.get(name)
            if found is not None:
                found.continue_with(statistics)
                return found
            made = self._subscribers[name] = SubscriberMetrics(name, statistics, self._clock)
        # outside of the lock, which `add` acquires itself
        self.add(made)
        return made

    def publisher(self, name: str) -> PublisherMetrics:
        """The metrics of a publisher; give them to it as its meter."""
        made = PublisherMetrics(name)
        self.add(made)
        return made

    def add(self, contributor: Contributor) -> None:
        """Ask this one, too, at each scrape."""
        with self._lock:
            self._contributors.append(contributor)

    def watch(self, fleet: Callable[[], Iterable[FleetFigures]]) -> None:
        """Ask for queues and subscribers at each scrape. A failure is counted, and costs only these metrics."""
        self._fleet = TimedReading(lambda: list(fleet()), self._clock, self._reading_seconds)

    def render(self, accept: str = "") -> Exposition:
        """All metrics, in the format that the `Accept` header of a scraper asks for."""
        encode, content_type = choose_encoder(accept)
        return Exposition(encode(self._registry), content_type)

    def _families(self) -> Iterator[Family]:
        samples = Samples()
        samples.add(catalogue.INFO, (mailboat.__version__,), 1.0)
        with self._lock:
            # a copy: collecting takes long, and agents register meanwhile
            contributors: Sequence[Contributor] = list(self._contributors)
        for contributor in contributors:
            contributor.collect(samples)
        self._collect_fleet(samples)
        samples.add(catalogue.QUEUE_ERRORS, (), self._failed_scrapes)
        yield from samples.families()

    def _collect_fleet(self, samples: Samples) -> None:
        if self._fleet is None:
            return
        try:
            for figures in self._fleet.result():
                collect_fleet(figures, samples)
        except MailboatError as error:
            self._failed_scrapes += 1
            _LOG.warning("queues and subscribers could not be read for a scrape: %s", error)


class _Collector:
    """What a registry wants to have."""

    def __init__(self, families: Callable[[], Iterator[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        """All families of this moment."""
        return self._families()

    def describe(self) -> Iterable[Family]:
        """Nothing: asking at the registration would ask those who are not built yet."""
        return ()
