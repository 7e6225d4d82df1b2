"""Keeps a subscriber's figures and reports them: to its observer, and commits to the meter and the tracer.

`Reporter` is written by the subscriber's thread and read by any; it never waits and decides nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from mailboat.clock import milliseconds_now
from mailboat.content.port import ReportStarts
from mailboat.errors import MailboatError
from mailboat.journal.port import Record, RecordBatch
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import BulkPart, FailureCause, PackageMessage, Suspension
from mailboat.model.positions import Position
from mailboat.queues.entries import readable_package
from mailboat.subscriber.after_calls import AfterCalls
from mailboat.subscriber.failures import FailureVerdict, Redriven, StillGivenUp
from mailboat.subscriber.figures import ImportedBatch, SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.importer import BatchOutcome
from mailboat.subscriber.piece_store import PieceStore
from mailboat.subscriber.readiness import ReadinessGauge
from mailboat.subscriber.subscriber_settings import SubscriberPorts, SubscriberSettings
from mailboat.tracing import TracedPackage

_MOST_PUBLISHERS: Final = 100
_LONGEST_NAME_BYTES: Final = 256
"""With so many names of that length an announcement is still short enough for its readers."""

_NO_TROUBLE: Final[Mapping[str, Any]] = MappingProxyType(
    {"attempts": 0, "failing_publisher": None, "next_try_ms": None, "cause": None}
    | {"waiting_for": None, "suspension": None}
)


class Reporter:
    """The figures of one subscriber."""

    def __init__(
        self, settings: SubscriberSettings, ports: SubscriberPorts, pieces: PieceStore, after_calls: AfterCalls
    ) -> None:
        """All figures are zero. Those of pieces and of the hook `after` are read from their owners."""
        self._ports = ports
        self._pieces = pieces
        self._after_calls = after_calls
        self._gauge: Final = ReadinessGauge(settings.config.readiness, ports.clock)
        self._lock = threading.Lock()
        self._snapshot = SubscriberStatistics()
        self.is_at_end = False
        """Whether the end of the log was reached when it was last read."""
        self._stored_offset: Offset | None = None
        self._told_offset: Offset | None = None
        self._held_back = 0
        self._build: BulkPart | None = None

    @property
    def statistics(self) -> SubscriberStatistics:
        with self._lock:
            snapshot = self._snapshot
        readiness = self._gauge.readiness(snapshot)
        return replace(
            snapshot,
            is_ready=readiness.is_ready,
            ready_reason=readiness.reason,
            stored_offset=self._stored_offset,
            held_back=self._held_back,
            build=None if self._build is None or self._build.is_last else self._build,
            after=self._after_calls.figures,
            pieces=self._pieces.told(),
        )

    @property
    def log_next_offset(self) -> Offset | None:
        """Where the log ended when it was last seen."""
        return self._snapshot.log_next_offset

    # -------------------------------------------------------------------------------------------------------- the log

    def opened(self, position: Position, log_next_offset: Offset, report_starts: ReportStarts) -> None:
        """The position is known, and fits the log."""
        self.is_at_end = position.next_offset >= log_next_offset
        self._gauge.opened(log_next_offset)
        self._stored_offset = position.next_offset
        self._set(
            identity=position.identity,
            next_offset=position.next_offset,
            log_next_offset=log_next_offset,
            report_starts=report_starts,
        )

    def read(self, batch: RecordBatch) -> None:
        self.is_at_end = batch.is_at_end
        seen = self._snapshot.log_next_offset or Offset(0)
        # Before its end, the log reaches at least as far as an earlier read has seen.
        end = batch.next_offset if batch.is_at_end else max(seen, batch.next_offset)
        # An empty read moves the position; records do so when they are done.
        self._set(log_next_offset=end, **({} if batch.records else {"next_offset": batch.next_offset}))

    # ------------------------------------------------------------------------------------------------------- packages

    def idle(self) -> None:
        phase = SubscriberPhase.CURRENT if self.is_at_end else SubscriberPhase.IMPORTING
        before = self._snapshot
        # Only where something changed: without packages this is called with each read.
        if before.phase is not phase or before.cause is not None or self._stored_offset != self._told_offset:
            self._set(phase=phase, **_NO_TROUBLE)
            self._announce()

    def took_up(self, appended_ms: int | None) -> None:
        """A batch begins with a package that was appended then, milliseconds since 1970 UTC."""
        self._gauge.take_up(appended_ms)

    def is_slow(self) -> None:
        """The import takes longer than a moment: the subscriber is not current meanwhile."""
        if self._snapshot.phase in {SubscriberPhase.STARTING, SubscriberPhase.CURRENT}:
            self._set(phase=SubscriberPhase.IMPORTING)
            self._announce()

    def committed(self, stored_offset: Offset, held_back: int) -> None:
        """The target holds a position, and waits for so many bulk builds before readers see anything new."""
        self._stored_offset = stored_offset
        self._held_back = held_back

    def advanced(self, position: Position, outcome: BatchOutcome, *, is_committed: bool, has_more: bool) -> None:
        before = self._snapshot
        is_current = self.is_at_end and not has_more
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
        self._announce()

    def passed(
        self, last: Record, outcome: BatchOutcome, message: PackageMessage | None, part: BulkPart | None
    ) -> None:
        """Records were done.

        `message` is that of the last one, if the subscriber names its publishers; `part` the last part of a bulk build.
        """
        if outcome.imported:
            self._gauge.imported(last.appended_ms)
        publisher = None if message is None else message.pub_agent_name
        known = self._snapshot.publishers
        is_new = publisher is not None and publisher not in known and len(known) < _MOST_PUBLISHERS
        if publisher is not None and is_new and len(publisher.encode()) <= _LONGEST_NAME_BYTES:
            self._set(publishers=known | {publisher})
        self._build = part or self._build

    # ------------------------------------------------------------------------------------------------------- failures

    def given_up(self, position: Position, verdict: FailureVerdict) -> None:
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
        # With the failure in the figures, which the next line clears.
        self._ports.observer.on_given_up(self.statistics)
        self._set(**_NO_TROUBLE)

    def redriven(self, redriven: Redriven | StillGivenUp) -> None:
        """An entry of the error queue was imported after all, or failed again."""
        before = self._snapshot
        if isinstance(redriven, StillGivenUp):
            self._set(still_given_up=before.still_given_up + 1, redrive_cause=redriven.cause)
        else:
            outcome = redriven.outcome
            self._set(
                redriven=before.redriven + 1,
                put=before.put + outcome.put,
                removed=before.removed + outcome.removed,
                content_bytes=before.content_bytes + outcome.content_bytes,
                commits=before.commits + 1,
            )
        self._announce()

    # --------------------------------------------------------------------------------------------------------- pauses

    def waits_for(self, golden: AgentName, cause: FailureCause | None) -> None:
        """The golden subscriber has not imported the next package; `cause` says why that may last."""
        self._set(phase=SubscriberPhase.WAITING_FOR, **{**_NO_TROUBLE, "waiting_for": golden, "cause": cause})
        self._announce()

    def pauses(
        self,
        phase: SubscriberPhase,
        seconds: float,
        cause: FailureCause,
        attempts: int | None = None,
        publisher: AgentName | None = None,
    ) -> None:
        """Something is tried again after the pause: the journal or the target, or a package that failed so often."""
        now_ms = milliseconds_now(self._ports.clock)
        values: dict[str, Any] = {"phase": phase, "next_try_ms": now_ms + int(seconds * 1000), "cause": cause}
        if attempts is not None:
            values |= {"attempts": attempts, "failing_publisher": publisher}
        self._set(waiting_for=None, **values)
        self._announce()

    def suspended(self, suspension: Suspension, log_next_offset: Offset) -> None:
        """Nothing is imported; the log ends there now."""
        before = self._snapshot
        # The log is not read meanwhile: after the resume it is current only once it was read again.
        self.is_at_end = False
        self._set(
            **{**_NO_TROUBLE, "suspension": suspension},
            phase=SubscriberPhase.SUSPENDED,
            log_next_offset=log_next_offset,
        )
        if before.phase is not SubscriberPhase.SUSPENDED or before.suspension != suspension:
            self._announce()

    def stopped(self, error: MailboatError | None) -> SubscriberStatistics:
        """The run is over; return the last snapshot."""
        cause = None if error is None else FailureCause.of_error(error)
        self._set(phase=SubscriberPhase.STOPPED, cause=cause, next_try_ms=None, waiting_for=None)
        self._announce()
        return self.statistics

    def _set(self, **values: Any) -> None:
        with self._lock:
            # One thread writes; the lock gives others a whole snapshot.
            self._snapshot = snapshot = replace(self._snapshot, **values)
        self._gauge.heed(snapshot)

    def _announce(self) -> None:
        self._told_offset = self._stored_offset
        self._ports.observer.on_progress(self.statistics)


class ImportRecorder:
    """Reports commits to meter and tracer; without both it costs two comparisons per commit."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts) -> None:
        self._name = settings.name
        self._clock = ports.clock
        self._meter = ports.meter
        self._tracer = ports.tracer
        self._is_on = ports.meter is not None or ports.tracer.is_recording

    def begin(self) -> float:
        """Note that a transaction begins; return what `committed` takes as `began`."""
        if self._meter is not None:
            self._meter.began()
        return self._clock.monotonic() if self._is_on else 0.0

    def confirm(self, send: Callable[[], None]) -> None:
        """Send confirmations, and measure how long it takes."""
        began = self._clock.monotonic()
        send()
        if self._meter is not None:
            self._meter.confirmed(self._clock.monotonic() - began)

    def committed(self, records: Sequence[Record], outcome: BatchOutcome, began: float) -> None:
        """Report that the first `outcome.done` of the records are durable."""
        if not self._is_on or not outcome.imported:
            return
        seconds = self._clock.monotonic() - began
        now_ms = milliseconds_now(self._clock)
        done = records[: outcome.done]
        if outcome.left_out:
            done = [record for record in done if record.offset not in outcome.left_out]
        far = outcome.far_bytes
        sizes = (
            [far.get(record.offset) or len(record.value) for record in done] if far else [len(r.value) for r in done]
        )
        batch = ImportedBatch(done, sizes, now_ms - int(seconds * 1000), now_ms, seconds)
        if self._meter is not None:
            self._meter.imported(batch)
        if self._tracer.is_recording:
            messages = ((record.offset, readable_package(record)) for record in done)
            # None: imported by a policy that takes it as it is
            found = (TracedPackage.of(message, offset) for offset, message in messages if message is not None)
            traced = [package for package in found if package.trace_parent is not None]
            self._tracer.imported(self._name, traced, batch.began_ms, batch.committed_ms)
