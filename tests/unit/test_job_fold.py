"""The fold of the job topic: states, leases, limits and order."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_changes import Transition
from mailboat.jobs.selection import plan_claims, position, why_pending
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import (
    AttemptOutcome,
    JobAction,
    JobId,
    JobRecord,
    JobResult,
    JobsAdded,
    JobsClaimed,
    JobsCommanded,
    JobsFinished,
    JobState,
    LeasesRenewed,
    NewJob,
    QueueAction,
    QueueCommanded,
    QueueDefined,
    QueueKind,
    QueueRemoved,
    QueueSettings,
    Renewal,
    Token,
    WorkerSeen,
    show_job_id,
)

WORKER = "worker-1"


class JobLog:
    """A job topic in memory with a clock, folded at once."""

    def __init__(self, *queues: QueueSettings) -> None:
        self.fold = JobFold()
        self.now_ms = 1_000_000
        self.next_offset = 0
        self.transitions: list[Transition] = []
        for settings in queues:
            self.append(QueueDefined(settings))
        self.append(WorkerSeen(WORKER, 1_000, ["**"]))

    def append(self, record: JobRecord) -> Sequence[JobId]:
        applied = self.fold.apply(Offset(self.next_offset), self.now_ms, record)
        self.next_offset += 1
        self.transitions += applied.transitions
        return applied.added

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.append(WorkerSeen(WORKER, 1_000, ["**"]))

    def add(self, topic: str = "purge.cdn", **settings: object) -> JobId:
        return self.append(JobsAdded([NewJob(topic, **settings)]))[0]  # type: ignore[arg-type]

    def claim(self, *jobs: JobId, worker: str = WORKER) -> Token:
        token = Token(self.next_offset)
        self.append(JobsClaimed.of(worker, [[job] for job in jobs]))
        return token

    def finish(
        self, job: JobId, token: Token, outcome: AttemptOutcome = AttemptOutcome.OK, delay_ms: int | None = None
    ) -> None:
        self.append(JobsFinished.of([JobResult(job, token, outcome, delay_ms)]))

    def state(self, job: JobId) -> JobState | None:
        return self.fold.table.state(job)

    def run_next(self, outcome: AttemptOutcome = AttemptOutcome.OK, delay_ms: int | None = None) -> JobId | None:
        proposal = plan_claims(self.fold, WORKER, 1)
        if not proposal.preferred:
            return None
        job = proposal.preferred[0][0]
        self.finish(job, self.claim(job), outcome, delay_ms)
        return job


def test_a_job_is_claimed_and_succeeds() -> None:
    log = JobLog()
    job = log.add(keep=True)
    token = log.claim(job)
    assert log.state(job) is JobState.ACTIVE
    log.finish(job, token)
    assert log.state(job) is JobState.SUCCEEDED


def test_the_first_claim_in_the_log_wins() -> None:
    log = JobLog()
    job = log.add()
    first, _second = log.claim(job, worker="a"), log.claim(job, worker="b")
    assert log.fold.leases[job].token == first


def test_jobs_of_a_removed_queue_still_run() -> None:
    log = JobLog(QueueSettings("purges", topics=["purge.*"]))
    job = log.add("purge.cdn")
    log.append(QueueRemoved("purges"))
    restored = JobFold(log.fold.capture(Offset(log.next_offset)))
    assert plan_claims(restored, WORKER, 1).preferred == [[job]]
    assert log.run_next() == job


def test_topics_that_no_job_has_are_forgotten() -> None:
    log = JobLog(QueueSettings("merged", ("m.*",), merge=2))
    log.append(WorkerSeen("picky", 1, ["m.kept"]))
    others = log.append(JobsAdded([NewJob(f"m.t{number}", key="k") for number in range(10)]))
    assert not plan_claims(log.fold, "picky", 1).preferred
    (first,) = log.append(JobsAdded([NewJob("m.kept", key="k")]))
    log.append(JobsCommanded(JobAction.REMOVE, others))
    for number in range(10, 1_100):
        log.append(JobsCommanded(JobAction.REMOVE, log.append(JobsAdded([NewJob(f"m.t{number}")]))))
    assert len(log.fold.table.topics) < 100
    (second,) = log.append(JobsAdded([NewJob("m.kept", key="k")]))
    claimed = [plan_claims(fold, "picky", 1) for fold in (log.fold, JobFold(log.fold.capture(Offset(log.next_offset))))]
    assert [[*each.preferred, *each.others] for each in claimed] == [[[first, second]]] * 2


def test_removed_queues_without_jobs_are_forgotten() -> None:
    log = JobLog(QueueSettings("old", ("old",)))
    (job,) = log.append(JobsAdded([NewJob("old")]))
    log.append(QueueRemoved("old"))
    for number in range(1_100):
        log.append(QueueDefined(QueueSettings(f"q{number}")))
        log.append(QueueRemoved(f"q{number}"))
    log.append(QueueDefined(QueueSettings("new", ("new",))))
    (other,) = log.append(JobsAdded([NewJob("new")]))
    assert len(log.fold.all_queues()) < 100
    for fold in (log.fold, JobFold(log.fold.capture(Offset(log.next_offset)))):
        assert (fold.queue(job).name, fold.queue(other).name) == ("old", "new")


def test_a_result_with_another_token_changes_nothing() -> None:
    log = JobLog()
    job = log.add(lease_ms=10_000)
    late = log.claim(job)
    log.pass_time(10_000)
    log.pass_time(2_000)
    live = log.claim(job)
    log.finish(job, late)
    log.finish(job, Token(live + 7))
    assert log.fold.leases[job].token == live


def test_j10_an_expired_lease_counts_as_an_attempt() -> None:
    log = JobLog()
    job = log.add(retries=1, retry_delay_ms=0, lease_ms=10_000)
    log.claim(job)
    log.pass_time(10_000)
    assert log.state(job) is JobState.QUEUED
    log.claim(job)
    log.pass_time(10_000)
    assert log.state(job) is JobState.GIVEN_UP
    assert [t.reason for t in log.transitions if t.state is JobState.GIVEN_UP] == ["lease-expired"]


def test_a_renewed_lease_does_not_expire() -> None:
    log = JobLog()
    job = log.add(lease_ms=10_000)
    token = log.claim(job)
    log.pass_time(9_000)
    log.append(LeasesRenewed.of([Renewal(job, token, b"half")]))
    log.pass_time(9_000)
    assert log.fold.leases[job].progress == b"half"
    log.pass_time(1_000)
    assert log.state(job) is JobState.QUEUED


def test_j3_retries_are_delayed_by_result_then_job_then_queue() -> None:
    log = JobLog(QueueSettings("slow", ["slow.*"], retry_delay_ms=2_000))
    for job, delay_ms, pause_ms in (
        (log.add("slow.a", retry_delay_ms=1_000), 300, 300),
        (log.add("slow.b", retry_delay_ms=1_000), None, 1_000),
        (log.add("slow.c"), None, 2_000),
    ):
        log.finish(job, log.claim(job), AttemptOutcome.FAIL, delay_ms)
        assert log.fold.table.due_ms(job) == log.now_ms + pause_ms


def test_retry_delays_double_up_to_the_maximum() -> None:
    log = JobLog()
    job, pauses = log.add(retries=-1), []
    for _ in range(10):
        log.finish(job, log.claim(job), AttemptOutcome.FAIL)
        pauses.append(log.fold.table.due_ms(job) - log.now_ms)
        log.pass_time(pauses[-1])
    assert pauses == [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (AttemptOutcome.OK, JobState.SUCCEEDED),
        (AttemptOutcome.FAIL, JobState.GIVEN_UP),
        (AttemptOutcome.CANCEL, JobState.ERROR),
    ],
)
def test_j2_a_failure_is_given_up_and_a_cancelled_job_is_an_error(outcome: AttemptOutcome, state: JobState) -> None:
    log = JobLog()
    job = log.add(retries=0, keep=True)
    log.finish(job, log.claim(job), outcome)
    assert log.state(job) is state


def test_snooze_does_not_count_the_attempt() -> None:
    log = JobLog()
    job = log.add(retries=0)
    log.finish(job, log.claim(job), AttemptOutcome.SNOOZE, 5_000)
    log.pass_time(5_000)
    log.claim(job)
    assert log.fold.table.tries(job) == 1


def test_a_delayed_job_cannot_be_claimed_before_it_is_due() -> None:
    log = JobLog()
    job = log.add(delay_ms=5_000)
    log.claim(job)
    assert log.state(job) is JobState.QUEUED
    log.pass_time(5_000)
    log.claim(job)
    assert log.state(job) is JobState.ACTIVE


def test_j4_an_ordered_queue_runs_one_at_a_time_and_retries_in_place() -> None:
    log = JobLog(QueueSettings("line", ["line"], QueueKind.ORDERED))
    jobs = [log.add("line") for _ in range(10)]
    log.claim(jobs[1])
    assert log.state(jobs[1]) is JobState.QUEUED
    finished, failures = [], 2
    while len(finished) < 10:
        job = plan_claims(log.fold, WORKER, 5).preferred[0][0]
        token = log.claim(job, *(later for later in jobs if later > job))
        assert len(log.fold.leases) == 1
        if job == jobs[2] and failures:
            failures -= 1
            log.finish(job, token, AttemptOutcome.FAIL, 1_000)
            assert log.run_next() is None
            log.pass_time(1_000)
        else:
            log.finish(job, token)
            finished.append(job)
    assert finished == jobs


def test_j6_a_fair_queue_runs_few_jobs_of_one_key_among_many_of_another() -> None:
    log = JobLog(QueueSettings("fair", ["fair"], QueueKind.FAIR))
    for _ in range(100):
        log.add("fair", key="a")
    few = {log.add("fair", key="b") for _ in range(5)}
    ran = [log.run_next() for _ in range(11)]
    assert few <= set(ran)


def test_j7_a_keyed_queue_keeps_the_order_of_each_key() -> None:
    log = JobLog(QueueSettings("keyed", ["keyed"], QueueKind.KEYED))
    jobs = {key: [log.add("keyed", key=key) for _ in range(20)] for key in "abc"}
    log.claim(*(job for of_key in jobs.values() for job in of_key[:3]))
    assert set(log.fold.leases) == {of_key[0] for of_key in jobs.values()}
    ran: list[JobId] = []
    while log.fold.leases:
        job, lease = next(iter(log.fold.leases.items()))
        log.finish(job, lease.token)
        ran.append(job)
        for group in plan_claims(log.fold, WORKER, 6).preferred:
            log.claim(*group)
    for of_key in jobs.values():
        assert [job for job in ran if job in of_key] == of_key


def test_max_parallel_holds_over_all_workers() -> None:
    log = JobLog(QueueSettings("few", ["few"], max_parallel=2))
    jobs = [log.add("few") for _ in range(5)]
    log.claim(*jobs, worker="a")
    log.claim(*jobs, worker="b")
    assert set(log.fold.leases) == set(jobs[:2])


def test_a_share_of_the_slots_follows_the_workers_that_take_the_topics() -> None:
    log = JobLog(QueueSettings("half", ["half"], parallel_percent=50))
    log.append(WorkerSeen(WORKER, 0, ()))  # it leaves
    jobs = [log.add("half") for _ in range(9)]

    def may_run() -> int:
        log.claim(*jobs)
        restored = JobFold(log.fold.capture(Offset(log.next_offset)))
        assert restored.queues["half"].limit == log.fold.queues["half"].limit
        return len(log.fold.leases)

    assert may_run() == 1, "at least one call"
    log.append(WorkerSeen("a", 4, ["half"]))
    log.append(WorkerSeen("b", 90, ["other"]))
    assert may_run() == 2
    log.append(WorkerSeen("c", 3, ["**"]))
    assert may_run() == 3
    log.append(QueueDefined(QueueSettings("half", ["half"], max_parallel=5, parallel_percent=100)))
    assert may_run() == 5, "the smaller limit counts"
    log.pass_time(90_000)  # the workers are forgotten
    assert log.fold.queues["half"].limit == 5


def test_the_history_of_a_queue_is_what_its_settings_say_now() -> None:
    log = JobLog(QueueSettings("short", ["short"], history_ms=60_000))
    ended, kept = log.add("short"), log.add()
    for job in (ended, kept):
        log.finish(job, log.claim(job), AttemptOutcome.CANCEL)
    log.pass_time(59_999)
    assert log.state(ended) is JobState.ERROR
    log.append(QueueDefined(QueueSettings("short", ["short"], history_ms=120_000)))
    restored = JobFold(log.fold.capture(Offset(log.next_offset)))
    for fold in (log.fold, restored):
        fold.advance(log.now_ms + 60_000)
        assert fold.table.state(ended) is JobState.ERROR
        fold.advance(log.now_ms + 60_001)
        assert (fold.table.state(ended), fold.table.state(kept)) == (None, JobState.ERROR)


def test_a_reader_that_looks_at_a_rate_decides_as_one_that_does_not() -> None:
    log = JobLog(QueueSettings("api", ["api"], rate=1, rate_period_ms=1_000))
    first, _ = log.add("api"), log.add("api")
    log.claim(first)
    log.pass_time(2_000)
    other = JobFold(log.fold.capture(Offset(log.next_offset)))
    assert log.fold.queues["api"].room(log.now_ms) == 1
    for fold in (log.fold, other):
        fold.apply(
            Offset(log.next_offset),
            log.now_ms,
            QueueDefined(QueueSettings("api", ["api"], rate=1, rate_period_ms=9_000)),
        )
    assert [fold.queues["api"].room(log.now_ms) for fold in (log.fold, other)] == [0, 0]


def test_j27_a_rate_limits_the_starts_in_any_period() -> None:
    log = JobLog(QueueSettings("api", ["api"], rate=10, rate_period_ms=1_000))
    jobs, starts = [log.add("api") for _ in range(50)], []
    while len(starts) < 50:
        before = set(log.fold.leases)
        log.claim(*jobs)
        starts += [log.now_ms] * len(set(log.fold.leases) - before)
        log.pass_time(70)
    assert all(starts[i + 10] - starts[i] >= 1_000 for i in range(40))
    assert starts[-1] - starts[0] < 5_000


def test_j28_a_suspended_queue_starts_nothing() -> None:
    log = JobLog()
    running = log.add()
    token = log.claim(running)
    log.append(QueueCommanded(QueueAction.SUSPEND, "default"))
    jobs = [log.add() for _ in range(5)]
    assert log.run_next() is None
    log.finish(running, token)
    log.append(QueueCommanded(QueueAction.RESUME, "default"))
    assert [log.run_next() for _ in range(5)] == jobs


def test_a_suspension_ends_at_its_time() -> None:
    log = JobLog()
    log.append(QueueCommanded(QueueAction.SUSPEND, "default", log.now_ms + 60_000))
    job = log.add()
    assert log.run_next() is None
    log.pass_time(60_000)
    assert log.run_next() == job


def test_clear_drops_what_is_queued_only() -> None:
    log = JobLog()
    running, waiting, later = log.add(), log.add(), log.add(delay_ms=9_000)
    log.claim(running)
    log.append(QueueCommanded(QueueAction.CLEAR, "default"))
    assert [log.state(job) for job in (running, waiting, later)] == [JobState.ACTIVE, None, None]
    assert log.fold.queues["default"].queued == 0


def test_a_stop_ends_a_queued_job_at_once_and_a_running_one_with_its_attempt() -> None:
    log = JobLog()
    running, waiting = log.add(), log.add()
    token = log.claim(running)
    log.append(JobsCommanded(JobAction.STOP, [running, waiting]))
    assert log.state(waiting) is JobState.STOPPED
    assert log.fold.leases[running].stop_requested
    log.finish(running, token, AttemptOutcome.FAIL)
    assert log.state(running) is JobState.STOPPED


def test_a_unique_job_is_added_once_while_it_is_queued() -> None:
    log = JobLog()
    first, second = log.add(unique="u"), log.add(unique="u")
    assert first == second
    log.claim(first)
    assert log.add(unique="u") != first


def test_a_repeated_request_returns_the_first_job_also_after_it_ended() -> None:
    log = JobLog()
    job = log.add(request_id="import:web:17")
    log.run_next()
    assert log.add(request_id="import:web:17") == job
    assert log.run_next() is None


def test_merged_jobs_of_a_key_are_one_call_when_there_are_enough() -> None:
    log = JobLog(QueueSettings("purge", ["purge"], merge=3, merge_within_ms=2_000, max_parallel=1))
    jobs = [log.add("purge", key="site") for _ in range(4)]
    (group,) = plan_claims(log.fold, WORKER, 5).preferred
    assert list(group) == jobs[:3]
    token = Token(log.next_offset)
    log.append(JobsClaimed.of(WORKER, [group]))
    assert log.fold.queues["purge"].running == 1
    log.finish(jobs[0], token)
    assert [log.state(job) for job in jobs] == [None, None, None, JobState.QUEUED]
    assert not plan_claims(log.fold, WORKER, 5).preferred
    log.pass_time(2_000)
    assert plan_claims(log.fold, WORKER, 5).preferred == [[jobs[3]]]


def test_j22_ten_thousand_jobs_of_a_key_are_merged_into_at_most_45_calls() -> None:
    log = JobLog(QueueSettings("purge", ["purge"], merge=256, merge_within_ms=2_000))
    added: set[JobId] = set()
    called: list[JobId] = []
    calls = 0
    while len(called) < 10_000:
        if len(added) < 10_000:
            added.update(log.append(JobsAdded([NewJob("purge", key="site")] * 100)))
        log.pass_time(50)
        for group in plan_claims(log.fold, WORKER, 4).preferred:
            calls += 1
            called += group
            token = Token(log.next_offset)
            log.append(JobsClaimed.of(WORKER, [group]))
            log.finish(group[0], token)
    assert calls <= 45
    assert sorted(called) == sorted(added), "every job is in one call"


def test_a_queue_takes_the_topics_of_its_patterns() -> None:
    log = JobLog(QueueSettings("cdn", ["purge.*"]), QueueSettings("rest", ["**"]))
    assert log.fold.queue(log.add("purge.cdn")).settings.name == "cdn"
    assert log.fold.queue(log.add("mail.send")).settings.name == "rest"


def test_a_queue_that_changes_its_kind_keeps_its_jobs() -> None:
    log = JobLog(QueueSettings("line", ["line"]))
    jobs = [log.add("line", key="k") for _ in range(4)]
    token = log.claim(jobs[0])
    log.append(QueueDefined(QueueSettings("line", ["line"], QueueKind.KEYED)))
    assert log.run_next() is None
    log.finish(jobs[0], token)
    assert [log.run_next() for _ in range(3)] == jobs[1:]


def test_workers_that_are_silent_are_forgotten() -> None:
    log = JobLog()
    log.append(WorkerSeen("other", 4, ["mail.*"]))
    assert log.fold.is_served("mail.send")
    for _ in range(10):
        log.pass_time(9_000)
    assert set(log.fold.workers) == {WORKER}


def test_log_whose_clock_goes_back_keeps_its_time_until_the_clock_has_caught_up() -> None:
    log = JobLog()
    running, delayed = log.add(lease_ms=10_000, retry_delay_ms=0), log.add(delay_ms=20_000)
    log.claim(running)
    log.pass_time(-3_600_000)
    assert log.fold.now_ms == log.now_ms + 3_600_000
    log.pass_time(3_600_000 + 9_999)
    assert (log.state(running), log.state(delayed)) == (JobState.ACTIVE, JobState.QUEUED)
    log.pass_time(1)
    assert log.state(running) is JobState.QUEUED
    log.pass_time(10_000)
    assert plan_claims(log.fold, WORKER, 2).preferred == [[running], [delayed]]


def test_j9_a_dead_worker_moves_only_its_running_jobs() -> None:
    log = JobLog()
    jobs = [log.add(lease_ms=30_000, retry_delay_ms=0) for _ in range(300)]
    log.claim(*jobs[:5], worker="dead")
    before = len(log.transitions)
    log.pass_time(30_000)
    assert [t.job for t in log.transitions[before:]] == jobs[:5]


def test_j9_jobs_of_a_dead_worker_start_before_a_backlog() -> None:
    log = JobLog()
    log.append(WorkerSeen("dead", 5, ["**"]))
    jobs = [log.add(lease_ms=30_000, retry_delay_ms=0) for _ in range(300)]
    log.claim(*jobs[:5], worker="dead")
    log.pass_time(30_000)
    assert plan_claims(log.fold, WORKER, 5).preferred == [[job] for job in jobs[:5]]
    log.append(WorkerSeen("dead", 5, ["**"]))
    assert set(log.fold.workers) == {WORKER, "dead"}, "it only stood still"


def test_two_workers_prefer_different_jobs() -> None:
    log = JobLog()
    log.append(WorkerSeen("worker-2", 1_000, ["**"]))
    for _ in range(200):
        log.add()
    ours = plan_claims(log.fold, WORKER, 50).preferred
    theirs = plan_claims(log.fold, "worker-2", 50).preferred
    assert len(ours) == len(theirs) == 50
    assert not {tuple(g) for g in ours} & {tuple(g) for g in theirs}


def test_a_job_that_its_preferred_worker_leaves_is_proposed_as_other() -> None:
    log = JobLog()
    log.append(WorkerSeen("worker-2", 1_000, ["**"]))
    job = log.add()
    found = [plan_claims(log.fold, name, 1) for name in (WORKER, "worker-2")]
    assert sorted(len(p.preferred) for p in found) == [0, 1]
    assert all([job] in [list(g) for g in (*p.preferred, *p.others)] for p in found)


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.long("crashes-and-fuzz"))])
def test_jobs_due_in_one_second_are_ready_by_one_record(count: int) -> None:
    log = JobLog()
    due_ms = log.now_ms + 60_000
    added: list[JobId] = []
    for first in range(0, count, 250):
        added += log.append(
            JobsAdded([NewJob("mail", due_ms=due_ms + (first + place) % 1_000) for place in range(250)])
        )
    log.pass_time(60_999)
    assert (log.fold.queues["default"].queued, log.fold.queues["default"].delayed) == (count, 0)
    groups = plan_claims(log.fold, WORKER, 256).preferred
    assert [job for group in groups for job in group] == added[:256]
    log.append(JobsClaimed.of(WORKER, groups))
    assert log.fold.queues["default"].running == 256


def test_workers_take_different_jobs_of_those_that_a_third_one_leaves() -> None:
    log = JobLog()
    for name in ("worker-2", "worker-3"):
        log.append(WorkerSeen(name, 1_000, ["**"]))
    for _ in range(100):
        log.add()
    for name in (WORKER, "worker-2"):
        log.append(JobsClaimed.of(name, plan_claims(log.fold, name, 100).preferred))
    ours = plan_claims(log.fold, WORKER, 10).others
    theirs = plan_claims(log.fold, "worker-2", 10).others
    assert len(ours) == len(theirs) == 10
    assert not {tuple(g) for g in ours} & {tuple(g) for g in theirs}


def test_lease_that_is_over_leaves_no_moment_to_wait_for() -> None:
    """Otherwise idle workers would append a record for it."""
    log = JobLog()
    renewed, ended = log.add(lease_ms=20_000), log.add(lease_ms=10_000)
    token = log.claim(renewed, ended)
    log.finish(ended, token)
    log.now_ms += 5_000
    log.append(LeasesRenewed.of([Renewal(renewed, token)]))
    assert log.fold.next_moment_ms() == log.now_ms + 20_000
    log.finish(renewed, token)
    assert log.fold.next_moment_ms() is None


@pytest.mark.parametrize(
    ("settings", "wait_ms"),
    [
        pytest.param(QueueSettings("q", ["q"], rate=1, rate_period_ms=5_000), 5_000, id="rate"),
        pytest.param(QueueSettings("q", ["q"], merge=9, merge_within_ms=2_000), 2_000, id="merge"),
        pytest.param(QueueSettings("q", ["q"]), 60_000, id="suspension"),
    ],
)
def test_moment_at_which_time_alone_lets_a_job_start(settings: QueueSettings, wait_ms: int) -> None:
    """Otherwise the jobs of an idle log would wait for the next record of a worker."""
    log = JobLog(settings)
    if settings.rate:
        log.finish(first := log.add("q"), log.claim(first))
    log.append(QueueCommanded(QueueAction.SUSPEND, "q", log.now_ms + 60_000))
    assert log.fold.next_moment_ms() is None, "no job waits for the end of the suspension"
    if wait_ms < 60_000:
        log.append(QueueCommanded(QueueAction.RESUME, "q"))
    job = log.add("q")
    assert log.fold.next_moment_ms() == log.now_ms + wait_ms
    log.pass_time(wait_ms)
    assert log.fold.next_moment_ms() is None
    assert log.run_next() == job


@pytest.mark.parametrize("kind", [QueueKind.KEYED, QueueKind.ORDERED, QueueKind.FAIR])
def test_a_checkpoint_that_orders_ended_jobs_holds_up_no_key(kind: QueueKind) -> None:
    log = JobLog(QueueSettings("mail", ["mail"], kind))
    ended, waiting = log.add("mail", key="a", keep=True), log.add("mail", key="a")
    log.finish(ended, log.claim(ended))
    captured = log.fold.capture(Offset(log.next_offset))
    unknown = JobId(waiting + 256)
    queues = [each._replace(chains=[unknown, ended, *each.chains]) for each in captured.queues]
    log.fold = JobFold(captured._replace(queues=[captured.queues[0], *queues[1:]]))
    assert log.run_next() == waiting
    empty = JobFold().capture(Offset(0))
    assert not JobFold(empty._replace(queues=[empty.queues[0]._replace(chains=[unknown])])).leases


def test_checkpoint_with_two_leases_of_one_job_is_refused() -> None:
    log = JobLog()
    job = log.add()
    log.claim(job)
    captured = log.fold.capture(Offset(log.next_offset))
    (lease,) = captured.leases
    for leases in ([lease, lease._replace(token=Token(lease.token + 1))], [lease._replace(jobs=[job, job])]):
        with pytest.raises(ValueError, match="another one"):
            JobFold(captured._replace(leases=leases))


@pytest.mark.parametrize("column", ["ids", "keys"])
def test_checkpoint_with_negative_ids_or_keys_is_refused(column: str) -> None:
    log = JobLog()
    log.add()
    captured = log.fold.capture(Offset(log.next_offset))
    columns = {**captured.columns, column: b"\xff" * 8}
    with pytest.raises(ValueError, match="below 0"):
        JobFold(captured._replace(columns=columns))


def test_a_call_merges_jobs_of_one_topic_only() -> None:
    log = JobLog(QueueSettings("cache", ["purge.*"], merge=10))
    jobs = [log.add(topic, key=key) for key in ("", "a") for topic in ("purge.eu", "purge.us", "purge.eu")]
    log.fold = JobFold(log.fold.capture(Offset(log.next_offset)))
    groups = plan_claims(log.fold, WORKER, 10).preferred
    assert groups == [[jobs[0], jobs[2]], [jobs[1]], [jobs[3], jobs[5]], [jobs[4]]]
    log.append(JobsClaimed.of("worker-2", [jobs[:2]]))
    assert not log.fold.leases, "a claim of two topics"
    log.append(JobsClaimed.of(WORKER, groups))
    assert len(log.fold.leases) == len(jobs)


def test_a_job_is_behind_none_whose_topic_no_worker_takes() -> None:
    log = JobLog()
    log.append(WorkerSeen(WORKER, 1, ["mail"]))
    fax, later, mail = log.add("fax"), log.add("fax"), log.add("mail")
    assert [position(log.fold, job) for job in (fax, later, mail)] == [0, 1, 0]
    assert why_pending(log.fold, mail, log.now_ms) == "starts next"
    log.append(WorkerSeen("worker-2", 1, ["fax"]))
    assert position(log.fold, mail) == 2


def test_a_job_of_an_ordered_queue_waits_for_one_that_has_no_key() -> None:
    log = JobLog(QueueSettings("line", ["line"], QueueKind.ORDERED))
    first, second = log.add("line"), log.add("line")
    assert why_pending(log.fold, second, log.now_ms) == f"waits for job {show_job_id(first)}"


def test_a_job_behind_an_unassigned_one_of_its_key_says_so() -> None:
    log = JobLog(QueueSettings("mail", ["mail", "fax"], QueueKind.KEYED))
    log.append(WorkerSeen(WORKER, 1, ["mail"]))
    fax, mail = log.add("fax", key="a"), log.add("mail", key="a")
    waits = f"waits for job {show_job_id(fax)} of the same key"
    assert why_pending(log.fold, mail, log.now_ms) == f"{waits}, whose topic fax no live worker takes"
    assert log.run_next() is None, "the order of the key holds"
    log.append(WorkerSeen("worker-2", 1, ["fax"]))
    assert why_pending(log.fold, mail, log.now_ms) == waits
    log.append(JobsCommanded(JobAction.REMOVE, [fax]))
    assert log.run_next() == mail


def test_a_call_of_many_that_ripen_later_is_no_reason_to_start_late() -> None:
    """Jobs that are retried keep their ids, so those of younger keys may be ready for a merge before them."""
    log = JobLog(QueueSettings("purge", ["purge"], merge=2, merge_within_ms=2_000, retry_delay_ms=1_000))
    log.append(JobsAdded([NewJob("purge", key=f"{number}") for number in range(100)]))
    log.pass_time(2_000)
    groups = plan_claims(log.fold, WORKER, 100).preferred
    token = Token(log.next_offset)
    log.append(JobsClaimed.of(WORKER, groups))
    younger = log.add("purge", key="younger")
    log.append(JobsFinished.of([JobResult(job, token, AttemptOutcome.FAIL) for (job,) in groups]))
    log.pass_time(1_000)
    for fold in (log.fold, JobFold(log.fold.capture(Offset(log.next_offset)))):
        assert fold.next_moment_ms() == log.now_ms + 1_000
    log.pass_time(1_000)
    assert log.run_next() == younger
    assert log.fold.next_moment_ms() == log.now_ms + 1_000


def test_a_full_call_does_not_wait_for_another_merge_when_the_rate_lets_it_start() -> None:
    settings = QueueSettings("purge", ["purge"], merge=2, merge_within_ms=9_000, rate=1, rate_period_ms=5_000)
    log = JobLog(settings)
    log.append(JobsAdded([NewJob("purge", key="full")] * 4))
    log.append(JobsClaimed.of(WORKER, plan_claims(log.fold, WORKER, 1).preferred))
    log.add("purge", key="ripens")
    assert log.fold.next_moment_ms() == log.now_ms + 5_000
    log.pass_time(5_000)
    assert plan_claims(log.fold, WORKER, 1).preferred


def test_jobs_of_other_workers_are_passed_over_once() -> None:
    """CPU time: a poll behind many jobs of other topics costs what it costs behind none."""
    log = JobLog()
    workers = {WORKER: ["mail"], "worker-2": ["mail", "news"], "worker-3": ["news"]}
    for name, topics in workers.items():
        log.append(WorkerSeen(name, 1, topics))
    log.append(JobsAdded([NewJob("mail", delay_ms=9_000), NewJob("news", delay_ms=9_000)]))
    for _ in range(100):
        log.append(JobsAdded([NewJob("fax")] * 256))

    def poll() -> float:
        begin = time.process_time()
        assert not any(plan_claims(log.fold, name, 1).preferred for name in workers)
        return time.process_time() - begin

    log.append(WorkerSeen("fax", 1, ["fax"]))
    fax = plan_claims(log.fold, "fax", 1)
    (retried,) = [*fax.preferred, *fax.others][0]
    log.finish(retried, log.claim(retried, worker="fax"), AttemptOutcome.FAIL, 0)
    log.append(WorkerSeen("fax", 0, []))
    first = poll()
    for name, topics in workers.items():
        log.append(WorkerSeen(name, 1, topics))
    assert min(poll() for _ in range(5)) < first / 10
    for name in list(workers)[1:]:
        log.append(WorkerSeen(name, 0, []))
    mail = log.add("mail", retry_delay_ms=0)
    assert log.run_next(AttemptOutcome.FAIL) == mail
    assert log.run_next(AttemptOutcome.FAIL) == mail, "a retried job is found again"
    log.append(WorkerSeen(WORKER, 1, ["fax"]))
    assert log.run_next() != mail


MERGED = QueueSettings("q", ["q"], merge=256, retry_delay_ms=60_000)


def failed_twice(log: JobLog) -> list[JobId]:
    """Two jobs of one key that wait for their retries, the older one longer."""
    jobs = []
    for delay_ms in (30_000, 20_000):
        jobs.append(log.add("q", key="k"))
        log.finish(jobs[-1], log.claim(jobs[-1]), AttemptOutcome.FAIL, delay_ms)
    return jobs


def test_retried_jobs_of_a_merge_start_after_their_queue_was_redefined() -> None:
    log = JobLog(MERGED)
    jobs = failed_twice(log)
    log.append(QueueDefined(MERGED._replace(rate=100, rate_period_ms=1_000)))
    for moment_ms, job in ((20_000, jobs[1]), (10_000, jobs[0])):
        log.pass_time(moment_ms)
        assert plan_claims(log.fold, WORKER, 5).preferred == [[job]]
        log.finish(job, log.claim(job))


def test_a_checkpoint_that_orders_a_job_twice_or_before_it_is_due_starts_each_once() -> None:
    log = JobLog(MERGED)
    older, younger = failed_twice(log)
    log.pass_time(20_000)
    captured = log.fold.capture(Offset(log.next_offset))
    queues = [each._replace(chains=[older, younger, younger]) for each in captured.queues[1:]]
    log.fold = JobFold(captured._replace(queues=[captured.queues[0], *queues]))
    for job in (younger, older):
        assert plan_claims(log.fold, WORKER, 5).preferred == [[job]]
        log.finish(job, log.claim(job))
        log.pass_time(10_000)


@pytest.mark.parametrize("settings", [MERGED, QueueSettings("q", ["q"], QueueKind.FAIR, retry_delay_ms=60_000)])
def test_a_retried_job_holds_up_no_other_one_after_its_queue_was_redefined(settings: QueueSettings) -> None:
    log = JobLog(settings)
    first = log.add("q", key="k")
    log.finish(first, log.claim(first), AttemptOutcome.FAIL)
    log.append(QueueDefined(settings._replace(rate=100, rate_period_ms=1_000)))
    second = log.add("q", key="k")
    assert log.run_next() == second
    log.pass_time(60_000)
    assert log.run_next() == first


def test_no_job_starts_beside_running_ones_of_its_key_once_keys_are_ordered() -> None:
    log = JobLog(QueueSettings("q", ["q"]))
    waiting, *running = [log.add("q", key="k") for _ in range(3)]
    tokens = [log.claim(job) for job in running]
    log.append(QueueDefined(QueueSettings("q", ["q"], QueueKind.KEYED)))
    log.finish(running[0], tokens[0])
    assert log.run_next() is None
    log.finish(running[1], tokens[1], AttemptOutcome.FAIL, 1_000)
    assert log.run_next() is None, "a retried job keeps its place"
    log.pass_time(1_000)
    assert [log.run_next(), log.run_next()] == [running[1], waiting]


@pytest.mark.parametrize(
    ("settings", "job", "each_bytes", "index_bytes"),
    [
        pytest.param(QueueSettings("q", ["q"]), NewJob("q"), 88, 0, id="plain"),
        pytest.param(QueueSettings("q", ["q"]), NewJob("q", delay_ms=9_000), 203, 0, id="delayed"),
        pytest.param(QueueSettings("q", ["q"]), NewJob("q", request_id="{}"), 249, 0, id="request"),
        pytest.param(QueueSettings("q", ["q"]), NewJob("q", unique="{}"), 334, 0, id="unique"),
        pytest.param(QueueSettings("q", ["q"], QueueKind.KEYED), NewJob("q", key="{}"), 88, 64, id="keyed"),
        pytest.param(QueueSettings("q", ["q"], merge=9, merge_within_ms=9), NewJob("q", key="{}"), 226, 64, id="merge"),
    ],
)
def test_the_size_of_jobs_counts_keys_and_ids(
    settings: QueueSettings, job: NewJob, each_bytes: int, index_bytes: int
) -> None:
    """The figures were measured with 100,096 jobs in compiled modules. An index of nine keys has 16 places."""
    log = JobLog(settings)
    names = [
        {field: getattr(job, field).format(number) for field in ("key", "unique", "request_id")} for number in range(9)
    ]
    log.append(JobsAdded([job._replace(**each) for each in names]))
    assert log.fold.size_bytes() == 9 * each_bytes + index_bytes
