"""The archive port: the journal's topics and messages, the blobs and the snapshots of a home or an agent.

Two adapters: `mailboat.control.journal_archive` reads the storage itself, `mailboat.api.client` asks an agent. The
records are plain values, so that they are the JSON documents of the HTTP API as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from mailboat.api.records import Moment

MAX_RECORDS: Final = 1_000
"""Messages in one answer."""

MAX_BLOBS: Final = 10_000
"""Blobs in one answer of an agent."""

MAX_PROBLEMS: Final = 1_000
"""Problems that a verification lists; it counts all of them."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic of the journal.

    Attributes:
        role: What it is for: package, status, discovery, command or event.
        name: Its name in the journal.
        earliest_offset: The oldest record.
        next_offset: The offset of the next record.
        identity: The log id; a journal that was created again has another one.
    """

    role: str
    name: str
    earliest_offset: int
    next_offset: int
    identity: str | None = None


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
    """

    snapshot: str
    sha256: str
    bytes: int
    target: str
    taken_at: Moment
    next_offset: int
    identity: str


@dataclass(frozen=True, slots=True)
class StoredSnapshotView:
    """The result of storing a snapshot.

    Attributes:
        snapshot: The snapshot of that name.
        stored: False if the snapshot of that name already was as new.
    """

    snapshot: SnapshotView
    stored: bool


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
        """The snapshots in the blob store. Raises: SnapshotCorruptError."""
        ...

    def store_snapshot(self, target: str, name: str, *, is_forced: bool = False) -> StoredSnapshotView:
        """Store a snapshot of a target. An agent takes the targets of its own subscribers only.

        Raises: UsageError, TargetBusyError.
        """
        ...

    def remove_snapshot(self, name: str) -> None:
        """Remove the name of a snapshot; a sweep removes its blob. Raises: SnapshotMissingError."""
        ...
