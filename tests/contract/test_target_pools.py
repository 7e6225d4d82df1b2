"""What a target keeps for a shared pool is part of the commit, in every target."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from mailboat.content.port import Target
from mailboat.content.targets.files import open_files_target
from mailboat.content.targets.generations import open_generations_target
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import Token
from mailboat.model.positions import LogIdentity, Position
from mailboat.testing.memory_content import MemoryTarget


def position(next_offset: int) -> Position:
    return Position(LogIdentity("c", "t"), Offset(next_offset))


def open_target(kind: str, folder: Path) -> Target:
    if kind == "memory":
        return MemoryTarget()
    if kind == "sqlite":
        return open_sqlite_target(folder / "content.db")
    return open_files_target(folder) if kind == "files" else open_generations_target(folder)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "files", "generations"])
def test_packages_that_are_done_are_stored_with_the_commit_until_the_position_covers_them(
    tmp_path: Path, kind: str
) -> None:
    with closing(open_target(kind, tmp_path / "target")) as target:
        pool = target.ledger.pool
        assert (pool.marker(), pool.end(), pool.is_done(Offset(5))) == (None, None, False)
        pool.mark("m")
        with target.batch() as batch:
            batch.commit(position(4), {Offset(5): Token(2), Offset(8): Token(2)})
        assert (pool.marker(), pool.end(), pool.is_done(Offset(5))) == ("m", 9, True)
        with target.batch() as batch:
            batch.commit(position(7), {Offset(6): Token(3)})
        assert [pool.is_done(Offset(at)) for at in range(5, 9)] == [False, False, False, True]
        pool.forget()
        assert pool.end() is None
