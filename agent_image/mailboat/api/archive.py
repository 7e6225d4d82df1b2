"""The archive port of a home or an agent: topics and messages, blobs and snapshots.

Two adapters: `mailboat.control.journal_archive` reads the storage itself, `mailboat.api.client` asks an agent. The
records are plain values, so that they are the JSON documents of the HTTP API as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from mailboat.api.orders import BenchOrder
from mailboat.api.records import Moment, TopicView

MAX_RECORDS: Final = 1_000
"""Messages in one answer."""

MAX_BLOBS: Final = 10_000
"""Blobs in one answer of an agent."""

MAX_PROBLEMS: Final = 1_000
"""Problems that a verification lists; it counts all of them."""


@dataclass(frozen=True, slots=True)
class RecordView:
    """A message of a topic, summarised.

    Attributes:
        offset: Its offset.
        appended_at: When it was appended.
        type: The type of the message; `unreadable` if it can't be decoded.
        bytes: Its size.
        summary: Its content in one line.
    """

    offset: int
    appended_at: Moment
    type: str
    bytes: int
    summary: str


@dataclass(frozen=True, slots=True)
class ProblemView:
    """An inconsistency of the journal.

    Attributes:
        topic: The topic.
        offset: The message; None for the topic as a whole.
        problem: What is wrong.
    """

    topic: str
    offset: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class VerificationView:
    """The result of a check of the whole journal.

    Attributes:
        messages: Number of messages checked.
        blobs: Number of blobs checked.
        blobs_read: The bytes of the blobs were read, too.
        problem_count: Number of problems.
        problems: The first problems, at most 1,000.
    """

    messages: int
    blobs: int
    blobs_read: bool = False
    problem_count: int = 0
    problems: tuple[ProblemView, ...] = ()


@dataclass(frozen=True, slots=True)
class BlobView:
    """A blob.

    Attributes:
        digest: Its SHA-256, in hexadecimal.
        bytes: Its size.
        stored_at: When it was stored or renewed.
        fate: `referenced`, `young` or `removable`: what a sweep would do with it.
    """

    digest: str
    bytes: int
    stored_at: Moment
    fate: str


@dataclass(frozen=True, slots=True)
class BlobList:
    """Blobs of the blob store.

    Attributes:
        items: The blobs.
        complete: False if more blobs exist than were asked for.
    """

    items: tuple[BlobView, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class BlobTally:
    """Number and size of blobs.

    Attributes:
        count: Number of blobs.
        bytes: Their total size.
    """

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class UnreadableView:
    """A message that can't be decoded: it may refer to any blob, so that a sweep keeps all of them.

    Attributes:
        offset: Its offset on the package topic.
        reason: Why it can't be decoded.
    """

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class TargetSweepView:
    """The sweep of the blobs that a target keeps for itself.

    Attributes:
        subscriber: The subscriber's name.
        target: Its target.
        removed: Number of blobs removed, or removable in a dry run.
        problem: Why the target was left alone: the name of an error.
    """

    subscriber: str
    target: str
    removed: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class SweepView:
    """The result of a sweep of the blob store.

    Attributes:
        store: The blob store.
        dry_run: Nothing was removed.
        messages: Number of messages read.
        references: Number of references to blobs that they contain.
        blobs: Number and size of the blobs, by fate.
        removed: Number of blobs removed; lower than removable if publishers renewed some.
        abandoned_uploads: Number of unfinished uploads removed.
        unreadable: The message that prevents removals.
        targets: The targets that keep blobs for themselves.
        snapshots: Number of snapshots that refer to blobs.
        grace_seconds: Age below which a blob is young.
    """

    store: str
    dry_run: bool
    messages: int
    references: int
    blobs: dict[str, BlobTally] = field(default_factory=dict)
    removed: int = 0
    abandoned_uploads: int = 0
    unreadable: UnreadableView | None = None
    targets: tuple[TargetSweepView, ...] = ()
    snapshots: int = 0
    grace_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A snapshot in the blob store.

    Attributes:
        snapshot: `blob:NAME`.
        sha256: Its digest, in hexadecimal.
        bytes: Its size.
        target: The target that it is a copy of.
        taken_at: When it was taken.
        next_offset: The first offset that is not in it.
        identity: The log that the offset belongs to.
        roots: The paths that it is limited to, each with all below it; empty: it has all; null: unknown.
        error: The name of the error where the document of that name cannot be read; then the fields above are null.
        message: Why it cannot be read.
        next_step: What to do about that.
    """

    snapshot: str
    sha256: str | None = None
    bytes: int | None = None
    target: str | None = None
    taken_at: Moment | None = None
    next_offset: int | None = None
    identity: str | None = None
    roots: tuple[str, ...] | None = None
    error: str | None = None
    message: str | None = None
    next_step: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreView:
    """A subscriber of an agent, with the last restore into its target.

    After a new start of the agent it is the last one that was done, which the target keeps.

    Attributes:
        subscriber: The subscriber's name.
        target: Its target.
        state: `none`, `waiting` (for the current batch to end), `restoring`, `done`, `failed` or `unknown`
            (the agent started again, and the target cannot be read).
        snapshot: `blob:NAME`, or the file of a restore without the agent; None without a restore.
        phase: `fetching` or `restoring` while it runs.
        done_bytes: Bytes of the phase that are done.
        total_bytes: Bytes of the phase, if known.
        begun_at: When it was asked for.
        next_offset: The position of the target afterwards.
        given_up: Packages in the error queue afterwards.
        error: The name of the error: of a restore that failed, which leaves the target as it was before; or of reading.
        message: Why it failed, or cannot be read.
        next_step: What to do about that.
    """

    subscriber: str
    target: str
    state: str = "none"
    snapshot: str | None = None
    phase: str | None = None
    done_bytes: int = 0
    total_bytes: int | None = None
    begun_at: Moment | None = None
    next_offset: int | None = None
    given_up: int | None = None
    error: str | None = None
    message: str | None = None
    next_step: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether no restore is under way."""
        return self.state not in {"waiting", "restoring"}

    def is_same_restore(self, other: RestoreView) -> bool:
        """Whether both are states of one restore: a target has the last one only."""
        mine = self.target, self.snapshot, self.begun_at
        return mine == (other.target, other.snapshot, other.begun_at)


@dataclass(frozen=True, slots=True)
class StoredSnapshotView:
    """The result of storing a snapshot.

    Attributes:
        snapshot: The snapshot of that name.
        stored: False if the snapshot of that name already was as new.
    """

    snapshot: SnapshotView
    stored: bool


@dataclass(frozen=True, slots=True)
class CutOffView:
    """A subscriber that loses packages when the head of the log moves.

    Attributes:
        name: Its name.
        next_offset: What it reads next; None if it has read nothing.
    """

    name: str
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class TruncationView:
    """The result of moving the head of a topic.

    Attributes:
        topic: Its name.
        before: The first offset that is kept: at most the requested one, as a package in pieces stays whole.
        dry_run: Nothing was removed.
        removed: Number of messages removed, or that would be.
        earliest_offset: The oldest record afterwards.
        next_offset: The offset of the next record.
        cut_off: Subscribers that lose packages.
    """

    topic: str
    before: int
    dry_run: bool
    removed: int
    earliest_offset: int
    next_offset: int
    cut_off: tuple[CutOffView, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpiryView:
    """The result of applying the retention of the configuration.

    Attributes:
        removed: Number of messages removed.
        automatic: The log applies retention itself, at a time of its own.
    """

    removed: int
    automatic: bool = False


@dataclass(frozen=True, slots=True)
class RetainerView:
    """A subscriber that holds packages back.

    Attributes:
        name: Its name.
        durable: Packages are kept for it while it is away, too.
        next_offset: What it reads next.
        announced_at: When it last announced itself.
        silent_seconds: Time since then.
    """

    name: str
    durable: bool
    next_offset: int
    announced_at: Moment
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class RetentionView:
    """Where retention by consumption puts the head of the package topic, and why.

    Attributes:
        enabled: Agents apply it without a command.
        applied: The head was moved.
        earliest_offset: The oldest record before.
        next_offset: The offset of the next record.
        head: The first offset to keep.
        reason: Why it is there.
        freed_bytes: About the size of what is before it.
        losers: Subscribers that lose packages.
        dropped: Durable subscribers that were deregistered because they were silent for too long.
        subscribers: The subscribers that hold packages back.
    """

    enabled: bool
    applied: bool
    earliest_offset: int
    next_offset: int
    head: int
    reason: str
    freed_bytes: int = 0
    losers: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    subscribers: tuple[RetainerView, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting of a topic that is not as configured.

    Attributes:
        name: The setting.
        found: Its value; None if it is not set.
        wanted: The configured value.
    """

    name: str
    found: str | None
    wanted: str


