"""How a pool's members and publishers are, as conditions and Events.

Lagging begins at `spec.laggingFrom` packages and ends at half of it, and speaks of members that serve: one that is new
has its whole backlog left, which `CaughtUp` shows. If no agent answers, the last findings stay, until no publisher has
been ready for five minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Final

from mailboat.api.records import StatusView, SubscriberStatusView
from mailboat.frozen import Frozen
from mailboat.printable import printable

from mailboat_operator.definition.conditions import Condition, ConditionStatus, condition_of
from mailboat_operator.kinds.subscriber_pool.spec import SubscriberPool
from mailboat_operator.plan.actions import RecordEvent, Severity
from mailboat_operator.plan.findings import Finding, stalled
from mailboat_operator.workload.fleet import (
    coarse,
    is_blocked,
    is_gone,
    listed,
    max_lag,
    published_at,
    reason_and_message,
    subscribers_of,
)

LAGGING: Final = "Lagging"
BLOCKED: Final = "Blocked"
LAG_FIGURE: Final = "pool_lag_packages"
BLOCKED_FIGURE: Final = "pool_blocked_members"
PUBLISHERS_FOUND: Final = "PublishersFound"
_SHOWN: Final = 5
_KEPT: Final = timedelta(minutes=5)
"""A publisher that is rolled or moved is back before; after that the last figures would mislead."""
_LONGEST_ERROR: Final = 400


class PoolHealth(Frozen):
    """The health of a pool's members.

    Attributes:
        caught_up: How many have caught up; None where no agent answered.
        max_lag: Packages that the slowest is behind, in coarse steps.
        blocked: Members that fail at a package, or stopped.
        last_error: What keeps the first of them.
        findings: Conditions.
        reports: Events about conditions that changed.
        figures: For metrics.
    """

    caught_up: int | None
    max_lag: int | None
    blocked: int | None
    last_error: str | None
    findings: tuple[Finding, ...]
    reports: tuple[RecordEvent, ...]
    figures: Mapping[str, float] = field(default_factory=dict)


def health_of(pool: SubscriberPool, fleet: StatusView | None, unanswered: timedelta | None = None) -> PoolHealth:
    """What the announcements of a pool's members say of it.

    Args:
        pool: Which.
        fleet: All subscribers of the journal; None where no agent answered.
        unanswered: For how long there has been no publisher to ask; None if there is one.
    """
    before = pool.status
    known = [condition for condition in before.conditions if condition.type in {LAGGING, BLOCKED}]
    if fleet is None and unanswered is not None and unanswered >= _KEPT:
        text = "no Publisher of the Journal in this namespace is ready to be asked"
        outdated = tuple(Finding(was.type, ConditionStatus.UNKNOWN, "PublisherNotReady", text) for was in known)
        return PoolHealth(caught_up=None, max_lag=None, blocked=None, last_error=None, findings=outdated, reports=())
    # a publisher that is rolled must not end a condition, and begin it again with an Event
    if fleet is None:
        kept = tuple(
            Finding(condition.type, condition.status, condition.reason, condition.message) for condition in known
        )
        return PoolHealth(
            caught_up=None,
            max_lag=before.max_lag,
            blocked=before.blocked,
            last_error=before.last_error,
            findings=kept,
            reports=(),
        )
    members = _members(pool, fleet)
    blocked = [member for member in members if is_blocked(member)]
    lag, figures = max_lag(members), {BLOCKED_FIGURE: float(len(blocked))}
    if lag is not None:
        # an unknown lag has no sample: a 0 would let an autoscaler remove members that have work to do
        figures[LAG_FIGURE] = float(lag)
    findings = (_lagging(pool, members, known), _blocked(blocked))
    return PoolHealth(
        caught_up=sum(member.ready is True for member in members),
        max_lag=coarse(lag),
        blocked=len(blocked),
        last_error=_error_of(blocked[0]) if blocked else None,
        findings=findings,
        reports=tuple(_reports(findings, known)),
        figures=figures,
    )


def followed_publishers(pool: SubscriberPool, known: Collection[str], fleet: StatusView | None) -> Sequence[Finding]:
    """Whether the named publishers exist, as an object of the namespace or by a package in the journal."""
    if not pool.spec.publishers:
        return ()
    published = () if fleet is None else published_at(fleet)
    missing = [name for name in pool.spec.publishers if name not in known and name not in published]
    if not missing:
        return (Finding(PUBLISHERS_FOUND, ConditionStatus.TRUE, "AllFound", ""),)
    text = f"{', '.join(missing[:_SHOWN])}: no such Publisher here"
    if fleet is None:
        text = f"{text}, and no publisher could be asked whether the journal has packages of that name"
        return (Finding(PUBLISHERS_FOUND, ConditionStatus.UNKNOWN, "PublisherMissing", text),)
    text = f"{text}, and no package of that name in the journal; correct spec.publishers"
    return (Finding(PUBLISHERS_FOUND, ConditionStatus.FALSE, "PublisherMissing", text),)


def shared_identity(pool: SubscriberPool, fleet: StatusView | None) -> Sequence[Finding] | None:
    """A finding if members of the same names run elsewhere; None if there are none, or if it is unknown."""
    if fleet is None:
        return None
    names = {*_names(pool)}
    counts = Counter(
        subscriber.name for subscriber in fleet.subscribers if subscriber.name in names and not is_gone(subscriber)
    )
    twice = [name for name, count in sorted(counts.items()) if count > 1]
    if not twice:
        return None
    message = (
        f"duplicate subscriber names {', '.join(twice[:_SHOWN])}: another pool or subscriber on this journal "
        "uses them. Rename one of them"
    )
    return stalled("IdentityShared", message)


def _names(pool: SubscriberPool) -> Sequence[str]:
    return subscribers_of(pool.metadata.name, pool.spec.replicas, is_shared=pool.spec.is_shared)


def _members(pool: SubscriberPool, fleet: StatusView) -> Sequence[SubscriberStatusView]:
    """Those that the pool should have: of two with one name, the one that runs."""
    names = {*_names(pool)}
    found: dict[str, SubscriberStatusView] = {}
    for subscriber in fleet.subscribers:
        if subscriber.name in names and (subscriber.name not in found or is_gone(found[subscriber.name])):
            found[subscriber.name] = subscriber
    return [found[name] for name in _names(pool) if name in found]


def _lagging(pool: SubscriberPool, members: Sequence[SubscriberStatusView], known: Sequence[Condition]) -> Finding:
    limit = pool.spec.lagging_from
    lagging = condition_of(known, LAGGING)
    was_lagging = lagging is not None and lagging.holds

    def is_late(lag: int) -> bool:
        # two thresholds: with one, a lag that swings around it would be an Event each time
        return lag > limit / 2 if was_lagging else lag >= limit

    late = [member for member in members if member.ready is True and member.lag is not None and is_late(member.lag)]
    if not late:
        return Finding(LAGGING, ConditionStatus.FALSE, "Following", f"no serving member is {limit} packages behind")
    lag = coarse(max_lag(late))
    advice = "Add members, or check" if pool.spec.is_shared else "More members do not help: check"
    names = listed([member.name for member in late], _SHOWN)
    text = f"{names}: {lag} packages behind. {advice} publisher, brokers and CPU"
    return Finding(LAGGING, ConditionStatus.TRUE, "TooFarBehind", text)


def _blocked(blocked: Sequence[SubscriberStatusView]) -> Finding:
    if not blocked:
        return Finding(BLOCKED, ConditionStatus.FALSE, "NobodyBlocked", "")
    problem = None if blocked[0].error is None else reason_and_message(blocked[0].error)
    reason = "Unknown" if problem is None else problem[0]
    others = f"; and {listed([member.name for member in blocked[1:]], _SHOWN)}" if len(blocked) > 1 else ""
    return Finding(BLOCKED, ConditionStatus.TRUE, reason, f"{_error_of(blocked[0])}{others}")


def _reports(findings: Sequence[Finding], known: Sequence[Condition]) -> Iterator[RecordEvent]:
    """One Event for what begins, and one for what ends."""
    before = {condition.type: condition.status for condition in known}
    for finding in findings:
        did_hold = before.get(finding.type) is ConditionStatus.TRUE
        if finding.status is ConditionStatus.TRUE and not did_hold:
            yield RecordEvent(Severity.WARNING, finding.type, finding.message)
        elif finding.status is ConditionStatus.FALSE and did_hold:
            # of the two conditions only Blocked has no message when it ends
            yield RecordEvent(Severity.NORMAL, f"Not{finding.type}", finding.message or "no member is blocked any more")


def _error_of(member: SubscriberStatusView) -> str:
    reason, message = ("Unknown", "no cause reported") if member.error is None else reason_and_message(member.error)
    return printable(f"{member.name}: {reason}: {message}")[:_LONGEST_ERROR]
