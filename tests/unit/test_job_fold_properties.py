"""Rules of the fold that hold for every history of the job topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_changes import Transition
from mailboat.jobs.selection import plan_claims
from mailboat.model.identifiers import Offset
from mailboat.model.job_checkpoint import LeaseState
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
    Priority,
    QueueAction,
    QueueCommanded,
    QueueDefined,
    QueueKind,
    QueueSettings,
    Renewal,
    Token,
    WorkerSeen,
)

QUEUES = (
    QueueSettings("fair", ["fair"], QueueKind.FAIR, max_parallel=3),
    QueueSettings("keyed", ["keyed"], QueueKind.KEYED),
    QueueSettings("merged", ["merged"], merge=3, merge_within_ms=500),
    QueueSettings("ordered", ["ordered"], QueueKind.ORDERED),
    QueueSettings("rated", ["rated"], rate=2, rate_period_ms=300),
)
WORKERS = ("w1", "w2", "w3")


class History:
    """Random workers, producers and operators on one log, with the rules checked at each record."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fold = JobFold()
        self.now_ms = 1_000
        self.offset = 0
        self.jobs: list[JobId] = []
        self.states: dict[JobId, JobState] = {}
        self.void: Sequence[JobId] = ()
        for settings in QUEUES:
            self.append(QueueDefined(settings))

    def append(self, record: JobRecord) -> None:
        applied = self.fold.apply(Offset(self.offset), self.now_ms, record)
        self.offset += 1
        for job in applied.added:
            if job not in self.states:
                self.jobs.append(job)
                self.states[job] = JobState.QUEUED
        for transition in applied.transitions:
            self.follow(transition)
        self.check({transition.job for transition in applied.transitions if transition.state is JobState.ACTIVE})
        self.void = applied.void

    def follow(self, transition: Transition) -> None:
        before = self.states[transition.job]
        if transition.state is JobState.ACTIVE:
            assert before is JobState.QUEUED
        elif transition.state is JobState.QUEUED:
            assert before is JobState.ACTIVE
        elif transition.state is not JobState.DROPPED:
            assert not before.final, "a job ends once"
        self.states[transition.job] = transition.state

    def check(self, started: set[JobId]) -> None:
        fold = self.fold
        running: Counter[str] = Counter()
        keys: Counter[tuple[str, int]] = Counter()
        starting: set[tuple[str, int]] = set()
        for lease in {lease.jobs: lease for lease in fold.leases.values()}.values():
            queue = fold.queue(lease.jobs[0])
            key = 1 if queue.settings.kind is QueueKind.ORDERED else fold.table.key(lease.jobs[0])
            running[queue.name] += 1
            keys[queue.name, key] += 1
            if lease.jobs[0] in started:
                starting.add((queue.name, key))
        queued = Counter(fold.queue(job).settings.name for job in fold.table.all() if fold.table.is_queued(job))
        due = Counter(
            fold.queue(job).settings.name for job in fold.table.all() if fold.table.is_ready(job, fold.now_ms)
        )
        for name, queue in fold.queues.items():
            assert queue.running == running[name]
            assert queue.queued == queued[name]
            assert queue.queued - queue.delayed == due[name]
        # Limits and order hold as calls start: a call that runs does not end because its queue is redefined.
        for name, key in starting:
            settings = fold.queues[name].settings
            assert settings.max_parallel < 0 or running[name] <= settings.max_parallel
            if settings.kind in (QueueKind.ORDERED, QueueKind.KEYED) and key:
                assert keys[name, key] == 1
        assert set(fold.leases) == {job for job, state in self.states.items() if state is JobState.ACTIVE}

    def step(self) -> None:
        random, choice = self.random, self.random.random()
        self.now_ms += random.choice((0, 0, 1, 50, 400, 3_000))
        some = [random.choice(self.jobs) for _ in range(random.randint(1, 4))] if self.jobs else []
        if choice < 0.3 or not some:
            self.append(JobsAdded([self.new_job() for _ in range(random.randint(1, 5))]))
        elif choice < 0.4:
            self.append(WorkerSeen(random.choice(WORKERS), random.choice((0, 2, 8)), ["**"]))
        elif choice < 0.5:
            self.append(JobsClaimed.of(random.choice(WORKERS), [some[:1], some[1:]] if some[1:] else [some]))
        elif choice < 0.65:
            self.claim(random.choice(WORKERS))
        elif choice < 0.85:
            self.append(JobsFinished.of([self.result(job) for job in some]))
        elif choice < 0.9:
            leases = self.fold.leases
            self.append(LeasesRenewed.of([Renewal(job, leases[job].token) for job in some if job in leases]))
        elif choice < 0.95:
            self.append(JobsCommanded(random.choice(list(JobAction)), some))
        elif choice < 0.97:
            name = random.choice(QUEUES).name
            self.append(QueueCommanded(random.choice(list(QueueAction)), name, self.now_ms + 500))
        else:
            self.append(QueueDefined(self.redefined(self.fold.queues[random.choice(QUEUES).name].settings)))

    def redefined(self, settings: QueueSettings) -> QueueSettings:
        """The settings with another value of one of them; the order, which has most states, in half of the cases."""
        random = self.random
        kind, merge = random.choice([*((kind, 1) for kind in QueueKind), (QueueKind.PARALLEL, random.choice((2, 3)))])
        rate = settings._replace(rate=random.choice((0, 2)), rate_period_ms=300)
        other = random.choice((settings, rate, settings._replace(max_parallel=random.choice((-1, 1, 3)))))
        within = settings._replace(merge_within_ms=random.choice((0, 500, 2_000)))
        return random.choice(
            (settings._replace(kind=kind, merge=merge), settings._replace(kind=kind, merge=merge), other, within)
        )

    def new_job(self) -> NewJob:
        random = self.random
        return NewJob(
            random.choice([settings.name for settings in QUEUES]),
            key=random.choice(("", "a", "b", "c")),
            priority=random.choice(list(Priority)),
            delay_ms=random.choice((0, 0, 100, 2_000)),
            retries=random.choice((0, 1, -1, None)),
            retry_delay_ms=random.choice((0, 100, None)),
            lease_ms=1_000,
            unique=random.choice(("", "", "u")),
            request_id=random.choice(("", "", f"r{random.randint(0, 50)}")),
            keep=random.random() < 0.5,
        )

    def result(self, job: JobId) -> JobResult:
        lease = self.fold.leases.get(job)
        token = lease.token if lease is not None and self.random.random() < 0.9 else Token(self.offset // 2)
        return JobResult(job, token, self.random.choice(list(AttemptOutcome)), self.random.choice((None, 0, 100)))

    def claim(self, worker: str) -> None:
        self.append(JobsClaimed.of(worker, plan_claims(self.fold, worker, 4).preferred))
        assert not self.void, "no record was between the proposal and the claim"

    def drain(self) -> None:
        """One worker finishes everything: no job may be left that nothing can start."""
        for settings in QUEUES:
            self.append(QueueCommanded(QueueAction.RESUME, settings.name))
        for _ in range(2_000):
            self.now_ms += 1_100
            for worker in WORKERS[1:]:
                self.append(WorkerSeen(worker, 0, []))
            self.append(WorkerSeen("w1", 1_000, ["**"]))
            self.claim("w1")
            leases = {lease.jobs: lease for lease in self.fold.leases.values()}.values()
            self.append(JobsFinished.of([JobResult(lease.jobs[0], lease.token, AttemptOutcome.OK) for lease in leases]))
            if all(state.final for state in self.states.values()):
                return
            self.now_ms += 60_000
        raise AssertionError(f"jobs that never start: {[j for j, s in self.states.items() if not s.final]}")


def ready_of(fold: JobFold) -> list[list[Sequence[JobId]]]:
    return [queue.ready(fold.now_ms, 1_000) for queue in fold.all_queues()]


def leases_of(fold: JobFold) -> dict[JobId, LeaseState]:
    return {job: lease.capture() for job, lease in fold.leases.items()}


@given(seed=st.integers(0, 1 << 32))
def test_jobs_end_once_limits_hold_and_nothing_is_stuck(seed: int) -> None:
    history = History(Random(seed))
    for _ in range(60):
        history.step()
    history.drain()


@given(seed=st.integers(0, 1 << 32))
def test_two_readers_compute_the_same_state(seed: int) -> None:
    """The state depends on offsets, append times and records only, not on when a reader looked."""
    history, log = History(Random(seed)), []
    original = history.append

    def recording(record: JobRecord) -> None:
        log.append((history.offset, history.now_ms, record))
        original(record)

    history.append = recording  # type: ignore[method-assign]
    for _ in range(40):
        history.step()
    late = JobFold()
    for offset, settings in enumerate(QUEUES):
        late.apply(Offset(offset), 1_000, QueueDefined(settings))
    for offset, now_ms, record in log:
        plan_claims(late, "w1", 3)
        late.apply(Offset(offset), now_ms, record)
    # All of it, and in the same order: two processes may write parts of one checkpoint.
    assert late.capture(Offset(history.offset)) == history.fold.capture(Offset(history.offset))


@given(seed=st.integers(0, 1 << 32), steps=st.integers(0, 40))
def test_a_restored_fold_goes_on_as_the_captured_one(seed: int, steps: int) -> None:
    history = History(Random(seed))
    for _ in range(steps):
        history.step()
    restored = JobFold(history.fold.capture(Offset(history.offset)))
    original = history.append

    def both(record: JobRecord) -> None:
        offset, now_ms = history.offset, history.now_ms
        original(record)
        restored.apply(Offset(offset), now_ms, record)
        assert leases_of(restored) == leases_of(history.fold)
        assert {job: restored.table.state(job) for job in history.jobs} == {
            job: history.fold.table.state(job) for job in history.jobs
        }

    history.append = both  # type: ignore[method-assign]
    for _ in range(30):
        history.step()
    assert {n: (q.queued, q.delayed, q.running) for n, q in restored.queues.items()} == {
        n: (q.queued, q.delayed, q.running) for n, q in history.fold.queues.items()
    }
    history.drain()


@given(seed=st.integers(0, 1 << 32))
def test_a_redefinition_leaves_each_job_in_its_place(seed: int) -> None:
    history = History(Random(seed))
    redefined = JobFold(history.fold.capture(Offset(history.offset)))
    original = history.append

    def both(record: JobRecord) -> None:
        offset, now_ms = history.offset, history.now_ms
        original(record)
        redefined.apply(Offset(offset), now_ms, record)
        for queue in QUEUES:
            redefined.apply(Offset(offset), now_ms, QueueDefined(redefined.queues[queue.name].settings))
        assert redefined.capture(Offset(offset)) == history.fold.capture(Offset(offset))
        assert ready_of(redefined) == ready_of(history.fold)
        assert redefined.next_moment_ms() == history.fold.next_moment_ms()

    history.append = both  # type: ignore[method-assign]
    for _ in range(40):
        history.step()
