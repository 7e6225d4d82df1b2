"""How far a subscriber says to be, and from when on that counts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import PackageStatus, StatusMessage
from mailboat.queues.claims import MAX_CLAIMS, SETTLING_SECONDS, Claims, Confirmations
from mailboat.queues.names import QueueName
from mailboat.testing.examples import examples

AUTHOR = AgentName("author")


def status(sling_id: str, offset: int) -> StatusMessage:
    return StatusMessage(SlingId(sling_id), AgentName("edge"), AUTHOR, Offset(offset), PackageStatus.IMPORTED)


def test_a_claim_counts_a_moment_after_it_was_heard() -> None:
    claims = Claims().and_then(3, 10.0).and_then(7, 10.5)
    assert [claims.settled(at) for at in (10.9, 11.0, 11.4, 11.5)] == [0, 3, 3, 7]


def test_a_claim_that_is_repeated_ages_all_the_same() -> None:
    assert Claims().and_then(3, 10.0).and_then(3, 10.9).settled(11.0) == 3


def test_going_back_is_believed_at_once() -> None:
    claims = Claims().and_then(9, 1.0).and_then(4, 20.0)
    assert (claims.claimed, claims.settled(20.0)) == (4, 4)


def test_what_a_target_says_itself_counts_at_once() -> None:
    assert Claims.certain(5).done_to(-1, 0.0) == 5


def test_a_package_is_done_when_it_is_past_and_confirmed_or_settled() -> None:
    claims = Claims().and_then(5, 10.0)
    assert claims.done_to(-1, 10.5) == 0
    assert claims.done_to(-1, 10.0 + SETTLING_SECONDS) == 5
    assert claims.done_to(3, 10.0) == 4
    assert claims.done_to(99, 10.0) == 5


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 0.5)), max_size=300))
def test_claims_are_bounded_and_nothing_counts_before_it_was_said_long_enough(said: list[tuple[int, float]]) -> None:
    claims, now = Claims(), 0.0
    for offset, pause in said:
        now += pause
        claims = claims.and_then(offset, now)
        assert len(claims.entries) <= MAX_CLAIMS
        assert claims.settled(now) <= max(claims.claimed, 0)
    assert claims.settled(now + SETTLING_SECONDS) == (said[-1][0] if said else 0)


def test_confirmations_are_the_highest_offset_of_each_and_bounded() -> None:
    heard = Confirmations(max_queues=2)
    for sling_id, offset in (("a", 5), ("b", 1), ("a", 3), ("c", 2)):
        heard.hear(status(sling_id, offset))
    found = [heard.last(AUTHOR, QueueName(SlingId(one), AgentName("edge"))) for one in "abc"]
    assert found == [5, -1, 2]
    heard.clear()
    assert heard.last(AUTHOR, QueueName(SlingId("a"), AgentName("edge"))) == -1
