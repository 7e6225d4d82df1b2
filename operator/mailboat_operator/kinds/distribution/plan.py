"""What a Distribution needs: to be requested once, followed until no subscriber is pending, and removed after its TTL.

It waits for all subscribers of the publisher, and for all members that pools of its namespace should have, also those
that have not announced themselves. It does not wait for members that a pool no longer has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from mailboat.api.records import DistributionView
from mailboat.errors import AgentRefusedError, AgentUnreachableError
from mailboat.frozen import Frozen

from mailboat_operator.definition.conditions import ConditionStatus
from mailboat_operator.kinds.distribution.spec import (
    Distribution,
    DistributionState,
    DistributionStatus,
    PoolProgress,
)
from mailboat_operator.kinds.finished import pause_after_finishing, plan_finished
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.plan.actions import Action, Plan, RecordEvent, RequestPackage, Severity
from mailboat_operator.plan.findings import Finding, is_paused, plan_status, ready, stalled, under_way, whole_seconds
from mailboat_operator.workload.fleet import listed, ordinal_of, reason_and_message, subscribers_of

DISTRIBUTED: Final = "Distributed"
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
_GONE: Final = "DistributionMissing"
"""The journal no longer holds the package, so its subscribers are unknown."""
_FOR_PERSONS: Final = frozenset({"PublisherMissing", "SecretMalformed"})
_SHORTEST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 30.0
_SHARE: Final = 5.0
"""A look comes after a fifth of the time that it has waited already, so that the tenth costs what the first did."""
_SHOWN: Final = 10
_NOT_FOLLOWED: Final = "not-followed"
_MAX_POOLS: Final = 100


class PoolSize(Frozen):
    """A pool that gets what the publisher publishes.

    Attributes:
        name: Of the pool.
        replicas: Members that it should have.
        is_shared: Whether they are one subscriber.
    """

    name: str
    replicas: int
    is_shared: bool = False

    @property
    def subscribers(self) -> Sequence[str]:
        """The names of its subscribers."""
        return subscribers_of(self.name, self.replicas, is_shared=self.is_shared)

    def has_scaled_away(self, subscriber: str) -> bool:
        """Whether the subscriber is one of its own that it should no longer have."""
        # The one of a shared pool stays while it has no members: they would go on where it stands.
        number = None if self.is_shared else ordinal_of(subscriber, self.name)
        return number is not None and number >= self.replicas


class DistributionObservation(Frozen):
    """What was observed around a Distribution.

    Attributes:
        now: The time of the observation.
        publisher: Its Publisher; None if absent, or not decodable.
        delivery: The package at the publisher's agent; None if it was not asked, or gave no answer.
        pools: The pools that follow the publisher.
        error: The agent's error instead of an answer.
    """

    now: datetime
    publisher: Publisher | None = None
    delivery: DistributionView | None = None
    pools: Sequence[PoolSize] = ()
    error: AgentUnreachableError | AgentRefusedError | None = None


def plan_distribution(distribution: Distribution, seen: DistributionObservation) -> Plan:
    """Decide what to do for a Distribution, and what to report of it."""
    now = seen.now
    if distribution.metadata.is_deleted:
        return Plan((), None)
    if distribution.status.finished_at is not None:
        return plan_finished(distribution, now)
    obstacle = obstacle_of(distribution, seen.publisher)
    if obstacle is not None:
        return plan_waiting(distribution, obstacle, now, None)
    if seen.error is not None:
        return _plan_error(distribution, seen.error, now)
    if seen.delivery is None:
        return Plan((RequestPackage(),), None)
    return plan_progress(distribution, seen.delivery, seen.pools, now)


def _plan_error(distribution: Distribution, error: AgentUnreachableError | AgentRefusedError, now: datetime) -> Plan:
    if isinstance(error, AgentRefusedError):
        return plan_refused(distribution, (str(error.where["error"]), error.message), now)
    reason = str(error.where.get("error", error.name))
    if reason == _GONE:
        return plan_refused(distribution, (reason, error.message), now)
    return plan_waiting(distribution, (reason, error.message), now, error.retry_after_seconds)


def obstacle_of(distribution: Distribution, publisher: Publisher | None) -> tuple[str, str] | None:
    """Why the publisher can't be asked: a reason and a sentence; None when it can."""
    if is_paused(distribution.metadata, suspend=False):
        return "Suspended", "the annotation mailboat.dev/paused is true: no request is sent and none is followed"
    name = distribution.spec.publisher_ref.name
    if publisher is None:
        return "PublisherMissing", f"no valid Publisher {name}"
    if is_paused(publisher.metadata, suspend=publisher.spec.suspend):
        return "PublisherSuspended", f"Publisher {name} is suspended"
    return None


