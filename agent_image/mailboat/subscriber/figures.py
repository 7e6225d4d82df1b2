"""The figures of a subscriber: a snapshot of them, and who observes and measures it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

from mailboat.content.port import ReportStarts
from mailboat.frozen import Frozen
from mailboat.journal.port import Record
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import BulkPart, FailureCause, HookCalls, PoolBacklog, Suspension
from mailboat.model.positions import LogIdentity
from mailboat.subscriber.piece_store import PieceFigures


class SubscriberPhase(enum.StrEnum):
    """The named states. The same words stand in announcements, on the command line and in metrics."""

    STARTING = "starting"
    """The subscriber has not read anything yet."""

    IMPORTING = "importing"
    """The log holds packages that the subscriber has not imported yet."""

    CURRENT = "current"
    """The subscriber has imported everything that the log held at its last read."""

    RETRYING = "retrying"
    """A package failed and waits for its next attempt; later packages wait behind it to keep the order.

    `mailboat status` shows the error: repair its cause, or drop the package (`mailboat queues remove`).
    """

    WAITING = "waiting"
    """The journal or the storage is unavailable. No attempt is counted and nothing is given up.

    Check the brokers, the bucket or the disk that the error names: the subscriber retries.
    """

    WAITING_FOR = "waiting-for"
    """The subscriber waits until its golden subscriber, whose name follows, has imported the next package."""

    SUSPENDED = "suspended"
    """Imports are suspended by a command, until its time has passed or `mailboat subscribers resume` is called."""

    STOPPED = "stopped"
    """The subscriber ended: it was stopped, or going on could lose content; then its error is a named state."""


class SubscriberStatistics(Frozen):
    """A snapshot. Counts are of this run of the process.

    Attributes:
        phase: The named state.
        identity: The log; None before it is known.
        next_offset: Everything below it is done; None before the position is known.
        log_next_offset: Where the log ended when it was last seen; None before it was.
        imported: Packages imported: ADD, DELETE and INVALIDATE.
        removed: Nodes removed from the target.
        put: Nodes written to the target.
        failed: Packages given up.
        skipped: Messages of publishers that are not followed, and TESTs.
        dropped: Packages dropped by a clear or because of the golden subscriber.
        redriven: Entries of the error queue that were imported after all.
        still_given_up: Entries of the error queue that were tried again, and failed again.
        redrive_cause: Why the last one of them failed again.
        content_bytes: Bytes of nodes and binaries written.
        commits: Transactions.
        attempts: How often the current package has failed.
        failing_publisher: Whose package that is; None where it is not known.
        next_try_ms: When it is tried again, milliseconds since 1970 UTC; None when nothing waits.
        cause: Why it is retrying, waiting or stopped.
        after: Calls of the hook `after` that are still to be made; None where there are none.
        waiting_for: The golden subscriber that it waits for.
        is_ready: Whether it may serve.
        ready_reason: Why, or why not: a `ReadyReason`.
        publishers: Of one that follows all: some of the publishers whose packages it has read, in the end all.
        stored_offset: The position that the target holds: where a killed subscriber goes on. Skipped messages are not
            stored one by one, so it lags behind `next_offset`.
        build: The current bulk build, by its last package that was done in this run; None when that was its last one.
        held_back: Bulk builds whose end is waited for before readers are shown anything new.
        pieces: Figures of packages in pieces; None before there is a run.
        report_starts: From where on it reports packages that it passes without importing them.
        suspension: Of one whose imports are suspended.
        backlog: Of a shared pool.
    """

    phase: SubscriberPhase = SubscriberPhase.STARTING
    identity: LogIdentity | None = None
    next_offset: Offset | None = None
    log_next_offset: Offset | None = None
    imported: int = 0
    removed: int = 0
    put: int = 0
    failed: int = 0
    skipped: int = 0
    dropped: int = 0
    redriven: int = 0
    still_given_up: int = 0
    redrive_cause: FailureCause | None = None
    content_bytes: int = 0
    commits: int = 0
    attempts: int = 0
    failing_publisher: AgentName | None = None
    next_try_ms: int | None = None
    cause: FailureCause | None = None
    after: HookCalls | None = None
    waiting_for: AgentName | None = None
    is_ready: bool = False
    ready_reason: str = "starting"
    publishers: frozenset[AgentName] = frozenset()
    stored_offset: Offset | None = None
    build: BulkPart | None = None
    held_back: int = 0
    pieces: PieceFigures | None = None
    report_starts: ReportStarts = field(default_factory=dict)
    suspension: Suspension | None = None
    backlog: PoolBacklog | None = None

    @property
    def state(self) -> str:
        """The phase, with the name of the subscriber that is waited for."""
        return self.phase if self.waiting_for is None else f"{self.phase} {self.waiting_for}"

    @property
    def lag_offsets(self) -> int | None:
        """Records that are not done, up to the end of the log; None before position and end are known.

        More than packages: pieces and messages that are skipped count, too. Of a pool they are the packages in its
        queue, and the records that are not in the queue yet.
        """
        if self.next_offset is None or self.log_next_offset is None:
            return None
        if self.backlog is not None:  # a pool has done packages above its position, too
            return self.backlog.queued + max(0, self.log_next_offset - self.backlog.next_offset)
        return max(0, self.log_next_offset - self.next_offset)


class ImportedBatch(NamedTuple):
    """Packages that one transaction has imported.

    Attributes:
        records: The records that brought them.
        sizes_bytes: Size of each package; that of its message where it travelled in it.
        began_ms: When the transaction began, milliseconds since 1970 UTC.
        committed_ms: When it was durable.
        seconds: How long it took.
    """

    records: Sequence[Record]
    sizes_bytes: Sequence[int]
    began_ms: int
    committed_ms: int
    seconds: float


class ImportMeter(Protocol):
    """Measures imports. Called from the subscriber's thread, once a commit; must not block."""

    def began(self) -> None:
        """A transaction begins."""

    def imported(self, batch: ImportedBatch) -> None:
        """A transaction that imported packages is durable."""

    def confirmed(self, seconds: float) -> None:
        """The confirmations that were pending are in the log."""


class Observer:
    """Called from the subscriber's thread, at most once a commit; must not block. This one ignores the figures."""

    def on_progress(self, statistics: SubscriberStatistics) -> None:
        """Something changed: a commit, a failure, or the phase."""

    def on_given_up(self, statistics: SubscriberStatistics) -> None:
        """A package went to the error queue; `cause` says why."""
