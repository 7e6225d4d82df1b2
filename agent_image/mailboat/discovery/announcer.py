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

_SHORTEST_PAUSE_SECONDS: Final = 0.2


def announcer(
    journal: Journal,
    topic: TopicName,
    compose: Callable[[], DiscoveryMessage],
    clock: Clock,
    subscriber: str = "",
    period_seconds: float = 10.0,
) -> Worker:
    """A worker that announces now, with each period, after `wake` and a last time when it is stopped.

    News that come faster than the shortest pause are announced together.

    Args:
        journal: Where announcements are appended.
        topic: The discovery topic.
        compose: Gives the announcement of the moment, in the worker's thread.
        clock: For pauses.
        subscriber: Its name, for the log.
        period_seconds: The pause between announcements when nothing happens.
    """

    def announce() -> None:
        message = compose()
        headers, value = encode_message(message)
        key = f"{message.sub_sling_id}-{message.sub_agent_name}".encode()
        journal.append(topic, [NewRecord(value, headers, key)])

    def turn() -> float:
        announce()
        # `wake` does not end this rest: the changes of a burst make one announcement.
        worker.rest(_SHORTEST_PAUSE_SECONDS)
        return max(0.0, period_seconds - _SHORTEST_PAUSE_SECONDS)

    options = WorkerOptions(
        f"announcing {subscriber}",
        first_pause_seconds=_SHORTEST_PAUSE_SECONDS,
        longest_pause_seconds=period_seconds,
        on_end=announce,
        where={"subscriber": subscriber},
    )
    worker = Worker(f"announcer-{subscriber}", turn, clock, options)
    return worker


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
