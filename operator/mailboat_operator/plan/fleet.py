"""What a publisher's agent tells of everybody on its journal, and what is made of it for one object.

Lag is health, never a reason for more members: each has everything to import, so one more only adds its own backlog.
Figures change all the time, so what is judged by them has two thresholds, one to begin and a lower one to end. Where
nobody can be asked, what was known last stays. Pure; called by the plans of publishers, pools and distributions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

FOLLOW_SECONDS: Final = 30.0
"""How often publishers and pools are looked at for their figures alone."""

_SOONEST_SECONDS: Final = 2.0

_STOPPED: Final = "stopped"
_FAILURES: Final = 2
"""A package that failed once may well come through at the next attempt."""


@dataclass(frozen=True, slots=True)
class Member:
    """A subscriber as it announced itself.

    Attributes:
        name: Its name.
        state: Its phase, such as `current`; or `silent`, `new`.
        lag: Packages that it is behind; None where unknown.
        attempts: How often the package at hand has failed.
        is_ready: Whether it may serve; None of one that does not say, or does not run.
        follow: The publishers that it follows; none follows all.
        problem: Why it is retrying, waiting or stopped: an error's name and message.
    """

    name: str
    state: str
    lag: int | None = None
    attempts: int = 0
    is_ready: bool | None = None
    follow: tuple[str, ...] = ()
    problem: tuple[str, str] | None = None

    def ordinal_in(self, pool: str) -> int | None:
        """Which member of a pool it is; None for none."""
        return ordinal_of(self.name, pool)

    @property
    def is_blocked(self) -> bool:
        """Whether it stands at a package, or stopped in a named state."""
        return self.attempts >= _FAILURES or (self.state == _STOPPED and self.problem is not None)

    @property
    def is_gone(self) -> bool:
        """Whether it does not run."""
        return self.state in {_STOPPED, "silent", "new"}


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everybody on a journal.

    Attributes:
        next_offset: Of the journal's next package.
        published_at: When each publisher appended last, as far as that is known.
        members: The subscribers.
    """

    next_offset: int
    published_at: dict[str, datetime]
    members: tuple[Member, ...]

    def followers(self, publisher: str) -> Sequence[Member]:
        """Who imports what this publisher publishes."""
        return [one for one in self.members if not one.follow or publisher in one.follow]

    def of_pool(self, pool: str) -> Sequence[Member]:
        """The members that are called as a pool's pods."""
        return [one for one in self.members if one.ordinal_in(pool) is not None]


def pause_before_asking(fleet: Fleet | None, ready_since: datetime, now: datetime) -> float:
    """When to ask again, in seconds: soon after a pod is ready, and less and less often while no agent answers."""
    if fleet is not None:
        return FOLLOW_SECONDS
    return min(max((now - ready_since).total_seconds() / 2, _SOONEST_SECONDS), FOLLOW_SECONDS)


def ordinal_of(member: str, pool: str) -> int | None:
    """Which member of a pool has that name: 3 for `edge-3` of `edge`; None for none."""
    match = re.fullmatch(r"(0|[1-9][0-9]{0,5})", member[len(pool) + 1 :]) if member.startswith(f"{pool}-") else None
    return None if match is None else int(match[0])


def max_lag(members: Sequence[Member]) -> int | None:
    """Of the slowest; None where nobody says."""
    return max((one.lag for one in members if one.lag is not None), default=None)


def coarse(lag: int | None) -> int | None:
    """A lag with two digits that count, upwards: what is written of it changes seldom."""
    if lag is None or lag < 100:
        return lag
    step: int = 10 ** (len(str(lag)) - 2)
    return -(-lag // step) * step
