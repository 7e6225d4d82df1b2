"""The operations on jobs over HTTP: each request as data, and a client that sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mailboat.api.job_control import JobFilter
from mailboat.api.job_orders import JobIds, JobOrder, JobsOrder, QueueOrder, QueueSuspendOrder, ScheduleOrder, TurnOrder
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
from mailboat.model.jobs import JobAction, JobId, NewJob, QueueSettings, Schedule, show_job_id

_PREFIX: Final = "/jobs"
_LEAVE_SECONDS: Final = 5.0
"""A worker that ends does not wait longer for an agent that does not answer: it is forgotten there after its lease."""


class HttpJobs:
    """`JobControl` of an agent, and what workers ask of it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def add(self, jobs: Sequence[NewJob]) -> Sequence[JobStateView]:
        order = JobsOrder(tuple(map(JobOrder.of, jobs)))
        return self._ask(Operation("POST", _PREFIX, tuple[JobStateView, ...], body=order))

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
        return self._ask(Operation("GET", _PREFIX, JobPage, query))

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
        return self._ask(Operation("PUT", _queue(settings.name), QueueChangeView, body=QueueOrder.of(settings)))

    def remove_queue(self, queue: str) -> QueueChangeView:
        return self._ask(Operation("DELETE", _queue(queue), QueueChangeView))

    def suspend(self, queue: str, seconds: float | None = None) -> QueueChangeView:
        order = QueueSuspendOrder(seconds)
        return self._ask(Operation("POST", f"{_queue(queue)}/suspend", QueueChangeView, body=order))

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
        order = ScheduleOrder.of(schedule)
        return self._ask(Operation("PUT", _schedule(schedule.name), JobScheduleView, body=order))

    def remove_schedule(self, schedule: str) -> JobScheduleView:
        return self._ask(Operation("DELETE", _schedule(schedule), JobScheduleView))

    def fire(self, schedule: str) -> JobStateView:
        return self._ask(Operation("POST", f"{_schedule(schedule)}/fire", JobStateView))

    # Workers

    def turn(self, worker: str, order: TurnOrder) -> TurnView:
        """Report calls that ended, renew leases, and claim calls."""
        path = f"{_worker(worker)}/turns"
        return self._ask(Operation("POST", path, TurnView, body=order, wait_seconds=order.wait_seconds))

    def leave(self, worker: str) -> None:
        """The worker ends."""
        self._ask(Operation("DELETE", _worker(worker), TurnView, answer_seconds=_LEAVE_SECONDS))

    def _on_jobs(self, verb: str, jobs: Sequence[JobId]) -> Sequence[JobStateView]:
        path = f"{_PREFIX}/commands/{verb}"
        return self._ask(Operation("POST", path, tuple[JobStateView, ...], body=JobIds.of(jobs)))


def _queue(name: str) -> str:
    return f"{_PREFIX}/queues/{quoted(name)}"


def _worker(name: str) -> str:
    return f"{_PREFIX}/workers/{quoted(name)}"


def _schedule(name: str) -> str:
    return f"{_PREFIX}/schedules/{quoted(name)}"
