"""A journal's topic as a plain list, and random sequences of calls that must give the same on both.

Needs hypothesis. It runs as one test of the contract suite.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mailboat.errors import PositionOutOfRangeError
from mailboat.journal.port import Edge, Journal, JournalReader, NewRecord, ReadLimits, RecordBatch, Start
from mailboat.model.identifiers import Offset, TopicName
from mailboat.testing.examples import examples
from mailboat.testing.journal_harness import FOREVER, JournalHarness, new_topic_name
from mailboat.testing.wait import PATIENCE_SECONDS

_HEADERS = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3).map(tuple)
_RECORDS = st.builds(NewRecord, st.binary(max_size=300), _HEADERS, st.one_of(st.none(), st.binary(max_size=10)))
_LIMITS = st.builds(ReadLimits, max_records=st.integers(1, 8), max_bytes=st.integers(1, 600))


class _JournalMachine(RuleBasedStateMachine):
    """One topic, used through handles that come and go, compared with a list."""

    def __init__(self, harness: JournalHarness) -> None:
        super().__init__()
        self._harness = harness
        self._journal: Journal = harness.open()
        self._topic: TopicName = new_topic_name()
        self._readers: list[JournalReader] = []
        self._records: dict[int, NewRecord] = {}
        self._removed: dict[int, NewRecord] = {}
        self._earliest = 0
        self._next = 0

    @initialize()
    def make_the_topic(self) -> None:
        self._journal.ensure_topic(self._topic, FOREVER)
        bounds = self._journal.bounds(self._topic)
        self._earliest, self._next = bounds.earliest_offset, bounds.next_offset

    @rule(records=st.lists(_RECORDS, max_size=6))
    def append(self, records: list[NewRecord]) -> None:
        offsets = self._journal.append(self._topic, records)
        assert len(offsets) == len(records)
        assert all(offset >= self._next for offset in offsets)
        assert list(offsets) == sorted(set(offsets))
        self._records.update(zip(offsets, records, strict=True))
        if offsets:
            self._next = offsets[-1] + 1

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        before = data.draw(st.sampled_from([self._earliest, *self._records, self._next]), "before")
        bounds = self._journal.truncate(self._topic, Offset(before))
        self._removed |= {offset: record for offset, record in self._records.items() if offset < before}
        self._records = {offset: record for offset, record in self._records.items() if offset >= before}
        self._earliest = max(self._earliest, before)
        assert bounds.earliest_offset == self._earliest

    @rule(data=st.data())
    def open_a_reader(self, data: st.DataObject) -> None:
        offsets: list[Start] = [Offset(offset) for offset in (self._earliest - 1, *self._records, self._next + 1)]
        start = data.draw(st.sampled_from([Edge.EARLIEST, Edge.NEXT, *offsets]), "start")
        reader = self._journal.reader(self._topic, start)
        if isinstance(start, Edge):
            assert reader.next_offset == (self._earliest if start is Edge.EARLIEST else self._next)
        else:
            assert reader.next_offset == start
        self._readers.append(reader)

    @precondition(lambda self: self._readers)
    @rule(data=st.data(), limits=_LIMITS)
    def read(self, data: st.DataObject, limits: ReadLimits) -> None:
        reader = data.draw(st.sampled_from(self._readers), "reader")
        position = reader.next_offset
        try:
            batch = reader.read(limits, PATIENCE_SECONDS if position in self._records else 0.0)
        except PositionOutOfRangeError:
            assert not self._earliest <= position <= self._next
            assert reader.next_offset == position
        else:
            self._check(position, limits, batch)
            assert reader.next_offset == batch.next_offset

    @precondition(lambda self: self._readers)
    @rule(data=st.data())
    def close_a_reader(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self._readers), "reader")
        self._readers.remove(reader)
        reader.close()

    @rule()
    def reopen(self) -> None:
        """Close the handle, and go on with another from the same positions, as a restarted process does."""
        positions = [reader.next_offset for reader in self._readers]
        self._journal.close()
        self._journal = self._harness.open()
        self._readers = [self._journal.reader(self._topic, position) for position in positions]

    @invariant()
    def the_bounds_agree(self) -> None:
        bounds = self._journal.bounds(self._topic)
        assert bounds.next_offset >= self._next
        if not self._records:
            assert bounds.earliest_offset == bounds.next_offset

    def teardown(self) -> None:
        self._journal.close()

    def _check(self, position: int, limits: ReadLimits, batch: RecordBatch) -> None:
        """The batch holds the next records of the list, as many as the limits allow, but some where there are some."""
        assert self._harness.reads_ahead or self._earliest <= position
        assert position <= self._next
        known = {**self._removed, **self._records}
        expected = [(offset, record) for offset, record in known.items() if offset >= position]
        found = [(record.offset, NewRecord(record.value, record.headers, record.key)) for record in batch.records]
        assert found == expected[: len(found)]
        assert found or not expected
        assert len(found) <= limits.max_records
        assert len(found) <= 1 or sum(len(record.value) for record in batch.records) <= limits.max_bytes
        assert batch.is_at_end == (len(found) == len(expected))


def check_against_model(harness: JournalHarness, max_examples: int = 40) -> None:
    """Run random sequences of calls against an adapter and a list."""

    class BoundMachine(_JournalMachine):
        def __init__(self) -> None:
            super().__init__(harness)

    run_state_machine_as_test(
        BoundMachine,
        settings=settings(
            max_examples=examples(max_examples),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
