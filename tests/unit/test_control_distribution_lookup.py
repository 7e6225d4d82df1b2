"""Search of a package by its id, in logs whose offsets have holes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mailboat.api.records import DistributionPage
from mailboat.clock import milliseconds_now
from mailboat.config.topic_settings import TopicSettings
from mailboat.control.builds import BuildProgress, BuildsSeen
from mailboat.control.distribution_lookup import Distributions
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import JournalReader, NewRecord, ReadLimits, Record, RecordBatch, Start
from mailboat.model.identifiers import AgentName, BuildId, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import PACKAGE_TOPIC, Action, BulkPart, PackageMessage
from mailboat.model.paths import NodePath
from mailboat.testing.clocks import ManualClock
from mailboat.wire.messages import encode_message

AUTHOR = AgentName("author")
NOISE = [NewRecord(b"\xff")]


class LogWithHoles:
    """A log that has lost the records of some offsets, as compaction and transactions leave it."""

    def __init__(self, journal: MemoryJournal, holes: range) -> None:
        self._journal = journal
        self._holes = holes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def record_at(self, topic: TopicName, offset: Offset) -> Record | None:
        return None if offset in self._holes else self._journal.record_at(topic, offset)

    def reader(self, topic: TopicName, start: Start) -> ReaderOverHoles:
        return ReaderOverHoles(self._journal.reader(topic, start), self._holes)


class ReaderOverHoles:
    """Gives the records that are left, as a reader of Kafka does."""

    def __init__(self, reader: JournalReader, holes: range) -> None:
        self._reader = reader
        self._holes = holes

    def read(self, limits: ReadLimits, wait_seconds: float) -> RecordBatch:
        while True:
            batch = self._reader.read(limits, wait_seconds)
            records = [record for record in batch.records if record.offset not in self._holes]
            if records or batch.is_at_end:
                return RecordBatch(records, batch.next_offset, batch.is_at_end)

    @property
    def next_offset(self) -> Offset:
        return self._reader.next_offset

    def close(self) -> None:
        self._reader.close()


class LogThatIsTrimmed(LogWithHoles):
    """A log whose first records are removed each time before it is read."""

    def __init__(self, journal: MemoryJournal, removed: int = 100) -> None:
        super().__init__(journal, range(0))
        self._removed = Offset(removed)

    def reader(self, topic: TopicName, start: Start) -> ReaderOverHoles:
        self._journal.truncate(topic, self._removed)
        return super().reader(topic, start)


class LogLeftByCtrlC(LogWithHoles):
    """A log whose reader is closed in the moment of a Ctrl-C."""

    def reader(self, topic: TopicName, start: Start) -> ReaderOverHoles:
        return ReaderLeftByCtrlC(self._journal.reader(topic, start), self._holes)


class ReaderLeftByCtrlC(ReaderOverHoles):
    def close(self) -> None:
        super().close()
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("before", "holes"),
    [(50, range(100, 4_000)), (3_000, range(2_000)), (50, range(51, 5_000))],
    ids=["behind the package", "before the package", "to the end"],
)
def test_package_is_found_by_its_id_in_a_log_with_holes(before: int, holes: range) -> None:
    journal, name = log_with_package(before)
    assert search_of(LogWithHoles(journal, holes)).find(AUTHOR, name, None).record.offset == before


def test_package_is_found_by_its_id_while_retention_removes_the_first_records() -> None:
    journal, name = log_with_package(300)
    assert search_of(LogThatIsTrimmed(journal)).find(AUTHOR, name, None).record.offset == 300


@pytest.mark.parametrize("removed", [4_900, 4_995, 5_000])
def test_requests_are_listed_while_retention_removes_the_first_records(removed: int) -> None:
    journal, _ = log_with_package(50)
    listed = search_of(LogThatIsTrimmed(journal, removed)).page(AUTHOR, None, 10)
    assert listed == DistributionPage((), None)


def test_builds_are_listed_while_retention_removes_the_first_records() -> None:
    journal, _ = log_with_package(50)
    for sequence in range(3):
        part = BulkPart(BuildId("release-7"), sequence, 3)
        message = PackageMessage(
            SlingId("0"),
            PackageId(f"part-{sequence}"),
            Action.DELETE,
            "tree",
            AUTHOR,
            paths=(NodePath("/a"),),
            bulk=part,
        )
        headers, value = encode_message(message)
        journal.append(PACKAGE_TOPIC, [NewRecord(value, headers)])
    complete = SimpleNamespace(are_complete_since=lambda _: True)
    state = SimpleNamespace(status_follower=complete, statuses_heard_at_seconds=lambda: 0.0)
    workspace = SimpleNamespace(journal=LogThatIsTrimmed(journal, 5_001), package_topic=PACKAGE_TOPIC)
    seen = BuildsSeen(cast("Any", workspace), cast("Any", state), cast("Any", SimpleNamespace(members=tuple)))
    (build,) = seen.list()
    assert (build.first_offset, build.last_offset) == (5_001, 5_002)


def test_progress_with_a_build_is_left_out_where_retention_removes_its_records() -> None:
    journal, _ = log_with_package(50)
    workspace = SimpleNamespace(journal=LogThatIsTrimmed(journal, 4_999), package_topic=PACKAGE_TOPIC)
    member = SimpleNamespace(next_offset=Offset(4_990), identity=None)
    assert BuildProgress(cast("Any", workspace)).of([cast("Any", member)]) == {}


def test_search_that_has_found_its_package_hides_no_ctrl_c() -> None:
    # Python prints and ignores what the finalizer of a generator raises: the wait of `publish --wait` went on.
    journal, name = log_with_package(50)
    with pytest.raises(KeyboardInterrupt):
        search_of(LogLeftByCtrlC(journal, range(0))).find(AUTHOR, name, None)


def search_of(log: LogWithHoles) -> Distributions:
    workspace = SimpleNamespace(journal=log, package_topic=PACKAGE_TOPIC)
    return Distributions(cast("Any", workspace), cast("Any", None), cast("Any", None))


def log_with_package(before: int) -> tuple[MemoryJournal, PackageId]:
    """A log of 5,000 records, the package behind so many of them; hours lie before and after it."""
    clock = ManualClock()
    journal = MemoryJournal(clock)
    journal.ensure_topic(PACKAGE_TOPIC, TopicSettings())
    journal.append(PACKAGE_TOPIC, NOISE * before)
    clock.advance(3600.0)
    name = PackageId(f"dstrpck-{milliseconds_now(clock)}-0")
    message = PackageMessage(SlingId("0"), name, Action.DELETE, "tree", AUTHOR, paths=(NodePath("/page"),))
    headers, value = encode_message(message)
    journal.append(PACKAGE_TOPIC, [NewRecord(value, headers)])
    clock.advance(3600.0)
    journal.append(PACKAGE_TOPIC, NOISE * (5_000 - before - 1))
    return journal, name
