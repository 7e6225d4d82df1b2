"""Readiness: what makes a subscriber ready, and how little makes it cease to be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.config.document import ReadinessConfig
from mailboat.model.identifiers import Offset
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.readiness import (
    Readiness,
    ReadinessFacts,
    ReadinessGauge,
    ReadyReason,
    decide_readiness,
)
from mailboat.testing.clocks import ManualClock
from mailboat.testing.examples import examples

NEW = Readiness()
READY = Readiness(is_ready=True, reason=ReadyReason.CAUGHT_UP)
LAGGING = Readiness(is_ready=False, reason=ReadyReason.LAGGING)
STRICT = ReadinessConfig(force_seconds=300.0, max_lag_seconds=600.0)
FAR_BEHIND = ReadinessFacts(5.0, Offset(10), Offset(1000), waiting_seconds=9000.0)


def decided(facts: ReadinessFacts, before: Readiness = NEW, policy: ReadinessConfig = STRICT) -> Readiness:
    return decide_readiness(before, facts, policy)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(FAR_BEHIND, next_offset=Offset(1000)), ReadyReason.CAUGHT_UP),
        (replace(FAR_BEHIND, next_offset=Offset(2000)), ReadyReason.CAUGHT_UP),
        (replace(FAR_BEHIND, latency_seconds=119.0), ReadyReason.LATENCY),
        (replace(FAR_BEHIND, idle_seconds=10.0), ReadyReason.IDLE),
        (replace(FAR_BEHIND, attempts=3), ReadyReason.BLOCKED),
        (replace(FAR_BEHIND, running_seconds=300.0), ReadyReason.FORCED),
    ],
)
def test_a_subscriber_becomes_ready_for_a_reason(facts: ReadinessFacts, reason: ReadyReason) -> None:
    assert decided(facts) == Readiness(is_ready=True, reason=reason)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (ReadinessFacts(5.0), ReadyReason.STARTING),
        (FAR_BEHIND, ReadyReason.BEHIND),
        (replace(FAR_BEHIND, latency_seconds=121.0), ReadyReason.BEHIND),
        (replace(FAR_BEHIND, idle_seconds=9.0), ReadyReason.BEHIND),
        (replace(FAR_BEHIND, attempts=2), ReadyReason.BEHIND),
        (replace(FAR_BEHIND, running_seconds=299.0), ReadyReason.BEHIND),
        (replace(FAR_BEHIND, running_seconds=None, next_offset=Offset(1000)), ReadyReason.STOPPED),
    ],
)
def test_a_subscriber_that_is_not_ready_says_why(facts: ReadinessFacts, reason: ReadyReason) -> None:
    assert decided(facts) == Readiness(is_ready=False, reason=reason)


def test_no_one_is_forced_to_be_ready_unless_the_policy_says_so() -> None:
    assert not decided(replace(FAR_BEHIND, running_seconds=1e9), policy=ReadinessConfig()).is_ready


def test_one_that_gets_on_stays_ready_however_old_its_queue_is() -> None:
    assert decided(replace(FAR_BEHIND, still_seconds=9.0), READY) == READY


def test_one_that_lags_and_does_not_get_on_ceases_to_be_ready() -> None:
    assert decided(replace(FAR_BEHIND, still_seconds=10.0), READY) == LAGGING


def test_without_a_limit_no_one_ceases_to_be_ready() -> None:
    assert decided(replace(FAR_BEHIND, still_seconds=1e9), READY, ReadinessConfig()) == READY


def test_what_is_not_known_of_the_lag_changes_nothing() -> None:
    assert decided(replace(FAR_BEHIND, waiting_seconds=None, still_seconds=1e9), READY) == READY


@pytest.mark.parametrize(("waiting", "is_back"), [(301.0, False), (300.0, True), (None, True)])
def test_one_that_lagged_returns_when_the_lag_is_half_of_the_limit(waiting: float | None, is_back: bool) -> None:
    assert decided(replace(FAR_BEHIND, waiting_seconds=waiting), LAGGING).is_ready is is_back


def test_being_blocked_idle_or_forced_does_not_bring_one_back_that_lags() -> None:
    facts = replace(FAR_BEHIND, attempts=9, idle_seconds=99.0, running_seconds=9999.0)
    assert decided(facts, LAGGING) == LAGGING


FACTS = st.builds(
    ReadinessFacts,
    st.one_of(st.none(), st.floats(0, 1000)),
    st.one_of(st.none(), st.integers(0, 9).map(Offset)),
    st.one_of(st.none(), st.integers(0, 9).map(Offset)),
    st.one_of(st.none(), st.floats(0, 30)),
    st.floats(0, 30),
    st.integers(0, 5),
    st.one_of(st.none(), st.floats(0, 300)),
    st.one_of(st.none(), st.floats(0, 1200)),
)
BEFORE = st.builds(Readiness, st.booleans(), st.sampled_from(ReadyReason))


@settings(deadline=None, max_examples=examples(300))
@given(before=BEFORE, facts=FACTS)
def test_the_same_facts_twice_decide_alike(before: Readiness, facts: ReadinessFacts) -> None:
    once = decided(facts, before)
    if facts.still_seconds < STRICT.idle_seconds or once.reason is ReadyReason.STOPPED:
        assert decided(facts, once).is_ready == once.is_ready


@settings(deadline=None, max_examples=examples(300))
@given(facts=FACTS)
def test_without_a_limit_readiness_is_only_lost_by_stopping(facts: ReadinessFacts) -> None:
    after = decided(facts, READY, ReadinessConfig())
    assert after.is_ready or after.reason is ReadyReason.STOPPED


# ---------------------------------------------------------------------------------------------------------- the gauge


class Gauged:
    """A gauge with its figures."""

    def __init__(self, policy: ReadinessConfig = STRICT) -> None:
        self.clock = ManualClock()
        self.gauge = ReadinessGauge(policy, self.clock)
        self.figures = SubscriberStatistics()

    def set(self, **values: object) -> None:
        self.figures = replace(self.figures, **values)  # type: ignore[arg-type]  # checked by the record
        self.gauge.heed(self.figures)

    @property
    def now_ms(self) -> int:
        return int(self.clock.now().timestamp() * 1000)

    def says(self) -> Readiness:
        return self.gauge.readiness(self.figures)


def test_a_backlog_that_was_there_at_the_start_must_be_done_first() -> None:
    gauged = Gauged()
    gauged.gauge.opened(Offset(100))
    gauged.set(phase=SubscriberPhase.IMPORTING, next_offset=Offset(0))
    assert gauged.says().reason is ReadyReason.BEHIND
    gauged.gauge.opened(Offset(500))  # opened again after a fault: the goal stays
    gauged.set(next_offset=Offset(100))
    assert gauged.says() == READY


def test_one_that_is_held_up_by_another_counts_as_idle() -> None:
    gauged = Gauged()
    gauged.gauge.opened(Offset(100))
    gauged.set(phase=SubscriberPhase.WAITING_FOR, next_offset=Offset(5))
    gauged.clock.advance(9.0)
    assert not gauged.says().is_ready
    gauged.clock.advance(1.0)
    assert gauged.says() == Readiness(is_ready=True, reason=ReadyReason.IDLE)


def test_work_ends_the_idle_time() -> None:
    gauged = Gauged()
    gauged.gauge.opened(Offset(100))
    gauged.set(phase=SubscriberPhase.WAITING_FOR, next_offset=Offset(5))
    gauged.clock.advance(9.0)
    gauged.set(next_offset=Offset(6))
    gauged.clock.advance(9.0)
    gauged.set(phase=SubscriberPhase.IMPORTING)
    gauged.clock.advance(9.0)
    assert not gauged.says().is_ready


def test_a_young_package_shows_that_one_is_close_behind() -> None:
    gauged = Gauged()
    gauged.gauge.opened(Offset(100))
    gauged.set(phase=SubscriberPhase.IMPORTING, next_offset=Offset(5))
    gauged.gauge.imported(gauged.now_ms - 121_000)
    assert not gauged.says().is_ready
    gauged.gauge.imported(gauged.now_ms - 119_000)
    assert gauged.says().reason is ReadyReason.LATENCY


def test_a_package_that_can_not_be_imported_makes_one_lag_and_its_end_brings_it_back() -> None:
    gauged = Gauged()
    gauged.gauge.opened(Offset(0))
    gauged.set(phase=SubscriberPhase.CURRENT, next_offset=Offset(0))
    assert gauged.says().is_ready
    gauged.gauge.take_up(gauged.now_ms)
    gauged.set(phase=SubscriberPhase.RETRYING, attempts=1)
    gauged.clock.advance(601.0)
    assert gauged.says() == LAGGING
    gauged.set(phase=SubscriberPhase.CURRENT, next_offset=Offset(1), attempts=0)
    assert gauged.says().is_ready


def test_a_current_subscriber_stays_ready_while_the_journal_is_unreachable() -> None:
    gauged = Gauged()
    gauged.gauge.opened(Offset(0))
    gauged.gauge.take_up(gauged.now_ms)
    gauged.set(phase=SubscriberPhase.CURRENT, next_offset=Offset(1))
    gauged.clock.advance(3600.0)
    gauged.set(phase=SubscriberPhase.WAITING)
    assert gauged.says() == READY


def test_one_that_has_stopped_is_not_ready() -> None:
    gauged = Gauged()
    gauged.gauge.opened(Offset(0))
    gauged.set(phase=SubscriberPhase.CURRENT, next_offset=Offset(0))
    assert gauged.says().is_ready
    gauged.set(phase=SubscriberPhase.STOPPED)
    assert gauged.says() == Readiness(is_ready=False, reason=ReadyReason.STOPPED)