def plan_waiting(distribution: Distribution, obstacle: tuple[str, str], now: datetime, again: float | None) -> Plan:
    """Say what it waits for; `again` is the wish of who refused, in seconds."""
    if _is_late(distribution, now) and not is_paused(distribution.metadata, suspend=False):
        return _finished(
            distribution, distribution.status, DEADLINE_EXCEEDED, f"{_late(distribution)}; {obstacle[1]}", now
        )
    say = stalled if obstacle[0] in _FOR_PERSONS else under_way
    findings = [*say(*obstacle), _distributed(ConditionStatus.FALSE, *obstacle)]
    state = distribution.status.state or DistributionState.PENDING
    plan = _plan(distribution, replace(distribution.status, state=state), findings, now)
    pause = max(again or 0.0, _pause(distribution.metadata.created_at, now))
    return replace(plan, again_seconds=_until_late(distribution, pause, now))


def plan_refused(distribution: Distribution, problem: tuple[str, str], now: datetime) -> Plan:
    """It fails permanently: the publisher would refuse it again."""
    name = distribution.spec.publisher_ref.name
    return _finished(distribution, distribution.status, problem[0], f"Publisher {name}: {problem[1]}", now)


def plan_progress(
    distribution: Distribution, delivery: DistributionView, pools: Sequence[PoolSize], now: datetime
) -> Plan:
    """Report the state of a package that the publisher has."""
    before = distribution.status
    # members that never announced themselves are unknown to the publisher, and would be missed
    named, expected = _named(delivery), dict.fromkeys(_expected(pools))
    missing = [name for name in expected if name not in named]
    # a shared pool `edge-5` never was a member of the pool `edge`
    gone = {name for name in delivery.waiting if name not in expected and any(p.has_scaled_away(name) for p in pools)}
    waiting = [*(name for name in delivery.waiting if name not in gone), *missing]
    failed = {failure.subscriber: reason_and_message(failure.cause) for failure in delivery.failed}
    missed = _missed(delivery, pools)
    total = len(delivery.imported) + len(waiting) + len(missed) + len(failed)
    status = replace(
        before,
        state=DistributionState.PUBLISHED,
        package_id=delivery.package_id,
        offset=delivery.offset,
        done=f"{len(delivery.imported)}/{total}",
        pools=tuple(_progress(pool, delivery, waiting, missed) for pool in pools[:_MAX_POOLS]),
        published_at=before.published_at or whole_seconds(delivery.published_at or now),
    )
    if waiting and _is_late(distribution, now):
        text = f"{_late(distribution)}; {status.done} subscribers imported it; waiting for {listed(waiting, _SHOWN)}"
        return _finished(distribution, status, DEADLINE_EXCEEDED, text, now)
    if waiting:
        return _followed(distribution, status, waiting, failed, now)
    if failed:
        return _finished(distribution, status, "GivenUp", _given_up(failed), now)
    text = f"{status.done} subscribers imported it" if total else "published; no subscribers"
    if missed:
        return _finished(distribution, status, "NotImported", f"{text}; {_missed_text(missed)}", now)
    return _finished(distribution, status, None, text, now)


def _followed(
    distribution: Distribution,
    status: DistributionStatus,
    waiting: Sequence[str],
    failed: Mapping[str, tuple[str, str]],
    now: datetime,
) -> Plan:
    """Not there yet. What was given up is reported at once, the rest goes on."""
    reason, text = "Published", f"{status.done} subscribers imported it; waiting for {listed(waiting, _SHOWN)}"
    reports: tuple[Action, ...] = ()
    if failed:
        reason, text = "GivenUp", f"{_given_up(failed)}; waiting for {listed(waiting, _SHOWN)}"
        # one Event, although the text changes with each member
        if not any(condition.reason == reason for condition in distribution.status.conditions):
            reports = (RecordEvent(Severity.WARNING, reason, text),)
    findings = [*under_way(reason, text), _distributed(ConditionStatus.FALSE, reason, text)]
    plan = _plan(distribution, status, findings, now)
    pause = _until_late(distribution, _pause(status.published_at, now), now)
    return replace(plan, actions=reports, again_seconds=pause)


