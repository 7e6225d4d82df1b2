"""The port to jobs and their queues, with two adapters: the journal itself, and an agent over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mailboat.api.job_views import (
    JobDetailView,
    JobPage,
    JobQueueView,
    JobScheduleView,
    JobStateView,
    QueueChangeView,
)
from mailboat.model.jobs import JobAction, JobId, NewJob, QueueSettings, Schedule


class JobFilter(NamedTuple):
    """Which jobs to list; all conditions hold.

    Attributes:
        state: A state as users read it.
        queue: A queue's name.
        topic: A pattern of topics.
        members: Members of the payload and their values, as `NAME=VALUE`; a name with dots leads deeper. Compared as
            data: a value is a string, or a number, true, false or null in JSON.
        older_seconds: Only jobs that ended longer ago than that.
    """

    state: str | None = None
    queue: str | None = None
    topic: str | None = None
    members: Sequence[str] = ()
    older_seconds: float | None = None


class JobControl(Protocol):
    """What may be asked of jobs, their queues and schedules.

    Methods may be called from several threads, and raise MailboatError.
    """

    def add(self, jobs: Sequence[NewJob]) -> Sequence[JobStateView]:
        """Add jobs; durable on return. One that repeats a request id or a unique value is an earlier job."""
        ...

    def list_jobs(self, wanted: JobFilter, page: str | None = None, max_items: int = 100) -> JobPage:
        """Jobs that are not over and those of the history, oldest first."""
        ...

    def show(self, job: JobId) -> JobDetailView:
        """A job with its payload. Raises: JobMissingError."""
        ...

    def command(self, action: JobAction, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        """Stop or remove jobs; the answer has all jobs of a merged call, which a stop of one ends.

        Raises: JobMissingError; UsageError for the removal of one that runs.
        """
        ...

    def retry(self, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        """Add jobs that ended again. Raises: JobMissingError; UsageError for one that has not ended."""
        ...

    def queues(self) -> Sequence[JobQueueView]:
        """All queues, by name."""
        ...

    def queue(self, queue: str) -> JobQueueView:
        """One queue. Raises: JobQueueMissingError."""
        ...

    def set_queue(self, settings: QueueSettings) -> QueueChangeView:
        """Create a queue, or replace its settings."""
        ...

    def remove_queue(self, queue: str) -> QueueChangeView:
        """Remove a queue; it finishes the jobs that it holds. Raises: JobQueueMissingError."""
        ...

    def suspend(self, queue: str, seconds: float | None = None) -> QueueChangeView:
        """Start no further jobs of a queue, for this time or until `resume`. Raises: JobQueueMissingError."""
        ...

    def resume(self, queue: str) -> QueueChangeView:
        """End a suspension. Raises: JobQueueMissingError."""
        ...

    def clear(self, queue: str) -> QueueChangeView:
        """Drop all queued jobs of a queue. Raises: JobQueueMissingError."""
        ...

    def schedules(self) -> Sequence[JobScheduleView]:
        """All schedules, by name."""
        ...

    def schedule(self, schedule: str) -> JobScheduleView:
        """One schedule. Raises: JobScheduleMissingError."""
        ...

    def set_schedule(self, schedule: Schedule) -> JobScheduleView:
        """Create or replace a schedule; where its times are the same, it keeps the next one. Raises: UsageError."""
        ...

    def remove_schedule(self, schedule: str) -> JobScheduleView:
        """Remove a schedule; jobs that it added stay. Raises: JobScheduleMissingError."""
        ...

    def fire(self, schedule: str) -> JobStateView:
        """Add the job of a schedule now; its next due time stays. Raises: JobScheduleMissingError."""
        ...
