"""A subscriber's announcements: at the start, every ten seconds, and at once when its state changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mailboat.clock import Clock
from mailboat.errors import MailboatError
from mailboat.journal.port import Journal, NewRecord
from mailboat.model.identifiers import TopicName
from mailboat.model.messages import DiscoveryMessage
from mailboat.model.topics import DISCOVERY_TOPIC
from mailboat.wire.messages import encode_message

STOP_SECONDS: Final = 10.0

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnnouncerSettings:
    """How often is announced.

    Attributes:
        topic: The discovery topic.
        period_seconds: The pause between announcements when nothing happens.
        shortest_pause_seconds: News that come faster are announced together.
    """

    topic: TopicName = DISCOVERY_TOPIC
    period_seconds: float = 10.0
    shortest_pause_seconds: float = 0.2


class Announcer:
    """Announces from a thread of its own until it is stopped.

    `compose` is called in that thread and gives the announcement of the moment. A failing journal is no reason to stop:
    the failure is counted, and the next announcement comes in its time. A defect is logged with its trace.
    """

    def __init__(
        self, journal: Journal, compose: Callable[[], DiscoveryMessage], settings: AnnouncerSettings, clock: Clock
    ) -> None:
        """Nothing is announced before `start`."""
        self._journal = journal
        self._compose = compose
        self._settings = settings
        self._clock = clock
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self._failures = 0

    @property
    def failures(self) -> int:
        """Announcements that could not be sent."""
        return self._failures

    def start(self) -> None:
        """Announce now and from now on."""
        self._thread.start()

    def announce_soon(self) -> None:
        """There is news: announce it now, together with what follows within the shortest pause. From any thread."""
        self._woken.set()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Announce a last time, and end the thread; that may take so long."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def announce(self) -> None:
        """Announce once, from the calling thread. Raises: the journal's errors."""
        message = self._compose()
        headers, value = encode_message(message)
        key = f"{message.sub_sling_id}-{message.sub_agent_name}".encode()
        self._journal.append(self._settings.topic, [NewRecord(value, headers, key)])

    def _run(self) -> None:
        while True:
            is_last = self._stopping.is_set()
            self._woken.clear()
            self._announce_if_possible()
            if is_last:
                return
            self._clock.wait(self._stopping, self._settings.shortest_pause_seconds)
            rest = max(0.0, self._settings.period_seconds - self._settings.shortest_pause_seconds)
            self._clock.wait(self._woken, rest)

    def _announce_if_possible(self) -> None:
        try:
            self.announce()
        except MailboatError:
            self._failures += 1
        except Exception:  # noqa: BLE001  # a defect must not end the thread for good
            self._failures += 1
            _LOG.exception("an announcement failed by a defect; the next one comes in its time")
