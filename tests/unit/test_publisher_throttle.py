"""Per-caller backpressure while an editable subscriber lags, and the order of waiting requests."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.config.document import ThrottleConfig
from mailboat.errors import ThrottledError
from mailboat.publisher.throttle import MAX_CALLERS, MAX_HELD_SECONDS, Throttle, plan_delay
from mailboat.testing import wait
from mailboat.testing.clocks import ManualClock, SkippingClock

backlogs = st.integers(0, 2**63)
limits = st.integers(1, 10**6)


@pytest.mark.parametrize(
    ("backlog", "delay"), [(0, 0.0), (1000, 0.0), (1001, 0.02), (1500, 10.0), (2000, 20.0), (10**9, 20.0)]
)
def test_the_delay_grows_from_the_limit_to_twice_the_limit(backlog: int, delay: float) -> None:
    assert plan_delay(backlog, 1000, 20.0) == pytest.approx(delay)


def test_without_a_limit_nothing_is_delayed() -> None:
    assert plan_delay(10**9, None, 20.0) == 0.0


@given(backlog=backlogs, limit=limits, longest=st.floats(0, 3600))
def test_the_delay_never_exceeds_the_longest_and_never_shrinks_with_the_backlog(
    backlog: int, limit: int, longest: float
) -> None:
    delay = plan_delay(backlog, limit, longest)
    assert 0.0 <= delay <= longest
    assert plan_delay(backlog + 1, limit, longest) >= delay


class TestAdmission:
    @pytest.fixture
    def clock(self) -> SkippingClock:
        return SkippingClock()

    @pytest.fixture
    def throttle(self, clock: SkippingClock) -> Throttle:
        return Throttle(ThrottleConfig(1000, 20.0), clock)

    def test_up_to_the_limit_no_one_waits(self, throttle: Throttle, clock: SkippingClock) -> None:
        before = clock.monotonic()
        throttle.admit("ann", 1000)
        assert clock.monotonic() == before

    def test_a_short_delay_is_waited_out(self, throttle: Throttle, clock: SkippingClock) -> None:
        before = clock.monotonic()
        throttle.admit("ann", 1025)
        assert clock.monotonic() - before == pytest.approx(0.5)

    def test_a_long_delay_is_told_and_not_waited_for(self, throttle: Throttle, clock: SkippingClock) -> None:
        before = clock.monotonic()
        with pytest.raises(ThrottledError, match="1500 packages behind") as refused:
            throttle.admit("ann", 1500)
        assert refused.value.retry_after_seconds == 10
        assert clock.monotonic() == before

    def test_who_comes_again_in_time_is_let_in_once(self, throttle: Throttle, clock: SkippingClock) -> None:
        for _ in range(2):
            with pytest.raises(ThrottledError):
                throttle.admit("ann", 1500)
        clock.advance(10)
        throttle.admit("ann", 1500)
        with pytest.raises(ThrottledError):
            throttle.admit("ann", 1500)

    def test_who_comes_again_too_early_keeps_its_place(self, throttle: Throttle, clock: SkippingClock) -> None:
        with pytest.raises(ThrottledError):
            throttle.admit("ann", 1500)
        clock.advance(6)
        with pytest.raises(ThrottledError) as refused:
            throttle.admit("ann", 2000)
        assert refused.value.retry_after_seconds == 4

    def test_a_place_is_worth_no_more_than_the_backlog_of_now(self, throttle: Throttle, clock: SkippingClock) -> None:
        with pytest.raises(ThrottledError):
            throttle.admit("ann", 2000)
        before = clock.monotonic()
        throttle.admit("ann", 900)
        assert clock.monotonic() == before

    def test_requests_that_are_sent_at_once_are_let_in_one_after_the_other(self) -> None:
        throttle = Throttle(ThrottleConfig(1000, 20.0), ManualClock())
        places = [throttle._place("ann", 0.4) for _ in range(5)]
        assert places == pytest.approx([0.4, 0.8, 1.2, 1.2, 1.2])

    def test_the_pace_of_one_caller_is_not_anothers(self, throttle: Throttle, clock: SkippingClock) -> None:
        with pytest.raises(ThrottledError):
            throttle.admit("ann", 2000)
        clock.advance(20)
        with pytest.raises(ThrottledError):
            throttle.admit("bob", 2000)
        throttle.admit("ann", 2000)

    def test_invented_callers_do_not_fill_the_memory(self, throttle: Throttle) -> None:
        for number in range(MAX_CALLERS + 50):
            with pytest.raises(ThrottledError):
                throttle.admit(f"caller-{number}", 2000)
        assert len(throttle._places) == MAX_CALLERS

    def test_one_who_waits_holds_no_one_up(self) -> None:
        clock = ManualClock()
        throttle = Throttle(ThrottleConfig(1000, 20.0), clock)
        waiting = threading.Thread(target=throttle.admit, args=("ann", 1000 + int(50 * MAX_HELD_SECONDS)), daemon=True)
        waiting.start()
        assert clock.await_waiters()
        throttle.admit("bob", 0)
        clock.advance(MAX_HELD_SECONDS)
        waiting.join(wait.PATIENCE_SECONDS)
        assert not waiting.is_alive()
