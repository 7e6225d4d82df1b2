"""Whether a subscriber may serve what it holds: a pure decision, kept steady.

A subscriber becomes ready for the first of these reasons:

    caught-up    it has done all that the log held when it started
    latency      the last package it imported was young: it is close behind the publishers
    idle         it has nothing to do for a while, also because a golden subscriber holds it up
    blocked      a package has failed three times: it will not get further, and its content is as good as it gets
    forced       it had the time that the policy gives

It stays ready from then on. Only where the policy limits the lag it ceases to be, as `lagging`: when the oldest package
that waits for it is too old and it has not got on for a while. One that gets on stays ready however long its queue is,
so that a burst of packages does not take all subscribers out at once; taking out one that works would not make it
faster either. It returns when the lag has fallen to half of the limit. A journal that can't be reached says nothing
about any lag, and changes nothing.

Source: Sling's SubscriberReady, SLING-10180 and others (the reasons), without its latch that never opens again.
"""

from __future__ import annotations

import enum

from mailboat.frozen import Frozen
from mailboat.model.identifiers import Offset
from mailboat.queues.standing import BLOCKING_ATTEMPTS


class ReadyReason(enum.StrEnum):
    """Why a subscriber is ready, or is not."""

    STARTING = "starting"
    BEHIND = "behind"
    LAGGING = "lagging"
    STOPPED = "stopped"
    CAUGHT_UP = "caught-up"
    LATENCY = "latency"
    IDLE = "idle"
    BLOCKED = "blocked"
    FORCED = "forced"


class ReadinessPolicy(Frozen):
    """When a subscriber counts as ready.

    Attributes:
        max_latency_seconds: A package this young when it was imported shows that the subscriber is close behind.
        force_seconds: Ready after so long in any case; None never forces it.
        idle_seconds: Nothing to do for so long shows that it has caught up; not getting on for so long, that it lags.
        max_lag_seconds: It lags when the oldest package that waits for it is this old; None never.
    """

    max_latency_seconds: float = 120.0
    force_seconds: float | None = None
    idle_seconds: float = 10.0
    max_lag_seconds: float | None = None


class ReadinessFacts(Frozen):
    """What the decision depends on. None where something is not known, or does not apply.

    Attributes:
        running_seconds: Since the start; None when it has ended.
        next_offset: Everything below it is done.
        goal_offset: Where the log ended when the subscriber started.
        idle_seconds: For how long there was nothing to do.
        still_seconds: For how long it has not got on.
        attempts: How often the package at hand has failed.
        latency_seconds: Age of the last package when it was imported.
        waiting_seconds: Age of the package at hand.
    """

    running_seconds: float | None
    next_offset: Offset | None = None
    goal_offset: Offset | None = None
    idle_seconds: float | None = None
    still_seconds: float = 0.0
    attempts: int = 0
    latency_seconds: float | None = None
    waiting_seconds: float | None = None


class Readiness(Frozen):
    """Whether a subscriber is ready, and why or why not."""

    is_ready: bool = False
    reason: ReadyReason = ReadyReason.STARTING


def decide_readiness(before: Readiness, facts: ReadinessFacts, policy: ReadinessPolicy) -> Readiness:
    """What a subscriber is now, given what it was."""
    if facts.running_seconds is None:
        return Readiness(is_ready=False, reason=ReadyReason.STOPPED)
    if before.is_ready:
        return Readiness(is_ready=False, reason=ReadyReason.LAGGING) if _has_fallen_behind(facts, policy) else before
    if before.reason is ReadyReason.LAGGING:
        return Readiness(is_ready=True, reason=ReadyReason.CAUGHT_UP) if _has_recovered(facts, policy) else before
    reason = _reason_to_begin(facts, policy)
    if reason is not None:
        return Readiness(is_ready=True, reason=reason)
    is_known = facts.next_offset is not None
    return Readiness(is_ready=False, reason=ReadyReason.BEHIND if is_known else ReadyReason.STARTING)


def _has_fallen_behind(facts: ReadinessFacts, policy: ReadinessPolicy) -> bool:
    limit, waiting = policy.max_lag_seconds, facts.waiting_seconds
    is_too_old = limit is not None and waiting is not None and waiting > limit
    return is_too_old and facts.still_seconds >= policy.idle_seconds


def _has_recovered(facts: ReadinessFacts, policy: ReadinessPolicy) -> bool:
    limit, waiting = policy.max_lag_seconds, facts.waiting_seconds
    return waiting is None or limit is None or waiting <= limit / 2


def _reason_to_begin(facts: ReadinessFacts, policy: ReadinessPolicy) -> ReadyReason | None:
    if facts.next_offset is not None and facts.goal_offset is not None and facts.next_offset >= facts.goal_offset:
        return ReadyReason.CAUGHT_UP
    if facts.latency_seconds is not None and facts.latency_seconds <= policy.max_latency_seconds:
        return ReadyReason.LATENCY
    if facts.idle_seconds is not None and facts.idle_seconds >= policy.idle_seconds:
        return ReadyReason.IDLE
    if facts.attempts >= BLOCKING_ATTEMPTS:
        return ReadyReason.BLOCKED
    is_forced = policy.force_seconds is not None and (facts.running_seconds or 0.0) >= policy.force_seconds
    return ReadyReason.FORCED if is_forced else None