def _finished(
    distribution: Distribution, status: DistributionStatus, problem: str | None, text: str, now: datetime
) -> Plan:
    if problem is None:
        status = replace(status, state=DistributionState.DISTRIBUTED, finished_at=whole_seconds(now))
        findings = [*ready(text, DISTRIBUTED), _distributed(ConditionStatus.TRUE, DISTRIBUTED, text)]
        report = RecordEvent(Severity.NORMAL, DISTRIBUTED, text)
    else:
        status = replace(status, state=DistributionState.FAILED, finished_at=whole_seconds(now))
        findings = [*stalled(problem, text), _distributed(ConditionStatus.FALSE, problem, text)]
        report = RecordEvent(Severity.WARNING, problem, text)
    plan = _plan(distribution, status, findings, now)
    return replace(plan, actions=(report,), again_seconds=pause_after_finishing(distribution))


def _plan(distribution: Distribution, status: DistributionStatus, findings: Sequence[Finding], now: datetime) -> Plan:
    return plan_status(distribution.metadata, distribution.status, status, findings, now)


def _distributed(truth: ConditionStatus, reason: str, message: str) -> Finding:
    return Finding(DISTRIBUTED, truth, reason, message)


def _pause(since: datetime | None, now: datetime) -> float:
    waited = 0.0 if since is None else (now - since).total_seconds()
    return min(max(waited / _SHARE, _SHORTEST_SECONDS), _LONGEST_SECONDS)


def _deadline(distribution: Distribution) -> datetime | None:
    seconds, made_at = distribution.spec.active_deadline_seconds, distribution.metadata.created_at
    return None if seconds is None or made_at is None else made_at + timedelta(seconds=seconds)


def _is_late(distribution: Distribution, now: datetime) -> bool:
    deadline = _deadline(distribution)
    return deadline is not None and now >= deadline


def _until_late(distribution: Distribution, pause: float, now: datetime) -> float:
    """A pause that ends at the deadline at the latest."""
    deadline = _deadline(distribution)
    return pause if deadline is None or deadline <= now else min(pause, (deadline - now).total_seconds())


def _late(distribution: Distribution) -> str:
    return f"not distributed within activeDeadlineSeconds of {distribution.spec.active_deadline_seconds}"


def _expected(pools: Sequence[PoolSize]) -> Iterator[str]:
    return (name for pool in pools for name in pool.subscribers)


def _named(delivery: DistributionView) -> set[str]:
    passed = {*delivery.removed, *(outcome.subscriber for outcome in (*delivery.skipped, *delivery.unknown))}
    return {*delivery.imported, *delivery.waiting, *passed, *(failure.subscriber for failure in delivery.failed)}


def _missed(delivery: DistributionView, pools: Sequence[PoolSize]) -> Mapping[str, str]:
    """The subscribers that passed it without a known import, and why; not those that do not follow the publisher."""
    expected = set(_expected(pools))
    skipped = {
        skip.subscriber: f"skipped ({skip.reason})"
        for skip in delivery.skipped
        if skip.reason != _NOT_FOLLOWED or skip.subscriber in expected
    }
    unknown = {outcome.subscriber: f"unknown ({outcome.reason})" for outcome in delivery.unknown}
    return {**dict.fromkeys(delivery.removed, "dropped"), **skipped, **unknown}


def _missed_text(missed: Mapping[str, str]) -> str:
    """Each reason with its subscribers."""
    names: dict[str, list[str]] = {}
    for name, reason in missed.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{reason}: {listed(those, _SHOWN)}" for reason, those in names.items())


def _progress(
    pool: PoolSize, delivery: DistributionView, waiting: Sequence[str], missed: Mapping[str, str]
) -> PoolProgress:
    members = dict.fromkeys(pool.subscribers)  # in order, and found at once among a thousand
    imported, failed = set(delivery.imported), {failure.subscriber for failure in delivery.failed}
    return PoolProgress(
        name=pool.name,
        done=sum(member in imported for member in members),
        members=len(members),
        waiting=tuple(name for name in waiting if name in members)[:_SHOWN],
        failed=tuple(member for member in members if member in failed)[:_SHOWN],
        missed=tuple(member for member in members if member in missed)[:_SHOWN],
    )


def _given_up(failed: Mapping[str, tuple[str, str]]) -> str:
    name, (reason, message) = next(iter(failed.items()))
    return f"given up by {listed(list(failed), _SHOWN)}; {name}: {reason}: {message[:300]}"
