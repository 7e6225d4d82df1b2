"""Claims of a worker with the log: with a poll, or along with a report."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest
from mailboat.clock import SystemClock
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.fold import JobFold
from mailboat.jobs.leases import RULES
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.selection import (
    Proposal,
    checkpoint_writer,
    older_workers,
    plan_claims,
    waits_for,
    why_pending,
)
from mailboat.jobs.source import ClaimedCall, Offer
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.memory import MemoryJournal
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import (
    AttemptOutcome,
    JobId,
    JobRecord,
    JobResult,
    JobsAdded,
    JobsClaimed,
    JobsFinished,
    JobState,
    LeasesRenewed,
    NewJob,
    QueueDefined,
    QueueKind,
    QueueSettings,
    Renewal,
    WorkerSeen,
    offset_of,
)
from mailboat.model.messages import JOB_TOPIC
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS
from mailboat.wire.job_records import decode_job_record

OFFER = Offer("worker", 2, ("**",))


class Desk:
    """A worker with two slots and a backlog of six jobs."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal(self.clock)
        self.source = LogSource(open_job_topic(self.journal), self.clock, random.Random(1), NoFailpoints())
        self.jobs = self.source.topic.add([NewJob("mail")] * 6)
        self.source.catch_up()

    def poll(self, *held: ClaimedCall) -> list[ClaimedCall]:
        return list(self.source.poll(OFFER, 2 - len(held), [each.call for each in held], 0.0).claimed)

    def see(self, *records: JobRecord) -> None:
        """Append records, and read them."""
        self.source.topic.append(*records)
        self.source.catch_up()

    def report(self, *ended: ClaimedCall, free: int) -> int:
        """Report calls; how many records that appended."""
        results = [JobResult(each.call.job, each.call.token, AttemptOutcome.OK) for each in ended]
        before = self.source.topic.next_offset
        assert not self.source.report(OFFER, results, (), free).lost
        return self.source.topic.next_offset - before


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    with closing(made.source):
        yield made


def jobs_of(calls: list[ClaimedCall]) -> list[JobId]:
    return [job for call in calls for job in call.jobs]


def test_report_claims_the_next_jobs_in_the_same_append(desk: Desk) -> None:
    first = desk.poll()
    assert desk.report(*first, free=2) == 2
    before = desk.source.topic.next_offset
    second = desk.poll()
    assert jobs_of([*first, *second]) == desk.jobs[:4]
    assert desk.source.topic.next_offset == before, "the poll appended nothing"


