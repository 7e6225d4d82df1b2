"""Keeps a subscriber's figures, tells its observer, and waits where waiting is called for."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from mailboat.clock import Deadline
from mailboat.content.port import Attempt, ReportStarts
from mailboat.errors import MailboatError
from mailboat.journal.port import RecordBatch
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import BulkPart, FailureCause
from mailboat.model.positions import Position
from mailboat.subscriber.after_calls import AfterCalls
from mailboat.subscriber.failing import Verdict, cause_of
from mailboat.subscriber.gauging import ReadinessGauge
from mailboat.subscriber.guarding import ImportGuard
from mailboat.subscriber.importing import Outcome
from mailboat.subscriber.pieces import PieceStore
from mailboat.subscriber.processors import AfterFigures
from mailboat.subscriber.progress import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.retries import RetryPolicy, TryAgain, decide_retry
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings
from mailboat.workers import heartbeat

_MOST_PUBLISHERS: Final = 100
_LONGEST_NAME_BYTES: Final = 256
"""With so many names of that length an announcement is still short enough for its readers."""
_NO_TROUBLE: Final[Mapping[str, Any]] = MappingProxyType(
    {"attempts": 0, "failing_publisher": None, "next_try_ms": None, "cause": None, "waiting_for": None}
)


class Reporter:
    """The figures are written by the subscriber's thread and read by any.

    Attributes:
        stored_offset: The position that the target holds; None before it is known.
        held_back: How many bulk builds it waits for before it shows anything new.
        build: The last package of any bulk build that was done; None before there was one.
        after_calls: What knows of the hook after an import; None before there is a run.
        pieces: What knows of packages in pieces; None before there is a run.
        is_wanted: Asked while a pause lasts, after each wake-up: whether to end it. None: only a stop ends it.
    """

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts, guard: ImportGuard) -> None:
        """All figures are zero."""
        policy = settings.retry
        self._endless: Final = RetryPolicy(None, policy.first_pause_seconds, policy.longest_pause_seconds)
        self._ports = ports
        self._guard = guard
        self._lock = threading.Lock()
        self._snapshot = SubscriberStatistics()
        self._is_at_end = False
        guard.when_slow = self.importing
        self.gauge: Final = ReadinessGauge(settings.readiness, ports.clock)
        self._beat = heartbeat(ports.clock)
        self.is_wanted: Callable[[], bool] | None = None
        self.stored_offset: Offset | None = None
        self.held_back = 0
        self.build: BulkPart | None = None
        self.after_calls: AfterCalls | None = None
        self.pieces: PieceStore | None = None
        self._told_offset: Offset | None = None

    @property
    def statistics(self) -> SubscriberStatistics:
        """The figures of this moment."""
        with self._lock:
            snapshot = self._snapshot
        readiness = self.gauge.readiness(snapshot)
        return replace(
            snapshot,
            is_ready=readiness.is_ready,
            ready_reason=readiness.reason,
            stored_offset=self.stored_offset,
            held_back=self.held_back,
            build=None if self.build is None or self.build.is_last else self.build,
            after=AfterFigures() if self.after_calls is None else self.after_calls.figures,
            pieces=None if self.pieces is None else self.pieces.told(),
        )

    @property
    def is_at_end(self) -> bool:
        """Whether the log had no more when it was last read."""
        return self._is_at_end

    @property
    def log_next_offset(self) -> Offset | None:
        """Where the log ended when it was last seen."""
        return self._snapshot.log_next_offset

    def opened(self, position: Position, log_next_offset: Offset, report_starts: ReportStarts) -> None:
        """The position is known, and fits."""
        self._is_at_end = position.next_offset >= log_next_offset
        self.gauge.opened(log_next_offset)
        self.stored_offset = position.next_offset
        self._set(
            identity=position.identity,
            next_offset=position.next_offset,
            log_next_offset=log_next_offset,
            report_starts=report_starts,
        )

    def read(self, batch: RecordBatch) -> None:
        """Records came, or none."""
        self._is_at_end = batch.is_at_end
        seen = self._snapshot.log_next_offset or Offset(0)
        end = batch.next_offset if batch.is_at_end else max(seen, batch.next_offset)
        self._set(log_next_offset=end, **({} if batch.records else {"next_offset": batch.next_offset}))

    def current(self) -> None:
        """There is nothing to do."""
        self._tell_phase(SubscriberPhase.CURRENT if self._is_at_end else SubscriberPhase.IMPORTING)

    def importing(self) -> None:
        """What is imported takes longer than a moment: it is not current meanwhile, and says so."""
        if self._snapshot.phase in {SubscriberPhase.STARTING, SubscriberPhase.CURRENT}:
            self._set(phase=SubscriberPhase.IMPORTING)
            self._tell()

    def advanced(self, position: Position, outcome: Outcome, *, is_committed: bool, has_more: bool) -> None:
        """Records were done."""
        before = self._snapshot
        is_current = self._is_at_end and not has_more
        self._set(
            phase=SubscriberPhase.CURRENT if is_current else SubscriberPhase.IMPORTING,
            next_offset=position.next_offset,
            imported=before.imported + outcome.imported,
            skipped=before.skipped + outcome.skipped,
            dropped=before.dropped + outcome.dropped,
            put=before.put + outcome.put,
            removed=before.removed + outcome.removed,
            content_bytes=before.content_bytes + outcome.content_bytes,
            commits=before.commits + is_committed,
            **_NO_TROUBLE,
        )
        self._tell()

    def redriven(self, outcome: Outcome) -> None:
        """An entry of the error queue was imported after all."""
        before = self._snapshot
        self._set(
            redriven=before.redriven + 1,
            put=before.put + outcome.put,
            removed=before.removed + outcome.removed,
            content_bytes=before.content_bytes + outcome.content_bytes,
            commits=before.commits + 1,
        )
        self._tell()

    def still_given_up(self, cause: FailureCause) -> None:
        """An entry of the error queue failed again."""
        self._set(still_given_up=self._snapshot.still_given_up + 1, redrive_cause=cause)
        self._tell()

    def given_up(self, position: Position, verdict: Verdict) -> None:
        """A package went to the error queue."""
        before = self._snapshot
        self._set(
            next_offset=position.next_offset,
            failed=before.failed + 1,
            commits=before.commits + 1,
            attempts=verdict.failures,
            failing_publisher=verdict.publisher,
            next_try_ms=None,
            cause=verdict.cause,
        )
        self._ports.observer.on_given_up(self.statistics)
        self._set(**_NO_TROUBLE)

    def waits_for(self, golden: AgentName, cause: FailureCause | None) -> None:
        """The golden subscriber has not imported the next package; `cause` says why that may last."""
        self._set(phase=SubscriberPhase.WAITING_FOR, **{**_NO_TROUBLE, "waiting_for": golden, "cause": cause})
        self._tell()

    def heard_of(self, publisher: AgentName | None) -> None:
        """A package of that publisher went by."""
        known = self._snapshot.publishers
        if publisher is None or publisher in known or len(publisher.encode()) > _LONGEST_NAME_BYTES:
            return
        if len(known) < _MOST_PUBLISHERS:
            self._set(publishers=known | {publisher})

    def wait_for(self, verdict: Verdict) -> None:
        """A package failed: wait until it is tried again, or somebody asks to stop."""
        phase = SubscriberPhase.RETRYING if verdict.is_counted else SubscriberPhase.WAITING
        self._set(failing_publisher=verdict.publisher)
        self._wait(verdict.pause_seconds, phase, attempts=verdict.failures, cause=verdict.cause)

    def wait_for_attempt(self, attempt: Attempt, longest_seconds: float) -> None:
        """The same for a failure of an earlier run; never longer than `longest_seconds`, whatever the clock says."""
        rest_seconds = (attempt.next_try_ms - self._now_ms()) / 1000
        pause_seconds = min(max(0.0, rest_seconds), longest_seconds)
        self._wait(pause_seconds, SubscriberPhase.RETRYING, attempts=attempt.count, cause=attempt.cause)

    def wait_out(self, error: MailboatError, failures: int) -> None:
        """Journal or target can't be used: wait a while, or until somebody asks to stop."""
        decision = decide_retry(error, failures, self._endless, self._ports.random)
        pause_seconds = decision.pause_seconds if isinstance(decision, TryAgain) else 0.0
        self._wait(pause_seconds, SubscriberPhase.WAITING, cause=cause_of(error))

    def stopped(self, error: MailboatError | None) -> SubscriberStatistics:
        """The run is over; the last snapshot."""
        cause = None if error is None else cause_of(error)
        self._set(phase=SubscriberPhase.STOPPED, cause=cause, next_try_ms=None, waiting_for=None)
        self._tell()
        return self.statistics

    def _wait(self, pause_seconds: float, phase: SubscriberPhase, **values: Any) -> None:
        values = {"waiting_for": None, "next_try_ms": self._now_ms() + int(pause_seconds * 1000), **values}
        self._set(phase=phase, **values)
        self._tell()
        self._pause(pause_seconds)

    def _pause(self, seconds: float) -> None:
        """Wait so long; a stop ends it, and a command that makes the pause needless."""
        self._beat(seconds)
        deadline = Deadline(self._ports.clock, seconds)
        while not deadline.is_over():
            self._guard.woken.clear()
            if self._guard.stopping.is_set() or (self.is_wanted is not None and self.is_wanted()):
                return
            self._ports.clock.wait(self._guard.woken, min(deadline.remaining_seconds(), self._expire_pieces()))

    def _expire_pieces(self) -> float:
        """Drop what expired of the pieces collected; seconds until more does: a pause may be longer than that."""
        if self.pieces is None:
            return math.inf
        self.pieces.expire()
        return self.pieces.expires_in_seconds()

    def _tell_phase(self, phase: SubscriberPhase) -> None:
        before = self._snapshot
        if before.phase is not phase or before.cause is not None or self.stored_offset != self._told_offset:
            self._set(phase=phase, **_NO_TROUBLE)
            self._tell()

    def _set(self, **values: Any) -> None:
        with self._lock:
            self._snapshot = snapshot = replace(self._snapshot, **values)
        self.gauge.heed(snapshot)

    def _tell(self) -> None:
        self._told_offset = self.stored_offset
        self._ports.observer.on_progress(self.statistics)

    def _now_ms(self) -> int:
        return int(self._ports.clock.now().timestamp() * 1000)
