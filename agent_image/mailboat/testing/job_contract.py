"""What durable jobs promise over every journal. A suite for the tests of an adapter, like `journal_contract`."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime, timedelta

import pytest

from mailboat.clock import Clock, SystemClock
from mailboat.errors import JobLogIncompleteError, JobLogReplacedError, RetryableError, UsageError
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.job_worker import Call, Handler, JobWorker, Result, WorkerSettings
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.source import JobSource
from mailboat.jobs.topic import JobTopic
from mailboat.journal.port import Journal
from mailboat.model.identifiers import TopicName
from mailboat.model.jobs import (
    AttemptOutcome,
    JobId,
    JobState,
    NewJob,
    QueueDefined,
    QueueKind,
    QueueSettings,
    offset_of,
)
from mailboat.testing.journal_harness import FOREVER, JournalHarness, in_background, new_topic_name
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until


class Jobs:
    """A job topic, with workers in threads and a view of their jobs."""

    def __init__(self, harness: JournalHarness, name: TopicName | None = None) -> None:
        self._harness = harness
        self._stack = ExitStack()
        self.name: TopicName = new_topic_name() if name is None else name
        self._journal().ensure_topic(self.name, FOREVER)
        self.topic = self._open()
        self._workers: list[tuple[JobWorker, threading.Event, threading.Thread]] = []

    def _journal(self) -> Journal:
        return self._stack.enter_context(self._harness.open())

    def _open(self) -> JobTopic:
        return JobTopic(self._journal(), self.name)

    def reopen(self) -> JobTopic:
        """The topic as a process that starts now sees it."""
        return self._stack.enter_context(closing(self._open()))

    def start_worker(self, handlers: dict[str, Handler], slots: int = 4, seed: int = 1) -> Callable[[], None]:
        """Start a worker in a thread; return what ends it without a word, as a crash does."""
        chance = random.Random(seed)  # noqa: S311  # reproducible, and no secret
        clock, failpoints = SystemClock(), NoFailpoints()
        source = self.new_source(clock, chance)
        worker = JobWorker(source, WorkerSettings("worker", slots, handlers), clock, chance, failpoints)
        ended = threading.Event()

        def run() -> None:
            while not ended.is_set():
                with suppress(RetryableError):  # the source was cut off
                    worker.turn()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._workers.append((worker, ended, thread))

        def crash() -> None:
            ended.set()
            self.cut_off(source)

        return crash

    def cut_off(self, source: JobSource) -> None:
        """End what the source of a worker does on its own, as the death of its process does."""

    def new_source(self, clock: Clock, chance: random.Random, /) -> JobSource:
        """Where a new worker gets its calls from."""
        return LogSource(self._open(), clock, chance, NoFailpoints())

    def add(self, *jobs: NewJob) -> Sequence[JobId]:
        return self.topic.add(jobs)

    def states(self, jobs: Sequence[JobId]) -> list[JobState | None]:
        self.topic.follow()
        return [self.topic.fold.table.state(job) for job in jobs]

    def wait_for(self, jobs: Sequence[JobId], state: JobState) -> None:
        wait_until(lambda: self.states(jobs) == [state] * len(jobs))

    def stop_workers(self) -> None:
        # The others cannot reach their source.
        living = [worker for worker, ended, _ in self._workers if not ended.is_set()]
        for _, ended, _ in self._workers:
            ended.set()
        for worker, _, thread in self._workers:
            worker.wake()
            thread.join()
            with suppress(RetryableError):
                worker.stop(PATIENCE_SECONDS if worker in living else 0.0)
        self._workers.clear()

    def close(self) -> None:
        self.stop_workers()
        self.topic.close()
        self._stack.close()


class JobContract:
    """Subclasses provide the fixture `harness`."""

    @pytest.fixture
    def jobs(self, harness: JournalHarness) -> Iterator[Jobs]:
        made = Jobs(harness)
        yield made
        made.close()

    def test_a_job_runs_with_its_payload(self, jobs: Jobs) -> None:
        seen: list[bytes] = []
        jobs.start_worker({"purge.*": lambda call: seen.extend(job.payload for job in call.jobs.values())})
        added = jobs.add(NewJob("purge.cdn", b"/news", keep=True))
        jobs.wait_for(added, JobState.SUCCEEDED)
        assert seen == [b"/news"]

    def test_j1_a_job_that_always_fails_is_given_up(self, jobs: Jobs) -> None:
        attempts: list[int] = []

        def fail(call: Call) -> Result:
            attempts.append(call.attempt)
            return Result(AttemptOutcome.FAIL, "no route")

        jobs.start_worker({"**": fail})
        added = jobs.add(NewJob("mail", retries=2, retry_delay_ms=0))
        jobs.wait_for(added, JobState.GIVEN_UP)
        assert attempts == [1, 2, 3]

    def test_j2_an_exception_is_a_failure(self, jobs: Jobs) -> None:
        def raise_error(call: Call) -> None:
            raise ValueError(call.attempt)

        jobs.start_worker({"**": raise_error})
        jobs.wait_for(jobs.add(NewJob("mail", retries=0)), JobState.GIVEN_UP)

    def test_j5_two_workers_keep_the_limit_and_finish_all(self, jobs: Jobs) -> None:
        running, most, lock = 0, 0, threading.Lock()

        def work(call: Call) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            call.wait(0.005)
            with lock:
                running -= 1

        jobs.topic.append(QueueDefined(QueueSettings("few", ["few"], max_parallel=3)))
        for seed in (1, 2):
            jobs.start_worker({"**": work}, seed=seed)
        added = jobs.add(*[NewJob("few", keep=True)] * 40)
        jobs.wait_for(added, JobState.SUCCEEDED)
        assert most <= 3

    def test_j7_keys_keep_their_order_over_two_workers(self, jobs: Jobs) -> None:
        ran: list[tuple[str, JobId]] = []

        def note(call: Call) -> None:
            ran.extend((new.key, job) for job, new in call.jobs.items())

        jobs.topic.append(QueueDefined(QueueSettings("keyed", ["keyed"], QueueKind.KEYED)))
        for seed in (1, 2):
            jobs.start_worker({"**": note}, seed=seed)
        added = jobs.add(*(NewJob("keyed", key=key, keep=True) for _ in range(10) for key in "abc"))
        jobs.wait_for(added, JobState.SUCCEEDED)
        for key in "abc":
            assert [job for of, job in ran if of == key] == sorted(job for of, job in ran if of == key)

    def test_j11_a_late_result_of_a_lost_lease_does_not_count(self, jobs: Jobs) -> None:
        attempts: Counter[int] = Counter()
        release = threading.Event()

        def hang_once(call: Call) -> None:
            attempts[call.attempt] += 1
            if call.attempt == 1:
                release.wait()

        end_first = jobs.start_worker({"**": hang_once}, seed=1)
        added = jobs.add(NewJob("mail", keep=True, lease_ms=1_000, retry_delay_ms=0))
        wait_until(lambda: attempts[1] == 1)
        end_first()
        jobs.start_worker({"**": hang_once}, seed=2)
        jobs.wait_for(added, JobState.SUCCEEDED)
        release.set()
        assert attempts == {1: 1, 2: 1}

    def test_j14_a_long_call_keeps_its_lease(self, jobs: Jobs) -> None:
        attempts: list[int] = []

        def long(call: Call) -> None:
            attempts.append(call.attempt)
            assert not call.wait(6.5)

        jobs.start_worker({"**": long}, seed=1)
        jobs.start_worker({"**": long}, seed=2)
        # a renewal has more than three seconds to arrive: on a busy machine it needs them
        added = jobs.add(NewJob("mail", keep=True, lease_ms=5_000))
        jobs.wait_for(added, JobState.SUCCEEDED)
        assert attempts == [1]

    def test_a_worker_that_stops_lets_its_calls_end(self, jobs: Jobs) -> None:
        started, ended = threading.Event(), []

        def work(call: Call) -> None:
            started.set()
            ended.append(call.wait(0.3))

        jobs.start_worker({"**": work})
        added = jobs.add(NewJob("mail", keep=True))
        assert started.wait(PATIENCE_SECONDS)
        jobs.stop_workers()
        assert ended == [False], "it was not asked to stop"
        assert jobs.states(added) == [JobState.SUCCEEDED]

    def test_worker_that_stops_leaves_the_queues_to_others_while_its_calls_run(self, jobs: Jobs) -> None:
        started, release = threading.Event(), threading.Event()

        def work(_: Call) -> None:
            started.set()
            release.wait()

        def topics() -> list[Sequence[str]]:
            jobs.topic.follow(0.1)
            return [worker.topics for worker in jobs.topic.fold.workers.values()]

        jobs.start_worker({"mail": work})
        added = jobs.add(NewJob("mail", keep=True))
        assert started.wait(PATIENCE_SECONDS)
        with in_background(jobs.stop_workers):
            try:
                wait_until(lambda: topics() == [()])
                # longer than between two looks of an agent for a claim that is under way
                assert [topics() for _ in range(3)] == [[()]] * 3
            finally:
                release.set()
        jobs.wait_for(added, JobState.SUCCEEDED)

    def test_a_job_out_of_bounds_is_refused_and_not_appended(self, jobs: Jobs) -> None:
        with pytest.raises(UsageError, match="lease_ms is 1"):
            jobs.add(NewJob("mail", lease_ms=1))
        assert jobs.states([]) == []
        assert jobs.topic.next_offset == 0

    def test_a_delayed_job_starts_on_an_idle_log(self, jobs: Jobs) -> None:
        started: list[datetime] = []
        jobs.start_worker({"**": lambda _: started.append(SystemClock().now())})
        now = SystemClock().now()
        begin = now.replace(microsecond=now.microsecond // 1000 * 1000)  # as in the log, from which the delay counts
        added = jobs.add(NewJob("mail", delay_ms=300, keep=True))
        jobs.wait_for(added, JobState.SUCCEEDED)
        assert started[0] - begin >= timedelta(milliseconds=300)

    def test_j38_a_reader_that_starts_later_sees_the_same_states(self, jobs: Jobs, harness: JournalHarness) -> None:
        jobs.start_worker(
            {"**": lambda call: Result(AttemptOutcome.CANCEL) if call.attempt > 1 else Result(AttemptOutcome.FAIL)}
        )
        added = jobs.add(*[NewJob("mail", retry_delay_ms=0)] * 5)
        jobs.wait_for(added, JobState.ERROR)
        with harness.open() as journal:
            late = JobTopic(journal, jobs.name)
            wait_until(late.follow)
            assert [late.fold.table.state(job) for job in added] == [JobState.ERROR] * 5
            late.close()

    def test_a_start_restores_the_last_checkpoint(self, jobs: Jobs) -> None:
        jobs.topic.append(QueueDefined(QueueSettings("line", ["line"], QueueKind.ORDERED)))
        first = jobs.add(*[NewJob("line", b"payload")] * 20)
        jobs.topic.write_checkpoint()
        bounds = jobs.topic.write_checkpoint()
        assert bounds.earliest_offset <= offset_of(first[0]), "payloads of queued jobs are kept"
        jobs.start_worker({"**": lambda _: None})
        wait_until(lambda: jobs.states(first) == [None] * 20)
        bounds = jobs.topic.write_checkpoint()
        assert bounds.earliest_offset > offset_of(first[0])
        late = jobs.reopen()
        assert late.fold.queues["line"].settings.kind is QueueKind.ORDERED
        last = jobs.add(NewJob("line", keep=True))
        jobs.wait_for(last, JobState.SUCCEEDED)
        wait_until(lambda: late.follow() and late.fold.table.state(last[0]) is JobState.SUCCEEDED)

    def test_j34_a_topic_without_its_first_records_is_refused(self, jobs: Jobs, harness: JournalHarness) -> None:
        jobs.add(*[NewJob("mail")] * 3)
        with harness.open() as journal:
            journal.truncate(jobs.name, journal.bounds(jobs.name).next_offset)
            with pytest.raises(JobLogIncompleteError):
                JobTopic(journal, jobs.name)

    def test_j34_a_topic_that_was_created_again_is_named(self, jobs: Jobs, harness: JournalHarness) -> None:
        jobs.add(NewJob("mail"))
        with harness.open() as journal:
            journal.upkeep.delete_topic(jobs.name)
            wait_until(lambda: jobs.name not in journal.topics())
            journal.ensure_topic(jobs.name, FOREVER)
        with pytest.raises(JobLogReplacedError):
            wait_until(lambda: bool(jobs.states([])))
