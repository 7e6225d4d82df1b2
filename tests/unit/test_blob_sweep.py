"""What a sweep may remove: nothing that is named, nothing that is young."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from mailboat.blobs.port import BlobInfo
from mailboat.blobs.sweep import ReferencedDigests, SweepDecision, decide_sweep, new_figures, plan_sweep

NOW = datetime(2026, 5, 1, tzinfo=UTC)
DIGESTS = st.binary(min_size=32, max_size=32)


def blob(name: str, age_seconds: float = 0.0, length_bytes: int = 10) -> BlobInfo:
    return BlobInfo(hashlib.sha256(name.encode()).digest(), length_bytes, NOW - timedelta(seconds=age_seconds))


@given(named=st.lists(DIGESTS, max_size=300))
def test_no_blob_that_was_named_is_ever_missed(named: list[bytes]) -> None:
    referenced = ReferencedDigests()
    for digest in named:
        referenced.add(digest)
    assert all(digest in referenced for digest in named)
    assert referenced.added == len(named)


def test_among_a_hundred_thousand_strangers_none_is_taken_for_named() -> None:
    referenced = ReferencedDigests()
    for number in range(100_000):
        referenced.add(hashlib.sha256(b"named %d" % number).digest())
    strangers = (hashlib.sha256(b"stranger %d" % number).digest() for number in range(100_000))
    assert sum(digest in referenced for digest in strangers) == 0


def test_only_what_is_old_and_named_by_none_goes() -> None:
    referenced = ReferencedDigests()
    named_old, named_new, young, old = blob("a", 100), blob("b"), blob("c", 9), blob("d", 11, 7)
    referenced.add(named_old.digest)
    referenced.add(named_new.digest)
    figures = new_figures()
    blobs = [named_old, named_new, young, old]
    assert list(plan_sweep(blobs, referenced, NOW - timedelta(seconds=10), figures)) == [old]
    counts = {fate: (tally.count, tally.total_bytes) for fate, tally in figures.items()}
    assert counts == {SweepDecision.REFERENCED: (2, 20), SweepDecision.YOUNG: (1, 10), SweepDecision.REMOVABLE: (1, 7)}


def test_a_blob_of_exactly_the_grace_period_is_young() -> None:
    assert decide_sweep(blob("a", 10), ReferencedDigests(), NOW - timedelta(seconds=10)) is SweepDecision.YOUNG
