"""The subscriber: reads the package topic from its position and imports every package, in order, once.

One thread does it all: what the journal has ready is read (never waiting for more), imported in one transaction with
position and confirmations, committed, confirmed. So a single package is imported at once, and a backlog in large
batches; docs/decisions/0006-delivery.md says why no second thread is used. Called by the agent and the command line.

`Subscriber` has all effects; what is so and what follows from it is in `RunState`. A batch that fails is rolled back
and narrowed: what came before the failing package is imported in one batch again, the package itself alone, and what
follows normally. Where a failure can't be attributed to a package, all of the batch is imported one by one. Only a
package that fails alone is a failing package. After a failure of the journal or the target nothing in memory is
believed: a commit that failed may have happened, so the run goes on from what the target says.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from typing import Final

from mailboat.clock import Deadline
from mailboat.config.document import Expose
from mailboat.errors import MailboatError, PositionOutOfRangeError, RetryableError, StopError
from mailboat.failpoints import Failpoint
from mailboat.journal.port import JournalReader, ReadLimits, Record
from mailboat.model.messages import FailureCause, Suspension
from mailboat.model.positions import Position
from mailboat.subscriber.admission import Admission, Exposure, ImportGuard, StopAskedError, StopSignal
from mailboat.subscriber.after_calls import AfterCalls
from mailboat.subscriber.commands import CommandHandler, SubscriberSuspendedError
from mailboat.subscriber.confirmations import AddedJobs, Confirmations
from mailboat.subscriber.continuity import plan_start
from mailboat.subscriber.failures import (
    FailureHandler,
    ImportDefectError,
    RecordFailure,
    Redriven,
    Redriver,
    is_infrastructure,
    pause_seconds,
)
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.golden_watch import GoldenWatch
from mailboat.subscriber.importer import BatchOutcome, Importer, decode_record
from mailboat.subscriber.payloads import Payloads
from mailboat.subscriber.piece_store import PieceStore
from mailboat.subscriber.reporter import ImportRecorder, Reporter
from mailboat.subscriber.run_state import PortionResult, RunState, decide_portion, is_at_goal, is_worth_a_commit
from mailboat.subscriber.subscriber_settings import SubscriberPorts, SubscriberSettings
from mailboat.wire.headers import PACKAGE_HEADERS
from mailboat.workers import heartbeat

_READ_SECONDS: Final = 1.0
_SUSPENDED_SECONDS: Final = 5.0
_MOST_STEPS_IN_VAIN: Final = 10_000
"""Far more than the portions that a batch is cut into after a failure."""

_LOG: Final = logging.getLogger(__name__)


class Until(enum.Enum):
    """When `Subscriber.run` returns without being stopped."""

    CAUGHT_UP = "caught-up"
    """When everything is done that the log held at the start."""

    FOREVER = "forever"
    """Only when it is stopped."""


class Subscriber:
    """One subscriber agent on one target. `run` from one thread, once; `stop` and `statistics` from any."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts) -> None:
        """Make the parts; nothing is read or written before `prepare` or `run`.

        The order is that of dependencies: all that wait need the signal, the import guard needs admission.
        """
        ledger, clock = ports.target.ledger, ports.clock
        self._settings = settings
        self._limits = ReadLimits(settings.config.max_batch_records, settings.config.max_batch_bytes)
        self._ports = ports
        self._target = ports.target
        self._reach = ports.failpoints.reach
        self._signal = signal = StopSignal()
        self._pieces = PieceStore(ports.journal, settings.package_topic, clock, settings.config.pieces, settings.spool)
        self._payloads = Payloads(ports.blobs, ports.references, self._pieces, settings.limits.max_total_bytes)
        self._after_calls = AfterCalls(settings, ports)
        self._reporter = reporter = Reporter(settings, ports, self._pieces, self._after_calls)
        self._recorder = ImportRecorder(settings, ports)
        self._commands = commands = CommandHandler(settings, ports, signal.wake)
        self._golden = None if settings.staging is None else GoldenWatch(settings.staging, settings, ports)
        self._exposure = Exposure(settings.config, ledger, clock)
        admission = _admission(settings, commands, self._golden, self._exposure)
        is_cleared = None if admission is None else admission.is_cleared
        self._guard = ImportGuard(clock, settings.config.package_timeout_seconds, signal, is_cleared, reporter.is_slow)
        self._failures = FailureHandler(settings, ports, self._exposure)
        self._importer = Importer(
            settings, ports, self._payloads, self._guard, admission, failures_of=self._failures.failures_of
        )
        # entries of the error queue are not in the queue: no clear drops them, and no golden subscriber delays them
        self._redriver = Redriver(settings, ports, Importer(settings, ports, self._payloads, self._guard), admission)
        self._confirmations = Confirmations(settings, ports, ledger)
        self._added_jobs = AddedJobs(ports.journal, ledger.jobs, ports.failpoints)
        self._state = RunState(may_replay=settings.is_gap_accepted, committed_at=clock.monotonic())
        self._reader: JournalReader | None = None
        self._reached: object = None
        self._steps_in_vain = 0
        self._is_endless = True
        self._owes_pause = False  # a failure of an earlier run has its pause still before it
        self._beat = heartbeat(clock)

    def prepare(self) -> None:
        """Store where commands to a new target begin; call it before the subscriber is announced.

        Raises: the journal's and the target's errors; `run` does it, too.
        """
        self._target.ledger.claim(self._settings.name)
        self._commands.claim_position()

    def run(self, until: Until = Until.FOREVER) -> SubscriberStatistics:
        """Import until asked to stop, or until caught up. Returns the last snapshot.

        Raises:
            StopError: A named state (JournalIncomplete, JournalTrimmed, JournalReplaced, JournalShorter,
                UnknownRequiredFeature, TargetCorrupt, …): the position is at the message that could not be done; a
                person decides.
            PermanentError: Of a journal or target that can't be used.
        """
        self._is_endless = until is Until.FOREVER
        try:
            self._run()
        except MailboatError as error:
            self._reporter.stopped(error)
            raise
        finally:
            self._close()
        return self._reporter.stopped(None)

    def stop(self, deadline: Deadline | None = None) -> None:
        """Ask `run` to return: the current batch is finished, or rolled back when the deadline is over."""
        # The signal comes first: `_open` checks it after it has stored a new reader.
        self._signal.stop(deadline)
        reader = self._reader
        if reader is not None:
            reader.interrupt()

    def statistics(self) -> SubscriberStatistics:
        return self._reporter.statistics

    def _run(self) -> None:
        state = self._state
        self._target.ledger.claim(self._settings.name)
        is_open = self._with_retries(lambda: self._open(is_gap_accepted=self._settings.is_gap_accepted))
        goal = None if self._is_endless else self._reporter.log_next_offset
        self._owes_pause = self._failures.attempt is not None
        while not self._signal.stopping.is_set():
            if is_at_goal(state, goal):
                break
            self._with_retries(self._step)
        if is_open and not self._is_endless:
            self._with_retries(self._work_at_border)  # a run with nothing to import also does what a person asked for
        if is_open:
            self._finish()

    def _close(self) -> None:
        reader, self._reader = self._reader, None
        self._commands.close()
        if self._golden is not None:
            self._golden.close()
        self._payloads.close()
        if reader is not None:
            reader.close()

    # ------------------------------------------------------------------------------------------------------- the loop

    def _step(self) -> None:
        """Do what comes next. Each is short, or calls the heartbeat itself: a step must not look like a hang."""
        state = self._state
        if state.is_lost:
            self._open(is_gap_accepted=False)
        self._pieces.expire()
        self._after_calls.turn()
        self._take_commands()
        if state.has_pending:
            # statuses before the next batch: they would wait for its whole import, and others wait for them
            self._recorder.confirm(self._confirmations.send)
            state.sent_statuses()
            return
        self._append_jobs()
        suspension = self._commands.suspension()
        if suspension is not None:
            self._stay_suspended(suspension)
            return
        self._work_at_border()
        if not state.backlog:
            self._read()
        if state.backlog and self._owes_pause:
            self._wait_for_stored_attempt()
        elif state.backlog:
            self._import_next()
            self._check_progress()
        else:
            self._reporter.idle()

    def _stay_suspended(self, suspension: Suspension) -> None:
        """Wait for a resume, for the end of the suspension, or for so long that the end of the log is read again."""
        name, clock = self._settings.name, self._ports.clock
        if not self._is_endless:
            raise SubscriberSuspendedError(
                f"imports of {name} are suspended", next_step=f"mailboat subscribers resume {name}, then again"
            )
        self._commit_skipped()
        self._reporter.suspended(suspension, self._ports.journal.bounds(self._settings.package_topic).next_offset)
        seconds = _SUSPENDED_SECONDS
        if suspension.until_ms is not None:
            seconds = min(seconds, max(0.0, suspension.until_ms / 1000 - clock.now().timestamp()))
        self._pause(seconds, is_suspended=True)

    def _check_progress(self) -> None:
        """Stop in a named state where steps return without progress: such a loop would look alive without end.

        A step moves the position, counts an attempt, waits for the golden subscriber, or tries fewer packages at once.
        """
        reached = self._state.current_position().next_offset, self._failures.attempt
        self._steps_in_vain = self._steps_in_vain + 1 if reached == self._reached else 0
        self._reached = reached
        if self._steps_in_vain >= _MOST_STEPS_IN_VAIN:
            raise ImportDefectError(
                f"{self._steps_in_vain:,} steps in a row did not move the position from {reached[0]}",
                offset=reached[0],
            )

    def _with_retries(self, action: Callable[[], None]) -> bool:
        """Do it; while journal or target are unusable, wait and do it again. False when asked to stop meanwhile."""
        failures = 0
        while not self._signal.stopping.is_set():
            self._beat(0.0)
            try:
                action()
            except RetryableError as error:
                failures += 1
                self._state.lost()
                self._payloads.forget()
                pause = pause_seconds(error, failures, self._settings.config, self._ports.random)
                self._reporter.pauses(SubscriberPhase.WAITING, pause, FailureCause.of_error(error))
                self._pause(pause)
            else:
                return True
        return False

    def _pause(self, seconds: float, *, is_suspended: bool = False) -> None:
        """Wait so long; a stop ends it, and a command that makes the pause needless."""
        self._beat(seconds)
        clock, deadline = self._ports.clock, Deadline(self._ports.clock, seconds)
        while not deadline.is_over():
            # cleared before the conditions are read: a wake-up after that is seen by the next turn, none is lost
            self._signal.woken.clear()
            if self._signal.stopping.is_set() or self._is_pause_needless(is_suspended=is_suspended):
                return
            # a pause may be longer than pieces may be kept
            self._pieces.expire()
            clock.wait(self._signal.woken, min(deadline.remaining_seconds(), self._pieces.expires_in_seconds()))

    def _finish(self) -> None:
        try:
            self._commit_skipped()
            self._confirmations.send()
            self._append_jobs()
        except RetryableError:
            _LOG.info("stopped with confirmations, jobs or a position still to store; the next start does that")

    def _append_jobs(self) -> None:
        """Append the jobs that imports added, once readers see the content that the jobs are about."""
        if not self._exposure.held_back:
            self._added_jobs.append()

    # --------------------------------------------------------------------------------------------------- the journal

    def _open(self, *, is_gap_accepted: bool, refusal: PositionOutOfRangeError | None = None) -> None:
        """Go on from what the target says. Raises: a named state where the journal does not continue there."""
        settings, ledger, topic = self._settings, self._target.ledger, self._settings.package_topic
        identity, bounds = self._ports.journal.identity(topic), self._ports.journal.bounds(topic)
        begun = plan_start(settings, ledger, identity, bounds, is_gap_accepted=is_gap_accepted, refusal=refusal)
        start, passed_over = begun.position, ledger.passed_over.difference(begun.accepted)
        if begun.is_replayed:  # before the position: after a crash in between, the start is such a one again
            self._commands.refuse_open("the log lost its end, so the offsets may hold other packages now")
        if begun.is_new:
            ledger.reset_position(start, begun.accepted, begun.report_starts)
        self._commands.listen()
        if self._golden is not None:
            self._golden.start_at(start.next_offset)
        self._after_calls.load(is_replayed=begun.is_replayed)
        self._failures.load()
        self._failures.passed(start.next_offset)
        self._exposure.load()
        self._state.opened(start, set(passed_over), is_refused=refusal is not None)
        earlier, self._reader = self._reader, self._ports.journal.reader(topic, start)
        if earlier is not None:
            earlier.close()
        # `stop` interrupts the reader that it finds: where it came just before this one, that is done here
        if self._signal.stopping.is_set():
            self._reader.interrupt()
        self._reporter.opened(start, bounds.next_offset, begun.report_starts)

    def _read(self) -> None:
        if self._reader is None:
            raise ValueError("the run was not opened")
        state = self._state
        try:
            # the first read returns at once: it shows whether the position fits, and a run to the end may have to end
            batch = self._reader.read(self._limits, _READ_SECONDS if state.has_read else 0.0)
        except PositionOutOfRangeError as error:
            self._open(is_gap_accepted=state.may_replay, refusal=error)  # or raises the named state
            return
        self._reach(Failpoint.SUBSCRIBER_BATCH_READ)
        state.read(batch)
        self._reporter.read(batch)

    # -------------------------------------------------------------------------------------------------------- import

    def _import_next(self) -> None:
        records = self._state.backlog.portion()
        self._reporter.took_up(records[0].appended_ms or None)
        began = self._recorder.begin()
        self._guard.begin()
        try:
            outcome, is_committed = self._import(records)
        except StopAskedError:
            self._payloads.forget()
            return
        except StopError:
            raise
        except Exception as error:  # it came with the beginning or the commit, so it belongs to no package yet
            if is_infrastructure(error):
                raise
            self._narrow_unattributed(records, error)
            return
        match decide_portion(outcome, len(records)):
            case PortionResult.WAIT:
                self._wait_for_golden(records[0], outcome)
            case PortionResult.ADVANCE:
                self._advance(records, outcome, is_committed=is_committed)
                if is_committed:
                    self._recorder.committed(records, outcome, began)
            case PortionResult.FAIL if outcome.error is not None:
                self._fail(RecordFailure(records[0], outcome.error, outcome.message))
            case _:
                self._state.backlog.narrow(outcome.done)

    def _import(self, records: Sequence[Record]) -> tuple[BatchOutcome, bool]:
        """Import the records in one transaction; the outcome, and whether it was committed."""
        state = self._state
        self._commands.begin()
        self._exposure.begin()
        with self._target.batch() as batch:
            self._reach(Failpoint.SUBSCRIBER_BATCH_BEGUN)
            outcome = self._importer.import_records(batch, records)
            state.pass_over(outcome.unfollowed)
            if not is_worth_a_commit(state, outcome, self._settings.skipped_records):
                return outcome, False
            after = state.after(records, outcome.done)
            # answers of commands and open builds belong to the position, so they are in its transaction
            outcome.count_statuses(self._commands.settle(batch, after))
            self._exposure.settle(batch)
            batch.pass_over(state.passing_over)
            if self._after_calls.is_wanted:
                batch.expect_after([package.offset for package in outcome.processed])
            self._reach(Failpoint.SUBSCRIBER_BEFORE_COMMIT)
            outcome.count_changes(batch.commit(after))
        self._reach(Failpoint.SUBSCRIBER_COMMITTED)
        return outcome, True

    def _advance(self, records: Sequence[Record], outcome: BatchOutcome, *, is_committed: bool) -> None:
        state = self._state
        state.advance(records, outcome.done, is_committed=is_committed)
        if is_committed:
            self._note_commit()
            state.added_statuses(has_any=outcome.statuses > 0)
            self._added_jobs.committed(outcome.jobs)
        else:
            self._failures.passed(state.current_position().next_offset)
        # After the commit was noted: the hook may fail or take long, and the import stands.
        self._after_calls.committed(outcome.processed)
        has_more = bool(state.backlog)
        self._reporter.advanced(state.current_position(), outcome, is_committed=is_committed, has_more=has_more)
        # of a whole batch only one message is decoded for each of these, so the price does not grow with the packages
        done, last = records[: outcome.done], records[outcome.done - 1]
        is_asking = self._settings.follow is None and last.headers == PACKAGE_HEADERS
        message = self._importer.message_of(last) if is_asking else None
        self._reporter.passed(last, outcome, message, self._importer.last_part(done))

    def _note_commit(self) -> None:
        stored = self._state.committed(self._ports.clock.monotonic())
        self._failures.forget()
        self._commands.committed()
        self._exposure.committed()
        self._reporter.committed(stored.next_offset, self._exposure.held_back)
        if self._golden is not None:
            self._golden.trim(stored.next_offset)

    # ------------------------------------------------------------------------------------------------------ failures

    def _narrow_unattributed(self, records: Sequence[Record], error: Exception) -> None:
        # a commit may have happened and still have failed: then the target's position is ahead of ours
        if len(records) > 1 or self._target.ledger.position() != self._state.stored:
            self._state.backlog.try_each(len(records))
            self._state.lost()
            return
        self._fail(RecordFailure(records[0], error, self._importer.message_of(records[0])))

    def _fail(self, failure: RecordFailure) -> None:
        state = self._state
        self._payloads.forget()
        self._commit_skipped()
        after = state.after([failure.record], 1)
        # After `_commit_skipped`, which does nothing once an attempt is stored.
        verdict = self._failures.handle(failure, after)
        if verdict.is_given_up:
            state.advance([failure.record], 1, is_committed=True)
            self._note_commit()
            state.added_statuses()
            self._reporter.given_up(after, verdict)
        else:
            state.backlog.try_first_alone()
            phase = SubscriberPhase.RETRYING if verdict.is_counted else SubscriberPhase.WAITING
            failing = verdict.failures, verdict.publisher
            self._reporter.pauses(phase, verdict.pause_seconds, verdict.cause, *failing)
            self._pause(verdict.pause_seconds)

    def _wait_for_stored_attempt(self) -> None:
        """Wait out the rest of the pause after a failure of an earlier run."""
        self._owes_pause = False
        attempt = self._failures.attempt
        if attempt is not None:
            self._state.backlog.narrow(0)
            # never longer than the policy's longest pause, whatever the wall clock said when it was stored
            rest = attempt.next_try_ms / 1000 - self._ports.clock.now().timestamp()
            pause = min(max(0.0, rest), self._settings.config.longest_pause_seconds)
            self._reporter.pauses(SubscriberPhase.RETRYING, pause, attempt.cause, attempt.count)
            self._pause(pause)

    # ------------------------------------------------------------------------------------------------ between batches

    def _work_at_border(self) -> None:
        """Do, at most once a second, what is done only where nothing waits and nothing fails."""
        state, now = self._state, self._ports.clock.monotonic()
        if self._failures.attempt is not None or not state.begin_border(now):
            return
        if now - state.committed_at >= self._settings.skipped_seconds:
            self._commit_skipped()
        if self._exposure.drop_quiet(is_at_end=self._reporter.is_at_end):
            self._commit_position()
        # readers must not see a redriven package before the build that they wait for
        if not self._exposure.held_back:
            self._redrive()
        state.added_statuses(has_any=self._commands.settle_redrives())

    def _redrive(self) -> None:
        for redriven in self._redriver.redrive(self._position_to_redrive_at):
            if isinstance(redriven, Redriven):
                self._state.added_statuses()
                self._note_commit()
                self._after_calls.committed(redriven.outcome.processed)
                self._added_jobs.committed(redriven.outcome.jobs)
            self._reporter.redriven(redriven)

    def _position_to_redrive_at(self) -> Position:
        """The position, which a redrive commits: stored before, as only that adds the publishers that were skipped."""
        self._commit_skipped()
        return self._state.current_position()

    def _take_commands(self) -> None:
        """Store the commands that arrived, and answer those that are done."""
        state = self._state
        # without a valid position it can't be decided what a clear still covers
        if state.position is None or state.is_lost:
            return
        if self._commands.take(state.position, self._after_calls.retry):
            state.took_commands()
        state.added_statuses(has_any=self._commands.settle_due(state.position))

    def _is_pause_needless(self, *, is_suspended: bool = False) -> bool:
        """Whether a clear drops the package that the pause is for, or imports were suspended or resumed.

        Other commands are answered meanwhile.
        """
        state = self._state
        try:
            self._take_commands()
            if state.has_pending and not state.is_lost:
                self._confirmations.send()
                state.sent_statuses()
            if is_suspended or self._commands.suspension() is not None:
                return is_suspended is (self._commands.suspension() is None)
            blocking = self._failures.blocking_record(state.backlog)
            publisher = None if blocking is None else decode_record(blocking).pub_agent_name
            return blocking is not None and self._commands.covering(blocking.offset, publisher) is not None
        except MailboatError:
            return False  # it is done, or reported, when the pause is over

    def _wait_for_golden(self, record: Record, outcome: BatchOutcome) -> None:
        """Wait for the golden subscriber's status of the package, for some time; then the package is tried again."""
        golden = self._golden
        if golden is None or outcome.message is None:
            raise ValueError("there is no golden subscriber to wait for")
        # Steps that wait do not count as steps without progress.
        self._reached = None
        self._reporter.waits_for(golden.name, golden.obstacle(outcome.message))
        golden.await_word(record.offset, lambda: self._signal.stopping.is_set() or self._is_pause_needless())

    def _commit_skipped(self) -> None:
        """Store the position behind messages that were skipped, unless the next package is a failing one."""
        if self._state.position == self._state.stored or self._failures.attempt is not None:
            return
        self._exposure.begin()
        self._commit_position()

    def _commit_position(self) -> None:
        with self._target.batch() as batch:
            self._exposure.settle(batch)
            batch.pass_over(self._state.passing_over)
            self._reach(Failpoint.SUBSCRIBER_BEFORE_COMMIT)
            batch.commit(self._state.current_position())
        self._reach(Failpoint.SUBSCRIBER_COMMITTED)
        self._note_commit()


def _admission(
    settings: SubscriberSettings, commands: CommandHandler, golden: GoldenWatch | None, exposure: Exposure
) -> Admission | None:
    """Return what decides about packages; None where nothing does, so that all are imported as they come."""
    has_clears = settings.is_editable or golden is not None
    is_whole = settings.config.expose is Expose.BUILD
    if not has_clears and not is_whole:
        return None
    return Admission(commands if has_clears else None, golden, exposure if is_whole else None)
