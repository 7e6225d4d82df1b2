"""Durable jobs in one process under one seed: workers that crash, stall and lose answers, against the fold as a model.

Workers are real; their handlers end when the simulation lets them. Each has its own handle of the journal, which fails,
loses appends and their answers, and its own clock, an hour off in either direction. They are killed, stand still beyond
their leases, leave and start again, also behind checkpoints; brokers restart. An observer reads the same log and checks
each record. One seed is one run.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from mailboat.errors import (
    AppendUncertainError,
    JobLogIncompleteError,
    JournalUnavailableError,
    RetryableError,
)
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.fold import LEASE_EXPIRED, JobFold
from mailboat.jobs.job_changes import Applied
from mailboat.jobs.job_worker import Call, JobWorker, Result, WorkerSettings
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import JournalReader, NewRecord, ReadLimits, Record, RecordBatch, Start
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.jobs import (
    AttemptOutcome,
    JobAction,
    JobId,
    JobResult,
    JobsCommanded,
    JobsFinished,
    JobState,
    NewJob,
    QueueDefined,
    QueueKind,
    QueueSettings,
    Token,
)
from mailboat.testing.clocks import ManualClock

QUEUES: Final = (
    QueueSettings("limited", ("limited",), max_parallel=2),
    QueueSettings("line", ("line",), QueueKind.ORDERED),
    QueueSettings("keyed", ("keyed",), QueueKind.KEYED),
    QueueSettings("half", ("half",), parallel_percent=50),
    QueueSettings("free", ("free",)),
    QueueSettings("merged", ("merged",), merge=3, merge_within_ms=200),
    QueueSettings("fair", ("fair",), QueueKind.FAIR),
    QueueSettings("rated", ("rated",), rate=2, rate_period_ms=300),
)
_SLOTS: Final = 3
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_TURNS: Final = 3_000


class LossyJournal:
    """A journal that sometimes refuses, appends nothing, or appends and does not answer; it never waits for records."""

    def __init__(self, simulation: JobSimulation) -> None:
        self.journal = simulation.journal.another_handle()
        self.rate = simulation.rate
        self._simulation = simulation

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        self.fail_sometimes()
        offsets = self.journal.append(topic, records)
        if self._simulation.chance.random() < self.rate:
            raise AppendUncertainError("the answer was lost")
        return offsets

    def record_at(self, topic: TopicName, offset: Offset) -> Record | None:
        self.fail_sometimes()
        return self.journal.record_at(topic, offset)

    def reader(self, topic: TopicName, start: Start) -> LossyReader:
        return LossyReader(self.journal.reader(topic, start), self)

    def fail_sometimes(self) -> None:
        if self._simulation.is_down or self._simulation.chance.random() < self.rate:
            raise JournalUnavailableError("no broker answers")


class LossyReader:
    """A reader of a lossy journal."""

    def __init__(self, reader: JournalReader, journal: LossyJournal) -> None:
        self._reader = reader
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, limits: ReadLimits, _wait_seconds: float) -> RecordBatch:
        self._journal.fail_sometimes()
        return self._reader.read(limits, 0.0)


class SimulatedWorker:
    """A `JobWorker` over the log, called in one thread; its calls end when the simulation lets them."""

    def __init__(self, name: str, simulation: JobSimulation) -> None:
        """Start as a process does. Raises: JournalUnavailableError."""
        self._chance = simulation.chance
        self.clock = ManualClock(_START + timedelta(hours=self._chance.choice((-1, 0, 1))))
        self.journal: Any = LossyJournal(simulation)
        self._calls: list[Future[Result]] = []
        failpoints = NoFailpoints()
        source = LogSource(open_job_topic(self.journal), self.clock, self._chance, failpoints)
        settings = WorkerSettings(name, _SLOTS, {"**": self._begin})
        self._worker = JobWorker(source, settings, self.clock, self._chance, failpoints)
        # Threads that have ended: `_make_calls` runs in this one, so that one seed gives one order of events.
        ended = threading.Thread()
        ended.start()
        self._worker._threads += [ended] * _SLOTS

    def take_turn(self) -> None:
        """Raises: JobLogIncompleteError: it must start again."""
        with suppress(RetryableError):
            self._worker.turn()
        self._worker._tasks.put(None)
        self._worker._make_calls()
        self._end_calls(0.4)

    def leave(self) -> None:
        """End in order, as after SIGTERM."""
        self.journal.rate = 0.0
        self._end_calls(1.0)
        self._worker.stop(0.0)

    def _begin(self, _: Call) -> Future[Result]:
        self._calls.append(Future())
        return self._calls[-1]

    def _end_calls(self, share: float) -> None:
        for call in self._calls[:]:
            if self._chance.random() < share:
                self._calls.remove(call)
                outcome = self._chance.choice(
                    [AttemptOutcome.OK] * 6 + [AttemptOutcome.FAIL, AttemptOutcome.CANCEL, AttemptOutcome.SNOOZE]
                )
                call.set_result(Result(outcome, "", self._chance.choice((None, 0.0, 0.05))))


class JobSimulation:
    """One run."""

    def __init__(self, seed: int) -> None:
        """Everything random comes of `seed`."""
        self.chance = random.Random(seed)  # one seed, one run
        self.clock = ManualClock(_START)
        self.journal = MemoryJournal(self.clock)
        self.rate = self.chance.choice((0.0, 0.05, 0.2))
        self.down_steps = 0
        self.topic = open_job_topic(self.journal.another_handle(), self.check)
        self.topic.append(*(QueueDefined(settings) for settings in QUEUES))
        self.added: list[JobId] = []
        self.ended: Counter[JobId] = Counter()
        self.running: dict[JobId, Token] = {}
        self.highest: dict[JobId, Token] = {}
        self.reasons: dict[JobId, str] = {}
        self.rated_starts: deque[int] = deque(maxlen=8)
        self.starts = 0
        self.workers: list[SimulatedWorker] = []

    def run(self, steps: int = 40) -> None:
        """Let anything happen for some steps; then nothing fails any more, and everything must come to its end."""
        for _ in range(steps):
            self.down_steps = max(0, self.down_steps - 1)
            self.step()
            self.read()
        self.rate, self.down_steps = 0.0, 0
        for worker in self.workers:
            worker.journal.rate = 0.0
        if not self.workers:
            self.start_worker()
        for _ in range(_MOST_TURNS):
            if not self.unfinished():
                break
            self.pass_time(self.chance.choice((0.05, 1.0, 5.0)))
            self.take_turn()
            self.read()
        self.check_rest()

    def step(self) -> None:
        choice = self.chance.random()
        if choice < 0.25:
            self.added += self.topic.add([self.new_job() for _ in range(self.chance.randint(1, 4))])
        elif choice < 0.32 or not self.workers:
            self.start_worker()
        elif choice < 0.36:
            self.workers.remove(self.chance.choice(self.workers))  # SIGKILL: it reports nothing and does not leave
        elif choice < 0.38:
            self.stop_worker()
        elif choice < 0.40:
            self.down_steps = self.chance.randint(1, 5)  # the brokers restart
        elif choice < 0.42:
            self.topic.write_checkpoint()
        elif choice < 0.48:
            self.pass_time(self.chance.choice((0.5, 1.5, 40.0)))  # beyond the lease of those that take no turn
        elif choice < 0.53:
            self.command()
        elif choice < 0.57 and self.running:
            self.guess_token(self.chance.choice(sorted(self.running)))
        else:
            self.pass_time(self.chance.choice((0.0, 0.01, 0.1)))
            self.take_turn()

    @property
    def is_down(self) -> bool:
        """Whether no broker answers the workers."""
        return self.down_steps > 0

    def take_turn(self) -> None:
        worker = self.chance.choice(self.workers)
        try:
            worker.take_turn()
        except JobLogIncompleteError:  # it stood still while a checkpoint moved the head of the topic
            self.workers.remove(worker)
            self.start_worker()

    def stop_worker(self) -> None:
        if not self.is_down:
            worker = self.chance.choice(self.workers)
            self.workers.remove(worker)
            with suppress(JobLogIncompleteError):
                worker.leave()

    def guess_token(self, job: JobId) -> None:
        """A late or hostile writer reports a job with another token than that of its lease."""
        token = self.running[job]
        self.topic.append(
            JobsFinished.of([JobResult(job, Token(token + self.chance.choice((-1, 1))), AttemptOutcome.OK)])
        )
        self.read()
        if self.running.get(job) != token and self.reasons[job] != LEASE_EXPIRED:
            raise AssertionError(f"job {job} ended by a result with another token than {token}")

    def command(self) -> None:
        """An operator changes a job, or settings of a queue that leave the checked limits and order as they are."""
        if self.added and self.chance.random() < 0.6:
            self.topic.append(JobsCommanded(self.chance.choice(list(JobAction)), [self.chance.choice(self.added)]))
            return
        settings = self.chance.choice(QUEUES)
        merge = settings.merge if settings.merge == 1 else self.chance.choice((2, 3))
        rate = self.chance.choice((0, 5)) if settings.name != "rated" else settings.rate
        self.topic.append(QueueDefined(settings._replace(merge=merge, rate=rate, rate_period_ms=300)))

    def new_job(self) -> NewJob:
        topic = self.chance.choice([settings.name for settings in QUEUES])
        delay_ms = self.chance.choice((0, 0, 0, 300))
        key = self.chance.choice(("", "a", "b"))
        return NewJob(topic, b"x", key, delay_ms=delay_ms, retries=2, retry_delay_ms=10, lease_ms=1_000)

    def start_worker(self) -> None:
        self.starts += 1
        with suppress(JournalUnavailableError):
            self.workers.append(SimulatedWorker(f"worker-{self.starts}", self))

    def pass_time(self, seconds: float) -> None:
        for clock in (self.clock, *(worker.clock for worker in self.workers)):
            clock.advance(seconds)

    def read(self) -> None:
        while not self.topic.follow():
            pass

    def unfinished(self) -> list[JobId]:
        return [job for job in self.added if self.topic.fold.table.state(job) in (JobState.QUEUED, JobState.ACTIVE)]

    # Invariants

    def check(self, fold: JobFold, applied: Applied) -> None:
        """After each record: jobs end once, tokens rise, limits and order hold."""
        for job, state, _, reason, _ in applied.transitions:
            self.reasons[job] = reason
            if state is JobState.ACTIVE:
                token = fold.leases[job].token
                if token <= self.highest.get(job, -1) or job in self.running or self.ended[job]:
                    raise AssertionError(f"job {job} started with token {token} after {self.highest.get(job)}")
                self.running[job] = self.highest[job] = token
                self.check_order(fold, job)
                if fold.queue(job).name == "rated":
                    self.rated_starts.append(fold.now_ms)
            else:
                self.running.pop(job, None)
                # A job of the history that is removed has ended before.
                self.ended[job] += state.final and (state is not JobState.DROPPED or not self.ended[job])
            if self.ended[job] > 1:
                raise AssertionError(f"job {job} ended twice")
        running = Counter(fold.queue(job).settings.name for job in self.running)
        if running["limited"] > 2 or running["line"] > 1:
            raise AssertionError(f"more calls run than may: {running}")
        # Only as one starts: workers may leave while calls run, and the share becomes smaller.
        is_start = any(each.state is JobState.ACTIVE and each.queue == "half" for each in applied.transitions)
        if is_start and running["half"] > max(1, sum(worker.slots for worker in fold.workers.values()) // 2):
            raise AssertionError(f"more calls than half of the slots run: {running}")
        if sum(start_ms > fold.now_ms - 300 for start_ms in self.rated_starts) > 2:
            raise AssertionError(f"more than two calls started within 300 ms: {list(self.rated_starts)}")
        keys = Counter(fold.table.key(job) for job in self.running if fold.queue(job).settings.name == "keyed")
        if any(count > 1 for key, count in keys.items() if key):
            raise AssertionError("two calls of one key run")

    def check_order(self, fold: JobFold, job: JobId) -> None:
        """In an ordered queue no job starts while an older one that has started before has not ended."""
        if fold.queue(job).settings.name == "line":
            before = [each for each in self.highest if each < job and not self.ended[each]]
            if any(fold.queue(each).settings.name == "line" for each in before if fold.table.row(each) >= 0):
                raise AssertionError(f"job {job} overtook one that is retried: {before}")

    def check_rest(self) -> None:
        """At rest: each job ended once, and a reader that starts now sees what the observer saw."""
        if (
            self.unfinished()
            or set(self.ended.values()) - {0, 1}
            or set(self.added) != {j for j in self.ended if self.ended[j]}
        ):
            raise AssertionError(f"not ended: {self.unfinished()}, ended: {self.ended}")
        late = open_job_topic(self.journal.another_handle())
        while not late.follow():
            pass
        if late.fold.capture(late.next_offset) != self.topic.fold.capture(self.topic.next_offset):
            raise AssertionError("two readers of one log see different jobs")
