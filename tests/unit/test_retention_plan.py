"""Where the head of the package topic should be: floor, ceiling, and the slowest in between (facts of PDP-47)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.config.storage import RetentionConfig
from mailboat.journal.port import Record
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.pieces import PieceMessage, PieceRun
from mailboat.model.positions import Bounds
from mailboat.retention.head_plan import HeadPlan, Holder, Reason, plan_head
from mailboat.retention.marks import ORPHAN_SECONDS, RECORD_BYTES, LogMarks
from mailboat.testing.examples import examples
from mailboat.wire.headers import PACKAGE_HEADERS, PIECE_HEADERS
from mailboat.wire.package_messages import encode_package
from mailboat.wire.piece_messages import encode_piece
from support.retention import retention_section

SLING_ID = SlingId("a" * 36)
AUTHOR = AgentName("author")
HOUR_MS = 3_600_000
NOW_MS = 1000 * HOUR_MS
NONE_STAYS = retention_section(min_seconds=0)


def record(offset: int, appended_ms: int = NOW_MS, size_bytes: int = 100) -> Record:
    return Record(Offset(offset), bytes(size_bytes - RECORD_BYTES), PACKAGE_HEADERS, appended_ms=appended_ms)


def piece(offset: int, name: str, index: int, appended_ms: int = NOW_MS) -> Record:
    message = PieceMessage(SLING_ID, AUTHOR, PackageId(name), index, b"x")
    return Record(Offset(offset), encode_piece(message), PIECE_HEADERS, appended_ms=appended_ms)


def whole(offset: int, name: str, run: PieceRun, appended_ms: int = NOW_MS) -> Record:
    message = PackageMessage(SLING_ID, PackageId(name), Action.ADD, "tree", AUTHOR, payload_ref=str(run))
    return Record(Offset(offset), encode_package(message), PACKAGE_HEADERS, appended_ms=appended_ms)


def log(records: Sequence[Record]) -> tuple[Bounds, LogMarks]:
    marks = LogMarks(records[0].offset)
    marks.see(records, Offset(records[-1].offset + 1), max(NOW_MS, records[-1].appended_ms))
    return Bounds(records[0].offset, Offset(records[-1].offset + 1)), marks


def holders(*offsets: int) -> list[Holder]:
    return [Holder(AgentName(f"edge-{number}"), Offset(offset)) for number, offset in enumerate(offsets)]


def planned(records: Sequence[Record], offsets: Sequence[int], limits: RetentionConfig) -> HeadPlan:
    bounds, marks = log(records)
    return plan_head(bounds, holders(*offsets), marks, limits, NOW_MS)


TEN = [record(number) for number in range(10)]
AGING = [record(number, NOW_MS - (10 - number) * HOUR_MS) for number in range(10)]  # 10 hours old … 1 hour old


def test_the_slowest_subscriber_decides() -> None:
    plan = planned(TEN, [7, 4, 9], NONE_STAYS)
    assert (plan.head, plan.reason, plan.holders, plan.losers) == (4, Reason.HELD, ("edge-1",), ())


def test_who_stands_below_the_log_holds_what_is_there_and_loses_no_more() -> None:
    plan = planned(TEN[4:], [1, 9], NONE_STAYS)
    assert (plan.head, plan.reason, plan.holders, plan.losers) == (4, Reason.HELD, ("edge-0",), ())


def test_no_one_known_changes_nothing() -> None:
    assert planned(TEN, [], NONE_STAYS) == HeadPlan(Offset(0), Reason.NOBODY)


def test_all_that_everyone_has_goes_where_nothing_must_stay() -> None:
    assert planned(TEN, [10, 10], NONE_STAYS).head == 10


def test_the_floor_in_time_holds_even_if_all_have_read() -> None:
    plan = planned(AGING, [10], retention_section(min_seconds=4.5 * 3600))
    assert (plan.head, plan.reason) == (5, Reason.FLOOR)


def test_the_floor_in_bytes_holds_even_if_all_have_read() -> None:
    plan = planned(TEN, [10], retention_section(min_seconds=0, min_bytes=300))
    assert (plan.head, plan.reason) == (7, Reason.FLOOR)


def test_less_than_the_floor_in_all_stays_as_a_whole() -> None:
    assert planned(TEN, [10], retention_section(min_seconds=0, min_bytes=5000)).head == 0
    assert planned(TEN, [10], retention_section(min_seconds=3600)).head == 0


def test_the_ceiling_in_time_wins_over_a_laggard_and_says_who_loses() -> None:
    plan = planned(AGING, [2, 9], retention_section(min_seconds=0, max_seconds=5.5 * 3600))
    assert (plan.head, plan.reason) == (4, Reason.CEILING)
    assert [loser.name for loser in plan.losers] == ["edge-0"]


def test_the_ceiling_in_bytes_wins_over_a_laggard() -> None:
    plan = planned(TEN, [2, 9], retention_section(min_seconds=0, max_bytes=400))
    assert (plan.head, plan.reason) == (6, Reason.CEILING)


def test_a_laggard_within_the_ceiling_decides() -> None:
    assert planned(AGING, [6, 9], retention_section(min_seconds=0, max_seconds=5.5 * 3600)).head == 6


def test_the_worked_example_of_the_facts() -> None:
    """30-byte events, 90 to 180 bytes: a floor of 90, then the subscriber, then the ceiling over the laggard."""
    limits = retention_section(min_seconds=0, min_bytes=300, max_bytes=600)
    seven = [record(number) for number in range(7)]
    assert planned(seven, [7], limits).head == 4
    eleven = [record(number) for number in range(11)]
    assert planned(eleven, [9], limits).head == 8
    assert planned(eleven, [6], limits).head == 6
    assert planned([record(number) for number in range(20)], [6], limits).head == 14


def test_a_subscriber_beyond_the_end_moves_nothing_beyond_the_end() -> None:
    assert planned(TEN, [99], NONE_STAYS).head == 10


def test_a_subscriber_below_the_head_holds_it_and_never_moves_it_back() -> None:
    bounds, marks = log(TEN[5:])
    assert plan_head(bounds, holders(1), marks, NONE_STAYS, NOW_MS).head == 5


# ------------------------------------------------------------------------------------------------ packages in pieces

IN_PIECES = [
    record(0),
    piece(1, "a", 0),
    piece(2, "b", 0),
    piece(3, "a", 1),
    whole(4, "a", PieceRun(Offset(1), Offset(3), 2, 2)),
    record(5),
    whole(6, "b", PieceRun(Offset(2), Offset(2), 1, 1)),
    record(7),
]


@pytest.mark.parametrize(("position", "head"), [(0, 0), (1, 1), (2, 1), (4, 1), (5, 1), (6, 1), (7, 7), (8, 8)])
def test_no_package_is_cut_through(position: int, head: int) -> None:
    assert planned(IN_PIECES, [position], NONE_STAYS).head == head


def test_pieces_whose_message_has_not_come_yet_are_kept() -> None:
    assert planned([record(0), piece(1, "a", 0), record(2)], [3], NONE_STAYS).head == 1


def test_orphans_hold_nothing_back_for_ever() -> None:
    later = NOW_MS + int(ORPHAN_SECONDS * 1000) + 1
    records = [piece(0, "dead", 0), piece(1, "alive", 0, later), record(2, later)]
    assert planned(records, [3], NONE_STAYS).head == 1


def test_a_message_that_claims_pieces_no_one_sent_holds_nothing_back() -> None:
    claim = whole(3, "forged", PieceRun(Offset(0), Offset(2), 1, 1))
    assert planned([record(0), record(1), record(2), claim, record(4)], [2], NONE_STAYS).head == 2


def test_a_beginning_that_came_twice_counts_from_the_second_time() -> None:
    records = [piece(0, "a", 0), record(1), piece(2, "a", 0), whole(3, "a", PieceRun(Offset(2), Offset(2), 1, 1))]
    assert planned(records, [1], NONE_STAYS).head == 1
    assert planned(records, [3], NONE_STAYS).head == 2


def test_a_copy_of_the_beginning_that_comes_late_leaves_the_package_whole() -> None:
    run = PieceRun(Offset(1), Offset(2), 2, 2)
    records = [record(0), piece(1, "a", 0), piece(2, "a", 1), piece(3, "a", 0), whole(4, "a", run)]
    assert planned(records, [3], NONE_STAYS).head == 1


def test_runs_that_no_one_ends_are_bounded_and_cost_the_same_each() -> None:
    marks = LogMarks(Offset(0))
    marks.see([piece(number, f"p{number}", 0) for number in range(30_000)], Offset(30_000), NOW_MS)
    assert len(marks._open) == 10_000


def test_a_message_that_lies_about_its_pieces_holds_nothing_back() -> None:
    lie = whole(3, "x", PieceRun(Offset(0), Offset(9), 1, 1))
    assert planned([record(0), record(1), record(2), lie], [4], NONE_STAYS).head == 4


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(80, 400)), min_size=1, max_size=60),
    st.lists(st.integers(0, 70), max_size=5),
    st.integers(0, 20),
    st.integers(0, 4000),
    st.integers(3, 64),
)
def test_in_any_log_the_head_stays_within_what_may_go(
    steps: list[tuple[int, int]], positions: list[int], min_hours: int, min_bytes: int, max_marks: int
) -> None:
    appended_ms, records = NOW_MS - 20 * HOUR_MS, []
    for number, (hours, size) in enumerate(steps):
        appended_ms += hours * HOUR_MS
        records.append(record(number, appended_ms, size))
    marks = LogMarks(Offset(0), max_marks)
    marks.see(records, Offset(len(records)), appended_ms)
    bounds = Bounds(Offset(0), Offset(len(records)))
    limits = retention_section(min_seconds=min_hours * 3600.0, min_bytes=min_bytes)
    plan = plan_head(bounds, holders(*positions), marks, limits, appended_ms)
    gone, kept = records[: plan.head], records[plan.head :]
    assert plan.losers == ()
    assert all(offset >= plan.head for offset in positions)
    assert not gone or sum(len(item.value) + RECORD_BYTES for item in kept) >= min_bytes
    assert all(item.appended_ms < appended_ms - min_hours * HOUR_MS for item in gone) or min_hours == 0


def test_marks_are_bounded_and_still_bracket_every_place() -> None:
    marks = LogMarks(Offset(0), max_marks=100)
    marks.see([record(number, NOW_MS + number) for number in range(100_000)], Offset(100_000), NOW_MS + 100_000)
    assert len(marks._marks) <= 101
    assert 0 <= 50_000 - (marks.newest_older_than(NOW_MS + 50_000) or 0) <= 2048
    assert abs(marks.bytes_behind(50_000) - 5_000_000) <= 2048 * 100
    marks.trim(Offset(99_000))
    assert marks.newest_older_than(NOW_MS + 10) is None


def test_what_a_move_frees_is_counted_from_the_head_before_also_between_two_marks() -> None:
    marks = LogMarks(Offset(0), max_marks=16)
    marks.see([record(number) for number in range(1000)], Offset(1000), NOW_MS)
    marks.trim(Offset(501))
    assert abs(marks.bytes_behind(501) - 499 * 100) <= 128 * 100


@pytest.mark.parametrize(
    "seen_ms", [NOW_MS, NOW_MS + 9000 * HOUR_MS], ids=["by its own clock", "by that of the reader"]
)
def test_a_record_from_the_future_ages_as_those_that_follow_it(seen_ms: int) -> None:
    marks = LogMarks(Offset(0))
    marks.see([record(0), record(1, NOW_MS + 9000 * HOUR_MS), record(2)], Offset(3), seen_ms)
    marks.see([record(3, NOW_MS + HOUR_MS)], Offset(4), NOW_MS + HOUR_MS)
    assert marks.newest_older_than(NOW_MS + HOUR_MS + 1) == 4


def test_records_keep_their_time_although_the_clock_of_the_reader_is_behind() -> None:
    marks = LogMarks(Offset(0))
    marks.see([record(0), record(1, NOW_MS + HOUR_MS)], Offset(2), NOW_MS - 240 * HOUR_MS)
    assert marks.newest_older_than(NOW_MS) is None
    assert marks.newest_older_than(NOW_MS + HOUR_MS + 1) == 2
