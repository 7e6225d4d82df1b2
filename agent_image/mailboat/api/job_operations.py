"""The operations on jobs over HTTP: each request as data, and a client that sends them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mailboat.api.job_control import JobFilter
from mailboat.api.job_views import (
    JobDetailView,
    JobPage,
    JobQueueView,
    JobScheduleView,
    JobStateView,
    QueueChangeView,
    TurnView,
)
from mailboat.api.operations import Ask, Operation, quoted
from mailboat.model.jobs import (
    MAX_BATCH,
    JobAction,
    JobId,
    JobResult,
    NewJob,
    QueueSettings,
    Renewal,
    Schedule,
    Token,
    show_job_id,
)

_PREFIX: Final = "/jobs"
_LEAVE_SECONDS: Final = 5.0
"""A worker that ends does not wait longer for an agent that does not answer: it is forgotten there after its lease."""


class WorkerTurn(NamedTuple):
    """What a worker reports to an agent, and asks of it.

    Attributes:
        worker: Its id.
        slots: Calls that it makes at the same time.
        topics: Patterns of the topics that it takes.
        free: How many more calls it can make.
        held: The calls that it makes, and whether it was asked to stop each.
        results: Calls that ended.
        renewals: Leases that it still needs.
        wait_seconds: How long the agent may wait for calls; with results or renewals it does not wait.
        is_ending: Whether it ends its calls, and claims nothing further.
    """

    worker: str
    slots: int
    topics: Sequence[str]
    free: int
    held: Mapping[tuple[Token, JobId], bool]
    results: Sequence[JobResult] = ()
    renewals: Sequence[Renewal] = ()
    wait_seconds: float = 0.0
    is_ending: bool = False


class HttpJobs:
    """`JobControl` of an agent, and what workers ask of it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def add(self, jobs: Sequence[NewJob]) -> Sequence[JobStateView]:
        body = {"jobs": [_job_body(job) for job in jobs]}
        return self._ask(Operation("POST", _PREFIX, tuple[JobStateView, ...], body=body))

    def list_jobs(self, wanted: JobFilter, page: str | None = None, max_items: int = 100) -> JobPage:
        query = {
            "state": wanted.state,
            "queue": wanted.queue,
            "topic": wanted.topic,
            "member": list(wanted.members),
            "older_seconds": wanted.older_seconds,
            "page": page,
            "max_items": max_items,
        }
        return self._ask(Operation("GET", _PREFIX, JobPage, _given(query)))

    def show(self, job: JobId) -> JobDetailView:
        return self._ask(Operation("GET", f"{_PREFIX}/{show_job_id(job)}", JobDetailView))

    def command(self, action: JobAction, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        return self._on_jobs(action.name.lower(), jobs)

    def retry(self, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        return self._on_jobs("retry", jobs)

    def queues(self) -> Sequence[JobQueueView]:
        return self._ask(Operation("GET", f"{_PREFIX}/queues", tuple[JobQueueView, ...]))

    def queue(self, queue: str) -> JobQueueView:
        return self._ask(Operation("GET", _queue(queue), JobQueueView))

    def set_queue(self, settings: QueueSettings) -> QueueChangeView:
        # Each member is written out, here and for jobs: agents refuse members that they do not know, so a new field of
        # the model may only be sent where it is set.
        body = {
            "topics": list(settings.topics),
            "kind": settings.kind.name.lower(),
            "max_parallel": settings.max_parallel,
            "rate": settings.rate,
            "rate_period_ms": settings.rate_period_ms,
            "merge": settings.merge,
            "merge_within_ms": settings.merge_within_ms,
            "retries": settings.retries,
            "retry_delay_ms": settings.retry_delay_ms,
            "max_retry_delay_ms": settings.max_retry_delay_ms,
            "history_ms": settings.history_ms,
            "parallel_percent": settings.parallel_percent,
        }
        return self._ask(Operation("PUT", _queue(settings.name), QueueChangeView, body=body))

    def remove_queue(self, queue: str) -> QueueChangeView:
        return self._ask(Operation("DELETE", _queue(queue), QueueChangeView))

    def suspend(self, queue: str, seconds: float | None = None) -> QueueChangeView:
        body = {"seconds": seconds}
        return self._ask(Operation("POST", f"{_queue(queue)}/suspend", QueueChangeView, body=body))

    def resume(self, queue: str) -> QueueChangeView:
        return self._ask(Operation("POST", f"{_queue(queue)}/resume", QueueChangeView))

    def clear(self, queue: str) -> QueueChangeView:
        return self._ask(Operation("POST", f"{_queue(queue)}/clear", QueueChangeView))

    # Schedules

    def schedules(self) -> Sequence[JobScheduleView]:
        return self._ask(Operation("GET", f"{_PREFIX}/schedules", tuple[JobScheduleView, ...]))

    def schedule(self, schedule: str) -> JobScheduleView:
        return self._ask(Operation("GET", _schedule(schedule), JobScheduleView))

    def set_schedule(self, schedule: Schedule) -> JobScheduleView:
        times = {"cron": schedule.cron, "zone": schedule.zone, "every_ms": schedule.every_ms, "at_ms": schedule.at_ms}
        body = {"job": _work_body(schedule.job), **times, "missed": schedule.missed.name.lower()}
        return self._ask(Operation("PUT", _schedule(schedule.name), JobScheduleView, body=body))

    def remove_schedule(self, schedule: str) -> JobScheduleView:
        return self._ask(Operation("DELETE", _schedule(schedule), JobScheduleView))

    def fire(self, schedule: str) -> JobStateView:
        return self._ask(Operation("POST", f"{_schedule(schedule)}/fire", JobStateView))

    # Workers

    def turn(self, turn: WorkerTurn) -> TurnView:
        """Report calls that ended, renew leases, and claim calls."""
        body = {
            "slots": turn.slots,
            "topics": list(turn.topics),
            # negative while a call that was given twice is counted twice; one record carries at most MAX_BATCH
            "free": min(max(0, turn.free), MAX_BATCH),
            "held": [
                {"job": show_job_id(job), "token": token, "stop_seen": seen} for (token, job), seen in turn.held.items()
            ],
            "results": [
                {
                    "job": show_job_id(each.job),
                    "token": each.token,
                    "outcome": each.outcome.name.lower(),
                    "delay_seconds": None if each.delay_ms is None else each.delay_ms / 1000,
                    "message": each.message,
                }
                for each in turn.results
            ],
            "renewals": [
                {"job": show_job_id(each.job), "token": each.token, "progress": each.progress.decode(errors="replace")}
                for each in turn.renewals
            ],
            "wait_seconds": turn.wait_seconds,
            # only then: an older agent refuses a field that it does not know
            **({"ending": True} if turn.is_ending else {}),
        }
        path = f"{_worker(turn.worker)}/turns"
        return self._ask(Operation("POST", path, TurnView, body=body, wait_seconds=turn.wait_seconds))

    def leave(self, worker: str) -> None:
        """The worker ends."""
        self._ask(Operation("DELETE", _worker(worker), TurnView, answer_seconds=_LEAVE_SECONDS))

    def _on_jobs(self, verb: str, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        body = {"jobs": [show_job_id(job) for job in jobs]}
        return self._ask(Operation("POST", f"{_PREFIX}/commands/{verb}", tuple[JobStateView, ...], body=body))


def _job_body(job: NewJob) -> dict[str, Any]:
    return {**_work_body(job), "due_ms": job.due_ms, "delay_ms": job.delay_ms, "request_id": job.request_id}


def _work_body(job: NewJob) -> dict[str, Any]:
    """What each firing of a schedule has, too."""
    return {
        "topic": job.topic,
        "payload": base64.b64encode(job.payload).decode(),
        "key": job.key,
        "priority": job.priority.name.lower(),
        "retries": job.retries,
        "retry_delay_ms": job.retry_delay_ms,
        "lease_ms": job.lease_ms,
        "unique": job.unique,
        "keep": job.keep,
    }


def _queue(name: str) -> str:
    return f"{_PREFIX}/queues/{quoted(name)}"


def _worker(name: str) -> str:
    return f"{_PREFIX}/workers/{quoted(name)}"


def _schedule(name: str) -> str:
    return f"{_PREFIX}/schedules/{quoted(name)}"


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in query.items() if value not in (None, [])}
