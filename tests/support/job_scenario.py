"""What the processes of the jobs' crash tests do: run all jobs of a folder, until they die or are done."""

from __future__ import annotations

import logging
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import psycopg
from mailboat.cli.python_handlers import publish_at_home
from mailboat.clock import SystemClock
from mailboat.errors import RetryableError
from mailboat.failpoints import Failpoint, NoFailpoints
from mailboat.jobs.handlers import JobContext, JobHandlers, WorkerPorts
from mailboat.jobs.job_worker import Call, Handler, JobWorker, WorkerSettings
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.topic import JobTopic, open_job_topic
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.jobs import JobState, NewJob, show_job_id
from support.crashes import KillingFailpoints

JOBS: Final = 6
LEASE_MS: Final = 3_000
"""Those of a dead worker are waited for; a living one on a busy machine must not lose its own."""


def prepare(folder: Path) -> None:
    """Jobs whose lease is short, so that those of a dead worker start again soon."""
    with SqliteJournal.create(folder / "journal.db", SystemClock()) as journal:
        topic = open_job_topic(journal)
        topic.add([NewJob("work", lease_ms=LEASE_MS, retry_delay_ms=0, keep=True)] * JOBS)
        topic.close()


def work(folder: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Run jobs with a worker until all have ended; at the n-th time that `failpoint` is reached, die."""
    with (Path(folder) / "ran").open("a") as ran:

        def run(call: Call) -> None:
            ran.writelines(f"{show_job_id(job)} {call.token}\n" for job in call.jobs)
            ran.flush()

        _work(folder, {"**": run}, failpoint, count)


def work_with_effects(folder: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """As `work` on a home, with a handler that publishes the folder `site` and writes a row, both exactly once."""
    handlers, home = JobHandlers(), Path(folder)

    @handlers.job("**")
    def take_effect(_data: object, context: JobContext) -> None:
        context.publish(["/"], source=str(home / "site"))
        with closing(sqlite3.connect(home / "effects.db")) as database, context.transaction(database):
            database.execute("INSERT INTO effects VALUES (?)", (context.job,))

    _work(folder, handlers.for_worker(WorkerPorts(SystemClock(), publish_at_home(home))), failpoint, count)


def work_with_rows(folder: str, failpoint: Failpoint | None, database: str) -> None:
    """As `work`, with a handler that inserts a row into the table `effect` of a PostgreSQL, exactly once."""
    handlers = JobHandlers()

    with (Path(folder) / "ran").open("a") as ran:

        @handlers.job("**")
        def insert(_data: bytes, context: JobContext) -> None:
            ran.write(f"{context.job} {context.token}\n")
            ran.flush()
            with closing(psycopg.connect(database)) as connection, context.transaction(connection):
                connection.execute("INSERT INTO effect VALUES (%s, %s)", (context.job, context.token))

        ports = WorkerPorts(SystemClock(), publish_at_home(Path(folder)))
        _work(folder, handlers.for_worker(ports), failpoint, 1)


def serve(folder: str, name: str, slots: int) -> None:
    """Run a worker until a test kills it. The topic of a job names what its handler does.

    The file `ran` gets a line with worker, job and token as a call starts, and NAME.log what the worker logs.
    """
    place, clock, chance = Path(folder), SystemClock(), random.Random()  # chance tells workers apart
    logging.basicConfig(filename=place / f"{name}.log")
    gate = place / "gate"

    def note(call: Call) -> None:
        with (place / "ran").open("a") as ran:  # one short write: lines of several processes do not mix
            ran.writelines(f"{name} {job} {call.token}\n" for job in call.jobs)

    def sleep(call: Call) -> None:
        note(call)
        call.wait(float(next(iter(call.jobs.values())).payload))

    def die(call: Call) -> None:
        note(call)
        os.kill(os.getpid(), signal.SIGKILL)

    def pass_gate(call: Call) -> None:
        """Wait for the gate, also if asked to stop."""
        note(call)
        never = threading.Event()
        while not gate.exists():
            never.wait(0.01)

    handlers = {"sleep": sleep, "die": die, "gate": pass_gate}
    with SqliteJournal(place / "journal.db", clock) as journal:
        source = LogSource(open_job_topic(journal), clock, chance, NoFailpoints())
        worker = JobWorker(source, WorkerSettings(name, slots, handlers), clock, chance, NoFailpoints())
        while True:
            with suppress(RetryableError):
                worker.turn()


def _work(folder: str, handlers: Mapping[str, Handler], failpoint: Failpoint | None, count: int) -> None:
    failpoints = NoFailpoints() if failpoint is None else KillingFailpoints(failpoint, count)
    with SqliteJournal(Path(folder) / "journal.db", SystemClock()) as journal:
        topic = open_job_topic(journal)
        chance = random.Random()  # it tells workers apart
        clock = SystemClock()
        source = LogSource(topic, clock, chance, failpoints)
        worker = JobWorker(source, WorkerSettings("worker", 2, handlers), clock, chance, failpoints)
        while not has_ended(topic):
            worker.turn()
        worker.stop(5.0)


def has_ended(topic: JobTopic) -> bool:
    """Whether no job is queued or runs, as far as the topic was read."""
    states = [topic.fold.table.state(job) for job in topic.fold.table.all()]
    return len(states) == JOBS and not {JobState.QUEUED, JobState.ACTIVE} & set(states)
