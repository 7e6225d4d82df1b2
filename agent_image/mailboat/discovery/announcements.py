"""What a subscriber says of itself, made of its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mailboat.model.identifiers import AgentName
from mailboat.model.messages import ReportStart, SubscriberState


def states_for(
    publishers: Iterable[AgentName],
    next_offset: int | None,
    failures: int,
    failing: AgentName | None,
    reports: Mapping[AgentName | None, ReportStart | None],
) -> tuple[SubscriberState, ...]:
    """One state for each publisher, all with the same offset: the last one done, -1 when there is none.

    The failures are those of one package, so they are told of its publisher alone, where it is known: the others'
    packages only wait behind it.
    """
    last_done = -1 if next_offset is None else next_offset - 1
    return tuple(
        SubscriberState(
            name, last_done, failures if failing in {None, name} else 0, reports.get(name, reports.get(None))
        )
        for name in sorted(publishers)
    )
