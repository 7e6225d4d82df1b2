"""`mailboat worker run` as a process: Python handlers, schedules, on a home and on an agent."""

from __future__ import annotations

import itertools
import random
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import mailboat
import pytest
from mailboat.api.client import HttpControl
from mailboat.api.job_control import JobControl, JobFilter
from mailboat.clock import SystemClock
from mailboat.config.document import HttpConfig
from mailboat.control.job_service import JobService
from mailboat.jobs.command import SubprocessHandler
from mailboat.jobs.job_worker import Call, Result
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.jobs import AttemptOutcome, JobAction, JobId, NewJob, Token, parse_job_id
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.fake_control import FakeControl

MODULE = """
import sqlite3
from dataclasses import dataclass

import mailboat

handlers = mailboat.JobHandlers()


@dataclass
class Render:
    page: str


@handlers.job("render")
def render(data: Render, ctx: mailboat.JobContext):
    ctx.publish(["/" + data.page], PLACE)
    if ctx.attempt == 1:
        return ctx.fail("the package is published, the report is lost", after=0)


@handlers.job("index")
def index(data: str, ctx):
    connection = sqlite3.connect("index.db")
    with ctx.transaction(connection):
        connection.execute("CREATE TABLE IF NOT EXISTS words (word TEXT)")
        connection.execute("INSERT INTO words VALUES (?)", (data,))
    if ctx.attempt == 1:
        return ctx.fail("the effect is there, its report is lost", after=0)


@handlers.job("hang")
def hang(data, ctx):
    ctx.progress(1, 4)
    ctx.log("waits")
    ctx.wait(600)
    return ctx.cancel("asked to stop")
"""

StartWorker = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartWorker]:
    """Starts `mailboat WORDS… worker run` in the test's folder; at the end each must stop cleanly."""
    monkeypatch.chdir(tmp_path)
    started: list[subprocess.Popen[str]] = []

    def start(*words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "mailboat.cli", *map(str, words)]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    stopped = [*zip(started, itertools.cycle([(signal.SIGTERM, 0), (signal.SIGINT, 130)]), strict=False)]
    for process, (number, _) in stopped:
        assert process.stderr is not None
        process.stderr.readline()  # it takes signals before it writes its first line
        process.send_signal(number)
    for process, (_, code) in stopped:
        errors = process.communicate(timeout=PATIENCE_SECONDS)[1]
        assert (process.returncode, "stopped cleanly" in errors) == (code, True), errors


def add(jobs: JobControl, topic: str, payload: bytes = b"") -> str:
    """Progress comes with a renewal, after a third of the lease; on a busy machine that needs the rest to arrive."""
    return jobs.add([NewJob(topic, payload, keep=True, lease_ms=6_000)])[0].job


def state(jobs: JobControl, job: str) -> str:
    return jobs.show(parse_job_id(job)).view.state


@pytest.fixture
def home_jobs(boat: Any) -> Iterator[JobService]:
    clock = SystemClock()
    with (
        SqliteJournal(boat.home / "journal.db", clock) as journal,
        closing(JobService(lambda: journal, clock, random.Random(1))) as jobs,
    ):
        yield jobs


def check_effects(jobs: JobControl, folder: Path) -> None:
    """Add a job for each handler of the module; effects happen once although each first attempt reports a failure."""
    rendered, indexed = add(jobs, "render", b'{"page": "a.html"}'), add(jobs, "index", b'"word"')
    broken = add(jobs, "render", b'{"page": 7}')
    wait_until(lambda: [state(jobs, job) for job in (rendered, indexed, broken)] == ["succeeded", "succeeded", "error"])
    with closing(sqlite3.connect(folder / "index.db")) as database:
        assert database.execute("SELECT word FROM words").fetchall() == [("word",)]
    assert "Expected `str`, got `int` - at `$.page`" in jobs.show(parse_job_id(broken)).view.reason


def check_progress_and_stop(jobs: JobControl) -> None:
    """J16: a stop that another process asks for reaches the handler, whose progress is shown meanwhile."""
    hanging = parse_job_id(add(jobs, "hang"))
    wait_until(lambda: jobs.show(hanging).total == 4)
    shown = jobs.show(hanging)
    assert (shown.done, shown.total, shown.log, shown.view.tries) == (1, 4, ("waits",), 1)
    assert shown.started_at is not None
    assert shown.eta_at is not None
    assert shown.eta_at > shown.started_at
    jobs.command(JobAction.STOP, [hanging])
    wait_until(lambda: jobs.show(hanging).view.state == "stopped")


