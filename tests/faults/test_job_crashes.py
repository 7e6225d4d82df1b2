"""SIGKILL of a worker at each failpoint: every job still ends once, and another worker runs what was lost."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.failpoints import Failpoint
from mailboat.jobs.fold import Applied
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import JobId, JobState
from support import job_scenario
from support.forks import preload, run_child

WORKING = [one for one in Failpoint if one.startswith("jobs-")]
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
            ended.update(one.job for one in applied.transitions if one.state.final)

        while not topic.follow(0.0, count_ends):
            pass
        jobs = list(topic.fold.table.all())
        assert [topic.fold.table.state(job) for job in jobs] == [JobState.SUCCEEDED] * job_scenario.JOBS
        topic.close()
    assert ended == dict.fromkeys(jobs, 1)
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert len({tuple(line) for line in ran}) == len(ran), "no two runs of a job have the same token"
    assert max(Counter(job for job, _ in ran).values()) <= 2
