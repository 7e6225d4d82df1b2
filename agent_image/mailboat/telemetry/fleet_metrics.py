"""Metrics of subscribers and queues: read from the agent's own state at each scrape.

The agent's control service provides them as plain figures; so a scrape costs what one query of
the status costs, and nothing between scrapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mailboat.telemetry import catalogue
from mailboat.telemetry.families import Samples

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
