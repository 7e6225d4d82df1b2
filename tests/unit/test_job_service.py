"""Jobs as users see them, from the job topic: counts of queues."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from mailboat.control.job_service import JobService
from mailboat.journal.memory import MemoryJournal
from mailboat.model.jobs import JobAction, NewJob, QueueSettings, parse_job_id
from mailboat.testing.clocks import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def jobs(clock: ManualClock) -> Iterator[JobService]:
    service = JobService(MemoryJournal(clock).another_handle, clock, random.Random(1))
    yield service
    service.close()


def test_due_counts_jobs_whose_time_has_come_also_on_an_idle_log(jobs: JobService, clock: ManualClock) -> None:
    jobs.set_queue(QueueSettings("mail", ("mail",)))
    jobs.add([NewJob("mail"), NewJob("mail", delay_ms=60_000), NewJob("mail", delay_ms=60_000)])
    last = parse_job_id(jobs.add([NewJob("mail", delay_ms=120_000)])[0].job)
    assert (jobs.queue("mail").queued, jobs.queue("mail").due) == (4, 1)
    clock.advance(60.0)
    assert (jobs.queue("mail").queued, jobs.queue("mail").due, jobs.queue("default").due) == (4, 3, 0)
    assert jobs.queue("mail").oldest_seconds == 60.0
    jobs.command(JobAction.REMOVE, [last])
    clock.advance(60.0)
    assert (jobs.queue("mail").queued, jobs.queue("mail").due) == (3, 3)
