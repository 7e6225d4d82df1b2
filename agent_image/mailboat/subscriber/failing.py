"""What is done about a package that failed alone: remember the attempt, or put it into the error queue.

The count of attempts is stored beside the content before the pause, so a restart does not start counting anew. Giving
up is one transaction: entry of the error queue, confirmation and position together.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Final, NamedTuple

from mailboat.content.port import Attempt, GivenUp
from mailboat.errors import MailboatError, StopError
from mailboat.failpoints import Failpoint
from mailboat.journal.port import Record
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import TRACE_CHARACTERS, FailureCause, PackageMessage, PackageStatus, StatusMessage
from mailboat.model.paths import first_paths
from mailboat.model.positions import Position
from mailboat.subscriber.exposing import Exposure
from mailboat.subscriber.retries import GiveUp, Stop, TryAgain, decide_retry
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings

_UNKNOWN_PACKAGE: Final = PackageId("unknown")


_DEFECTS: Final = (TypeError, AttributeError, NameError, AssertionError, ImportError, NotImplementedError)
"""What no content of a package can be the reason for in code that is right."""


class ImportDefectError(StopError):
    """Internal error while importing a package: a bug in Mailboat or a broken installation. Nothing was skipped.

    The subscriber stopped before the package, because a fixed version can still import it. Run it with `--verbose` for
    the traceback, report it, and start a fixed version; it continues at the same package.
    """


class Failure(NamedTuple):
    """A record that failed alone, why, and its message if it could be decoded."""

    record: Record
    error: Exception
    message: PackageMessage | None


class Verdict(NamedTuple):
    """What was done.

    Attributes:
        is_given_up: It is in the error queue, and the position is past it.
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


class FailureDesk:
    """Handles the failures of one subscriber, from its thread."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts, exposure: Exposure | None = None) -> None:
        """Nothing is read yet."""
        self._settings = settings
        self._ports = ports
        self._exposure = exposure
        self._attempt: Attempt | None = None
        self._uncounted = 0

    @property
    def attempt(self) -> Attempt | None:
        """The failed attempt whose package comes next."""
        return self._attempt

    @property
    def attempts_before(self) -> tuple[Offset, int] | None:
        """That package's offset, and how often it has failed."""
        return None if self._attempt is None else (self._attempt.offset, self._attempt.count)

    def stuck_of(self, records: Iterable[Record]) -> Record | None:
        """The record that everything waits for: the one that failed, or the first."""
        attempt = self._attempt
        return next((one for one in records if attempt is None or one.offset == attempt.offset), None)

    def load(self) -> Attempt | None:
        """Read what an earlier run has stored."""
        self._attempt = self._ports.target.ledger.attempt()
        return self._attempt

    def forget(self) -> None:
        """A commit went past the failed package."""
        self._attempt = None
        self._uncounted = 0

    def failures_of(self, offset: Offset) -> int:
        """How often the package at `offset` has failed so far."""
        return self._attempt.count if self._attempt is not None and self._attempt.offset == offset else 0

    def handle(self, failure: Failure, after: Position) -> Verdict:
        """Decide and act; `after` is the position past the record.

        Raises:
            StopError: The named state in which the subscriber stops, also when the failure is its own.
            RetryableError: The target can't even note the failure.
        """
        if isinstance(failure.error, _DEFECTS):
            raise ImportDefectError(
                f"importing the package at {failure.record.offset} ended in {failure.error!r:.300}, which is a defect",
                offset=failure.record.offset,
            ) from failure.error
        counted = self.failures_of(failure.record.offset) + 1
        cause = cause_of(failure.error, failure.message)
        publisher = None if failure.message is None else failure.message.pub_agent_name
        decision = decide_retry(
            failure.error, counted, self._settings.retry, self._ports.random, uncounted=self._uncounted
        )
        match decision:
            case Stop():
                raise failure.error
            case GiveUp():
                self._give_up(failure, cause, counted, after)
                return Verdict(True, 0.0, True, counted, cause, publisher)
            case TryAgain(pause_seconds, is_counted=True):
                self._store(failure.record.offset, counted, cause, pause_seconds)
                return Verdict(False, pause_seconds, True, counted, cause, publisher)
            case TryAgain(pause_seconds):
                self._uncounted += 1
                return Verdict(False, pause_seconds, False, counted - 1, cause, publisher)

    def _store(self, offset: Offset, count: int, cause: FailureCause, pause_seconds: float) -> None:
        attempt = Attempt(offset, count, cause, self._now_ms() + int(pause_seconds * 1000))
        self._ports.target.ledger.store_attempt(attempt)
        self._attempt = attempt
        self._ports.failpoints.reach(Failpoint.SUBSCRIBER_ATTEMPT_STORED)

    def _give_up(self, failure: Failure, cause: FailureCause, attempts: int, after: Position) -> None:
        message, offset = failure.message, failure.record.offset
        publisher = None if message is None else message.pub_agent_name
        package_id = _UNKNOWN_PACKAGE if message is None else message.package_id
        now_ms = self._now_ms()
        with self._ports.target.batch() as batch:
            self._ports.failpoints.reach(Failpoint.SUBSCRIBER_BATCH_BEGUN)
            paths = () if message is None else message.paths
            shown = first_paths(paths)
            more = len(paths) - len(shown)
            batch.give_up(GivenUp(offset, package_id, publisher, shown, cause, attempts, now_ms, more))
            if publisher is not None:
                batch.add_status(
                    StatusMessage(
                        self._settings.sling_id,
                        self._settings.name,
                        publisher,
                        offset,
                        PackageStatus.REMOVED_FAILED,
                        package_id,
                        cause,
                        attempts,
                        now_ms,
                    )
                )
            if self._exposure is not None and message is not None:
                self._exposure.begin()
                self._exposure.pass_by(failure.record, message)
                self._exposure.settle(batch)
            self._ports.failpoints.reach(Failpoint.SUBSCRIBER_BEFORE_COMMIT)
            batch.commit(after)
        self._ports.failpoints.reach(Failpoint.SUBSCRIBER_COMMITTED)
        self.forget()

    def _now_ms(self) -> int:
        return int(self._ports.clock.now().timestamp() * 1000)


def cause_of(error: Exception, message: PackageMessage | None = None) -> FailureCause:
    """The cause that is stored, announced and confirmed: the error's name, its sentence and its path."""
    if isinstance(error, MailboatError):
        name, text, path = error.name, error.message, error.where.get("path")
    else:
        name, text, path = type(error).__name__, str(error) or repr(error), None
    if path is None and message is not None and message.paths:
        path = message.paths[0]
    trace = "".join(traceback.format_exception(error))
    return FailureCause.bounded(name, text, None if path is None else str(path), trace[-TRACE_CHARACTERS:])
