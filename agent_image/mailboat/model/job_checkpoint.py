"""The state of all jobs at one record of their log, which a reader can start with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mailboat.model.identifiers import Offset
from mailboat.model.jobs import Feed, JobId, QueueSettings, Schedule, Token


class QueueCheckpoint(NamedTuple):
    """A queue in a checkpoint.

    Attributes:
        removed: Whether it only finishes the jobs that it holds.
        suspended_until_ms: 0 while it is not suspended; None until it is resumed.
        starts_ms: When calls of the current rate period started.
        chains: The jobs of each key in their order, keys one after another.
    """

    settings: QueueSettings
    removed: bool
    suspended_until_ms: int | None
    starts_ms: Sequence[int]
    chains: Sequence[JobId]


class LeaseState(NamedTuple):
    """A call that runs, in a checkpoint."""

    token: Token
    worker: str
    jobs: Sequence[JobId]
    started_ms: int
    until_ms: int
    stop_requested: bool
    progress: bytes


class WorkerEntry(NamedTuple):
    """A worker in a checkpoint."""

    worker: str
    slots: int
    topics: Sequence[str]
    seen_ms: int
    rules: int = 0


class JobCheckpoint(NamedTuple):
    """The state of all jobs before the record at `as_of`, from which a reader continues.

    Attributes:
        columns: The rows of the jobs, little-endian, by name of the column.
        unique: For each queued job with such a value, 16 bytes of its digest and 8 of the job's id.
        requests: The same for request ids, in the order in which they are forgotten.
        results: Where the topic holds the last failure of a job.
    """

    as_of: Offset
    now_ms: int
    topics: Sequence[str]
    queues: Sequence[QueueCheckpoint]
    workers: Sequence[WorkerEntry]
    leases: Sequence[LeaseState]
    columns: Mapping[str, bytes]
    unique: bytes
    requests: bytes
    results: Mapping[JobId, Offset]
    schedules: Sequence[Schedule] = ()
    feeds: Sequence[Feed] = ()
