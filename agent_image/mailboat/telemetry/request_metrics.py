"""Counts API requests. The HTTP server calls it once a request; it depends on no web framework.

Routes are the templates of the API (`/api/v1/queues/{publisher}`), never the paths that callers send, so their number
is that of the API's operations; all other requests count as `other`.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from mailboat.telemetry import catalogue
from mailboat.telemetry.families import BulkHistogram, Samples

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
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
            route: The template of the operation; None when there is none.
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
