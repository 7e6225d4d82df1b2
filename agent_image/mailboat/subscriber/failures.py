"""What happens after a package failed: the retry decision, the error queue, and redrives from it.

    StopError, and PermanentErrors of no package     stop before the package: it is good, and waiting does not help
    RetryableError; OSError and MemoryError          wait, without end and without counting: the package is good
    PermanentErrors of a package (`is_of_package`)   give up at once: the package would fail in the same way again
    of a package's blob, hook or time; all else      count; retry with exponential backoff; give up when used up

An error counts as one of the infrastructure unless it is known to be of a package: so an error class that is new, or
that occurs in an unexpected place, never costs a package. The count of attempts is stored in the target before
the pause, so a restart does not reset it, and belongs to one offset: Sling keeps its counter when it gives up, so that
the next failing package is dropped at its first failure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import Final, NamedTuple

from mailboat.clock import Backoff, milliseconds_now
from mailboat.config.document import SubscriberConfig
from mailboat.content.port import Attempt, Batch, GivenUp
from mailboat.errors import (
    BlobCorruptError,
    BlobMissingError,
    ImportTimeoutError,
    MailboatError,
    PermanentError,
    PositionOutOfRangeError,
    ProcessorFailedError,
    RetryableError,
    StopError,
)
from mailboat.failpoints import Failpoint
from mailboat.frozen import Frozen
from mailboat.journal.port import Record, records_of
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import Action, FailureCause, PackageMessage, PackageStatus, StatusMessage
from mailboat.model.paths import ROOT, NodePath, first_paths, is_within
from mailboat.model.positions import Position
from mailboat.subscriber.admission import Admission, Exposure, StopAskedError
from mailboat.subscriber.importer import BatchOutcome, Importer, decode_record
from mailboat.subscriber.subscriber_settings import SubscriberPorts, SubscriberSettings

_TRANSIENT_OF_A_PACKAGE: Final = (BlobMissingError, BlobCorruptError, ImportTimeoutError, ProcessorFailedError)
"""All that may pass and is of one package; any other RetryableError is of the journal, a store or this machine."""

_DEFECTS: Final = (TypeError, AttributeError, NameError, AssertionError, ImportError, NotImplementedError)
"""What no content of a package can cause in correct code."""

_UNKNOWN_PACKAGE: Final = PackageId("unknown")


class ImportDefectError(StopError):
    """Internal error while importing a package: a bug in Mailboat or a broken installation. Nothing was skipped.

    Run the subscriber with `--verbose` and report the traceback. A fixed version continues at the same package.
    """


class PackageGoneError(PermanentError):
    """Retention has removed the package to redrive from the journal. Publish the content again."""

    is_of_package = True


class PackageNotFollowedError(PermanentError):
    """The package to redrive belongs to a publisher that this subscriber does not follow.

    It stays in the error queue. Let the subscriber follow that publisher, and redrive the package again.
    """

    is_of_package = True


class PackageSupersededError(PermanentError):
    """A newer package, of any publisher, changed the same paths, so a redrive would bring back old content.

    If the target lacks content, publish these paths again.
    """

    is_of_package = True


# ------------------------------------------------------------------------------------------------- the retry decision


class TryAgain(Frozen):
    """Try again after a pause; `is_counted` says whether the failure uses up the policy's attempts."""

    pause_seconds: float
    is_counted: bool


class GiveUp(Frozen):
    """Put the package into the error queue and go on."""


class Stop(Frozen):
    """End with the error, before the package."""


Decision = TryAgain | GiveUp | Stop


def decide_retry(
    error: Exception, failures: int, policy: SubscriberConfig, jitter: random.Random, *, uncounted: int = 0
) -> Decision:
    """Decide what to do after a failure.

    Args:
        error: Why the attempt failed.
        failures: Attempts that failed and count, this one included: 1 after the first. They alone decide on giving up.
        policy: What is allowed.
        jitter: Pauses are between a half and the whole of their length, so that many subscribers don't retry as one.
        uncounted: Attempts before this one that do not count. They make the pause longer, and nothing else.
    """
    if isinstance(error, StopError) or _is_permanent_of_infrastructure(error):
        return Stop()
    pause = pause_seconds(error, failures + uncounted, policy, jitter)
    # An OSError that no adapter translated is of this machine, not of the package. So is a lack of memory: with more of
    # it, the same package is imported.
    if is_infrastructure(error) or isinstance(error, (OSError, MemoryError)):
        return TryAgain(pause, is_counted=False)
    is_finite = policy.max_retries is not None
    # A permanent error never succeeds: ten attempts at it would delay all other packages by half an hour.
    if is_finite and (isinstance(error, PermanentError) or failures > (policy.max_retries or 0)):
        return GiveUp()
    return TryAgain(pause, is_counted=True)


