"""Whether a position fits the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.errors import (
    JournalIncompleteError,
    JournalReplacedError,
    JournalShorterError,
    JournalTrimmedError,
)
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.positions import Bounds, LogIdentity, Position
from mailboat.subscriber.continuity import decide_start

EDGE = AgentName("edge")
LOG = LogIdentity("cluster", "topic")


def start(next_offset: int | None, earliest: int, end: int, *, is_gap_accepted: bool = False) -> Position:
    position = None if next_offset is None else Position(LOG, Offset(next_offset))
    return decide_start(EDGE, position, LOG, Bounds(Offset(earliest), Offset(end)), is_gap_accepted=is_gap_accepted)


@pytest.mark.parametrize("end", [0, 90])
def test_a_new_target_starts_at_the_first_package_not_at_the_next(end: int) -> None:
    assert start(None, 0, end) == Position(LOG, Offset(0))


@pytest.mark.parametrize(("earliest", "end"), [(1, 90), (5, 90), (5, 5)])
def test_a_new_target_stops_where_the_log_no_longer_holds_the_first_packages(earliest: int, end: int) -> None:
    with pytest.raises(JournalIncompleteError, match=f"edge is new, and the journal starts at offset {earliest}"):
        start(None, earliest, end)


def test_the_ways_to_a_whole_new_target_are_told() -> None:
    with pytest.raises(JournalIncompleteError, match="5 earlier messages were removed") as info:
        start(None, 5, 90)
    assert "mailboat publish --source SOURCE /" in str(info.value.next_step)
    assert "--accept-gap" in str(info.value.next_step)


def test_a_new_target_starts_at_the_head_when_the_gap_is_accepted() -> None:
    assert start(None, 5, 90, is_gap_accepted=True) == Position(LOG, Offset(5))


@pytest.mark.parametrize("next_offset", [5, 6, 90])
def test_a_position_within_the_log_is_kept_as_it_is(next_offset: int) -> None:
    assert start(next_offset, 5, 90).next_offset == next_offset


def test_the_leader_epoch_travels_with_the_position() -> None:
    position = Position(LOG, Offset(6), leader_epoch=3)
    assert decide_start(EDGE, position, LOG, Bounds(Offset(5), Offset(9)), is_gap_accepted=False) == position


def test_a_position_below_the_head_stops_and_says_how_much_is_gone() -> None:
    with pytest.raises(JournalTrimmedError, match=r"edge is at offset 60.*begins at 80: 20 messages are gone") as info:
        start(60, 80, 129)
    assert "--accept-gap" in str(info.value.next_step)


def test_a_position_beyond_the_end_stops() -> None:
    with pytest.raises(JournalShorterError, match="edge is at offset 91, the journal ends at 90"):
        start(91, 5, 90)


@pytest.mark.parametrize("is_gap_accepted", [False, True])
def test_another_log_stops_even_where_its_offsets_would_fit_and_a_gap_is_accepted(*, is_gap_accepted: bool) -> None:
    other = Position(LogIdentity("cluster", "made anew"), Offset(6))
    with pytest.raises(JournalReplacedError, match="cluster/made anew"):
        decide_start(EDGE, other, LOG, Bounds(Offset(5), Offset(9)), is_gap_accepted=is_gap_accepted)


@pytest.mark.parametrize("next_offset", [4, 91])
def test_an_accepted_gap_goes_on_at_the_head(next_offset: int) -> None:
    assert start(next_offset, 5, 90, is_gap_accepted=True).next_offset == 5


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.booleans())
def test_the_start_always_lies_within_the_log_and_is_never_a_silent_jump(
    stands_at: int, earliest: int, length: int, is_gap_accepted: bool
) -> None:
    try:
        found = start(stands_at, earliest, earliest + length, is_gap_accepted=is_gap_accepted)
    except (JournalTrimmedError, JournalShorterError):
        assert not is_gap_accepted
        return
    assert earliest <= found.next_offset <= earliest + length
    assert found.next_offset == stands_at or is_gap_accepted
