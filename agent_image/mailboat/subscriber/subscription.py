"""The subscriber: reads the package topic from its position and imports every package, in order, once."""

from __future__ import annotations

import enum

from mailboat.clock import Deadline
from mailboat.subscriber.progress import SubscriberStatistics
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings


class Until(enum.Enum):
    """When `Subscriber.run` returns by itself."""

    CAUGHT_UP = "caught-up"
    """When everything is done that the log held at the start."""

    FOREVER = "forever"
    """Only when it is stopped."""


class Subscriber:
    """One subscriber agent on one target. `run` from one thread; `stop` and `statistics` from any."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts) -> None:
        """Nothing is read or written before `run`."""
        self._settings = settings
        self._ports = ports

    def run(self, until: Until = Until.FOREVER) -> SubscriberStatistics:
        """Import until asked to stop, or until caught up. Returns the last snapshot.

        Raises:
            StopError: A named state (JournalTrimmed, JournalReplaced, JournalShorter, UnknownRequiredFeature,
                TargetCorrupt, …): the position stands before what could not be done; a person decides.
        """
        raise NotImplementedError

    def stop(self, deadline: Deadline | None = None) -> None:
        """Ask `run` to return: the batch at hand is finished, or rolled back when the deadline is over."""

    def statistics(self) -> SubscriberStatistics:
        """A snapshot."""
        return SubscriberStatistics()
