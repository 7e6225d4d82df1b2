"""Imports one package of a pool into the target that its members share: the handler of the pool's jobs.

What may take long is done side by side: the hook before the import is called and the payload is fetched without the
target. Only the change itself waits for the target.

Fencing: in the transaction of the content the target stores that the package is done. One member at a time has the
target open, so one that lost its lease, and comes late, finds the package done and changes nothing. Tokens are not
compared. What ends the package in another way (a clear, too many failures) is stored in the same way, before the job
ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import BinaryIO, Final, NamedTuple

from mailboat.clock import milliseconds_now
from mailboat.content.port import Batch, Target
from mailboat.errors import (
    JournalTrimmedError,
    MailboatError,
    MessageCorruptError,
    PermanentError,
    RetryableError,
    StopError,
)
from mailboat.failpoints import Failpoint
from mailboat.jobs.job_worker import Call, Result
from mailboat.journal.port import Record
from mailboat.model.changes import ChangeCount
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import AttemptOutcome
from mailboat.model.messages import Action, FailureCause, PackageMessage, Suspension
from mailboat.model.positions import LogIdentity, Position
from mailboat.pools.import_counts import ClaimPause, ImportCounts
from mailboat.pools.package_order import decode_queued
from mailboat.pools.shared_target import SharedTarget, instance_of
from mailboat.subscriber.admission import Admission, ImportGuard, StopAskedError, StopSignal
from mailboat.subscriber.commands import CommandHandler, unexpired
from mailboat.subscriber.confirmations import AddedJobs, Confirmations
from mailboat.subscriber.continuity import ANY_PUBLISHER, MAX_PASSED_OVER
from mailboat.subscriber.failures import (
    GiveUp,
    RecordFailure,
    Redriven,
    Redriver,
    Stop,
    TryAgain,
    decide_retry,
    note_given_up,
    pause_seconds,
    refuse_defect,
)
from mailboat.subscriber.importer import Importer, decode_record, refused_record, run_hook
from mailboat.subscriber.payloads import Payloads
from mailboat.subscriber.piece_store import PieceStore
from mailboat.subscriber.reporter import ImportRecorder
from mailboat.subscriber.subscriber_settings import (
    ImportPorts,
    Processors,
    SubscriberPorts,
    SubscriberSettings,
    processed_package,
)

_LOG: Final = logging.getLogger(__name__)
_SUSPENDED: Final = Result(AttemptOutcome.SNOOZE, "imports are suspended", 1.0)
_CLEARED: Final = Result(AttemptOutcome.SNOOZE, "a clear drops it", 0.0)
_NOT_OURS: Final = Result(AttemptOutcome.SNOOZE, "the member does not know the pool's log or target yet", 1.0)
_INTERRUPTED: Final = Result(AttemptOutcome.SNOOZE, "the member ends, or its lease is over", 0.0)
_HALT_SECONDS: Final = 5.0
"""How long a package waits that stopped a member: another member may be able to import it."""

_OUTAGE_SECONDS: Final = 1.0
"""The same where a member could not reach its journal or storage."""

OTHER_TARGET_STEP: Final = "mount the volume of the other members, or start with --accept-gap if the target was lost"


class ImporterLostError(PermanentError):
    """Each pool member that began the package died or fell silent, so the package was given up.

    Check the members' logs and memory limits, then run `mailboat errors redrive`.
    """

    is_of_package = True


class PoolTargetDiffersError(StopError):
    """This pool member opened another target than the other members, or an older copy of the one it had.

    Mount the same volume in all members. If the target was lost, restore a snapshot or use `--accept-gap`.
    """


class _SuspendedError(Exception):
    """Imports are suspended. Never leaves this module."""


class PoolView(NamedTuple):
    """Where the pool stands, for the threads that import.

    Attributes:
        log: The package topic.
        low_water: Every package below it is done.
        passed_over: Publishers that are not followed, and whose packages were passed.
    """

    log: LogIdentity
    low_water: Offset
    passed_over: frozenset[str] = frozenset()


class _Payloads(Payloads):
    """The payload of one package, which may be fetched before it is read."""

    _fetched: BinaryIO | None = None

    def fetch(self, message: PackageMessage, offset: Offset, check: Callable[[], None]) -> None:
        """Fetch the package unless it travels in its message. Raises: as `open`."""
        if message.payload is None and message.action is Action.ADD:
            self._fetched = super().open(message, offset, check)

    def open(self, message: PackageMessage, offset: Offset, check: Callable[[], None]) -> BinaryIO:
        fetched, self._fetched = self._fetched, None
        return super().open(message, offset, check) if fetched is None else fetched

    def close(self) -> None:
        if self._fetched is not None:
            self._fetched.close()
        super().close()


class _CallSignal(StopSignal):
    """Ends the import of one package also when its lease is lost."""

    def __init__(self, signal: StopSignal, call: Call) -> None:
        super().__init__()
        self._signal = signal
        self._call = call

    @property
    def is_overdue(self) -> bool:
        return self._signal.is_overdue or self._call.should_stop


class PackageImport:
    """The handler of a pool's jobs; it is called in the threads of a worker."""

    def __init__(
        self,
        settings: SubscriberSettings,
        marker: str,
        ports: ImportPorts,
        shared: SharedTarget,
        signal: StopSignal,
        halt: Callable[[MailboatError], None],
    ) -> None:
        """Import nothing yet.

        Args:
            settings: Of the pool as a subscriber.
            marker: Of the target, with the begin of the pool: nothing is imported into one that has another.
            ports: What an import needs.
            shared: The target.
            signal: The request to stop.
            halt: Called with a named state in which the member must stop; the package then waits for another one.
        """
        self.counts = ImportCounts()
        self.pause = ClaimPause(ports.clock)
        self._settings = settings
        self._marker = marker
        self._ports = ports
        self._shared = shared
        self._signal = signal
        self._halt = halt
        self._reach = ports.failpoints.reach
        self._view: PoolView | None = None
        self._stored_offset: Offset | None = None
        self._last_done: Offset | None = None
        """The package that this member committed last."""
        self._suspension: Suspension | None = None
        self._has_open_commands = True

    def suspend(self, suspension: Suspension | None) -> None:
        """Import nothing while this suspension holds; None: none does."""
        self._suspension = suspension

    def show(self, view: PoolView) -> None:
        """Note where the pool stands, for the next imports."""
        self._view = view

    def suspension(self) -> Suspension | None:
        """The suspension of imports that holds now, as far as this member has read."""
        return unexpired(self._suspension, self._ports.clock)

    @property
    def low_water(self) -> Offset | None:
        """Every package below it is done, as far as it was shown; None before that."""
        return None if self._view is None else self._view.low_water

    @property
    def stored_offset(self) -> Offset | None:
        """The position that the target holds, as far as this member has seen or stored it."""
        return self._stored_offset

    def note_stored(self, offset: Offset) -> None:
        """Note the position that the target holds."""
        self._stored_offset = offset

    def store_position(self, is_stopping: Callable[[], bool]) -> None:
        """Store that all below the low-water mark is done, unless it is known to be stored.

        Raises: StopAskedError: `is_stopping`, and another member has the target; the target's errors.
        """
        view = self._view
        if view is None or view.low_water <= (self._stored_offset or 0):
            return
        with self._shared.opened(is_stopping) as target:
            self._stored(target, view)

    def _stored(self, target: Target, view: PoolView) -> Position:
        """The position that the target holds once it names the low-water mark. Raises: PoolTargetDiffersError."""
        position, passed_over = self._position(target, view), _unnoted(target, view)
        if passed_over or position != target.ledger.position():
            with target.batch() as batch:
                batch.pass_over(passed_over)
                batch.commit(position)
        self.note_stored(position.next_offset)
        return position

    def _position(self, target: Target, view: PoolView) -> Position:
        """The position that the target may announce: all below it is done. Raises: PoolTargetDiffersError."""
        # a view may be older than the last commit of another member
        return Position(view.log, max(view.low_water, self._checked(target, view).next_offset))

    def _checked(self, target: Target, view: PoolView) -> Position:
        """The position that the target holds, if it is the one that this member joined with.

        A target that is new, put back, or taken by a later begin of the pool lacks packages that count as done
        here, and may have done others. Raises: PoolTargetDiffersError.
        """
        name, marker, stored = self._settings.name, target.ledger.pool.marker() or "", target.ledger.position()
        if stored is None or instance_of(marker) != instance_of(self._marker):
            raise PoolTargetDiffersError(
                f"the target of the pool {name} is another one than at the start of this member, or was emptied",
                next_step=OTHER_TARGET_STEP,
                subscriber=name,
            )
        is_ours = marker == self._marker and stored.identity == view.log
        # Not by the position alone: it stands still while one package is tried again, and others are done above it.
        last = self._last_done
        is_older = stored.next_offset < (self._stored_offset or 0) or (
            last is not None and last >= stored.next_offset and not target.ledger.pool.is_done(last)
        )
        if is_older or not is_ours:
            raise PoolTargetDiffersError(
                f"the target of the pool {name} is an older copy, or the pool began again on it",
                next_step="start all members again: the pool then takes from the journal what the target lacks",
                subscriber=name,
            )
        return stored

    def serve_commands(self, *, is_read: bool) -> bool:
        """Redrive and answer, after reading what was sent if asked to; whether a command is still open.

        Raises: StopAskedError; the journal's and the target's errors.
        """
        view = self._view
        if view is None:
            return True
        with self._shared.opened(self._signal.stopping.is_set) as target:
            # Stored before a redrive commits it: the publishers that it passes over are stored with it.
            position, ports = self._stored(target, view), self._ports.on(target)
            with self._settled(target), closing(CommandHandler(self._settings, ports)) as commands:
                commands.load(is_read=is_read)
                commands.take(position, lambda _: False)
                commands.settle_due(position)
                self._suspension = commands.suspension()
                if self._suspension is None:
                    self._redrive(ports, position)
                commands.settle_redrives()
                self._has_open_commands = commands.has_open
                return commands.has_open

    def _redrive(self, ports: SubscriberPorts, position: Position) -> None:
        if not ports.target.ledger.redrives():
            return
        # Packages above the position may be done already: a newer one supersedes an entry as any other does.
        end = Offset(max(position.next_offset, ports.target.ledger.pool.end() or 0))
        limit, pieces = self._settings.limits.max_total_bytes, self._pieces()
        with closing(Payloads(ports.blobs, ports.references, pieces, limit)) as payloads, closing(pieces):
            importer = Importer(self._settings, ports, payloads, self._guard(self._signal))
            redriver = Redriver(self._settings, ports, importer, None)
            for redriven in redriver.redrive(lambda: position, end):
                if isinstance(redriven, Redriven):
                    self.counts.count(redriven.outcome)

    def __call__(self, call: Call) -> Result:
        """Import the package of a job, unless imports are suspended. Never raises."""
        return self._run(call) if self.suspension() is None else _SUSPENDED

    def _run(self, call: Call) -> Result:
        ((_, new),) = call.jobs.items()
        view = self._view
        try:
            log, target, package = decode_queued(new.payload)
        except MessageCorruptError as error:
            return self._halted(error)
        # The pool began again on another log or target, and this member learns of it with its next turn, which ends it:
        # the package is for the others.
        if view is None or log != str(view.log) or target not in ("", self._marker):
            return _NOT_OURS
        attempt = _Attempt(view, package.offset, call, _CallSignal(self._signal, call))
        record, message = Record(package.offset, b"", (), None, 0), None
        try:
            found = self._record(attempt)
            if found is not None:
                record = found
                message = self._decoded(record)
                # After the record was read: a package that is gone or done must not be given up.
                self._refuse_lost(call)
                self._import(attempt, record, message)
        except StopAskedError:
            return _INTERRUPTED
        except _SuspendedError:
            return _SUSPENDED
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this package's failure, to be decided on
            return self._decided(attempt, RecordFailure(record, error, message))
        self.pause.succeeded()
        return Result()

    # ---------------------------------------------------------------------------------------------------- one package

    def _import(self, attempt: _Attempt, record: Record, message: PackageMessage) -> None:
        hooks, guard = self._ports.processors, self._guard(attempt.signal)
        pieces = self._pieces()
        limit = self._settings.limits.max_total_bytes
        with closing(_Payloads(self._ports.blobs, self._ports.references, pieces, limit)) as payloads, closing(pieces):
            # Before the hook and the payload: an earlier attempt may have committed, and a clear also drops a package
            # that these refuse each time.
            if attempt.call.attempt > 1 or self._has_open_commands:
                with self._opened(attempt) as target:
                    if _is_done(target, attempt.offset):
                        return
                    if self._is_cleared(target, attempt, message):
                        self._import_into(target, attempt, record, payloads, guard)
                        return
            hook = hooks.invalidate if message.action is Action.INVALIDATE else hooks.before
            if hook is not None:
                run_hook(hook, processed_package(record.offset, message))
            deadline = guard.deadline()
            # Before the target is opened: one member at a time holds its lock, and a download may take minutes.
            payloads.fetch(message, record.offset, lambda: guard.check_in_time(deadline))
            with self._opened(attempt) as target:
                self._import_into(target, attempt, record, payloads, guard)

    def _is_cleared(self, target: Target, attempt: _Attempt, message: PackageMessage) -> bool:
        """Whether a clear that was taken drops the package."""
        with closing(CommandHandler(self._settings, self._ports.on(target))) as commands:
            commands.load(is_read=False)
            return commands.covering(attempt.offset, message.pub_agent_name) is not None

    def _import_into(
        self, target: Target, attempt: _Attempt, record: Record, payloads: Payloads, guard: ImportGuard
    ) -> None:
        position = self._position(target, attempt.view)
        if _is_done(target, record.offset):
            return
        # the hooks were called while the target was closed
        ports = replace(self._ports, processors=Processors()).on(target)
        recorder = ImportRecorder(self._settings, ports)
        began = recorder.begin()
        with closing(CommandHandler(self._settings, ports)) as commands:
            commands.load(is_read=False)
            # Another member may have taken and answered the command; the target has what holds for all of them.
            self._suspension = commands.suspension()
            if self._suspension is not None:
                raise _SuspendedError
            commands.begin()
            with target.batch() as batch:
                self._reach(Failpoint.SUBSCRIBER_BATCH_BEGUN)
                outcome = Importer(
                    self._settings,
                    ports,
                    payloads,
                    guard,
                    Admission(commands, None),
                    failures_of=lambda _: attempt.call.attempt - 1,
                ).import_records(batch, [record])
                if outcome.error is not None:
                    raise outcome.error
                outcome.count_statuses(commands.settle(batch, position))
                outcome.count_changes(self._commit(target, batch, attempt, position))
        recorder.committed([record], outcome, began)
        self.counts.count(outcome)

    def _commit(self, target: Target, batch: Batch, attempt: _Attempt, position: Position) -> ChangeCount:
        # Only a shortcut: what fences is that the target was asked for the package since it was opened.
        if attempt.call.should_stop:
            raise StopAskedError
        batch.pass_over(_unnoted(target, attempt.view))
        self._reach(Failpoint.SUBSCRIBER_BEFORE_COMMIT)
        changes = batch.commit(position, {attempt.offset: attempt.call.token})
        self.note_stored(position.next_offset)
        self._last_done = attempt.offset
        self._reach(Failpoint.SUBSCRIBER_COMMITTED)
        return changes

    @contextmanager
    def _opened(self, attempt: _Attempt) -> Iterator[Target]:
        """The target, when no other member has it.

        Raises:
            StopAskedError: The attempt is over before.
            PoolTargetDiffersError: It is another one.
        """
        with self._shared.opened(lambda: attempt.signal.is_overdue) as target:
            self._checked(target, attempt.view)
            with self._settled(target):
                yield target

    @contextmanager
    def _settled(self, target: Target) -> Iterator[None]:
        """Send what the target holds for the log, before and after the block, while no other member can send it."""
        # New for each time that the target is opened: what another member left there may be in the log already.
        confirmations = Confirmations(self._settings, self._ports, target.ledger)
        jobs = AddedJobs(self._ports.journal, target.ledger.jobs, self._ports.failpoints)
        # First what an earlier member committed and could not send: statuses keep the order of the commits.
        confirmations.send()
        jobs.append()
        yield
        self.counts.note_error_queue(target.ledger.given_up_count)
        confirmations.send()
        jobs.committed(1)
        jobs.append()

    def _is_done(self, attempt: _Attempt) -> bool:
        with self._opened(attempt) as target:
            return _is_done(target, attempt.offset)

    def _guard(self, signal: StopSignal) -> ImportGuard:
        return ImportGuard(self._ports.clock, self._settings.config.package_timeout_seconds, signal)

    def _decoded(self, record: Record) -> PackageMessage:
        try:
            return decode_record(record)
        except MailboatError as error:
            raise refused_record(record, error, self._settings.config.undecodable) from error

    def _pieces(self) -> PieceStore:
        settings = self._settings
        return PieceStore(
            self._ports.journal, settings.package_topic, self._ports.clock, settings.config.pieces, settings.spool
        )

    def _record(self, attempt: _Attempt) -> Record | None:
        """The record of a package; None where it is gone and was done. Raises: JournalTrimmedError."""
        topic, offset = self._settings.package_topic, attempt.offset
        record = self._ports.journal.record_at(topic, offset)
        # gone records are done after a crash between commit and report, or if a person accepted the gap
        if record is None and not self._is_done(attempt):
            raise JournalTrimmedError(
                f"the package at {offset} of topic {topic} is gone, and {self._settings.name} has not imported it",
                next_step="publish the content again, then start the members with --accept-gap",
                subscriber=self._settings.name,
                position=offset,
            )
        return record

    # ------------------------------------------------------------------------------------------------------- failures

    def _refuse_lost(self, call: Call) -> None:
        """Raises: ImporterLostError: the attempts ended without a word of their members, so this one would, too."""
        most = self._settings.config.max_retries
        if most is not None and call.attempt > most + 1:
            raise ImporterLostError(f"{call.attempt - 1} attempts to import the package ended without a result")

    def _decided(self, attempt: _Attempt, failure: RecordFailure) -> Result:
        try:
            refuse_defect(failure)
        except MailboatError as defect:
            return self._halted(defect)
        error, attempts = failure.error, attempt.call.attempt
        decision = decide_retry(error, attempts, self._settings.config, self._ports.random)
        cause = FailureCause.of_error(error, failure.message)
        text = f"{cause.code}: {cause.message}"
        match decision:
            case Stop():
                return self._halted(error if isinstance(error, MailboatError) else PermanentError(repr(error)))
            case TryAgain(pause, is_counted=is_counted):
                self.counts.note_failure(attempt.offset, cause, attempts if is_counted else attempts - 1)
                return Result(AttemptOutcome.FAIL, text, pause) if is_counted else self._put_off(error, text)
            case GiveUp():
                return self._given_up(attempt, failure, cause)

    def _given_up(self, attempt: _Attempt, failure: RecordFailure, cause: FailureCause) -> Result:
        try:
            with self._opened(attempt) as target:
                position = self._position(target, attempt.view)
                now_ms = milliseconds_now(self._ports.clock)  # once the target is open: another member may hold it long
                if unexpired(target.ledger.commands.suspension(), self._ports.clock) is not None:
                    return _SUSPENDED
                if failure.message is not None and self._is_cleared(target, attempt, failure.message):
                    self._has_open_commands = True  # so that the next attempt drops it
                    return _CLEARED
                if not _is_done(target, attempt.offset):
                    with target.batch() as batch:
                        self._reach(Failpoint.SUBSCRIBER_BATCH_BEGUN)
                        note_given_up(batch, self._settings, failure, cause, attempt.call.attempt, now_ms)
                        self._commit(target, batch, attempt, position)
                    self.counts.count_given_up()
        except StopAskedError:
            return _INTERRUPTED
        except RetryableError as error:
            return self._put_off(error, str(error))
        except MailboatError as error:
            return self._halted(error)
        return Result()

    def _put_off(self, error: Exception, text: str) -> Result:
        """Leave the package to other members, and claim none for a while: the failure is not the package's."""
        policy, jitter = self._settings.config, self._ports.random
        self.pause.begin(lambda failures: pause_seconds(error, failures, policy, jitter))
        return Result(AttemptOutcome.SNOOZE, text, _OUTAGE_SECONDS)  # which counts no attempt

    def _halted(self, error: MailboatError) -> Result:
        self._halt(error)
        return Result(AttemptOutcome.SNOOZE, f"{error.name}: {error.message}", _HALT_SECONDS)


class _Attempt(NamedTuple):
    """One attempt at a package; `signal` ends it."""

    view: PoolView
    offset: Offset
    call: Call
    signal: _CallSignal


def _unnoted(target: Target, view: PoolView) -> Collection[str]:
    """The skipped publishers that the target does not name yet."""
    if not view.passed_over:
        return ()
    noted = target.ledger.passed_over
    found = view.passed_over - noted
    return found if len(noted) + len(found) <= MAX_PASSED_OVER else {ANY_PUBLISHER} - noted


def _is_done(target: Target, offset: Offset) -> bool:
    position = target.ledger.position()
    return (position is not None and offset < position.next_offset) or target.ledger.pool.is_done(offset)
