"""What a subscriber says of itself, made of its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import ReportStart, SubscriberState

_OTHERS: Final = AgentName("")


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
    """One state for each publisher, all with the same offset: the last one done, -1 when there is none.

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
