"""The subscriber: reads the package topic from its position and imports every package, in order, once.

One thread does it all: what the journal has ready is read (never waiting for more), imported in one transaction with
position and confirmations, committed, confirmed. So a single package is imported at once, and a backlog in large
batches; docs/decisions/0006-delivery.md says why no second thread is used. Called by the agent and the command line.
"""

from __future__ import annotations

import enum

from mailboat.clock import Deadline
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.subscriber.run import ImportRun
from mailboat.subscriber.subscriber_settings import SubscriberPorts, SubscriberSettings


class Until(enum.Enum):
    """When `Subscriber.run` returns without being stopped."""

    CAUGHT_UP = "caught-up"
    """When everything is done that the log held at the start."""

    FOREVER = "forever"
    """Only when it is stopped."""


class Subscriber:
    """One subscriber agent on one target. `run` from one thread, once; `stop` and `statistics` from any."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts) -> None:
        """Nothing is read or written before `prepare` or `run`."""
        self._run = ImportRun(settings, ports)

    def prepare(self) -> None:
        """Store where commands to a new target begin; call it before the subscriber is announced.

        Raises: the journal's and the target's errors; `run` does it, too.
        """
        self._run.prepare()

    def run(self, until: Until = Until.FOREVER) -> SubscriberStatistics:
        """Import until asked to stop, or until caught up. Returns the last snapshot.

        Raises:
            StopError: A named state (JournalIncomplete, JournalTrimmed, JournalReplaced, JournalShorter,
                UnknownRequiredFeature, TargetCorrupt, …): the position is at the message that could not be done; a
                person decides.
        """
        return self._run.run(is_endless=until is Until.FOREVER)

    def stop(self, deadline: Deadline | None = None) -> None:
        """Ask `run` to return: the current batch is finished, or rolled back when the deadline is over."""
        self._run.stop(deadline)

    def statistics(self) -> SubscriberStatistics:
        """A snapshot."""
        return self._run.statistics()
