"""How jobs, queues and schedules are shown, and which of them a filter shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mailboat.api.job_control import JobFilter
from mailboat.api.job_views import (
    JobDetailView,
    JobQueueView,
    JobScheduleView,
    JobStateView,
    JobView,
)
from mailboat.clock import moment_of
from mailboat.errors import UsageError
from mailboat.jobs.command import payload_value
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_queue import Queue
from mailboat.jobs.leases import Lease
from mailboat.jobs.progress import decode_progress, eta_ms
from mailboat.jobs.selection import older_workers, shown_state, why_pending
from mailboat.jobs.topic import JobTopic
from mailboat.model.jobs import (
    JobId,
    JobState,
    Schedule,
    show_job_id,
    topic_matches,
)


def is_wanted(fold: JobFold, job: JobId, wanted: JobFilter, pattern: str | None, now_ms: int) -> bool:
    """Whether a job passes a filter; members of its payload are compared by `has_members`."""
    return (
        (wanted.queue is None or fold.queue(job).settings.name == wanted.queue)
        and (pattern is None or topic_matches(pattern, fold.topic(job)))
        and (wanted.state is None or shown_state(fold, job, now_ms) == wanted.state)
        and (wanted.older_seconds is None or _ended_before(fold, job, now_ms - int(wanted.older_seconds * 1000)))
    )


def _ended_before(fold: JobFold, job: JobId, moment_ms: int) -> bool:
    state = fold.table.state(job)
    return state is not None and state.final and fold.table.due_ms(job) <= moment_ms


def parse_member(text: str) -> tuple[Sequence[str], str]:
    """The path and the value of a wanted member. Raises: UsageError."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"{text!r} is not NAME=VALUE, such as site=blog")
    return name.split("."), value


def has_members(payload: bytes, members: Sequence[tuple[Sequence[str], str]]) -> bool:
    """Whether a payload has all of the wanted members."""
    return all(_has_member(payload_value(payload), path, wanted) for path, wanted in members)


def _has_member(document: object, path: Sequence[str], wanted: str) -> bool:
    for name in path:
        if not isinstance(document, Mapping) or name not in document:
            return False
        document = document[name]
    if isinstance(document, str):
        return document == wanted
    return not isinstance(document, Mapping | list) and json.dumps(document) == wanted


def job_view(topic: JobTopic, job: JobId, now_ms: int) -> JobView:
    """A job at a moment."""
    fold = topic.fold
    waits, state = fold.table.is_queued(job), fold.table.state(job)
    # a job that waits for its retry has both: what it waits for, and why the attempt failed
    failure = "" if state is JobState.SUCCEEDED else topic.last_message(job)
    reasons = (why_pending(fold, job, now_ms) if waits else "", failure)
    return JobView(
        show_job_id(job),
        fold.topic(job),
        fold.queue(job).settings.name,
        shown_state(fold, job, now_ms),
        fold.table.tries(job),
        moment_of(fold.table.due_ms(job)) if waits else None,
        ": ".join(filter(None, reasons)),
        moment_of(fold.table.due_ms(job)) if state is not None and state.final else None,
    )


def with_attempt(view: JobDetailView, lease: Lease, lease_ms: int) -> JobDetailView:
    """The view of a job with what is known of the attempt that runs."""
    progress = decode_progress(lease.progress)
    view = replace(view, worker=_worker_name(lease.worker), token=lease.token, started_at=moment_of(lease.started_ms))
    if progress is None:
        return replace(view, progress=lease.progress.decode(errors="replace") or None)
    # A renewal sets the end of the lease, so its moment is the end without the duration.
    ends_ms = eta_ms(progress, lease.started_ms, lease.until_ms - lease_ms)
    return replace(
        view,
        done=None if progress.total is None else progress.done,
        total=progress.total,
        eta_at=None if ends_ms is None else moment_of(ends_ms),
        log=tuple(progress.log),
    )


def _worker_name(worker: str) -> str:
    # Without the random end of the id, which is all that keeps others from requests in the worker's name: tokens of
    # leases are offsets, and can be guessed.
    return worker.rpartition("-")[0] or "unnamed"


def job_state_view(fold: JobFold, job: JobId, now_ms: int) -> JobStateView:
    """The state of a job at a moment."""
    lease = fold.leases.get(job)
    stop_requested = lease is not None and lease.stop_requested
    state, reason = shown_state(fold, job, now_ms), why_pending(fold, job, now_ms)
    return JobStateView(show_job_id(job), state, reason, stop_requested)


def job_queue_view(fold: JobFold, queue: Queue, now_ms: int, came_due: Sequence[JobId]) -> JobQueueView:
    """A queue at a moment; `came_due` are the jobs that came due after the last record."""
    settings = queue.settings
    ready_ms = queue.oldest_due_ms(fold.now_ms)
    oldest_ms = min(map(fold.table.due_ms, came_due), default=None) if ready_ms is None else ready_ms
    return JobQueueView(
        settings.name,
        settings.kind.name.lower(),
        queue.queued,
        queue.due_calls(fold.now_ms, now_ms, came_due),
        queue.running,
        None if oldest_ms is None else moment_of(oldest_ms),
        None if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000,
        fold.workers_of(queue),
        queue.given_up,
        queue.is_suspended(now_ms),
        settings.max_parallel,
        settings.shown_rate,
        settings.merge,
        tuple(settings.topics),
        settings.parallel_percent,
        tuple(dict.fromkeys(map(_worker_name, older_workers(fold, queue)))),
    )


def job_schedule_view(schedule: Schedule) -> JobScheduleView:
    """A schedule."""
    return JobScheduleView(
        schedule.name,
        schedule.job.topic,
        schedule.job.key,
        schedule.cron,
        schedule.zone,
        schedule.missed.name.lower(),
        schedule.every_ms / 1000 if schedule.every_ms else None,
        moment_of(schedule.at_ms) if schedule.at_ms else None,
        None if schedule.next_ms is None else moment_of(schedule.next_ms),
        payload_value(schedule.job.payload),
    )
