"""Jobs as users see them, from the job topic: counts of queues."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import pytest
from mailboat.api.job_control import JobFilter
from mailboat.control.job_service import JobService
from mailboat.errors import JobLogIncompleteError, JobLogReplacedError, UnknownRequiredFeatureError, UsageError
from mailboat.jobs.leases import RULES
from mailboat.jobs.progress import AttemptProgress, encode_progress
from mailboat.jobs.source import CallId, Offer, PollResult
from mailboat.jobs.topic import JobTopic, open_job_topic
from mailboat.journal.memory import MemoryJournal, MemoryReader
from mailboat.journal.port import NewRecord, ReadLimits, RecordBatch, Start
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.jobs import (
    AttemptOutcome,
    CheckpointPart,
    JobAction,
    JobMissingError,
    JobResult,
    JobsAdded,
    JobsCommanded,
    JobsFinished,
    JobState,
    NewJob,
    QueueKind,
    QueueSettings,
    Renewal,
    Schedule,
    Token,
    WorkerSeen,
    parse_job_id,
    show_job_id,
)
from mailboat.model.messages import JOB_TOPIC
from mailboat.telemetry.families import Samples
from mailboat.telemetry.job_metrics import JobMetrics
from mailboat.testing.clocks import ManualClock
from mailboat.wire.headers import EARLIER_JOB_RECORDS, JobLogOutdatedError, headers_for
from mailboat.wire.job_records import encode_checkpoint, encode_job_record


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> MemoryJournal:
    return MemoryJournal(clock)


@pytest.fixture
def jobs(log: MemoryJournal, clock: ManualClock) -> Iterator[JobService]:
    service = JobService(log.another_handle, clock, random.Random(1))
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
    jobs.suspend("mail")
    assert (jobs.queue("mail").queued, jobs.queue("mail").due) == (4, 0), "workers could do nothing"
    jobs.resume("mail")
    jobs.command(JobAction.REMOVE, [last])
    clock.advance(60.0)
    assert (jobs.queue("mail").queued, jobs.queue("mail").due) == (3, 3)


@pytest.mark.parametrize(
    ("settings", "keys", "expected"),
    [
        (QueueSettings("q", ("q",)), ["a", "a", "b", ""], (4, 3)),
        (QueueSettings("q", ("q",), max_parallel=2), ["a", "a", "b", ""], (4, 3)),
        (QueueSettings("q", ("q",), QueueKind.ORDERED), ["a", "a", "b", ""], (1, 0)),
        (QueueSettings("q", ("q",), QueueKind.KEYED), ["a", "a", "b", "", ""], (4, 3)),
        (QueueSettings("q", ("q",), QueueKind.FAIR), ["a", "a", "b", ""], (4, 3)),
        (QueueSettings("q", ("q",), merge=2), ["a", "a", "a", "b"], (3, 2)),
        (QueueSettings("q", ("q",), merge=256), ["a", "a", "b", "c"], (3, 2)),
        (QueueSettings("q", ("q",), rate=3, rate_period_ms=10_000), ["a", "a", "b", ""], (3, 2)),
    ],
)
def test_due_counts_the_calls_that_order_and_rate_let_start(
    settings: QueueSettings, keys: Sequence[str], expected: tuple[int, int], jobs: JobService
) -> None:
    jobs.set_queue(settings)
    jobs.add([NewJob("q", key=key) for key in keys])
    before = jobs.queue("q").due
    offer = Offer("w-1", 1, ("**",))
    assert [1 for _ in range(2) if jobs.poll(offer, 1, ()).claimed], "the first call starts"
    assert (before, jobs.queue("q").due) == expected


@pytest.mark.parametrize("kind", [QueueKind.ORDERED, QueueKind.KEYED])
def test_due_counts_a_key_once_whose_jobs_came_due_on_an_idle_log(
    kind: QueueKind, jobs: JobService, clock: ManualClock
) -> None:
    jobs.set_queue(QueueSettings("q", ("q",), kind))
    jobs.add([NewJob("q", key="a"), *[NewJob("q", key=key, delay_ms=60_000) for key in ("a", "b", "b")]])
    assert jobs.queue("q").due == 1
    clock.advance(60.0)
    assert jobs.queue("q").due == (1 if kind is QueueKind.ORDERED else 2)


def test_a_job_that_is_due_later_is_unassigned_only_then(jobs: JobService, clock: ManualClock) -> None:
    (added,) = jobs.add([NewJob("mail", delay_ms=60_000)])
    assert (added.state, added.reason) == ("queued", "due at 2026-01-01T00:01:00+00:00")
    clock.advance(60.0)
    shown = jobs.show(parse_job_id(added.job)).view
    assert (shown.state, shown.reason) == ("unassigned", "no live worker takes the topic mail")
    assert [each.job for each in jobs.list_jobs(JobFilter(state="unassigned")).items] == [added.job]


def test_j25_a_job_is_unassigned_until_a_worker_takes_its_topic(jobs: JobService) -> None:
    (added,) = jobs.add([NewJob("mail.send")])
    assert (added.state, added.reason) == ("unassigned", "no live worker takes the topic mail.send")
    jobs.poll(Offer("w-1", 1, ("purge.*",)), 1, ())
    assert jobs.show(parse_job_id(added.job)).view.state == "unassigned"
    offer = Offer("w-2", 1, ("mail.*",))
    claimed = [each for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed]
    assert jobs.show(parse_job_id(added.job)).view.state == "active"
    assert {each.call.job for each in claimed} == {parse_job_id(added.job)}


def test_worker_over_http_counts_with_the_version_of_its_agent(jobs: JobService, log: MemoryJournal) -> None:
    # The agent's fold decides for it: what version the worker's own process has does not matter.
    jobs.add([NewJob("mail.send")])
    jobs.poll(Offer("w-1", 1, ("mail.*",)), 1, ())
    with closing(open_job_topic(log)) as topic:
        topic.follow()
        assert topic.fold.workers["w-1"].rules == RULES


def test_calls_of_a_worker_that_leaves_are_queued_again_at_once(jobs: JobService) -> None:
    """Calls of an answer that was lost, and of a merged group, too; the attempt does not count."""
    jobs.set_queue(QueueSettings("q", ("merged",), merge=2))
    jobs.add([NewJob("work")] * 3 + [NewJob("merged", key="k")] * 2)
    for name in ("w-1", "w-2"):
        calls = {each.call for _ in range(2) for each in jobs.poll(Offer(name, 8, ("**",)), 8, ()).claimed}
        assert (len(calls), jobs.queue("default").active) == (4, 3)
        (kept, *lost) = sorted(calls)
        assert jobs.report(Offer(name, 8, ("**",)), [], [Renewal(kept.job, kept.token)]).lost == []
        jobs.leave(name)
        shown = jobs.list_jobs(JobFilter()).items
        assert [(each.state, each.tries) for each in shown] == [("unassigned", 0)] * 5
        assert jobs.report(Offer(name, 8, ("**",)), [], [Renewal(call.job, call.token) for call in lost]).lost
    assert jobs.queue("default").active == 0


def test_a_stop_of_one_job_of_a_merged_call_names_all_that_it_ends(jobs: JobService) -> None:
    jobs.set_queue(QueueSettings("q", ("merged",), merge=2))
    first, second = (each.job for each in jobs.add([NewJob("merged", key="k")] * 2))
    offer = Offer("w-1", 1, ("**",))
    (call,) = {each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed}
    stopped = jobs.command(JobAction.STOP, [parse_job_id(second)])
    assert [(each.job, each.stop_requested) for each in stopped] == [(first, True), (second, True)]
    jobs.report(offer, [JobResult(call.job, call.token, AttemptOutcome.FAIL)], [])
    assert [each.state for each in jobs.list_jobs(JobFilter()).items] == ["stopped", "stopped"]


def test_j29_removed_jobs_are_gone_and_a_retry_is_a_new_job(jobs: JobService, clock: ManualClock) -> None:
    removed, failed = (parse_job_id(each.job) for each in jobs.add([NewJob("mail"), NewJob("mail", b'{"q": "it\'s"}')]))
    assert jobs.command(JobAction.REMOVE, [removed])[0].state == "ended"
    with pytest.raises(JobMissingError):
        jobs.command(JobAction.REMOVE, [removed])
    offer = Offer("w-1", 1, ("**",))
    (call, *_) = [each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed]
    jobs.report(offer, [JobResult(call.job, call.token, AttemptOutcome.CANCEL, None, "no")], [])
    assert [each.state for each in jobs.list_jobs(JobFilter(members=("q=it's",))).items] == ["error"]
    again = jobs.show(parse_job_id(jobs.retry([failed])[0].job))
    assert (again.data, again.view.tries, again.view.job != jobs.show(failed).view.job) == ({"q": "it's"}, 0, True)


def test_jobs_that_exceed_a_record_together_are_retried_at_once(jobs: JobService) -> None:
    added = [job for _ in range(2) for job in jobs.add([NewJob("mail", b"x" * 8_192)] * 100)]
    ids = [parse_job_id(each.job) for each in added]
    jobs.command(JobAction.STOP, ids)
    again = jobs.retry(ids)
    assert (len({each.job for each in again}), {each.state for each in again}) == (200, {"unassigned"})


def test_job_that_waits_for_a_retry_shows_why_the_attempt_failed(jobs: JobService) -> None:
    job = parse_job_id(jobs.add([NewJob("mail")])[0].job)
    offer = Offer("w-1", 1, ("**",))
    (call,) = {each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed}
    jobs.report(offer, [JobResult(job, call.token, AttemptOutcome.FAIL, 2_000, "relay answers 503")], [])
    (shown,) = jobs.list_jobs(JobFilter()).items
    assert shown.reason == "retry at 2026-01-01T00:00:02+00:00 after 1 failed attempt: relay answers 503"


def test_each_job_of_a_merged_call_shows_why_it_failed(jobs: JobService) -> None:
    jobs.set_queue(QueueSettings("q", ("merged",), merge=2))
    jobs.add([NewJob("merged", key="k")] * 2)
    offer = Offer("w-1", 1, ("**",))
    (call,) = {each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed}
    jobs.report(offer, [JobResult(call.job, call.token, AttemptOutcome.FAIL, None, "relay answers 503")], [])
    assert [each.reason.endswith(": relay answers 503") for each in jobs.list_jobs(JobFilter()).items] == [True, True]


def test_a_job_that_succeeded_shows_no_failure(jobs: JobService) -> None:
    jobs.add([NewJob("mail", keep=True)])
    offer = Offer("w-1", 1, ("**",))
    for outcome, message in ((AttemptOutcome.FAIL, "relay answers 503"), (AttemptOutcome.OK, "")):
        (call,) = {each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed}
        jobs.report(offer, [JobResult(call.job, call.token, outcome, 0, message)], [])
    assert [(each.state, each.reason) for each in jobs.list_jobs(JobFilter()).items] == [("succeeded", "")]


def test_the_history_is_listed_by_state_topic_and_age(jobs: JobService, clock: ManualClock) -> None:
    offer = Offer("w-1", 1, ("**",))
    jobs.add([NewJob("mail.a"), NewJob("mail.b", keep=True), NewJob("purge")])
    for outcome in (AttemptOutcome.CANCEL, AttemptOutcome.OK, AttemptOutcome.CANCEL):
        claimed = jobs.poll(offer, 1, ()).claimed or jobs.poll(offer, 1, ()).claimed
        call = claimed[0].call
        jobs.report(offer, [JobResult(call.job, call.token, outcome, None)], [])
        clock.advance(3_600.0)
    queued = jobs.add([NewJob("mail.a")])[0].job

    def listed(state: str | None = None, topic: str | None = None, hours: float | None = None) -> list[str]:
        older = None if hours is None else hours * 3_600
        found = jobs.list_jobs(JobFilter(state, topic=topic, older_seconds=older)).items
        assert all((job.ended_at is None) is (job.job == queued) for job in found)
        return [job.topic for job in found]

    assert listed(hours=0.5) == ["mail.a", "mail.b", "purge"]
    assert listed(hours=1.5) == ["mail.a", "mail.b"]
    assert listed("error", hours=0.5) == ["mail.a", "purge"]
    assert listed("error", "mail.*", 2.5) == ["mail.a"]
    assert listed(topic="mail.*") == ["mail.a", "mail.b", "mail.a"]


def test_a_worker_that_reports_and_ends_gets_no_further_call(jobs: JobService) -> None:
    jobs.add([NewJob("mail"), NewJob("mail")])
    offer = Offer("w-1", 1, ("**",))
    (call,) = {each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed}
    done = JobResult(call.job, call.token, AttemptOutcome.OK)
    assert not jobs.report(offer._replace(is_ending=True), [done], [], 1).claimed
    assert jobs.queue("default").active == 0


def test_a_key_that_is_no_text_is_refused(jobs: JobService) -> None:
    with pytest.raises(UsageError, match="surrogates not allowed"):
        jobs.add([NewJob("mail", key="caf\udce9")])


class RemovingJournal:
    """A journal of which another process removes records right after its first reader was made."""

    def __init__(self, inner: MemoryJournal, remove: Callable[[], object]) -> None:
        self._inner = inner
        self._remove = [remove]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def reader(self, topic: TopicName, start: Start) -> MemoryReader:
        made = self._inner.reader(topic, start)
        while self._remove:
            self._remove.pop()()
        return made


def test_a_start_finds_the_checkpoint_that_removes_what_it_reads(log: MemoryJournal) -> None:
    with closing(open_job_topic(log)) as writer:
        writer.append(*[WorkerSeen(f"w{number}", 1, ("**",)) for number in range(3)])
        writer.follow_to(Offset(2))
        writer.write_checkpoint()
        removing: Any = RemovingJournal(log, writer.write_checkpoint)
        with closing(JobTopic(removing, JOB_TOPIC)) as topic:
            assert sorted(topic.fold.workers) == ["w0", "w1", "w2"]
    assert log.bounds(JOB_TOPIC).earliest_offset == 3


@pytest.mark.parametrize("payload", [b"NaN", b'{"n": -Infinity}', b"[1e999]", b'"\\ud800"', b'"\xed\xa0\x80"'])
def test_a_payload_that_no_answer_could_hold_is_shown_as_a_string(jobs: JobService, payload: bytes) -> None:
    (added,) = jobs.add([NewJob("mail", payload)])
    data = jobs.show(parse_job_id(added.job)).data
    assert data == payload.decode(errors="replace")


def test_a_record_of_an_earlier_version_stops_every_reader_before_it(jobs: JobService, log: MemoryJournal) -> None:
    (added,) = jobs.add([NewJob("mail")])
    log.append(JOB_TOPIC, [NewRecord(b"old", headers_for(EARLIER_JOB_RECORDS[0]))])
    with closing(JobTopic(log, JOB_TOPIC)) as writer:
        writer.append(JobsCommanded(JobAction.REMOVE, [parse_job_id(added.job)]))
    for _ in range(2):
        with pytest.raises(JobLogOutdatedError):
            jobs.list_jobs(JobFilter())


def test_a_record_of_a_later_version_stops_every_reader_before_it(
    jobs: JobService, log: MemoryJournal, clock: ManualClock
) -> None:
    (added,) = jobs.add([NewJob("mail")])
    log.append(JOB_TOPIC, [NewRecord(b"new", (("type", b"30"), ("version", b"2")))])
    with closing(JobTopic(log, JOB_TOPIC)) as writer:
        writer.append(JobsCommanded(JobAction.REMOVE, [parse_job_id(added.job)]))
        for _ in range(2):
            with pytest.raises(UnknownRequiredFeatureError, match="record of a later version") as stopped:
                writer.follow_to(Offset(2))
            assert stopped.value.where["offset"] == 1
        assert writer.fold.table.state(parse_job_id(added.job)) is JobState.QUEUED, "nothing behind it counts"
    for _ in range(2):
        with pytest.raises(UnknownRequiredFeatureError):
            jobs.add([NewJob("mail")])
    assert log.bounds(JOB_TOPIC).next_offset == 3, "a job that would not be read is refused"


def test_a_schedule_fires_without_a_worker_and_makes_its_queue_due(jobs: JobService, clock: ManualClock) -> None:
    assert jobs.attend() == 30.0, "an agent without jobs opens nothing"
    assert jobs.opened_queues() == ()
    jobs.set_schedule(Schedule("nightly", NewJob("report"), every_ms=60_000))
    for _ in range(2):
        clock.advance(60.0)
        jobs.attend()
        jobs.attend()
    assert jobs.queue("default").due == 2
    assert [each.topic for each in jobs.list_jobs(JobFilter()).items] == ["report"] * 2


def test_a_schedule_is_due_by_the_clock_of_the_journal(log: MemoryJournal, clock: ManualClock) -> None:
    ahead = ManualClock()
    ahead.advance(86_400.0)
    with closing(JobService(log.another_handle, ahead, random.Random(1))) as service:
        shown = service.set_schedule(Schedule("nightly", NewJob("report"), cron="0 3 * * *"))
    assert shown.next_at is not None
    assert timedelta(0) < shown.next_at - clock.now() <= timedelta(days=1)


def test_a_due_time_is_not_lost_when_its_schedule_gets_another_job(jobs: JobService, clock: ManualClock) -> None:
    jobs.set_schedule(Schedule("nightly", NewJob("report"), cron="* * * * *"))
    clock.advance(120.0)
    jobs.set_schedule(Schedule("nightly", NewJob("report.long"), cron="* * * * *"))
    assert [each.topic for each in jobs.list_jobs(JobFilter()).items] == ["report"]
    clock.advance(60.0)
    jobs.attend()
    assert [each.topic for each in jobs.list_jobs(JobFilter()).items] == ["report", "report.long"]


def test_j17_progress_has_an_eta_and_is_gone_at_the_next_attempt(jobs: JobService, clock: ManualClock) -> None:
    job = parse_job_id(jobs.add([NewJob("render")])[0].job)
    offer = Offer("w-1", 1, ("**",))
    (call,) = {each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed}
    clock.advance(4.0)
    jobs.report(offer, [], [Renewal(job, call.token, encode_progress(AttemptProgress(4, 10, ("page 4",))))])
    shown = jobs.show(job)
    assert (shown.done, shown.total, shown.log) == (4, 10, ("page 4",))
    assert shown.eta_at == clock.now() + timedelta(seconds=6)
    jobs.report(offer, [JobResult(job, call.token, AttemptOutcome.FAIL, 0)], [])
    assert {each.attempt for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed} == {2}
    shown = jobs.show(job)
    assert (shown.view.state, shown.done, shown.total, shown.log, shown.eta_at) == ("active", None, None, (), None)


def test_j18_three_processes_fire_each_due_second_once_also_when_one_dies(
    log: MemoryJournal, clock: ManualClock
) -> None:
    chance = random.Random(1)
    with ExitStack() as opened:
        live = [
            opened.enter_context(closing(JobService(log.another_handle, clock, random.Random(seed))))
            for seed in range(3)
        ]
        live[0].set_schedule(Schedule("tick", NewJob("tick"), cron="* * * * * *"))
        for second in range(20):
            if second == 10:
                live.pop(0)  # SIGKILL: it does not leave
            clock.advance(1.0)
            for service in chance.sample(live * 2, 2 * len(live)):
                service.attend()
        assert len(live[0].list_jobs(JobFilter(topic="tick")).items) == 20
        assert [each.schedule for each in live[0].schedules()] == ["tick"]


def test_workers_that_wait_share_a_read_of_the_topic(
    jobs: JobService, log: MemoryJournal, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = [Offer(f"w-{number}", 1, ("mail",)) for number in range(20)]
    for offer in offers:
        jobs.poll(offer, 1, ())
    read, reads = MemoryReader.read, Counter[str]()

    def counted(reader: MemoryReader, limits: ReadLimits, wait_seconds: float) -> RecordBatch:
        reads["topic"] += 1
        return read(reader, limits, wait_seconds)

    monkeypatch.setattr(MemoryReader, "read", counted)
    clock.advance(0.1)
    assert all(jobs.poll(offer, 1, (), 0.05) == PollResult((), [], []) for offer in offers)
    assert reads["topic"] == 1
    with closing(JobTopic(log.another_handle(), JOB_TOPIC)) as other:
        other.append(JobsAdded([NewJob("mail")]))
    clock.advance(0.06)
    assert sum(len(jobs.poll(offer, 1, (), 0.05).claimed) for offer in offers) == 1


def samples_of(metrics: JobMetrics) -> dict[str, float]:
    samples = Samples()
    metrics.collect(samples)
    return {
        f"{each.name} {' '.join(each.labels.values())}": each.value
        for family in samples.families()
        for each in family.samples
        if each.value and "_bucket" not in each.name
    }


def test_metrics_have_counts_of_queues_and_what_happened(jobs: JobService, clock: ManualClock) -> None:
    metrics = JobMetrics(jobs.opened_queues, clock)
    jobs.listen(metrics.see)
    assert samples_of(metrics) == {}
    jobs.add([NewJob("mail", retries=0), NewJob("mail"), NewJob("mail"), NewJob("mail", delay_ms=60_000)])
    clock.advance(2.0)
    offer = Offer("w-1", 3, ("**",))
    calls: list[CallId] = []
    for _ in range(3):
        calls += [each.call for each in jobs.poll(offer, 1, calls).claimed]
    clock.advance(4.0)
    outcomes = (AttemptOutcome.FAIL, AttemptOutcome.OK, AttemptOutcome.SNOOZE)
    jobs.report(offer, [JobResult(c.job, c.token, o, 1_000) for c, o in zip(calls, outcomes, strict=True)], [])
    assert samples_of(metrics) == {
        "mailboat_jobs_queued default": 2.0,
        "mailboat_jobs_workers default": 1.0,
        "mailboat_jobs_given_up default": 1.0,
        "mailboat_jobs_wait_seconds_count default": 3.0,
        "mailboat_jobs_wait_seconds_sum default": 6.0,
        "mailboat_jobs_run_seconds_count default": 3.0,
        "mailboat_jobs_run_seconds_sum default": 12.0,
        "mailboat_jobs_ended_total default succeeded": 1.0,
        "mailboat_jobs_ended_total default given-up": 1.0,
        "mailboat_jobs_retries_total default": 1.0,
    }


def test_metrics_count_expired_leases(jobs: JobService, clock: ManualClock) -> None:
    metrics = JobMetrics(jobs.opened_queues, clock)
    jobs.listen(metrics.see)
    jobs.add([NewJob("mail", retries=0, lease_ms=1_000)])
    offer = Offer("w-1", 1, ("**",))
    held: list[CallId] = [each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed][:1]
    clock.advance(1.1)
    assert held in [jobs.poll(offer, 0, held).lost for _ in range(2)]
    assert samples_of(metrics)["mailboat_jobs_expired_leases_total default"] == 1.0


def test_j34_a_topic_that_was_created_again_is_used_without_a_restart(
    jobs: JobService, log: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    offer, late = Offer("w-1", 1, ("**",)), Offer("w-2", 1, ("**",))
    jobs.add([NewJob("mail")])
    (call,) = {each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed}
    log.delete_topic(JOB_TOPIC)
    assert jobs.list_jobs(JobFilter()).items == ()
    assert "JobLogReplaced" in caplog.text
    (added,) = jobs.add([NewJob("mail")])
    # The same record order gives the same token: the result of the earlier call must not end the new job.
    with pytest.raises(JobLogReplacedError, match="w-1 has calls of the earlier one"):
        jobs.poll(offer, 1, [call])
    with pytest.raises(JobLogReplacedError):
        jobs.report(offer, [JobResult(call.job, call.token, AttemptOutcome.OK)], [])
    claimed = {each.call.job for _ in range(2) for each in jobs.poll(late, 1, ()).claimed}
    assert claimed == {parse_job_id(added.job)}
    assert jobs.attend() == 1.0


def test_j34_a_trimmed_topic_is_a_named_state_until_it_is_deleted(jobs: JobService, log: MemoryJournal) -> None:
    jobs.add([NewJob("mail")])
    writer = JobTopic(log, JOB_TOPIC)
    writer.append(*[WorkerSeen("agent", 0, ())] * 2)
    log.truncate(JOB_TOPIC, writer.append(WorkerSeen("agent", 0, ()))[0])
    writer.close()
    for _ in range(2):
        with pytest.raises(JobLogIncompleteError) as caught:
            jobs.queues()
        with pytest.raises(JobLogIncompleteError):
            jobs.attend()
    assert "add the jobs again" in " ".join((type(caught.value).__doc__ or "").split())
    log.delete_topic(JOB_TOPIC)
    assert [each.state for each in jobs.add([NewJob("mail")])] == ["unassigned"]


def test_a_checkpoint_of_another_process_brings_a_slow_reader_up(jobs: JobService, log: MemoryJournal) -> None:
    (added,) = jobs.add([NewJob("mail", delay_ms=60_000)])
    jobs.command(JobAction.REMOVE, [parse_job_id(added.job)])
    writer = JobTopic(log, JOB_TOPIC)
    while not writer.follow():
        pass
    writer.append(*[WorkerSeen("agent", 0, ())] * 2)
    (kept,) = writer.add([NewJob("mail")])
    for _ in range(2):
        bounds = writer.write_checkpoint()
    assert bounds.earliest_offset > 2, "records are gone that the reader has not read"
    assert [each.job for each in jobs.list_jobs(JobFilter()).items] == [show_job_id(kept)]
    writer.close()


def test_j8_a_fast_worker_does_most_of_the_jobs(jobs: JobService, clock: ManualClock) -> None:
    jobs.add([NewJob("mail")] * 100)
    done, running = Counter[str](), dict[str, tuple[CallId, int]]()
    for tick in range(500):
        clock.advance(0.05)
        for worker, ticks in (("slow", 20), ("fast", 1)):
            call, since = running.get(worker, (None, 0))
            if call is not None and tick - since >= ticks:
                jobs.report(Offer(worker, 1, ("**",)), [JobResult(call.job, call.token, AttemptOutcome.OK)], [])
                done[worker] += 1
                del running[worker]
            if worker not in running:
                claimed = [each for _ in range(2) for each in jobs.poll(Offer(worker, 1, ("**",)), 1, ()).claimed]
                if claimed:
                    running[worker] = claimed[0].call, tick
        if done.total() == 100:
            break
    assert done["fast"] >= 85
    assert done["fast"] + done["slow"] == 100


def test_hostile_records_are_passed_and_change_no_job(
    jobs: JobService, log: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    (added,) = jobs.add([NewJob("mail")])
    offer = Offer("w-1", 1, ("**",))
    (call,) = {each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed}
    tokens = [Token(call.token + guess) for guess in (-1, 1, 1 << 40)]
    guessed = JobsFinished.of([JobResult(call.job, token, AttemptOutcome.OK) for token in tokens])
    # Records as large as the topic takes.
    keys = b"{%s}" % b",".join(b'"%d":0' % key for key in range(90_000))
    for record in (JobsAdded([NewJob("mail", bytes(999_000))]), JobsAdded([NewJob("mail", keys)]), guessed):
        headers, value = encode_job_record(record)
        log.append(JOB_TOPIC, [NewRecord(value, headers)])
    headers, _ = encode_job_record(JobsAdded([NewJob("mail")]))
    log.append(JOB_TOPIC, [NewRecord(bytes_, headers) for bytes_ in (b"", b"\xff" * 1000, b"\x0a" * 1_000_000)])
    assert [(each.job, each.state) for each in jobs.list_jobs(JobFilter()).items] == [(added.job, "active")]
    assert caplog.text.count("is ignored") == 5
    assert not jobs.report(offer, [JobResult(call.job, call.token, AttemptOutcome.OK)], []).lost


def test_deep_json_and_other_bytes_are_data(jobs: JobService) -> None:
    deep = b"[" * (256 * 1024)
    added = jobs.add(
        [NewJob("mail", deep), NewJob("mail", b'{"q": 1' + b"0" * 10_000 + b"}"), NewJob("mail", b'{"q": 1}')]
    )
    assert jobs.show(parse_job_id(added[0].job)).data == deep.decode()
    assert [each.job for each in jobs.list_jobs(JobFilter(members=("q=1",))).items] == [added[2].job]


def test_a_checkpoint_of_a_writer_that_stood_still_does_not_hide_a_later_one(log: MemoryJournal) -> None:
    with closing(open_job_topic(log.another_handle())) as writer:
        writer.add([NewJob("mail")])
        late = encode_checkpoint(writer.fold.capture(writer.next_offset))
        writer.append(
            JobsCommanded(JobAction.REMOVE, writer.add([NewJob("mail")])), JobsCommanded(JobAction.REMOVE, [0])
        )
        for _ in range(2):
            bounds = writer.write_checkpoint()
        assert late[0].as_of < bounds.earliest_offset
        writer.append(*late)
    with closing(JobTopic(log.another_handle(), JOB_TOPIC)) as restored:
        assert restored.next_offset > bounds.earliest_offset


def test_part_of_a_checkpoint_that_names_a_later_state_removes_no_records(log: MemoryJournal) -> None:
    with closing(open_job_topic(log.another_handle())) as writer:
        for ahead in (3, 1 << 40):
            writer.append(JobsCommanded(JobAction.REMOVE, writer.add([NewJob("mail")])))
            writer.append(CheckpointPart(Offset(writer.next_offset + ahead), 0, 1, b""))
            writer.follow()
            assert writer.write_checkpoint().earliest_offset < writer.next_offset
    with closing(open_job_topic(log.another_handle())) as restored:
        assert restored.next_offset < writer.next_offset


def test_jobs_beyond_the_largest_checkpoint_are_kept_without_one(
    log: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    open_job_topic(log).close()
    with closing(JobTopic(log.another_handle(), JOB_TOPIC, max_parts=0)) as topic:
        topic.add([NewJob("mail")])
        end = topic.next_offset
        assert topic.write_checkpoint().next_offset == end
    assert "no checkpoint, as its jobs take 1 parts" in caplog.text


@pytest.mark.parametrize("content", [b"\x12\x02!!", b"\xff"])
def test_checkpoint_with_invalid_values_is_passed_at_a_start(log: MemoryJournal, content: bytes) -> None:
    with closing(open_job_topic(log.another_handle())) as writer:
        (job,) = writer.add([NewJob("mail")])
        writer.append(CheckpointPart(Offset(0), 0, 1, content))
    with closing(open_job_topic(log.another_handle())) as restored:
        restored.follow()
        assert restored.fold.table.is_queued(job)


def test_a_queued_job_has_its_position_and_the_time_it_should_start(jobs: JobService, clock: ManualClock) -> None:
    jobs.set_queue(QueueSettings("line", ("line",), QueueKind.ORDERED))
    added = [parse_job_id(each.job) for each in jobs.add([NewJob("line")] * 6 + [NewJob("line", delay_ms=60_000)])]
    offer = Offer("w-1", 1, ("**",))

    def shown() -> list[tuple[int | None, float | None]]:
        seen = [jobs.show(job) for job in added if jobs.show(job).view.state in ("queued", "unassigned")]
        starts = [None if each.starts_at is None else (each.starts_at - clock.now()).total_seconds() for each in seen]
        return [(each.position, start) for each, start in zip(seen, starts, strict=True)]

    assert shown() == [(0, None), (1, None), (2, None), (3, None), (4, None), (5, None), (None, None)]
    for _ in range(3):
        call = next(each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed)
        clock.advance(2.0)
        jobs.report(offer, [JobResult(call.job, call.token, AttemptOutcome.OK)], [])
        added.remove(call.job)
    assert next(each.call.job for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed) == added[0]
    assert shown() == [(1, 4.0), (2, 6.0), (None, None)], "a call ended every two seconds, and one runs"
    clock.advance(6.0)
    assert shown()[0] == (1, 10.0), "a pace that is lost is seen"


def test_a_queue_of_an_idle_log_is_suspended_from_now_on(jobs: JobService, clock: ManualClock) -> None:
    jobs.add([NewJob("mail")])
    clock.advance(7_200.0)
    assert jobs.suspend("default", 3_600.0).until_at == clock.now() + timedelta(hours=1)
    assert jobs.queue("default").suspended


@pytest.mark.parametrize(
    "settings",
    [
        QueueSettings("q", max_parallel=1 << 40),
        QueueSettings("q", max_parallel=0),
        QueueSettings("q", merge=-1),
        QueueSettings("q", rate_period_ms=-1),
        QueueSettings("q", merge=2, kind=QueueKind.KEYED),
    ],
)
def test_settings_of_a_queue_out_of_bounds_are_refused(jobs: JobService, settings: QueueSettings) -> None:
    with pytest.raises(UsageError, match="the queue q cannot be set so"):
        jobs.set_queue(settings)
    assert [queue.queue for queue in jobs.queues()] == ["default"]