def test_worker_of_a_newer_version_claims_nothing_while_an_older_one_is_live(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.see(WorkerSeen("old", 1, ("mail",)))  # as a version before the number appends it
    assert not desk.poll()
    assert not desk.poll()
    fold = desk.source.topic.fold
    assert older_workers(fold, fold.queues["default"]) == ["old"]
    text = "worker worker claims no jobs from the queues of these workers of an older version until they stop: old"
    assert caplog.text.count(text) == 1
    assert plan_claims(fold, "old", 1).preferred == [[desk.jobs[0]]], "the older one goes on"
    (fax,) = desk.source.topic.add([NewJob("fax")])
    text = "its workers claim nothing from queue default while one of an older version serves it"
    assert why_pending(fold, fax, fold.now_ms) == text, "limits and order of a queue are those of all its topics"
    desk.see(WorkerSeen("old", 0, ()))
    assert jobs_of(desk.poll()) == desk.jobs[:2]
    assert not older_workers(fold, fold.queues["default"])


def test_older_worker_holds_up_only_the_queues_that_it_serves(desk: Desk) -> None:
    desk.see(QueueDefined(QueueSettings("fax", ["fax"])), QueueDefined(QueueSettings("print", ["print.*"])))
    (fax,) = desk.source.topic.add([NewJob("fax")])
    page, poster = desk.source.topic.add([NewJob("print.page"), NewJob("print.poster")])
    desk.see(WorkerSeen("old", 1, ("print.page",)))
    fold = desk.source.topic.fold
    assert jobs_of(desk.poll()) == [fax], "the default queue may hold jobs of any topic"
    assert "older version serves it" in why_pending(fold, poster, fold.now_ms)
    assert why_pending(fold, page, fold.now_ms) == "starts next", "the older one takes it"
    assert [name for name, queue in fold.queues.items() if older_workers(fold, queue)] == ["default", "print"]
    desk.see(WorkerSeen("worker", 2, ("fax",), RULES))
    assert not waits_for(fold, "worker"), "it takes no job of the queues that it shares with the older one"


def test_worker_that_goes_on_with_other_queues_warns_once_of_older_ones(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.see(QueueDefined(QueueSettings("fax", ["fax"])), WorkerSeen("old", 1, ("mail",)))
    assert not desk.poll()
    for _ in range(3):
        (fax,) = desk.source.topic.add([NewJob("fax")])
        calls = desk.poll() or desk.poll()
        assert jobs_of(calls) == [fax]
        desk.report(*calls, free=2)
        assert not desk.poll()
    assert caplog.text.count("until they stop: old") == 1
    desk.see(WorkerSeen("old", 0, ()))
    desk.report(*desk.poll(), free=2)
    desk.report(*desk.poll(), free=2)
    desk.report(*desk.poll(), free=2)
    assert not desk.poll()
    desk.see(WorkerSeen("older", 1, ("mail",)))
    assert not desk.poll()
    assert caplog.text.count("until they stop: older") == 1


def test_job_of_other_patterns_than_its_queue_has_now_names_the_older_version() -> None:
    fold = JobFold()
    records: list[JobRecord] = [
        QueueDefined(QueueSettings("print", ["print.*"])),
        JobsAdded([NewJob("print.page")]),
        QueueDefined(QueueSettings("print", ["fax"])),
        WorkerSeen("old", 1, ("fax",)),
        WorkerSeen("worker", 1, ("print.page",), RULES),
    ]
    for offset, record in enumerate(records):
        fold.apply(Offset(offset), 1_000, record)
    (page,) = fold.table.all()
    assert not plan_claims(fold, "worker", 1).preferred
    assert "older version serves it" in why_pending(fold, page, fold.now_ms)
    assert older_workers(fold, fold.queues["print"]) == ["old"]
    fold.apply(Offset(len(records)), 1_000, WorkerSeen("oldest", 1, ("print.*",)))
    assert plan_claims(fold, "oldest", 1).preferred == [[page]]
    assert why_pending(fold, page, fold.now_ms) == "starts next"


def test_jobs_of_an_older_workers_topic_are_left_to_it_in_every_queue(desk: Desk) -> None:
    desk.see(QueueDefined(QueueSettings("print", ["print.*"])))
    desk.source.topic.add([NewJob("print.page")])
    (poster,) = desk.source.topic.add([NewJob("print.poster")])
    desk.see(QueueDefined(QueueSettings("print", ["print.poster"])), WorkerSeen("old", 1, ("print.page",)))
    assert jobs_of(desk.poll()) == [poster], "the page stays in the queue that it was added to"
    fold = desk.source.topic.fold
    assert older_workers(fold, fold.queues["print"]) == ["old"]
    desk.see(WorkerSeen("old", 1, ("print.film",)))
    assert not older_workers(fold, fold.queues["print"]), "it takes no job of the queue"


def test_worker_that_ends_its_calls_holds_up_no_newer_one(desk: Desk) -> None:
    """Its results and renewals count as before, for those that read the log and those that begin at a checkpoint."""
    desk.see(WorkerSeen("old", 2, ("mail",)), JobsClaimed.of("old", [[desk.jobs[0]], [desk.jobs[1]]]))
    assert not desk.poll()
    topic = desk.source.topic
    desk.see(WorkerSeen("old", 2, ()))  # as a worker appends it that ends
    topic.write_checkpoint()
    with closing(open_job_topic(desk.journal)) as again:
        assert jobs_of(desk.poll()) == desk.jobs[2:4]
        tokens = [topic.fold.leases[job].token for job in desk.jobs[:2]]
        desk.clock.advance(20.0)
        desk.see(LeasesRenewed.of([Renewal(desk.jobs[0], tokens[0])]))
        desk.clock.advance(20.0)
        desk.see(
            JobsFinished.of(
                [JobResult(job, token, AttemptOutcome.OK) for job, token in zip(desk.jobs, tokens, strict=False)]
            )
        )
        again.follow_to(Offset(topic.next_offset - 1))
        assert again.fold.capture(again.next_offset) == topic.fold.capture(topic.next_offset)
    states = [topic.fold.table.state(job) for job in desk.jobs[:2]]
    assert states == [None, JobState.QUEUED], "one was renewed, the lease of the other is over"


def test_checkpoints_are_written_by_a_worker_of_the_newest_version(desk: Desk) -> None:
    assert checkpoint_writer(desk.source.topic.fold) == ""
    desk.see(*(WorkerSeen(name, 1, ("mail",), rules) for name, rules in (("a", 0), ("b", RULES), ("c", RULES))))
    assert checkpoint_writer(desk.source.topic.fold) == "b"


def test_killed_worker_of_an_older_version_holds_up_newer_ones_for_two_minutes_at_most(desk: Desk) -> None:
    desk.source.topic.append(WorkerSeen("old", 1, ("mail",)))
    desk.source.catch_up()
    assert not desk.poll()
    claimed: list[ClaimedCall] = []
    waited = 0
    while not claimed:  # nothing is appended but what the newer worker says of itself
        desk.clock.advance(1.0)
        waited += 1
        claimed = desk.poll() or desk.poll()
    assert jobs_of(claimed) == desk.jobs[:2]
    assert 90 <= waited <= 120


def test_version_of_a_worker_is_in_the_checkpoint(desk: Desk) -> None:
    desk.poll()
    desk.source.topic.append(WorkerSeen("old", 1, ("mail",)))
    desk.source.catch_up()
    desk.source.topic.write_checkpoint()
    with closing(open_job_topic(desk.journal)) as again:
        assert (again.fold.workers["worker"].rules, again.fold.workers["old"].rules) == (RULES, 0)
        assert older_workers(again.fold, again.fold.queues["default"]) == ["old"]


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
        source.report(OFFER, [JobResult(first, call.call.token, AttemptOutcome.OK)], ())
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


@pytest.mark.parametrize(
    ("settings", "others", "workers"),
    [
        pytest.param(QueueSettings("all", ["**"]), 1_100, 1, id="many"),
        pytest.param(QueueSettings("all", ["**"], max_parallel=1), 2, 1, id="limit"),
        pytest.param(QueueSettings("all", ["**"], max_parallel=1), 2, 2, id="limit-and-two-workers"),
        pytest.param(QueueSettings("all", ["**"], QueueKind.FAIR, max_parallel=1), 2, 1, id="fair"),
        pytest.param(QueueSettings("all", ["**"], max_parallel=1, merge=2), 2, 1, id="merge"),
    ],
)
def test_jobs_that_no_worker_takes_hold_up_no_other_topic(settings: QueueSettings, others: int, workers: int) -> None:
    clock = ManualClock()
    source = LogSource(open_job_topic(MemoryJournal(clock)), clock, random.Random(1), NoFailpoints())
    with closing(source):
        source.topic.append(QueueDefined(settings))
        for first in range(0, others, 100):
            source.topic.add([NewJob("fax", key=f"k{first + each}") for each in range(min(100, others - first))])
        (mail,) = source.topic.add([NewJob("mail", key="mail")])
        source.catch_up()
        offers = [Offer(f"worker-{each}", 1, ("mail",)) for each in range(workers)]
        claimed = [call for _ in range(2) for offer in offers for call in source.poll(offer, 1, (), 0.0).claimed]
        clock.advance(1.0)  # beyond the time in which a call is left to the preferred worker
        claimed += [call for offer in offers for call in source.poll(offer, 1, (), 0.0).claimed]
        assert {job for call in claimed for job in call.jobs} == {mail}


def test_a_worker_that_leaves_gives_back_a_claim_that_it_has_not_read(desk: Desk) -> None:
    desk.source.poll(OFFER, 0, (), 0.0)
    desk.source.topic.append(JobsClaimed.of(OFFER.worker, [[desk.jobs[0]]]))
    desk.source.leave(OFFER.worker)
    desk.source.catch_up()
    fold = desk.source.topic.fold
    assert (fold.table.state(desk.jobs[0]), fold.table.tries(desk.jobs[0])) == (JobState.QUEUED, 0)


@pytest.mark.parametrize("free", [0, 2])
def test_calls_without_a_payload_in_the_topic_end_by_one_record(desk: Desk, free: int) -> None:
    desk.poll()
    desk.source.topic.write_checkpoint()
    desk.journal.truncate(JOB_TOPIC, Offset(offset_of(desk.jobs[-1]) + 1))
    again = LogSource(open_job_topic(desk.journal), desk.clock, random.Random(1), NoFailpoints())
    with closing(again):
        again.catch_up()
        before = again.topic.next_offset
        assert not again.poll_without_reading(OFFER, free, ()).claimed
        assert not again.poll_without_reading(OFFER, 0, ()).claimed
        again.catch_up()
        end = again.topic.next_offset
        records = [desk.journal.record_at(JOB_TOPIC, Offset(offset)) for offset in range(before, end)]
        kinds = [type(decode_job_record(record.headers, record.value)) for record in records if record is not None]
        assert kinds.count(JobsFinished) == 1 + bool(free)
        states = [again.topic.fold.table.state(job) for job in desk.jobs[: 2 + free]]
        assert set(states) == {JobState.ERROR}


def test_a_worker_whose_claims_are_void_waits_longer_each_time() -> None:
    """Whatever makes a proposal that no fold accepts: the topic must not fill with claims."""
    clock, proposed = ManualClock(), list[JobId]()

    def plan(fold: JobFold, worker: str, free: int) -> Proposal:
        return Proposal([proposed], ()) if proposed else plan_claims(fold, worker, free)

    source = LogSource(open_job_topic(MemoryJournal(clock)), clock, random.Random(1), NoFailpoints(), plan)
    with closing(source):
        (later,) = source.topic.add([NewJob("mail", delay_ms=60_000)])
        source.catch_up()
        source.poll(OFFER, 0, (), 0.0)  # announces the worker
        proposed.append(later)
        before = source.topic.next_offset
        for _ in range(200):
            source.poll(OFFER, 2, (), 0.0)
        assert source.topic.next_offset - before == 1
        for _ in range(200):
            clock.advance(0.1)
            source.poll(OFFER, 2, (), 0.0)
        assert source.topic.next_offset - before < 12, "20 s of pauses that double"
        proposed.clear()
        (job,) = source.topic.add([NewJob("mail")])
        clock.advance(30.0)
        source.poll(OFFER, 2, (), 0.0)
        assert job in jobs_of(list(source.poll(OFFER, 2, (), 0.0).claimed))
