"""Claims of a worker with the log: with a poll, or along with a report."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest
from mailboat.clock import SystemClock
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.source import Claimed, Offer
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.memory import MemoryJournal
from mailboat.model.jobs import JobId, JobResult, NewJob, Outcome, QueueDefined, QueueSettings
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS

OFFER = Offer("worker", 2, ("**",))


class Desk:
    """A worker with two slots and a backlog of six jobs."""

    def __init__(self) -> None:
        clock = ManualClock()
        journal = MemoryJournal(clock)
        self.source = LogSource(open_job_topic(journal), clock, random.Random(1), NoFailpoints())
        self.jobs = self.source.topic.add([NewJob("mail")] * 6)
        self.source.catch_up()

    def poll(self, *held: Claimed) -> list[Claimed]:
        return list(self.source.poll(OFFER, 2 - len(held), [each.call for each in held], 0.0).claimed)

    def report(self, *ended: Claimed, free: int) -> int:
        """Report calls; how many records that appended."""
        results = [JobResult(each.call.job, each.call.token, Outcome.OK) for each in ended]
        before = self.source.topic.next_offset
        assert not self.source.report(OFFER, results, (), free).lost
        return self.source.topic.next_offset - before


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    with closing(made.source):
        yield made


def jobs_of(calls: list[Claimed]) -> list[JobId]:
    return [job for call in calls for job in call.jobs]


def test_report_claims_the_next_jobs_in_the_same_append(desk: Desk) -> None:
    first = desk.poll()
    assert desk.report(*first, free=2) == 2
    before = desk.source.topic.next_offset
    second = desk.poll()
    assert jobs_of([*first, *second]) == desk.jobs[:4]
    assert desk.source.topic.next_offset == before, "the poll appended nothing"


def test_report_of_a_worker_that_stops_claims_nothing(desk: Desk) -> None:
    assert desk.report(*desk.poll(), free=0) == 1
    assert not desk.source.topic.fold.leases


def test_reports_before_a_poll_claim_no_more_than_the_slots(desk: Desk) -> None:
    first, second = desk.poll()
    desk.report(first, free=1)
    desk.report(second, free=2)  # as if the job that the first report claimed were not known
    assert len(desk.source.topic.fold.leases) == OFFER.slots
    assert jobs_of(desk.poll()) == desk.jobs[2:4]


def test_reported_and_claimed_jobs_are_given_beside_those_that_run(desk: Desk) -> None:
    first, second = desk.poll()
    desk.report(first, free=1)
    assert jobs_of(desk.poll(second)) == [desk.jobs[2]]


def test_rate_limited_job_starts_on_an_idle_log() -> None:
    clock = ManualClock()
    source = LogSource(open_job_topic(MemoryJournal(clock)), clock, random.Random(1), NoFailpoints())
    with closing(source):
        source.topic.append(QueueDefined(QueueSettings("mail", ["mail"], rate=1, rate_period_ms=2_000)))
        first, second = source.topic.add([NewJob("mail")] * 2)
        source.catch_up()
        (call,) = source.poll(OFFER, 2, (), 0.0).claimed
        source.report(OFFER, [JobResult(first, call.call.token, Outcome.OK)], ())
        assert not source.poll(OFFER, 2, (), 0.0).claimed
        clock.advance(2.1)
        (call,) = source.poll(OFFER, 2, (), 0.0).claimed
        assert call.call.job == second


def test_interrupt_during_an_append_ends_the_next_wait() -> None:
    clock = SystemClock()
    source = LogSource(open_job_topic(MemoryJournal(clock)), clock, random.Random(1), NoFailpoints())
    with closing(source):
        source.catch_up()
        source.poll(OFFER, 2, (), 0.0)
        source.interrupt()
        source.topic.add([NewJob("other")])  # reads the topic, which forgets the interrupt of the reader
        begin = clock.monotonic()
        source.poll(OFFER, 0, (), LONG_WAIT_SECONDS)
        assert clock.monotonic() - begin < PATIENCE_SECONDS
