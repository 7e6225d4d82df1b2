"""What a sweep may remove: nothing that is named, nothing that is young."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.blobs.memory import MemoryBlobStore
from mailboat.blobs.port import BlobInfo
from mailboat.blobs.sweep import ReferencedDigests, SweepDecision, decide_sweep, new_figures, plan_sweep
from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord, ReadLimits
from mailboat.maintenance import blob_sweep
from mailboat.maintenance.blob_sweep import SweepStep, read_references
from mailboat.model.identifiers import Offset, TopicName
from mailboat.testing.clocks import ManualClock
from mailboat.wire.headers import PIECE_HEADERS

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


def test_messages_that_retention_removes_while_a_sweep_reads_do_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, topic = ManualClock(), TopicName("package")
    journal = MemoryJournal(clock)
    journal.ensure_topic(topic, TopicSettings())
    journal.append(topic, [NewRecord(b"piece", PIECE_HEADERS)] * 5)
    monkeypatch.setattr(blob_sweep, "SCAN_LIMITS", ReadLimits(max_records=1))

    def remove_three(_: SweepStep) -> None:
        journal.truncate(topic, Offset(3))

    workspace = SimpleNamespace(journal=journal, package_topic=topic, blobs=MemoryBlobStore(clock))
    assert read_references(cast("Any", workspace), remove_three).messages == 3, "the first and the last two"
