"""One run of a subscriber: the loop around reading, importing, committing and confirming.

A batch that fails is rolled back and narrowed: what came before the failing package is imported in one batch again, the
package itself alone, and what follows normally. Where a failure can't be told to be of one package, all of the batch is
imported one by one. Only a package that fails alone is a failing package. After a failure of the journal or the target
nothing in memory is believed: a commit that failed may have happened, so the run goes on from what the target says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from mailboat.errors import MailboatError, PositionOutOfRangeError, RetryableError, StopError
from mailboat.failpoints import Failpoint
from mailboat.journal.port import JournalReader, Record
from mailboat.model.identifiers import Offset
from mailboat.model.positions import Position
from mailboat.subscriber.after_calls import AfterCalls
from mailboat.subscriber.backlog import Backlog
from mailboat.subscriber.commanding import CommandDesk
from mailboat.subscriber.confirmations import Confirmations, Correspondent
from mailboat.subscriber.continuity import ANY_PUBLISHER, MAX_PASSED_OVER, check_following, decide_start
from mailboat.subscriber.exposing import Exposure
from mailboat.subscriber.failing import Failure, FailureDesk, ImportDefectError
from mailboat.subscriber.gating import Gate
from mailboat.subscriber.glancing import Glances
from mailboat.subscriber.guarding import ImportGuard, StopAskedError
from mailboat.subscriber.importing import Importer, Outcome
from mailboat.subscriber.measuring import Measuring
from mailboat.subscriber.payloads import Payloads
from mailboat.subscriber.pieces import PieceStore
from mailboat.subscriber.redriving import Redriver, StillGivenUp
from mailboat.subscriber.report_starts import plan_report_starts
from mailboat.subscriber.reporting import Reporter
from mailboat.subscriber.retries import is_infrastructure
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings
from mailboat.subscriber.staging import GoldenWatch
from mailboat.workers import heartbeat

_LOOK_SECONDS: Final = 1.0
_MOST_STEPS_IN_VAIN: Final = 10_000
"""Far more than the portions that a batch is cut into after a failure."""

_LOG: Final = logging.getLogger(__name__)


class ImportRun:
    """The state of one run. All of it belongs to the thread that runs it."""

    def __init__(
        self,
        settings: SubscriberSettings,
        ports: SubscriberPorts,
        guard: ImportGuard,
        reporter: Reporter,
        commands: CommandDesk,
    ) -> None:
        """Nothing is read yet."""
        self._commands = commands
        self._settings = settings
        self._ports = ports
        self._guard = guard
        self._reporter = reporter
        self._target = ports.target
        self._reach = ports.failpoints.reach
        reporter.pieces = PieceStore(ports.journal, settings.package_topic, ports.clock, settings.pieces)
        self._payloads = Payloads(ports.blobs, ports.references, reporter.pieces, settings.limits.max_total_bytes)
        self._golden = None if settings.staging is None else GoldenWatch(settings.staging, settings, ports)
        gate = Gate(commands, self._golden, guard) if settings.is_editable or self._golden is not None else None
        self._exposure = Exposure(settings.exposure, ports.target.ledger, ports.clock)
        self._importer = Importer(settings, ports, self._payloads, guard, gate, self._exposure)
        self._measuring = Measuring(settings, ports)
        self._glances = Glances(self._importer, reporter, is_asking_who=settings.follow is None)
        self._after_calls = reporter.after_calls = AfterCalls(settings, ports)
        self._desk = FailureDesk(settings, ports, self._exposure)
        self._redriver = Redriver(settings, ports, Importer(settings, ports, self._payloads, guard), gate)
        reporter.is_wanted = self._is_pause_needless
        sender = Correspondent(settings.sling_id, settings.name, settings.status_topic)
        self._confirmations = Confirmations(sender, ports.journal, ports.target.ledger, ports.failpoints)
        self._has_pending = True
        self._owes_pause = False
        self._is_lost = False
        self._has_read = False
        self._may_replay = settings.is_gap_accepted  # until the journal has shown that it knows the position
        self._position: Position | None = None
        self._stored: Position | None = None
        self._reader: JournalReader | None = None
        self._todo = Backlog()
        self._reached: object = None
        self._steps_in_vain = 0
        self._skipped = 0
        self._passed_over: set[str] = set()  # as the target has it
        self._passing_over: set[str] = set()  # what the next commit adds
        self._committed_at = ports.clock.monotonic()
        self._beat = heartbeat(ports.clock)
        self._looked_at = float("-inf")

    def run(self, keep_reader: Callable[[JournalReader], None], *, is_endless: bool) -> None:
        """Import until asked to stop or, unless endless, until all is done that the log holds now.

        Raises: StopError, and PermanentError of a journal or target that can't be used.
        """
        self._target.ledger.claim(self._settings.name)
        is_open = self._patiently(lambda: self._open(keep_reader, is_gap_accepted=self._settings.is_gap_accepted))
        goal = None if is_endless else self._reporter.log_next_offset
        self._owes_pause = self._desk.attempt is not None
        while not self._guard.stopping.is_set():
            if self._is_done(goal):
                break
            self._patiently(lambda: self._step(keep_reader))
        if is_open and not is_endless:
            self._patiently(self._look_around)  # a run with nothing to import does what a person asked for, too
        if is_open:
            self._finish()

    def close(self) -> None:
        """Release what the run holds."""
        self._commands.close()
        if self._golden is not None:
            self._golden.close()
        self._payloads.close()
        if self._reader is not None:
            self._reader.close()

    # ------------------------------------------------------------------------------------------------------ the loop

    def _step(self, keep_reader: Callable[[JournalReader], None]) -> None:
        if self._is_lost:
            self._open(keep_reader, is_gap_accepted=False)
        self._payloads.pieces.expire()
        self._after_calls.turn()
        self._take_commands()
        if self._has_pending:
            self._measuring.confirming(self._confirmations.send)
            self._has_pending = False
            return
        self._look_around()
        if not self._todo:
            self._read(keep_reader)
        if self._todo and self._owes_pause:
            self._wait_for_stored_attempt()
        elif self._todo:
            self._import_next()
            self._check_progress()
        else:
            self._reporter.current()

    def _check_progress(self) -> None:
        """Stop in a named state where steps return and get nowhere: such a loop would look alive for ever.

        A step moves the position, counts an attempt, waits for the golden subscriber, or tries fewer packages at once.
        """
        reached = self._current_position().next_offset, self._desk.attempts_before
        self._steps_in_vain = self._steps_in_vain + 1 if reached == self._reached else 0
        self._reached = reached
        if self._steps_in_vain >= _MOST_STEPS_IN_VAIN:
            raise ImportDefectError(
                f"{self._steps_in_vain:,} steps in a row did not move the position from {reached[0]}",
                offset=reached[0],
            )

    def _patiently(self, action: Callable[[], None]) -> bool:
        """Do it; while journal or target are unusable, wait and do it again. False when asked to stop meanwhile."""
        failures = 0
        while not self._guard.stopping.is_set():
            self._beat(0.0)  # a step is short, or beats itself: with each record, and before each pause
            try:
                action()
            except RetryableError as error:
                failures += 1
                self._is_lost = True
                self._payloads.forget()
                self._reporter.wait_out(error, failures)
            else:
                return True
        return False

    def _is_done(self, goal: Offset | None) -> bool:
        if goal is None or not self._has_read or self._todo or self._has_pending or self._position is None:
            return False  # also at the goal the log is asked once, as only a read tells that the position fits it
        return self._position.next_offset >= goal

    def _finish(self) -> None:
        try:
            self._commit_skipped()
            self._confirmations.send()
        except RetryableError:
            _LOG.info("stopped with confirmations or a position still to store; the next start does that")

    # --------------------------------------------------------------------------------------------------- the journal

    def _open(
        self,
        keep_reader: Callable[[JournalReader], None],
        *,
        is_gap_accepted: bool,
        refusal: PositionOutOfRangeError | None = None,
    ) -> None:
        topic = self._settings.package_topic
        identity, bounds = self._ports.journal.identity(topic), self._ports.journal.bounds(topic)
        stored = self._target.ledger.position()
        start = decide_start(
            self._settings.name, stored, identity, bounds, is_gap_accepted=is_gap_accepted, refusal=refusal
        )
        accepted = self._check_following(is_gap_accepted=is_gap_accepted)
        known = self._target.ledger.report_starts
        position = None if stored is None else stored.next_offset
        reports = plan_report_starts(known, self._settings.follow, position, start.next_offset)
        if start != stored or accepted or reports != known:
            self._target.ledger.reset_position(start, accepted, reports)
            if stored is not None and start.next_offset < stored.next_offset:
                self._commands.refuse_clears("the log lost its end, and other packages may stand there now")
        self._commands.listen()
        if self._golden is not None:
            self._golden.start_at(start.next_offset)
        is_replayed = stored is not None and start.next_offset < stored.next_offset
        self._after_calls.load(is_replayed=is_replayed)
        self._desk.load()
        self._exposure.load()
        self._position = self._stored = start
        self._todo.restart(start.next_offset)
        self._skipped = 0
        earlier, self._reader = self._reader, self._ports.journal.reader(topic, start)
        if earlier is not None:
            earlier.close()
        self._is_lost = False
        self._has_read = False
        self._has_pending = True
        keep_reader(self._reader)
        self._reporter.opened(start, bounds.next_offset, reports)

    def _check_following(self, *, is_gap_accepted: bool) -> Collection[str]:
        """The publishers followed whose packages were passed over, as accepted. Raises: FollowWidenedError."""
        known, settings = self._target.ledger.passed_over, self._settings
        accepted = check_following(settings.name, known, settings.follow, is_gap_accepted=is_gap_accepted)
        self._passed_over = set(known.difference(accepted))
        self._passing_over.clear()
        return accepted

    def _pass_over(self, publishers: Iterable[str]) -> None:
        """Note publishers that are not followed, to be stored with the next commit."""
        for publisher in publishers:
            is_full = len(self._passed_over) + len(self._passing_over) >= MAX_PASSED_OVER
            if publisher not in self._passed_over:
                self._passing_over.add(ANY_PUBLISHER if is_full else publisher)

    def _read(self, keep_reader: Callable[[JournalReader], None]) -> None:
        if self._reader is None:
            raise ValueError("the run was not opened")
        try:
            batch = self._reader.read(self._settings.read, _LOOK_SECONDS if self._has_read else 0.0)
        except PositionOutOfRangeError as error:
            self._open(keep_reader, is_gap_accepted=self._may_replay, refusal=error)  # or raises the named state
            self._may_replay = False
            return
        self._may_replay = False
        self._has_read = True
        self._reach(Failpoint.SUBSCRIBER_BATCH_READ)
        self._todo.add(batch)
        self._reporter.read(batch)
        if not batch.records:
            self._position = self._position_at(batch.next_offset)

    def _position_at(self, next_offset: Offset, leader_epoch: int | None = None) -> Position:
        before = self._current_position()
        return Position(before.identity, next_offset, before.leader_epoch if leader_epoch is None else leader_epoch)

    def _after(self, records: Sequence[Record], done: int) -> Position:
        return self._position_at(self._todo.end_after(done), records[done - 1].leader_epoch)

    # -------------------------------------------------------------------------------------------------------- import

    def _import_next(self) -> None:
        records = self._todo.portion()
        self._reporter.gauge.take_up(records[0].appended_ms or None)
        began = self._measuring.begin()
        self._guard.begin()
        try:
            outcome, is_committed = self._import(records)
        except StopAskedError:
            self._payloads.forget()
            return
        except StopError:
            raise
        except Exception as error:  # whose it is can't be told: it came with the beginning or the commit
            if is_infrastructure(error):
                raise
            self._narrow_unattributed(records, error)
            return
        if outcome.is_waiting and outcome.done == 0:
            self._wait_for_golden(records[0], outcome)
        elif outcome.error is None:
            self._advance(records, outcome, is_committed=is_committed)
            if is_committed:
                self._measuring.committed(records, outcome, began)
        elif outcome.done == 0 and len(records) == 1:
            self._fail(Failure(records[0], outcome.error, outcome.message))
        else:
            self._todo.narrow(outcome.done)

    def _import(self, records: Sequence[Record]) -> tuple[Outcome, bool]:
        self._importer.attempts_before = self._desk.attempts_before
        self._commands.begin()
        self._exposure.begin()
        with self._target.batch() as batch:
            self._reach(Failpoint.SUBSCRIBER_BATCH_BEGUN)
            outcome = self._importer.import_records(batch, records)
            self._pass_over(outcome.unfollowed)
            has_effect = outcome.imported + outcome.dropped > 0
            is_worth_a_commit = has_effect or self._skipped + outcome.done >= self._settings.skip_commits.max_records
            if outcome.error is not None or not is_worth_a_commit:
                return outcome, False
            after = self._after(records, outcome.done)
            outcome.statuses += self._commands.settle(batch, after)
            self._exposure.settle(batch)
            batch.pass_over(self._passing_over)
            if self._after_calls.is_wanted:
                batch.expect_after([one.offset for one in outcome.processed])
            self._reach(Failpoint.SUBSCRIBER_BEFORE_COMMIT)
            outcome.count(batch.commit(after))
        self._reach(Failpoint.SUBSCRIBER_COMMITTED)
        return outcome, True

    def _advance(self, records: Sequence[Record], outcome: Outcome, *, is_committed: bool) -> None:
        self._position = self._after(records, outcome.done)
        self._todo.done(outcome.done)
        if is_committed:
            self._note_commit()
            self._has_pending = self._has_pending or outcome.statuses > 0
        else:
            self._skipped += outcome.done
        self._after_calls.committed(outcome.processed)
        self._reporter.advanced(self._position, outcome, is_committed=is_committed, has_more=bool(self._todo))
        self._glances.take(records[: outcome.done], outcome)

    def _note_commit(self) -> None:
        self._stored = stored = self._current_position()
        self._reporter.stored_offset = stored.next_offset
        self._desk.forget()
        self._commands.committed()
        self._exposure.committed()
        self._reporter.held_back = self._exposure.held_back
        if self._golden is not None:
            self._golden.trim(stored.next_offset)
        self._skipped = 0
        self._passed_over |= self._passing_over
        self._passing_over.clear()
        self._committed_at = self._ports.clock.monotonic()

    # ------------------------------------------------------------------------------------------------------ failures

    def _narrow_unattributed(self, records: Sequence[Record], error: Exception) -> None:
        if len(records) > 1 or self._target.ledger.position() != self._stored:
            self._todo.try_each(len(records))
            self._is_lost = True
            return
        self._fail(Failure(records[0], error, self._importer.message_of(records[0])))

    def _fail(self, failure: Failure) -> None:
        self._payloads.forget()
        self._commit_skipped()
        after = self._after([failure.record], 1)
        verdict = self._desk.handle(failure, after)
        if verdict.is_given_up:
            self._position = after
            self._todo.done(1)
            self._note_commit()
            self._has_pending = True
            self._reporter.given_up(after, verdict)
        else:
            self._todo.try_first_alone()
            self._reporter.wait_for(verdict)

    def _wait_for_stored_attempt(self) -> None:
        """A failure of an earlier run has its pause, too."""
        self._owes_pause = False
        attempt = self._desk.attempt
        if attempt is not None:
            self._todo.narrow(0)
            self._reporter.wait_for_attempt(attempt, self._settings.retry.longest_pause_seconds)

    # -------------------------------------------------------------------------------------------------- at the border

    def _look_around(self) -> None:
        now = self._ports.clock.monotonic()
        if self._todo or self._desk.attempt is not None or now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        if now - self._committed_at >= self._settings.skip_commits.max_seconds:
            self._commit_skipped()
        if self._exposure.drop_vain(is_at_end=self._reporter.is_at_end):
            self._commit_nothing()
        if not self._exposure.held_back:
            self._redrive()
        self._has_pending = self._commands.settle_redrives() or self._has_pending

    def _redrive(self) -> None:
        for redriven in self._redriver.redrive(self._current_position):
            if isinstance(redriven, StillGivenUp):
                self._reporter.still_given_up(redriven.cause)
                continue
            self._has_pending = True
            self._note_commit()
            self._after_calls.committed(redriven.outcome.processed)
            self._reporter.redriven(redriven.outcome)

    def _take_commands(self) -> None:
        """Take what was heard, and answer what is over."""
        position = self._position
        if position is None or self._is_lost:
            return
        if self._commands.take(position, self._after_calls.retry):
            self._has_pending = True
            self._looked_at = float("-inf")
        self._has_pending = self._commands.settle_due(position) or self._has_pending

    def _is_pause_needless(self) -> bool:
        """Whether a clear drops the package that the pause is for; what else was heard is answered meanwhile."""
        try:
            self._take_commands()
            if self._has_pending and not self._is_lost:
                self._confirmations.send()
                self._has_pending = False
            stuck = self._desk.stuck_of(self._todo)
            publisher = None if stuck is None else self._importer.decode(stuck).pub_agent_name
            return stuck is not None and self._commands.covering(stuck.offset, publisher) is not None
        except MailboatError:
            return False  # it is done, or told, when the pause is over

    def _wait_for_golden(self, record: Record, outcome: Outcome) -> None:
        """Wait until the golden subscriber has said what became of the package; a while, then look anew."""
        if self._golden is None or outcome.message is None:
            raise ValueError("nobody is waited for")
        self._reporter.waits_for(self._golden.name, self._golden.obstacle(outcome.message))
        self._reached = None
        self._golden.await_word(record.offset, lambda: self._guard.stopping.is_set() or self._is_pause_needless())

    def _current_position(self) -> Position:
        if self._position is None:
            raise ValueError("the run was not opened")
        return self._position

    def _commit_skipped(self) -> None:
        if self._position == self._stored or self._desk.attempt is not None:
            return
        self._exposure.begin()
        self._commit_nothing()

    def _commit_nothing(self) -> None:
        with self._target.batch() as batch:
            self._exposure.settle(batch)
            batch.pass_over(self._passing_over)
            self._reach(Failpoint.SUBSCRIBER_BEFORE_COMMIT)
            batch.commit(self._current_position())
        self._reach(Failpoint.SUBSCRIBER_COMMITTED)
        self._note_commit()