def is_infrastructure(error: Exception) -> bool:
    """Whether the failure says nothing about the package: another one would have failed as well."""
    is_transient = isinstance(error, RetryableError) and not isinstance(error, _TRANSIENT_OF_A_PACKAGE)
    return is_transient or _is_permanent_of_infrastructure(error)


def pause_seconds(error: Exception, failures: int, policy: SubscriberConfig, jitter: random.Random) -> float:
    """Pause after so many failures in a row: exponential with jitter, at most the policy's longest."""
    pause = Backoff(policy.first_pause_seconds, policy.longest_pause_seconds).pause(failures, jitter)
    wished = error.retry_after_seconds if isinstance(error, RetryableError) else None
    return pause if wished is None else max(pause, min(wished, policy.longest_pause_seconds))


def _is_permanent_of_infrastructure(error: Exception) -> bool:
    return isinstance(error, PermanentError) and not error.is_of_package


# ---------------------------------------------------------------------------------------------------- the error queue


class RecordFailure(NamedTuple):
    """A record that failed alone, why, and its message if it could be decoded."""

    record: Record
    error: Exception
    message: PackageMessage | None


class FailureVerdict(NamedTuple):
    """What was done about a failure.

    Attributes:
        is_given_up: The package is in the error queue, and the position is past it.
        pause_seconds: Otherwise: try again after this time.
        is_counted: The attempt was counted and stored.
        failures: How often the package has failed.
        cause: Why.
        publisher: Whose package it is; None of one that can't be decoded.
    """

    is_given_up: bool
    pause_seconds: float
    is_counted: bool
    failures: int
    cause: FailureCause
    publisher: AgentName | None = None


