"""Why a job is where it is, in a sentence for people."""

from __future__ import annotations

from collections.abc import Iterator

from mailboat.clock import moment_of
from mailboat.jobs.fold import JobFold
from mailboat.model.jobs import JobId, JobState, show_job_id

UNASSIGNED = "unassigned"


def shown_state(fold: JobFold, job: JobId) -> str:
    """The state as users read it: a queued job that no live worker takes is `unassigned`."""
    state = fold.table.state(job)
    if state is None:
        return JobState.DROPPED.label
    if state is JobState.QUEUED and not fold.is_served(fold.topic(job)):
        return UNASSIGNED
    return state.label


def position(fold: JobFold, job: JobId) -> int | None:
    """How many calls of the queue are ready before this job; None for a job that is not ready."""
    for place, group in enumerate(fold.queue(job).ready(fold.now_ms)):
        if job in group:
            return place
    return None


def why_pending(fold: JobFold, job: JobId) -> str:
    """What a queued job waits for, the first of the reasons that hold; empty for a job that is not queued."""
    return next(_reasons(fold, job), "") if fold.table.state(job) is JobState.QUEUED else ""


def _reasons(fold: JobFold, job: JobId) -> Iterator[str]:
    queue, topic, now_ms = fold.queue(job), fold.topic(job), fold.now_ms
    name = queue.settings.name
    if queue.is_suspended(now_ms):
        yield f"queue {name} is suspended"
    if fold.table.due_ms(job) > now_ms:
        tries = fold.table.tries(job)
        moment = moment_of(fold.table.due_ms(job)).isoformat(timespec="seconds")
        yield f"due at {moment}" if not tries else f"retry at {moment} after {tries} failed attempts"
    if not fold.is_served(topic):
        yield f"no live worker takes the topic {topic}"
    before = queue.before(job)
    if before is not None:
        yield f"waits for job {show_job_id(before)} of the same key"
    if not queue.room(now_ms):
        if queue.settings.max_parallel == queue.running:
            yield f"queue {name} runs {queue.running} of {queue.settings.max_parallel} calls"
        yield f"queue {name} started {queue.settings.rate} calls within {queue.settings.rate_period_ms / 1000:g} s"
    place = position(fold, job)
    if place is None:
        yield f"waits up to {queue.settings.merge_within_ms / 1000:g} s for jobs to merge with"
    yield "starts next" if place == 0 else f"behind {place} ready calls of queue {name}"
