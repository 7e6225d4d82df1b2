"""Where the head of the package topic should be: a pure decision.

Between the floor (what must stay in any case) and the ceiling (what must go in any case) the slowest subscriber that
matters decides. Without known subscribers age and size alone decide. The head never moves back, and
never into the midst of a package. Source: Pravega PDP-47 as it was shipped in 0.9, for one partition.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from mailboat.config.storage import ConsumptionConfig, RetentionConfig
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.positions import Bounds
from mailboat.retention.marks import LogMarks


@dataclass(frozen=True, slots=True)
class Holder:
    """A subscriber that matters, and what it reads next."""

    name: AgentName
    next_offset: Offset


class Reason(enum.StrEnum):
    """Why the head is planned where it is."""

    NOBODY = "no subscribers are known; retention by age and size only"
    HELD = "held by the slowest subscriber"
    FLOOR = "minimum age or size not reached; nothing removed"
    CEILING = "maximum age or size exceeded"
    EXPIRED = "removed by retention by age or size"


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """What to do.

    Attributes:
        head: Where the head should be; where it is, when nothing is to be done.
        reason: Why there.
        holders: The slowest of the subscribers that matter: they hold it back.
        losers: Subscribers that lose packages by it, as the ceiling wins over them.
    """

    head: Offset
    reason: Reason
    holders: tuple[AgentName, ...] = ()
    losers: tuple[Holder, ...] = ()


def plan_head(
    bounds: Bounds, holders: Sequence[Holder], marks: LogMarks, config: RetentionConfig, now_ms: int
) -> HeadPlan:
    """Where the head should be.

    Age and size (`package_seconds`, `package_bytes`) also count without known subscribers.
    """
    slowest, wanted, reason = bounds.earliest_offset, bounds.earliest_offset, Reason.NOBODY
    if holders:
        # a subscriber below the log has lost packages, but still holds the rest: a newer snapshot may repair it
        slowest = max(bounds.earliest_offset, min(holder.next_offset for holder in holders))
        wanted, reason = _by_consumption(bounds, slowest, marks, config.consumption, now_ms)
    expired = _beyond(bounds, marks, (config.package_seconds, config.package_bytes), now_ms)
    if expired > wanted:
        wanted, reason = expired, Reason.EXPIRED
    # Back to the border of a package: without its first pieces it could never be imported.
    head = max(bounds.earliest_offset, marks.border(min(wanted, bounds.next_offset)))
    return HeadPlan(
        head,
        reason,
        tuple(holder.name for holder in holders if holder.next_offset <= slowest),
        tuple(holder for holder in holders if bounds.earliest_offset <= holder.next_offset < head),
    )


def _by_consumption(
    bounds: Bounds, slowest: Offset, marks: LogMarks, limits: ConsumptionConfig, now_ms: int
) -> tuple[Offset, Reason]:
    floor = _floor(bounds, marks, limits, now_ms)
    ceiling = _beyond(bounds, marks, (limits.max_seconds, limits.max_bytes), now_ms)
    if slowest < ceiling:
        # The ceiling wins: a subscriber that never comes back must not fill the disk.
        return ceiling, Reason.CEILING
    return (floor, Reason.FLOOR) if slowest > floor else (slowest, Reason.HELD)


def _floor(bounds: Bounds, marks: LogMarks, limits: ConsumptionConfig, now_ms: int) -> Offset:
    """The head may be here at most: what is behind it stays, as it is young, or needed for the size."""
    floor = bounds.next_offset
    if limits.min_seconds > 0:
        older = marks.newest_older_than(now_ms - int(limits.min_seconds * 1000))
        floor = min(floor, bounds.earliest_offset if older is None else older)
    if limits.min_bytes > 0:
        enough = marks.newest_with_bytes_behind(limits.min_bytes)
        floor = min(floor, bounds.earliest_offset if enough is None else enough)
    return max(floor, bounds.earliest_offset)


def _beyond(bounds: Bounds, marks: LogMarks, most: tuple[float | None, int | None], now_ms: int) -> Offset:
    """The head must be here at least: all before it is too old, or too much."""
    head, (seconds, size_bytes) = bounds.earliest_offset, most
    if seconds is not None:
        older = marks.newest_older_than(now_ms - int(seconds * 1000))
        head = max(head, head if older is None else older)
    if size_bytes is not None:
        enough = marks.newest_with_bytes_behind(size_bytes)
        head = max(head, head if enough is None else enough)
    return head
