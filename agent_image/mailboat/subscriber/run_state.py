"""The state of a subscriber's run, and the decisions that depend on nothing else.

`Subscriber` owns one `RunState`, carries out what is decided here and reports back by its methods; no other object
changes it. `Backlog` holds the records that were read and are not done, and in which portions they are tried: normally
all at once, after a failure first those before the failing record, then that record alone.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mailboat.journal.port import Record, RecordBatch
from mailboat.model.identifiers import Offset
from mailboat.model.positions import Position
from mailboat.subscriber.continuity import ANY_PUBLISHER, MAX_PASSED_OVER
from mailboat.subscriber.importer import BatchOutcome

BORDER_SECONDS: Final = 1.0
"""What is done between batches (idle commits, quiet builds, redrives) is done at most once in this time."""


class Backlog:
    """Records that were read and are not done yet."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self._sizes: deque[int] = deque()
        self._end = Offset(0)

    def restart(self, next_offset: Offset) -> None:
        """Forget the records; reading begins at an offset. The portions stay: the failing record comes again."""
        self._records.clear()
        self._end = next_offset

    def add(self, batch: RecordBatch) -> None:
        self._records.extend(batch.records)
        self._end = batch.next_offset

    def portion(self) -> Sequence[Record]:
        size = min(self._sizes[0], len(self._records)) if self._sizes else len(self._records)
        return list(islice(self._records, size))

    def done(self, count: int) -> None:
        for _ in range(count):
            self._records.popleft()
        if self._sizes:
            rest = self._sizes.popleft() - count
            if rest > 0:
                self._sizes.appendleft(rest)

    def end_after(self, count: int) -> Offset:
        """The offset to read next when the first `count` are done."""
        # behind the last record it is the end of the read, which may be further: the log can have gaps
        return self._end if count == len(self._records) else Offset(self._records[count - 1].offset + 1)

    def narrow(self, before: int) -> None:
        """Try the first `before` in one portion, and the next record alone."""
        self._sizes = deque([before, 1] if before else [1])

    def try_each(self, count: int) -> None:
        self._sizes = deque([1] * count)

    def try_first_alone(self) -> None:
        """Try the first record alone, unless the portions say so already."""
        self._sizes = self._sizes or deque([1])

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)


class PortionResult(enum.Enum):
    """What follows from the outcome of a portion."""

    WAIT = enum.auto()
    """Its first package waits for the golden subscriber."""

    ADVANCE = enum.auto()
    """The records that are done are passed."""

    FAIL = enum.auto()
    """A package failed alone: it is the failing package."""

    NARROW = enum.auto()
    """A package failed among others: everything is rolled back, and it is tried alone."""


def decide_portion(outcome: BatchOutcome, count: int) -> PortionResult:
    """Decide what follows when `count` records were tried."""
    if outcome.is_waiting and outcome.done == 0:
        return PortionResult.WAIT
    if outcome.error is None:
        return PortionResult.ADVANCE
    # Only a package that was alone is blamed: others of its batch may have had a part in the failure.
    return PortionResult.FAIL if outcome.done == 0 and count == 1 else PortionResult.NARROW


def is_worth_a_commit(state: RunState, outcome: BatchOutcome, max_skipped: int) -> bool:
    """Whether a batch is committed: it has an effect, or so much was skipped that the position is stored."""
    return outcome.error is None and (outcome.has_effect or state.skipped + outcome.done >= max_skipped)


def is_at_goal(state: RunState, goal: Offset | None) -> bool:
    """Whether everything before the goal is done and reported."""
    # also at the goal the log is read once, as only a read shows that the position fits it
    if goal is None or not state.has_read or state.backlog or state.has_pending or state.position is None:
        return False
    return state.position.next_offset >= goal


