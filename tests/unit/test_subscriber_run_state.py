"""The state of a subscriber's run: what follows from an outcome, when a batch is committed, and when a run is done."""

from __future__ import annotations

import pytest
from mailboat.journal.port import Record, RecordBatch
from mailboat.model.identifiers import Offset
from mailboat.model.positions import LogIdentity, Position
from mailboat.subscriber.continuity import ANY_PUBLISHER, MAX_PASSED_OVER
from mailboat.subscriber.importer import BatchOutcome
from mailboat.subscriber.run_state import PortionResult, RunState, decide_portion, is_at_goal, is_worth_a_commit

LOG = LogIdentity("cluster", "topic")
ERROR = ValueError("no")


def batch(*offsets: int, next_offset: int | None = None) -> RecordBatch:
    end = Offset(offsets[-1] + 1 if next_offset is None else next_offset)
    return RecordBatch([Record(Offset(offset), b"", ()) for offset in offsets], end, is_at_end=True)


def opened(at: int = 0, *, may_replay: bool = False) -> RunState:
    state = RunState(may_replay=may_replay, committed_at=0.0)
    state.opened(Position(LOG, Offset(at)), set(), is_refused=False)
    return state


@pytest.mark.parametrize(
    ("outcome", "count", "result"),
    [
        (BatchOutcome(done=0, is_waiting=True), 3, PortionResult.WAIT),
        (BatchOutcome(done=2, is_waiting=True), 3, PortionResult.ADVANCE),
        (BatchOutcome(done=3), 3, PortionResult.ADVANCE),
        (BatchOutcome(done=0, error=ERROR), 1, PortionResult.FAIL),
        (BatchOutcome(done=0, error=ERROR), 3, PortionResult.NARROW),
        (BatchOutcome(done=2, error=ERROR), 3, PortionResult.NARROW),
    ],
)
def test_portion_result_follows_from_the_outcome(outcome: BatchOutcome, count: int, result: PortionResult) -> None:
    assert decide_portion(outcome, count) is result


def test_skipped_records_alone_are_committed_only_when_there_are_many() -> None:
    state = opened()
    assert is_worth_a_commit(state, BatchOutcome(done=1, imported=1), max_skipped=10)
    assert is_worth_a_commit(state, BatchOutcome(done=1, dropped=1), max_skipped=10)
    assert not is_worth_a_commit(state, BatchOutcome(done=9), max_skipped=10)
    assert is_worth_a_commit(state, BatchOutcome(done=10), max_skipped=10)
    assert not is_worth_a_commit(state, BatchOutcome(done=10, imported=1, error=ERROR), max_skipped=10)


def test_the_goal_counts_only_after_a_read_and_with_all_statuses_sent() -> None:
    state = opened(5)
    assert not is_at_goal(state, Offset(5))
    state.sent_statuses()
    assert not is_at_goal(state, Offset(5)), "only a read shows that the position fits the log"
    state.read(batch(next_offset=6))
    assert is_at_goal(state, Offset(6))
    assert not is_at_goal(state, Offset(7))
    assert not is_at_goal(state, None)


def test_the_position_behind_the_last_record_is_the_end_of_the_read() -> None:
    state = opened()
    state.read(batch(0, 3, next_offset=9))
    records = state.backlog.portion()
    assert [state.after(records, done).next_offset for done in (1, 2)] == [1, 9]


def test_a_commit_takes_over_what_was_passed_over() -> None:
    state = opened()
    state.read(batch(0, 1))
    state.pass_over(["other"])
    state.advance(state.backlog.portion(), 2, is_committed=False)
    assert (state.skipped, state.stored) == (2, Position(LOG, Offset(0)))
    assert state.committed(7.0) == state.stored == state.position
    assert (state.skipped, state.passed_over, state.passing_over) == (0, {"other"}, set())


def test_names_of_publishers_passed_over_are_bounded() -> None:
    state = opened()
    state.pass_over(str(number) for number in range(MAX_PASSED_OVER + 5))
    assert len(state.passing_over) == MAX_PASSED_OVER + 1
    assert ANY_PUBLISHER in state.passing_over


def test_an_accepted_gap_ends_with_the_first_read_or_the_first_refusal() -> None:
    state = opened(may_replay=True)
    assert state.may_replay
    state.read(batch(0))
    assert not state.may_replay
    state = opened(may_replay=True)
    state.opened(Position(LOG, Offset(0)), set(), is_refused=True)
    assert not state.may_replay


def test_work_between_batches_is_done_once_a_second_unless_commands_came() -> None:
    state = opened()
    assert [state.begin_border(now) for now in (10.0, 10.5, 11.0)] == [True, False, True]
    state.took_commands()
    assert state.begin_border(11.1)
    state.read(batch(0))
    assert not state.begin_border(20.0)
