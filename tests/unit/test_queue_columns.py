"""Entries in columns: nothing is lost by packing, and little is needed."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import Action
from mailboat.queues.columns import BLOCK_OFFSETS, EntryBlock, block_end
from mailboat.queues.entries import MAX_TEXT_BYTES, QueueEntry, cut_text

A, B = AgentName("a"), AgentName("b")

package_ids = st.one_of(
    st.builds(lambda ms, u: f"dstrpck-{ms}-{u}", st.integers(0, 10**15 - 1), st.uuids()),
    st.uuids().map(str),
    st.uuids().map(lambda u: str(u).upper()),
    st.builds(lambda ms, u: f"dstrpck-0{ms}-{u}", st.integers(0, 10**6), st.uuids()),
    st.builds(lambda ms, u: f"dstrpck-{ms}-{u}", st.integers(10**15, 10**40), st.uuids()),
    st.text(max_size=30),
).map(PackageId)


@st.composite
def entries_of_a_block(draw: st.DrawFn) -> tuple[list[QueueEntry], int, int]:
    begin = draw(st.integers(0, 2**62)) // BLOCK_OFFSETS * BLOCK_OFFSETS + draw(st.integers(0, BLOCK_OFFSETS - 1))
    end = draw(st.integers(begin + 1, block_end(begin)))
    offsets = sorted(draw(st.sets(st.integers(begin, end - 1), max_size=20)))
    entries = [
        QueueEntry(
            Offset(offset),
            draw(st.sampled_from([A, B])),
            draw(package_ids),
            draw(st.sampled_from([Action.ADD, Action.DELETE, Action.INVALIDATE])),
            draw(st.integers(0, 2**63 - 1)),
            draw(st.integers(0, 2**45)),
            cut_text(draw(st.text(max_size=60))),
            draw(st.integers(0, 2**32 - 1)),
            cut_text(draw(st.text(max_size=60))),
        )
        for offset in offsets
    ]
    return entries, begin, end


@given(block=entries_of_a_block())
def test_entries_survive_packing(block: tuple[list[QueueEntry], int, int]) -> None:
    entries, begin, end = block
    packed = EntryBlock(entries, begin, end)
    assert list(packed.all_entries()) == entries
    assert len(packed) == len(entries)
    assert (packed.covers_from, packed.covers_to) == (begin, end)


@given(block=entries_of_a_block(), data=st.data())
def test_a_publishers_entries_from_an_offset_on_are_found(
    block: tuple[list[QueueEntry], int, int], data: st.DataObject
) -> None:
    entries, begin, end = block
    start = data.draw(st.integers(begin, end))
    found = list(EntryBlock(entries, begin, end).entries(A, start))
    assert found == [entry for entry in entries if entry.publisher == A and entry.offset >= start]


@given(text=st.text(max_size=200))
def test_long_texts_are_cut_at_a_characters_border(text: str) -> None:
    cut = cut_text(text)
    assert len(cut.encode()) <= MAX_TEXT_BYTES
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))


def test_a_full_block_needs_less_than_150_bytes_an_entry() -> None:
    """With the longest path that is kept, and with a usual one."""
    for path, limit_bytes in (("/content/" + "x" * 71, 145), ("/content/site/en/news/2026/page", 95)):
        entries = [
            QueueEntry(
                Offset(number),
                A,
                PackageId(f"dstrpck-1700000000000-{uuid.UUID(int=number)}"),
                Action.ADD,
                1,
                1,
                path,
                1,
            )
            for number in range(BLOCK_OFFSETS)
        ]
        assert EntryBlock(entries, 0, BLOCK_OFFSETS).size_bytes / BLOCK_OFFSETS < limit_bytes
