"""A subscriber's announcements: at the start, every ten seconds, and at once when its state changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mailboat.clock import Clock
from mailboat.frozen import Frozen
from mailboat.journal.port import Journal, NewRecord
from mailboat.model.identifiers import TopicName
from mailboat.model.messages import DiscoveryMessage
from mailboat.model.topics import DISCOVERY_TOPIC
from mailboat.wire.messages import encode_message
from mailboat.workers import Worker, WorkerOptions

STOP_SECONDS: Final = 10.0


class AnnouncerSettings(Frozen):
    """How often is announced.

    Attributes:
        topic: The discovery topic.
        subscriber: Who announces, for the log.
        period_seconds: The pause between announcements when nothing happens.
        shortest_pause_seconds: News that come faster are announced together.
    """

    topic: TopicName = DISCOVERY_TOPIC
    subscriber: str = ""
    period_seconds: float = 10.0
    shortest_pause_seconds: float = 0.2


class Announcer:
    """Announces between `start` and `stop`; `compose` is called in its thread, for the announcement of the moment."""

    def __init__(
        self, journal: Journal, compose: Callable[[], DiscoveryMessage], settings: AnnouncerSettings, clock: Clock
    ) -> None:
        """Nothing is announced before `start`."""
        self._journal = journal
        self._compose = compose
        self._settings = settings
        options = WorkerOptions(
            f"announcing {settings.subscriber}",
            first_pause_seconds=settings.shortest_pause_seconds,
            longest_pause_seconds=settings.period_seconds,
            on_end=self.announce,
            where={"subscriber": settings.subscriber},
        )
        self.worker: Final = Worker(f"announcer-{settings.subscriber}", self._turn, clock, options)

    @property
    def failures(self) -> int:
        """Announcements that could not be sent."""
        return self.worker.failures

    def start(self) -> None:
        """Announce now and from now on."""
        self.worker.start()

    def announce_soon(self) -> None:
        """There is news: announce it now, together with what follows within the shortest pause. From any thread."""
        self.worker.wake()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Announce a last time, and end the thread; that may take so long."""
        self.worker.stop(seconds)

    def announce(self) -> None:
        """Announce once, from the calling thread. Raises: the journal's errors."""
        message = self._compose()
        headers, value = encode_message(message)
        key = f"{message.sub_sling_id}-{message.sub_agent_name}".encode()
        self._journal.append(self._settings.topic, [NewRecord(value, headers, key)])

    def _turn(self) -> float:
        self.announce()
        self.worker.rest(self._settings.shortest_pause_seconds)
        return max(0.0, self._settings.period_seconds - self._settings.shortest_pause_seconds)
