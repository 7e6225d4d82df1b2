"""A subscriber's announcements, made of its figures: at the start, every ten seconds, and when its state changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mailboat.clock import Clock
from mailboat.journal.port import Journal, NewRecord
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.model.messages import DiscoveryMessage, ReportStart, SubscriberState
from mailboat.wire.messages import encode_message
from mailboat.workers import Worker, WorkerOptions

STOP_SECONDS: Final = 10.0
_SHORTEST_PAUSE_SECONDS: Final = 0.2  # news that come faster are announced together


class Announcer:
    """Announces between `start` and `stop`; `compose` is called in its thread, for the announcement of the moment."""

    def __init__(
        self,
        journal: Journal,
        topic: TopicName,
        compose: Callable[[], DiscoveryMessage],
        clock: Clock,
        subscriber: str = "",
        period_seconds: float = 10.0,
    ) -> None:
        """Nothing is announced before `start`.

        Args:
            journal: Where announcements are appended.
            topic: The discovery topic.
            compose: Gives the announcement of the moment.
            clock: For pauses.
            subscriber: Its name, for the log.
            period_seconds: The pause between announcements when nothing happens.
        """
        self._journal = journal
        self._compose = compose
        self._topic = topic
        self._period_seconds = period_seconds
        options = WorkerOptions(
            f"announcing {subscriber}",
            first_pause_seconds=_SHORTEST_PAUSE_SECONDS,
            longest_pause_seconds=period_seconds,
            on_end=self.announce,
            where={"subscriber": subscriber},
        )
        self.worker: Final = Worker(f"announcer-{subscriber}", self._turn, clock, options)

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
        self._journal.append(self._topic, [NewRecord(value, headers, key)])

    def _turn(self) -> float:
        self.announce()
        self.worker.rest(_SHORTEST_PAUSE_SECONDS)
        return max(0.0, self._period_seconds - _SHORTEST_PAUSE_SECONDS)


_OTHERS: Final = AgentName("")


# Bounds the announcement: the oldest ones are joined into one entry.
_MAX_FORMER: Final = 100


def former_states(reports: Mapping[AgentName | None, ReportStart | None]) -> tuple[SubscriberState, ...]:
    """The publishers that are not followed any more; where they are too many, nothing is claimed of those left out."""
    former = [(name or _OTHERS, one) for name, one in reports.items() if one is not None and one.until is not None]
    former.sort(key=lambda each: (each[0] == _OTHERS, -(each[1].until or 0)))
    if len(former) > _MAX_FORMER:
        last = max(one.until or Offset(0) for _, one in former[_MAX_FORMER - 1 :])
        former = [*former[: _MAX_FORMER - 1], (_OTHERS, ReportStart(last, until=last))]
    return tuple(SubscriberState(name, (one.until or 0) - 1, reports=one) for name, one in former)


def states_for(
    publishers: Iterable[AgentName],
    next_offset: int | None,
    failures: int,
    failing: AgentName | None,
    reports: Mapping[AgentName | None, ReportStart | None],
) -> tuple[SubscriberState, ...]:
    """One state for each publisher, all with the same offset: the last one done, -1 without one.

    The failures are those of one package, so they are reported for its publisher alone, where it is known: the others'
    packages only wait behind it.
    """
    last_done = -1 if next_offset is None else next_offset - 1
    return tuple(
        SubscriberState(
            name, last_done, failures if failing in {None, name} else 0, reports.get(name, reports.get(None))
        )
        for name in sorted(publishers)
    )