@dataclass(frozen=True, slots=True)
class TopicCheck:
    """A topic compared with the configuration.

    Attributes:
        topic: Its name.
        role: What it is for.
        state: `right`, `made` or `changed`; `missing` or `different` if it is not as configured now.
        differences: Where it differs, or differed before it was changed.
    """

    topic: str
    role: str
    state: str
    differences: tuple[SettingDifference, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether it is as configured now."""
        return self.state not in {"missing", "different"}


@dataclass(frozen=True, slots=True)
class TopicSetup:
    """The topics of the journal compared with the configuration.

    Attributes:
        journal: The journal.
        topics: All five topics.
    """

    journal: str
    topics: tuple[TopicCheck, ...]


@dataclass(frozen=True, slots=True)
class Latency:
    """A duration: the median, and what one in a hundred exceeds.

    Attributes:
        p50_ms: The median, in milliseconds.
        p99_ms: The 99th percentile, in milliseconds.
        rounds: Number of measurements.
    """

    p50_ms: float
    p99_ms: float
    rounds: int


@dataclass(frozen=True, slots=True)
class BatchRate:
    """What one thread appends, in batches of one size.

    Attributes:
        batch: Messages per append.
        messages_per_second: Rate of messages.
        bytes_per_second: Rate of bytes.
        syncs_per_message: Number of fsyncs per message; None if the log does not say, as on Kafka, where replicas
            stand for durability.
    """

    batch: int
    messages_per_second: float
    bytes_per_second: float
    syncs_per_message: float | None = None


@dataclass(frozen=True, slots=True)
class JournalFigures:
    """What a journal gives.

    Attributes:
        journal: The journal.
        message_bytes: Size of the messages.
        append: One message, until it is durable.
        wakeup: From the beginning of an append until a waiting reader of the same process has the message.
        rates: Appending, by batch size.
        read_per_second: Messages that a reader gets from the beginning of the topic.
    """

    journal: str
    message_bytes: int
    append: Latency
    wakeup: Latency
    rates: tuple[BatchRate, ...]
    read_per_second: float


class Archive(Protocol):
    """What is stored. Methods may be called from several threads; each raises MailboatError."""

    def topics(self) -> Sequence[TopicView]:
        """The topics of the configuration that exist. Raises: JournalUnavailableError."""
        ...

    def records(self, role: str, from_offset: int | None = None, max_items: int = 20) -> Sequence[RecordView]:
        """Messages of a topic, from an offset on, or the last ones.

        Raises: UsageError for an offset that the topic does not hold; TopicMissingError.
        """
        ...

    def truncate(self, role: str, before: int, *, is_dry_run: bool = True) -> TruncationView:
        """Remove a topic's messages before an offset; a dry run names subscribers that would lose packages.

        Raises: UsageError for an offset beyond the end; TopicMissingError.
        """
        ...

    def remove_expired(self) -> ExpiryView:
        """Apply the configured retention to all topics now."""
        ...

    def retention(self, *, is_applied: bool = False) -> RetentionView:
        """The head by retention by consumption; `is_applied` moves it. Raises: UsageError: its settings."""
        ...

    def ensure_topics(self, *, is_dry_run: bool = False) -> TopicSetup:
        """Create missing topics and correct the settings of the others; a dry run only compares.

        Raises: JournalAccessDeniedError; UsageError for what the brokers do not grant.
        """
        ...

    def bench(self, order: BenchOrder) -> JournalFigures:
        """Measure the journal on a temporary topic. Raises: as `verify`; MessageTooLargeError."""
        ...

    def verify(self, *, reads_blobs: bool = False) -> VerificationView:
        """Check the whole journal. Raises: ThrottledError while another call reads the whole journal."""
        ...

    def blobs(self, *, is_removable: bool = False, max_items: int | None = None) -> BlobList:
        """Blobs with their fate, of all or only of the removable ones. Raises: as `verify`."""
        ...

    def sweep(self, *, is_dry_run: bool = True, forget_journal: str | None = None) -> SweepView:
        """Remove blobs that no message refers to; a dry run counts them. Raises: as `verify`, and as `sweep`."""
        ...

    def snapshots(self) -> Sequence[SnapshotView]:
        """The snapshots in the blob store, also those whose document cannot be read."""
        ...

    def store_snapshot(self, target: str, name: str, *, is_forced: bool = False) -> StoredSnapshotView:
        """Store a snapshot of a target. An agent takes the targets of its own subscribers only.

        Raises: UsageError, TargetBusyError.
        """
        ...

    def remove_snapshot(self, name: str) -> None:
        """Remove the name of a snapshot; a sweep removes its blob. Raises: SnapshotMissingError."""
        ...


class Restores(Protocol):
    """Restores of stored snapshots into the targets of an agent's own subscribers; from several threads."""

    def restore_snapshot(self, name: str, target: str, *, is_replacing: bool = False) -> RestoreView:
        """Begin: stop the target's subscriber, restore the snapshot, and start the subscriber again.

        Raises:
            SnapshotMissingError: No snapshot has that name.
            UsageError: No subscriber of this agent has that target, or a shared pool has it.
            TargetNotEmptyError: The target has content, and is not to be replaced.
            TargetBusyError: A restore into it is under way, or the agent is stopping.
            JournalReplacedError, JournalTrimmedError, JournalShorterError: The position does not fit the journal.
        """
        ...

    def restores(self) -> Sequence[RestoreView]:
        """All subscribers of the agent, each with its last restore."""
        ...
