"""Columns of offsets: exact against plain lists, cheap to extend at both ends, and bounded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.messages import Action
from mailboat.model.positions import Bounds
from mailboat.queues.entries import DecodedRecords, QueueEntry
from mailboat.queues.log_view import LogView
from mailboat.queues.offsets import OffsetColumns, QueueSize

A, B = AgentName("a"), AgentName("b")
OFFSETS = st.sets(st.one_of(st.integers(0, 200_000), st.integers(65_500, 65_600), st.integers(2**40, 2**40 + 9)))


def entries(offsets: Iterable[int], publisher: AgentName = A) -> list[QueueEntry]:
    return [QueueEntry(Offset(offset), publisher, PackageId("p"), Action.ADD, 1, 1) for offset in offsets]


def whole(first: int, end: int) -> Bounds:
    return Bounds(Offset(first), Offset(end))


@given(OFFSETS, st.integers(0, 200_000), st.integers(0, 200_000))
def test_columns_count_as_plain_lists_do(offsets: set[int], middle: int, trimmed: int) -> None:
    """The offsets below `middle` come from the past in two steps, the others from the end; then some are trimmed."""
    plain, end = sorted(offsets), 2**40 + 10
    columns = OffsetColumns({A, B}, Offset(middle))
    columns.extend(entries(item for item in plain if item >= middle), Offset(end))
    for low, high in ((middle // 2, middle), (0, middle // 2)):
        columns.extend_back(entries(item for item in plain if low <= item < high), Offset(low))
    for trim in (0, trimmed):
        columns.trim(Offset(trim))
        left = [item for item in plain if item >= trim]
        for position in (-1, trimmed - 1, 65_535, 65_536, middle, 2**40 + 4, *plain[:3]):
            place = bisect_left(left, position + 1)
            size = columns.size_after(A, position, whole(trim, end))
            assert size == QueueSize(len(left) - place, is_exact=True)
            for number in (1, 2, 5):
                expected = left[place + number - 1] if place + number <= len(left) else None
                assert columns.nth_after(A, position, number) == expected
            assert columns.next_from(A, position + 1) == (left[place] if place < len(left) else None)
        assert columns.last(A) == (left[-1] if left else None)
        assert columns.size_after(B, -1, whole(trim, end)).count == 0


def test_counting_the_past_copies_only_where_both_meet() -> None:
    columns = OffsetColumns({A}, Offset(200_000))
    for begin in range(198_000, -1, -2_000):
        kept = columns._columns[A]._chunks[1:]
        columns.extend_back(entries(range(begin, begin + 2_000)), Offset(begin))
        after = columns._columns[A]._chunks
        assert all(one is other for one, other in zip(reversed(kept), reversed(after), strict=False))
    assert columns.size_after(A, -1, whole(0, 200_000)) == QueueSize(200_000, is_exact=True)
    assert columns.size_bytes < 500_000


@pytest.mark.parametrize("is_back", [False, True])
def test_the_oldest_offsets_are_forgotten_beyond_the_budget(is_back: bool) -> None:
    columns = OffsetColumns({A}, Offset(100_000 if is_back else 0), max_bytes=50_000)
    steps = range(98_000, -1, -2_000) if is_back else range(0, 100_000, 2_000)
    for begin in steps:
        if is_back and columns.is_full:
            break
        found = entries(range(begin, begin + 2_000))
        columns.extend_back(found, Offset(begin)) if is_back else columns.extend(found, Offset(begin + 2_000))
        assert columns.size_bytes <= 50_000
    assert columns.is_full
    known = 100_000 - columns.known_from
    assert 18_000 < known < 23_000
    assert columns.size_after(A, columns.known_from - 1, whole(0, 100_000)) == QueueSize(known, is_exact=True)
    assert columns.size_after(A, -1, whole(0, 100_000)) == QueueSize(100_000, is_exact=False)
    columns.trim(Offset(95_000))
    assert not columns.is_full


def test_offsets_and_details_share_one_budget() -> None:
    view = LogView(TopicName("package"), {A}, whole(0, 0), budget_bytes=200_000)
    for begin in range(0, 100_000, 500):
        view.extend(DecodedRecords(entries(range(begin, begin + 500)), 0), Offset(begin + 500))
        assert view.size_bytes <= 200_000
    assert view.is_past_counted
    assert view.known_from > 0
    assert view.counts.evicted_blocks > 0
