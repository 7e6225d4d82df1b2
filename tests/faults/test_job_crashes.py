"""SIGKILL of a worker at each failpoint: every job still ends once, and another worker runs what was lost."""

from __future__ import annotations

import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mailboat.clock import SystemClock
from mailboat.failpoints import Failpoint
from mailboat.jobs.job_changes import Applied
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.port import records_of
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import JobId, JobState
from mailboat.model.messages import PACKAGE_TOPIC
from support import job_scenario
from support.forks import preload, run_child

WORKING = [failpoint for failpoint in Failpoint if failpoint.startswith("jobs-")]
preload("support.job_scenario")


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("failpoint", WORKING)
def test_a_worker_killed_at_any_step_loses_no_job_and_ends_none_twice(
    tmp_path: Path, failpoint: Failpoint, count: int
) -> None:
    job_scenario.prepare(tmp_path)
    assert run_child(job_scenario.work, str(tmp_path), failpoint, count) == -signal.SIGKILL
    assert run_child(job_scenario.work, str(tmp_path)) == 0
    ended: Counter[JobId] = Counter()
    with SqliteJournal(tmp_path / "journal.db", SystemClock()) as journal:
        topic = open_job_topic(journal)

        def count_ends(_: Offset, applied: Applied) -> None:
            ended.update(transition.job for transition in applied.transitions if transition.state.final)

        while not topic.follow(0.0, count_ends):
            pass
        jobs = list(topic.fold.table.all())
        assert [topic.fold.table.state(job) for job in jobs] == [JobState.SUCCEEDED] * job_scenario.JOBS
        topic.close()
    assert ended == dict.fromkeys(jobs, 1)
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert len({tuple(line) for line in ran}) == len(ran), "no two runs of a job have the same token"
    assert max(Counter(job for job, _ in ran).values()) <= 2


def test_a_publication_and_a_row_of_a_killed_attempt_are_not_repeated(boat: Any) -> None:
    """The worker dies when its third call has taken effect, and before it reports that."""
    (boat.home / "site").mkdir()
    (boat.home / "site" / "page").write_text("a page")
    with closing(sqlite3.connect(boat.home / "effects.db")) as database:
        database.execute("CREATE TABLE effects (job TEXT)")
        job_scenario.prepare(boat.home)
        work, place = job_scenario.work_with_effects, str(boat.home)
        assert run_child(work, place, Failpoint.JOBS_AFTER_HANDLER, 3) == -signal.SIGKILL
        before = database.execute("SELECT count(*) FROM effects").fetchone()[0]
        assert run_child(work, place) == 0
        rows = [job for (job,) in database.execute("SELECT job FROM effects")]
    with SqliteJournal(boat.home / "journal.db", SystemClock()) as journal:
        packages = len(list(records_of(journal, PACKAGE_TOPIC)))
    assert before >= 3
    assert (len(rows), len(set(rows)), packages) == (job_scenario.JOBS,) * 3