@dataclass(slots=True)
class RunState:
    """Where one run stands.

    Attributes:
        may_replay: A gap was accepted, and the journal has not accepted the position yet.
        committed_at: The monotonic time of the last commit.
        position: Everything before it is done; None before the journal was opened.
        stored: The position that the target holds.
        backlog: What was read and is not done.
        skipped: Records done since the last commit, none of which had an effect.
        passed_over: Publishers whose packages were passed because they are not followed, as the target has them.
        passing_over: Those that the next commit adds.
        has_pending: The target may hold statuses that are not in the log.
        has_read: The journal was read since it was opened: only a read shows that the position fits the log.
        is_lost: Journal or target failed, so what is in memory may be wrong: the target is asked first.
        border_at: The monotonic time at which work between batches was last done.
    """

    may_replay: bool
    committed_at: float
    position: Position | None = None
    stored: Position | None = None
    backlog: Backlog = field(default_factory=Backlog)
    skipped: int = 0
    passed_over: set[str] = field(default_factory=set)
    passing_over: set[str] = field(default_factory=set)
    has_pending: bool = True
    has_read: bool = False
    is_lost: bool = False
    border_at: float = float("-inf")

    # ---------------------------------------------------------------------------------------------------- what happens

    def opened(self, start: Position, passed_over: set[str], *, is_refused: bool) -> None:
        """The journal is open at the target's position; `is_refused`: it refused the position before."""
        self.position = self.stored = start
        self.backlog.restart(start.next_offset)
        self.skipped = 0
        self.passed_over, self.passing_over = passed_over, set()
        # a crash between a commit and its statuses leaves them pending, so every opening sends first
        self.has_pending, self.has_read, self.is_lost = True, False, False
        self.may_replay = self.may_replay and not is_refused

    def lost(self) -> None:
        """Journal or target failed."""
        self.is_lost = True

    def read(self, batch: RecordBatch) -> None:
        """Records were read, or the log has none."""
        self.has_read = True
        self.may_replay = False  # from here on a refused position is a loss, and no gap that was accepted
        self.backlog.add(batch)
        if not batch.records:
            self.position = self._at(batch.next_offset)

    def pass_over(self, publishers: Iterable[str]) -> None:
        """Note the publishers of skipped packages that are not followed; the next commit stores their names."""
        for publisher in publishers:
            is_full = len(self.passed_over) + len(self.passing_over) >= MAX_PASSED_OVER
            if publisher not in self.passed_over:
                self.passing_over.add(ANY_PUBLISHER if is_full else publisher)

    def advance(self, records: Sequence[Record], done: int, *, is_committed: bool) -> None:
        self.position = self.after(records, done)
        self.backlog.done(done)
        if not is_committed:
            self.skipped += done

    def committed(self, now: float) -> Position:
        """The target holds the position; returns it."""
        self.stored = stored = self.current_position()
        self.skipped = 0
        # Only now: a batch that was rolled back has stored no names.
        self.passed_over |= self.passing_over
        self.passing_over = set()
        self.committed_at = now
        return stored

    def added_statuses(self, *, has_any: bool = True) -> None:
        """The target holds statuses that are to be sent, if there are any."""
        self.has_pending = self.has_pending or has_any

    def sent_statuses(self) -> None:
        """All statuses of the target are in the log."""
        self.has_pending = False

    def took_commands(self) -> None:
        """Commands were stored, some with an answer; work between batches is not put off."""
        self.has_pending = True
        self.border_at = float("-inf")

    def begin_border(self, now: float) -> bool:
        """Begin work between batches, if there is time for it; False if it is not due."""
        if self.backlog or now - self.border_at < BORDER_SECONDS:
            return False
        self.border_at = now
        return True

    # --------------------------------------------------------------------------------------------------- what is so now

    def current_position(self) -> Position:
        """The position. Raises: ValueError: the journal was never opened."""
        if self.position is None:
            raise ValueError("the run was not opened")
        return self.position

    def after(self, records: Sequence[Record], done: int) -> Position:
        """The position behind the first `done` of the first records of the backlog."""
        return self._at(self.backlog.end_after(done), records[done - 1].leader_epoch)

    def _at(self, next_offset: Offset, leader_epoch: int | None = None) -> Position:
        before = self.current_position()
        return Position(before.identity, next_offset, before.leader_epoch if leader_epoch is None else leader_epoch)
