"""The status of all subscribers of a journal, as a publisher's agent reports it, and what follows for one object.

Lag is health, never a reason for more members: each has everything to import, so one more only adds its own backlog.
Figures change all the time, so what is judged by them has two thresholds, one to begin and a lower one to end. If
no agent answers, the last figures stay; a pool's go after five minutes without a ready publisher. Pure; called by the
plans of publishers, pools and distributions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from mailboat.api.records import CauseView, StatusView, SubscriberStatusView
from mailboat.model.messages import is_blocking

from mailboat_operator.definition.conditions import REASON

FOLLOW_SECONDS: Final = 30.0
"""How often publishers and pools are reconciled for their figures alone."""

_LONGEST_MESSAGE: Final = 512
_SOONEST_SECONDS: Final = 2.0

_STOPPED: Final = "stopped"


def followers(status: StatusView, publisher: str) -> Sequence[SubscriberStatusView]:
    """The subscribers that import what a publisher publishes."""
    return [subscriber for subscriber in status.subscribers if not subscriber.follow or publisher in subscriber.follow]


def subscribers_of(pool: str, members: int, *, is_shared: bool) -> Sequence[str]:
    """The subscribers of a pool: one per member, or one for all members of a shared pool."""
    return [pool][:members] if is_shared else [f"{pool}-{number}" for number in range(members)]


def published_at(status: StatusView) -> Mapping[str, datetime]:
    """The time of each publisher's last append, as far as it is known."""
    found = status.publishers
    return {
        publisher.name: publisher.last_published_at for publisher in found if publisher.last_published_at is not None
    }


def is_blocked(member: SubscriberStatusView) -> bool:
    """Whether a package blocks the subscriber, as its queue says too, or it stopped in a named state."""
    return is_blocking(member.attempts) or (member.state == _STOPPED and member.error is not None)


def is_gone(member: SubscriberStatusView) -> bool:
    """Whether the subscriber does not run."""
    return member.state in {_STOPPED, "silent", "new"}


def reason_and_message(cause: CauseView) -> tuple[str, str]:
    """A reason that a condition accepts, and a message of bounded length."""
    return reason_of(cause.code), cause.message[:_LONGEST_MESSAGE]


def reason_of(name: str, otherwise: str = "Unknown") -> str:
    """An error's name as the reason of a condition; `otherwise` where conditions refuse the name."""
    is_valid = len(name) <= REASON.max_length and re.fullmatch(REASON.pattern, name)
    return name if is_valid else otherwise


def pause_before_asking(fleet: StatusView | None, ready_since: datetime, now: datetime) -> float:
    """Seconds until the next poll: soon after a pod is ready, as members announce themselves, then later."""
    elapsed = (now - ready_since).total_seconds()
    return min(max(elapsed / 2 if fleet is None else elapsed, _SOONEST_SECONDS), FOLLOW_SECONDS)


def ordinal_of(member: str, pool: str) -> int | None:
    """Which member of a pool has that name: 3 for `edge-3` of `edge`; None for none."""
    match = re.fullmatch(r"(0|[1-9][0-9]{0,5})", member[len(pool) + 1 :]) if member.startswith(f"{pool}-") else None
    return None if match is None else int(match[0])


def listed(names: Sequence[str], most: int) -> str:
    """Names for a message: the first ones, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def max_lag(members: Sequence[SubscriberStatusView]) -> int | None:
    """Of the slowest; None where unknown."""
    return max((member.lag for member in members if member.lag is not None), default=None)


def coarse(lag: int | None) -> int | None:
    """A lag with two digits that count, upwards: what is written of it changes seldom."""
    if lag is None or lag < 100:
        return lag
    step: int = 10 ** (len(str(lag)) - 2)
    return -(-lag // step) * step
