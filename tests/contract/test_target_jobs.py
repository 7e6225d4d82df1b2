"""Jobs that an import adds are part of its commit, in every target."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from mailboat.content.port import Target
from mailboat.content.targets.files import open_files_target
from mailboat.content.targets.generations import open_generations_target
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import NewJob
from mailboat.model.positions import LogIdentity, Position
from mailboat.testing.memory_content import MemoryTarget

POSITION = Position(LogIdentity("c", "t"), Offset(1))


def open_target(kind: str, folder: Path) -> Target:
    if kind == "memory":
        return MemoryTarget()
    if kind == "sqlite":
        return open_sqlite_target(folder / "content.db")
    return open_files_target(folder) if kind == "files" else open_generations_target(folder)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "files", "generations"])
def test_jobs_are_stored_with_the_commit_and_wait_in_order(tmp_path: Path, kind: str) -> None:
    jobs = [NewJob("purge.cdn", b"{}", key=str(number), request_id=f"r{number}") for number in range(3)]
    with closing(open_target(kind, tmp_path / "target")) as target:
        with target.batch() as batch:
            batch.add_job(NewJob("dropped"))
        assert list(target.ledger.jobs.pending(10)) == []
        with target.batch() as batch:
            for job in jobs:
                batch.add_job(job)
            batch.commit(POSITION)
        pending = target.ledger.jobs.pending(2)
        assert [item.job for item in pending] == jobs[:2]
        target.ledger.jobs.forget(pending[-1].sequence)
        assert [item.job for item in target.ledger.jobs.pending(10)] == jobs[2:]
