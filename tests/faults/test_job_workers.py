"""Workers that are killed or stand still, or whose broker is, as an observer of the log sees it."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.errors import RetryableError
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_changes import Applied
from mailboat.jobs.job_worker import Call, JobWorker, WorkerSettings
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.jobs import MAX_LEASE_MS, JobId, JobState, NewJob, QueueDefined, QueueSettings, Token
from mailboat.testing.journal_harness import in_background, new_topic_name
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support import job_scenario
from support.forks import fork, preload
from support.kafka_broker import KafkaBroker

LEASE_MS = 1_000
LONG_LEASE_MS = 5_000
"""Longer than a worker stands still on a busy machine, where only the leases of a dead one are to pass on."""
QUEUED = 100_000
FEW = 4
STARTS_PER_SECOND = 2 * FEW * 5
"""Of two workers whose jobs take 0.2 seconds: on a busy machine that takes longer."""
preload("support.job_scenario")


class Observer:
    """A reader of the job topic that notes what each record does.

    Attributes:
        running: Worker and token of each active job.
        starts: Each start of a job: its worker, and when, in milliseconds of the log.
        ended: How often each job came to an end, by state.
        returned: Jobs that a record queued again, and when.
        most: The most jobs that ran at the same time.
    """

    def __init__(self, folder: Path) -> None:
        self._opened = ExitStack()
        self.folder = folder
        journal = self._opened.enter_context(SqliteJournal.create(folder / "journal.db", SystemClock()))
        self.running: dict[JobId, tuple[str, Token]] = {}
        self.starts: list[tuple[JobId, str, int]] = []
        self.ended: Counter[tuple[JobId, JobState]] = Counter()
        self.returned: dict[JobId, int] = {}
        self.most = 0
        self.topic = open_job_topic(journal, self._see)
        self._workers: dict[str, ForkServerProcess] = {}

    def _see(self, fold: JobFold, applied: Applied) -> None:
        for job, state, *_ in applied.transitions:
            if state is JobState.ACTIVE:
                lease = fold.leases[job]
                self.running[job] = lease.worker, lease.token
                self.starts.append((job, lease.worker.rpartition("-")[0], fold.now_ms))
            else:
                if state is JobState.QUEUED and job in self.running:
                    self.returned[job] = fold.now_ms
                self.running.pop(job, None)
                if state.final:
                    self.ended[job, state] += 1
        self.most = max(self.most, len(self.running))

    def add(
        self, count: int, topic: str, payload: bytes = b"", *, retries: int = 10, lease_ms: int = LEASE_MS
    ) -> list[JobId]:
        new = NewJob(topic, payload, retries=retries, lease_ms=lease_ms, retry_delay_ms=0, keep=True)
        added: list[JobId] = []
        for first in range(0, count, 250):
            added += self.topic.add([new] * min(250, count - first))
        return added

    def start(self, name: str, slots: int = FEW) -> None:
        self._workers[name] = fork(job_scenario.serve, str(self.folder), name, slots)

    def signal(self, name: str, number: int) -> None:
        pid = self._workers[name].pid
        assert pid is not None
        os.kill(pid, number)

    def has_died(self, name: str) -> bool:
        return self._workers[name].exitcode == -signal.SIGKILL

    def of(self, name: str) -> set[JobId]:
        """The jobs that a worker runs."""
        return {job for job, (worker, _) in self.running.items() if worker.startswith(f"{name}-")}

    def wait_for(self, condition: Callable[[], bool]) -> None:
        def read() -> bool:
            self.topic.follow(0.05)
            return condition()

        wait_until(read)

    def states(self, jobs: list[JobId]) -> Counter[JobState | None]:
        return Counter(map(self.topic.fold.table.state, jobs))

    def close(self) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.join()
        self.topic.close()
        self._opened.close()


@pytest.fixture
def observer(tmp_path: Path) -> Iterator[Observer]:
    made = Observer(tmp_path)
    yield made
    made.close()


def test_j5_a_killed_and_a_new_worker_keep_the_limit_and_repeat_only_what_ran(observer: Observer) -> None:
    observer.topic.append(QueueDefined(QueueSettings("few", ("sleep",), max_parallel=FEW)))
    jobs = observer.add(40, "sleep", b"0.1", lease_ms=LONG_LEASE_MS)
    observer.start("first")
    observer.start("second")
    observer.wait_for(lambda: bool(observer.of("first")) and len(observer.starts) > 8)
    lost = observer.of("first")
    observer.signal("first", signal.SIGKILL)
    observer.start("third")

    def has_third_begun() -> bool:
        """Whether it had a job: until then there are more of them, however long it takes to start."""
        has_begun = "third" in {worker for _, worker, _ in observer.starts}
        if not has_begun and observer.states(jobs)[JobState.QUEUED] == 0:
            jobs.extend(observer.add(FEW, "sleep", b"0.1", lease_ms=LONG_LEASE_MS))
        return has_begun

    observer.wait_for(has_third_begun)
    observer.wait_for(lambda: observer.states(jobs) == {JobState.SUCCEEDED: len(jobs)})
    repeated = {job for job, count in Counter(job for job, *_ in observer.starts).items() if count > 1}
    assert observer.most == FEW
    # The observer may have read the log when the worker had already ended a call, or begun another one.
    assert repeated <= {job for job, worker, _ in observer.starts if worker == "first"}
    assert len(repeated) <= FEW
    assert repeated <= lost | set(observer.returned)
    assert {worker for _, worker, _ in observer.starts} == {"first", "second", "third"}


def test_j9_a_killed_worker_among_three_moves_its_running_jobs_only(observer: Observer) -> None:
    observer.add(QUEUED, "sleep", b"0.2", lease_ms=LONG_LEASE_MS)
    observer.topic.write_checkpoint()  # behind which workers start sooner
    for name in ("first", "second", "third"):
        observer.start(name)
    observer.wait_for(lambda: all(map(observer.of, ("first", "second", "third"))))
    observer.signal("first", signal.SIGKILL)
    observer.wait_for(lambda: len(observer.returned) > 0 and not observer.of("first"))
    lost = dict(observer.returned)
    observer.wait_for(lambda: lost.keys() <= {job for job, worker, _ in observer.starts if worker != "first"})
    assert 0 < len(lost) <= FEW
    assert observer.returned == lost, "queued jobs are not touched"
    over = max(at for _, worker, at in observer.starts if worker == "first") + LONG_LEASE_MS
    for job in lost:
        again = min(at for started, worker, at in observer.starts if started == job and worker != "first")
        before = sum(over < at < again for _, _, at in observer.starts)
        assert before <= STARTS_PER_SECOND, "a job whose lease is over is among the next ones"
    assert len(observer.topic.fold.table) == QUEUED


def test_j10_a_job_that_kills_its_worker_is_given_up_after_its_retries(observer: Observer) -> None:
    (deadly,) = observer.add(1, "die", retries=3)
    harmless = observer.add(20, "sleep", b"0.01")
    for number in range(4):
        name = f"worker-{number}"
        observer.start(name)
        observer.wait_for(lambda name=name: observer.has_died(name))  # type: ignore[misc]
    observer.start("last")
    observer.wait_for(lambda: observer.states([deadly, *harmless]) == {JobState.GIVEN_UP: 1, JobState.SUCCEEDED: 20})
    assert Counter(job for job, *_ in observer.starts)[deadly] == 4


def test_j11_a_worker_that_stood_still_beyond_its_lease_is_refused(observer: Observer) -> None:
    (job,) = observer.add(1, "gate")
    observer.start("frozen")
    ran = observer.folder / "ran"
    observer.wait_for(lambda: ran.exists() and ran.read_text().endswith("\n"))
    observer.signal("frozen", signal.SIGSTOP)
    (observer.folder / "gate").touch()
    observer.start("other")
    observer.wait_for(lambda: observer.states([job]) == {JobState.SUCCEEDED: 1})
    observer.signal("frozen", signal.SIGCONT)
    log = observer.folder / "frozen.log"
    observer.wait_for(lambda: "JobLeaseLost" in log.read_text())
    observer.topic.follow()
    assert [worker for _, worker, _ in observer.starts] == ["frozen", "other"]
    assert observer.ended == {(job, JobState.SUCCEEDED): 1}
    first, second = (int(line.split()[2]) for line in ran.read_text().splitlines())
    assert first < second


def test_a_broker_killed_during_claims_and_results_neither_repeats_nor_loses_a_call(
    kafka_broker: KafkaBroker, settings: KafkaSettings, journal: KafkaJournal
) -> None:
    """Leases outlive the restart, so what an unanswered append claimed or reported is settled by reading it back."""
    name, ran = new_topic_name(), list[JobId]()
    has_died, ended = threading.Event(), threading.Event()

    def run(call: Call) -> None:
        ran.extend(call.jobs)
        if len(ran) > len(jobs) // 2:  # the others are left for after the death, however late it comes
            has_died.wait(PATIENCE_SECONDS)
        call.wait(0.02)

    def serve(worker_name: str) -> None:
        clock, chance = SystemClock(), random.Random(worker_name)
        with KafkaJournal(settings, clock) as own:
            source = LogSource(open_job_topic(own, topic=name), clock, chance, NoFailpoints())
            worker = JobWorker(source, WorkerSettings(worker_name, FEW, {"**": run}), clock, chance, NoFailpoints())
            while not ended.is_set():
                try:
                    worker.turn(0.5)
                except RetryableError:
                    ended.wait(0.1)
            worker.stop(5.0)

    with closing(open_job_topic(journal, topic=name)) as topic:
        jobs = topic.add([NewJob("work", retries=0, keep=True, lease_ms=MAX_LEASE_MS)] * 250)

        def has_ended() -> bool:
            with suppress(RetryableError):
                topic.follow(0.1)
            return all(topic.fold.table.state(job) is JobState.SUCCEEDED for job in jobs)

        with in_background(lambda: serve("one")) as one, in_background(lambda: serve("two")) as two:
            try:
                wait_until(lambda: len(ran) > 20, "the first calls")
                kafka_broker.kill()
                assert len(ran) < len(jobs)
                has_died.set()
                kafka_broker.start()
                wait_until(has_ended, "the last results")
            finally:
                ended.set()
            one.result(PATIENCE_SECONDS)
            two.result(PATIENCE_SECONDS)
        assert Counter(ran) == dict.fromkeys(jobs, 1)
        assert {topic.fold.table.tries(job) for job in jobs} == {1}
