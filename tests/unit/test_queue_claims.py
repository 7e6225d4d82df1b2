"""How far a subscriber says to be, and from when on that counts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.queues.claims import MAX_CLAIMS, SETTLING_SECONDS, PositionClaims
from mailboat.testing.examples import examples


def test_a_claim_counts_a_moment_after_it_was_heard() -> None:
    claims = PositionClaims().and_then(3, 10.0).and_then(7, 10.5)
    assert [claims.settled(at) for at in (10.9, 11.0, 11.4, 11.5)] == [0, 3, 3, 7]


def test_a_claim_that_is_repeated_ages_all_the_same() -> None:
    assert PositionClaims().and_then(3, 10.0).and_then(3, 10.9).settled(11.0) == 3


def test_going_back_is_believed_at_once() -> None:
    claims = PositionClaims().and_then(9, 1.0).and_then(4, 20.0)
    assert (claims.claimed, claims.settled(20.0)) == (4, 4)


def test_what_a_target_says_itself_counts_at_once() -> None:
    assert PositionClaims.certain(5).done_to(-1, 0.0) == 5


def test_a_package_is_done_when_it_is_past_and_confirmed_or_settled() -> None:
    claims = PositionClaims().and_then(5, 10.0)
    assert claims.done_to(-1, 10.5) == 0
    assert claims.done_to(-1, 10.0 + SETTLING_SECONDS) == 5
    assert claims.done_to(3, 10.0) == 4
    assert claims.done_to(99, 10.0) == 5


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 0.5)), max_size=300))
def test_claims_are_bounded_and_nothing_counts_before_it_was_said_long_enough(said: list[tuple[int, float]]) -> None:
    claims, now = PositionClaims(), 0.0
    for offset, pause in said:
        now += pause
        claims = claims.and_then(offset, now)
        assert len(claims.entries) <= MAX_CLAIMS
        assert claims.settled(now) <= max(claims.claimed, 0)
    assert claims.settled(now + SETTLING_SECONDS) == (said[-1][0] if said else 0)
