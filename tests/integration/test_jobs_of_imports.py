"""A command purges the paths of imported packages: in one call, which is retried when the receiver asks for it."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path

from mailboat.clock import Deadline, SystemClock
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.command import SubprocessHandler
from mailboat.jobs.job_worker import Call, JobWorker, Result, WorkerSettings
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.topic import open_job_topic
from mailboat.model.job_rules import JobRule
from mailboat.model.jobs import QueueDefined, QueueSettings
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.subscriber import Until
from mailboat.testing.wait import PATIENCE_SECONDS
from support.engines import Engine, page_source

PACKAGES = 20
RETRY_AFTER_SECONDS = 0.4

PURGE = f"""#!/bin/sh
cat >> "$0.calls"
test -e "$0.failed" && exit 0
touch "$0.failed"
echo "429 too many requests"
echo "Retry-After: {RETRY_AFTER_SECONDS}"
exit 75
"""


def test_j22_j23_imports_are_purged_in_one_call_that_is_retried_when_the_receiver_asks(tmp_path: Path) -> None:
    purge = tmp_path / "purge.sh"
    purge.write_text(PURGE)
    purge.chmod(0o700)
    paths = [f"/content/{number}" for number in range(PACKAGES)]
    with Engine(tmp_path / "home") as engine, closing(engine.target("sqlite")) as target:
        site = page_source(*paths)
        for path in paths:
            engine.publisher().publish(add_request([NodePath(path)]), site)
        with closing(open_job_topic(engine.journal)) as topic:
            topic.append(QueueDefined(QueueSettings("cdn", ("purge.*",), merge=256, merge_within_ms=0)))
        rules = (JobRule("/content/**", "purge.cdn"), JobRule("/etc/**", "purge.other"))
        statistics = engine.subscriber(target, engine.with_settings(job_rules=rules)).run(Until.CAUGHT_UP)
        assert statistics.imported == PACKAGES

        topic = open_job_topic(engine.journal)
        command, ended = SubprocessHandler([str(purge)]), []

        def run(call: Call) -> Result:
            result = command(call)
            ended.append(result.outcome)
            return result

        settings = WorkerSettings("worker", 2, {"purge.*": run})
        clock, chance, failpoints = SystemClock(), random.Random(1), NoFailpoints()
        source = LogSource(topic, clock, chance, failpoints)
        worker = JobWorker(source, settings, clock, chance, failpoints)
        deadline = Deadline(clock, PATIENCE_SECONDS)
        started: set[int] = set()
        while len(ended) < 2 and not deadline.is_over():
            worker.turn()
            started.update(lease.started_ms for lease in topic.fold.leases.values())
        worker.stop(5.0)
        assert not len(topic.fold.table)
    calls = [json.loads(line) for line in Path(f"{purge}.calls").read_text().splitlines()]
    purged = [{path for job in call["jobs"] for path in job["data"]["paths"]} for call in calls]
    assert purged == [set(paths), set(paths)]
    assert max(started) - min(started) >= RETRY_AFTER_SECONDS * 1000