def test_j16_python_handlers_run_on_a_home(
    tmp_path: Path, boat: Any, home_jobs: JobService, start_worker: StartWorker
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a.html").write_text("a")
    (tmp_path / "render_jobs.py").write_text(MODULE.replace("PLACE", "source='site'"))
    start_worker("--home", boat.home, "worker", "run", "--import", "render_jobs")
    check_effects(home_jobs, tmp_path)
    with mailboat.open(boat.home) as opened:
        assert opened.subscribe("web", f"files:{tmp_path / 'web'}").imported == 1
    check_progress_and_stop(home_jobs)


def test_j35_python_handlers_run_on_an_agent(tmp_path: Path, boat: Any, serve: Any, start_worker: StartWorker) -> None:
    (tmp_path / "render_jobs.py").write_text(MODULE.replace("PLACE", "publisher='author'"))
    control, clock = FakeControl(), SystemClock()
    service = JobService(lambda: SqliteJournal(boat.home / "journal.db", clock), clock, random.Random(1))
    url = serve(control, HttpConfig(requests_per_second=1e6, burst_requests=1_000_000), jobs=service).url
    start_worker("worker", "run", "--import", "render_jobs", "--url", url)
    with HttpControl(url) as client:
        check_effects(client.jobs, tmp_path)
        assert {order.request_id for order in control.ordered} == {control.ordered[0].request_id}
        check_progress_and_stop(client.jobs)


def test_a_live_worker_fires_a_schedule(boat: Any, home_jobs: JobService, start_worker: StartWorker) -> None:
    start_worker("--home", boat.home, "worker", "run", "--on", "tick=true")
    start_worker("--home", boat.home, "worker", "run", "--on", "tock=true")
    boat.do("jobs", "schedule", "ticks", "tick", "--every", "1s")
    boat.do("jobs", "schedule", "tocks", "none", "--every", "1s")
    wait_until(lambda: len(home_jobs.list_jobs(JobFilter(topic="none")).items) >= 3)
    first, *_ = home_jobs.list_jobs(JobFilter(topic="none")).items
    assert first.state == "unassigned"
    boat.do("jobs", "unschedule", "tocks")
    assert [each["schedule"] for each in boat.json("jobs", "schedules")] == ["ticks"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "specify handlers with --on PATTERN=COMMAND or --import MODULE"),
        (("--import", "no_such_module_here"), "the module cannot be imported"),
        (("--import", "json"), "the module has no mailboat.JobHandlers()"),
        (("--on", "a=true", "--on", "a=false"), "there are two handlers for a"),
        (("--on", "purge"), "is not PATTERN=COMMAND"),
        (("--on", "purge=echo 'x"), 'the command of "purge=echo \'x" cannot be read: No closing quotation'),
        (("--import", "broken_module"), "the module cannot be imported: NameError: name 'handles' is not defined"),
    ],
)
def test_wrong_handlers_are_refused(
    boat: Any, words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_module.py").write_text("handles.job()\n")
    ran = boat.run("worker", "run", *words)
    assert (ran.code, message in ran.err) == (2, True), ran.err


def test_jobs_are_added_from_python(boat: Any) -> None:
    with mailboat.open(boat.home) as opened:
        job = opened.add_job("mail", {"to": "mia"}, key="k", delay=60, request_id="r")
        assert opened.add_job("mail", {"to": "mia"}, request_id="r") == job
        shown = opened.job(job)
        assert (shown.data, shown.key, shown.view.state) == ({"to": "mia"}, "k", "queued")
        with pytest.raises(mailboat.errors.UsageError, match="no JSON form"):
            opened.add_job("mail", object())
        for wrong in ({"delay": 60 * 86_400}, {"key": "\udcff"}):
            with pytest.raises(mailboat.errors.UsageError, match="out of bounds"):
                opened.add_job("mail", **wrong)


def test_only_the_end_of_a_commands_output_is_read() -> None:
    script = "head -c 20000000 /dev/zero; echo; echo retry-after: 7; echo no route; exit 75"
    call = Call({JobId(1): NewJob("purge")}, Token(1), 1)
    tracemalloc.start()
    try:
        result = SubprocessHandler(["sh", "-c", script])(call)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result == Result(AttemptOutcome.FAIL, "sh exited with 75: no route", 7.0)
    assert most_bytes < 1_000_000


def test_the_end_of_a_short_command_is_noticed_sooner_than_that_of_a_long_one(tmp_path: Path) -> None:
    class Watched(Call):
        pauses: ClassVar[list[float]] = []

        def wait(self, seconds: float) -> bool:
            self.pauses.append(seconds)
            if seconds == 0.1:
                (tmp_path / "ended").touch()
            return super().wait(seconds)

    script = f"until [ -e {tmp_path}/ended ]; do sleep 0.01; done"
    assert SubprocessHandler(["sh", "-c", script])(Watched({JobId(1): NewJob("purge")}, Token(1), 1)) == Result()
    assert Watched.pauses[0] <= 0.01
    assert Watched.pauses == sorted(Watched.pauses)