class FailureHandler:
    """Handles the failures of one subscriber, in its thread."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts, exposure: Exposure) -> None:
        self._settings = settings
        self._ports = ports
        self._exposure = exposure
        self._reach = ports.failpoints.reach
        self.attempt: Attempt | None = None
        """The failed attempt whose package comes next."""
        self._uncounted = 0

    def blocking_record(self, records: Iterable[Record]) -> Record | None:
        """Return the record that all others wait for: the one that failed, or the first."""
        attempt = self.attempt
        return next((record for record in records if attempt is None or record.offset == attempt.offset), None)

    def load(self) -> None:
        """Read what an earlier run has stored."""
        self.attempt = self._ports.target.ledger.attempt()

    def forget(self) -> None:
        """Note that a commit went past the failed package."""
        self.attempt = None
        self._uncounted = 0

    def passed(self, next_offset: Offset) -> None:
        """Note that all below an offset is passed, perhaps without a commit: the failed package may be skipped now."""
        if self.attempt is not None and self.attempt.offset < next_offset:
            self.forget()

    def failures_of(self, offset: Offset) -> int:
        """How often the package at `offset` has failed so far."""
        return self.attempt.count if self.attempt is not None and self.attempt.offset == offset else 0

    def handle(self, failure: RecordFailure, after: Position) -> FailureVerdict:
        """Decide and act; `after` is the position past the record.

        Raises:
            StopError: The named state in which the subscriber stops, also when the failure is its own.
            RetryableError: The target can't even note the failure.
        """
        # Before anything is counted: a bug of this version must not use up the attempts of a good package.
        refuse_defect(failure)
        counted = self.failures_of(failure.record.offset) + 1
        cause = FailureCause.of_error(failure.error, failure.message)
        publisher = None if failure.message is None else failure.message.pub_agent_name
        decision = decide_retry(
            failure.error, counted, self._settings.config, self._ports.random, uncounted=self._uncounted
        )
        match decision:
            case Stop():
                raise failure.error
            case GiveUp():
                self._give_up(failure, cause, counted, after)
                return FailureVerdict(True, 0.0, True, counted, cause, publisher)
            case TryAgain(pause, is_counted=True):
                # Stored before the pause, so that a process killed during it does not start to count from zero. A crash
                # before it costs an attempt that is not counted, and never content, which commits with its position
                # alone.
                next_try_ms = milliseconds_now(self._ports.clock) + int(pause * 1000)
                attempt = Attempt(failure.record.offset, counted, cause, next_try_ms)
                self._ports.target.ledger.store_attempt(attempt)
                self.attempt = attempt
                self._reach(Failpoint.SUBSCRIBER_ATTEMPT_STORED)
                return FailureVerdict(False, pause, True, counted, cause, publisher)
            case TryAgain(pause):
                # In memory only: a restart begins again with the first pause, which costs a few attempts and no
                # package.
                self._uncounted += 1
                return FailureVerdict(False, pause, False, counted - 1, cause, publisher)

    def _give_up(self, failure: RecordFailure, cause: FailureCause, attempts: int, after: Position) -> None:
        message = failure.message
        # one transaction: entry of the error queue, confirmation, open builds and position, so that a crash never
        # leaves a package that is passed and not reported, or reported twice
        with self._ports.target.batch() as batch:
            self._reach(Failpoint.SUBSCRIBER_BATCH_BEGUN)
            note_given_up(batch, self._settings, failure, cause, attempts, milliseconds_now(self._ports.clock))
            if message is not None:
                self._exposure.begin()
                self._exposure.note_done(failure.record, message)
                self._exposure.settle(batch)
            self._reach(Failpoint.SUBSCRIBER_BEFORE_COMMIT)
            batch.commit(after)
        self._reach(Failpoint.SUBSCRIBER_COMMITTED)
        self.forget()


def refuse_defect(failure: RecordFailure) -> None:
    """Raises: ImportDefectError: no content of a package can cause the failure."""
    if isinstance(failure.error, _DEFECTS):
        raise ImportDefectError(
            f"importing the package at {failure.record.offset} ended in {failure.error!r:.300}, which is a defect",
            offset=failure.record.offset,
        ) from failure.error


def note_given_up(
    batch: Batch, settings: SubscriberSettings, failure: RecordFailure, cause: FailureCause, attempts: int, now_ms: int
) -> None:
    """Add the entry of the error queue, and the confirmation that says so, to a batch."""
    message, offset = failure.message, failure.record.offset
    if message is None:
        batch.give_up(GivenUp(offset, _UNKNOWN_PACKAGE, None, (), cause, attempts, now_ms, 0))
        return
    shown = first_paths(message.paths)
    more, publisher = len(message.paths) - len(shown), message.pub_agent_name
    batch.give_up(GivenUp(offset, message.package_id, publisher, shown, cause, attempts, now_ms, more))
    if publisher is None:
        return
    batch.add_status(
        StatusMessage(
            sub_sling_id=settings.sling_id,
            sub_agent_name=settings.name,
            pub_agent_name=publisher,
            offset=offset,
            status=PackageStatus.REMOVED_FAILED,
            package_id=message.package_id,
            cause=cause,
            attempts=attempts,
            created_ms=now_ms,
        )
    )


# ----------------------------------------------------------------------------------------------------------- redrives


class Redriven(NamedTuple):
    """An entry of the error queue that was imported after all."""

    offset: Offset
    outcome: BatchOutcome


class StillGivenUp(NamedTuple):
    """An entry that failed again, and stays."""

    offset: Offset
    cause: FailureCause


class Redriver:
    """Imports redriven entries of the error queue between batches, in the subscriber's thread.

    An old package that a newer one overlaps is refused: importing it now would replace new content with old. So is one
    of a publisher that is not followed any more. The others are imported like any package, in a transaction of their
    own that also removes the entry; the position stays.
    """

    def __init__(
        self,
        settings: SubscriberSettings,
        ports: SubscriberPorts,
        importer: Importer,
        admission: Admission | None,
    ) -> None:
        """Nothing is read yet. The importer admits everything; `admission` is that of the packages in the queue."""
        self._settings = settings
        self._ports = ports
        self._importer = importer
        self._admission = admission

    def redrive(self, position: Callable[[], Position], end: Offset | None = None) -> Iterator[Redriven | StillGivenUp]:
        """Try all requested entries; one that a stop interrupts is rolled back, and stays requested.

        Newer packages below `end` supersede an entry; None: those below the position.

        Raises: StopError, and RetryableError of an unusable target or journal; the entry stays requested.
        """
        if self._admission is not None:
            self._admission.leave()
        for entry in self._ports.target.ledger.redrives():
            try:
                yield Redriven(entry.offset, self._import(entry, position(), end))
            except StopAskedError:
                return
            except StopError:
                raise
            except Exception as error:  # a failure of that package, stored with its entry
                if is_infrastructure(error):
                    raise
                cause = FailureCause.of_error(error)
                # Ends the request, not the entry: otherwise the same package would be tried again between all later
                # batches.
                self._ports.target.ledger.refuse_redrive(entry.offset, cause)
                yield StillGivenUp(entry.offset, cause)

    def _import(self, entry: GivenUp, position: Position, end: Offset | None) -> BatchOutcome:
        record = self._record(entry)
        message = decode_record(record)
        # a log that lost its end gave the offset to another package
        if entry.package_id not in {message.package_id, _UNKNOWN_PACKAGE}:
            raise _gone(entry)
        # Both refusals come before the transaction: a refused entry changes nothing in the target.
        if not self._importer.is_wanted(message):
            publisher = message.pub_agent_name or "a publisher without a name"
            raise PackageNotFollowedError(
                f"{self._settings.name} does not follow {publisher}, whose package this is", offset=entry.offset
            )
        self._refuse_superseded(entry, message, position.next_offset if end is None else end)
        with self._ports.target.batch() as batch:
            self._ports.failpoints.reach(Failpoint.SUBSCRIBER_BATCH_BEGUN)
            outcome = self._importer.import_records(batch, [record])
            if outcome.error is not None:
                raise outcome.error
            # a subscriber that is not editable confirms no import, but the package was reported as failed before
            if not outcome.statuses:
                outcome.count_statuses(self._importer.confirm(batch, record.offset, message))
            # In the transaction of the content: a crash neither loses the entry nor leaves an imported one.
            batch.resolve(entry.offset)
            if self._ports.processors.after is not None:
                batch.expect_after([package.offset for package in outcome.processed])
            self._ports.failpoints.reach(Failpoint.SUBSCRIBER_BEFORE_COMMIT)
            outcome.count_changes(batch.commit(position))
        self._ports.failpoints.reach(Failpoint.SUBSCRIBER_COMMITTED)
        return outcome

    def _record(self, entry: GivenUp) -> Record:
        journal, topic = self._ports.journal, self._settings.package_topic
        record = journal.record_at(topic, entry.offset)
        if record is None:
            # Read, too: a log that lost it in another way than by retention is damaged, and says so.
            after = Offset(entry.offset + 1)
            with suppress(PositionOutOfRangeError), closing(records_of(journal, topic, entry.offset, after)) as records:
                record = next(records, None)
        if record is None:
            raise _gone(entry)
        return record

    def _refuse_superseded(self, entry: GivenUp, message: PackageMessage, end: Offset) -> None:
        # A package in the error queue changed nothing, so it supersedes nothing.
        failed = self._ports.target.ledger.given_up_offsets
        try:
            for offset, newer in self._messages_between(entry.offset, end):
                has_content = newer.action is not Action.TEST and offset not in failed
                if has_content and _overlap(message.paths, newer.paths):
                    raise PackageSupersededError(
                        f"the package at {offset} is newer and has the same paths", offset=entry.offset, newer=offset
                    )
        except PositionOutOfRangeError as error:  # retention removed it, and some of those, since it was read
            raise _gone(entry) from error

    def _messages_between(self, last_done: Offset, end: Offset) -> Iterator[tuple[Offset, PackageMessage]]:
        start = Offset(last_done + 1)
        if start >= end:
            return
        # packages from `end` on are imported after this one, and replace its content anyway
        with closing(records_of(self._ports.journal, self._settings.package_topic, start, end)) as records:
            for record in records:
                try:
                    yield record.offset, decode_record(record)
                except MailboatError:
                    continue  # it never changed any content


def _gone(entry: GivenUp) -> PackageGoneError:
    return PackageGoneError(f"the journal does not hold the package at {entry.offset} any more", offset=entry.offset)


def _overlap(some: tuple[NodePath, ...], others: tuple[NodePath, ...]) -> bool:
    """Whether they may concern the same content; a foreign message that names no paths may concern any."""
    return any(
        is_within(path, other) or is_within(other, path) for path in some or (ROOT,) for other in others or (ROOT,)
    )
