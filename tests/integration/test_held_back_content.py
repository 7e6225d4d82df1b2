"""A `generations:` target while a bulk build is open: what is kept, what is shown, and what a failure leaves."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest
from mailboat.content.locations import open_target
from mailboat.content.port import OpenBuild, Target
from mailboat.errors import StorageFullError
from mailboat.failpoints import Failpoint, Failpoints
from mailboat.model.identifiers import AgentName, BuildId, Offset
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT
from mailboat.model.positions import Position
from mailboat.testing.target_model import as_change
from support.target_scenario import HISTORY, LOG, state_at

OPEN = OpenBuild(AgentName("author"), BuildId("b1"), 1, 2, 5)


class Failing:
    """Has no room when a step is reached, if it is told so."""

    def __init__(self, failpoint: Failpoint) -> None:
        self._failpoint = failpoint
        self.is_failing = False

    def reach(self, failpoint: Failpoint) -> None:
        if self.is_failing and failpoint is self._failpoint:
            raise StorageFullError(f"no room at {failpoint}")


def open_in(folder: Path, failpoints: Failpoints | None = None) -> Target:
    return open_target(f"generations:{folder / 'target'}", failpoints)


def put(target: Target, first: int, end: int, *builds: OpenBuild, is_committed: bool = True) -> None:
    """Import a part of the history in one batch."""
    with target.batch() as batch:
        for offset in range(first, end):
            batch.apply(as_change(*HISTORY[offset]), Offset(offset))
        batch.note_builds(builds)
        if is_committed:
            batch.commit(Position(LOG, Offset(end)))


def content(target: Target) -> Sequence[Node]:
    with closing(target.source()) as source:
        return list(source.walk(ROOT))


def staged(folder: Path) -> set[str]:
    return {path.name for path in (folder / "target/.mailboat/staging").iterdir()}


@pytest.mark.parametrize(("begin", "end"), [*combinations(range(len(HISTORY) + 1), 2)])
@pytest.mark.parametrize("is_reopened", [False, True])
def test_what_was_held_back_is_shown_as_if_it_had_been_one_batch(
    tmp_path: Path, begin: int, end: int, is_reopened: bool
) -> None:
    target = open_in(tmp_path)
    put(target, 0, begin)
    for offset in range(begin, end):
        put(target, offset, offset + 1, OPEN)
        if is_reopened:
            target.close()
            target = open_in(tmp_path)
        assert content(target) == state_at(begin)
        assert target.ledger.open_builds == [OPEN]
    put(target, end, end)
    assert content(target) == state_at(end)
    put(target, end, len(HISTORY))
    assert content(target) == state_at(len(HISTORY))
    target.close()
    assert staged(tmp_path) == set()


def test_a_batch_that_is_rolled_back_takes_nothing_that_was_committed(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as target:
        put(target, 0, 2, OPEN)
        before = staged(tmp_path)
        assert before
        put(target, 2, 7, OPEN, is_committed=False)
        assert staged(tmp_path) == before
        put(target, 2, len(HISTORY))
        assert content(target) == state_at(len(HISTORY))


def test_without_room_to_show_a_build_nothing_is_lost(tmp_path: Path) -> None:
    failing = Failing(Failpoint.TARGET_GENERATION_BUILT)
    with closing(open_in(tmp_path, failing)) as target:
        put(target, 0, 1)
        put(target, 1, 3, OPEN)
        failing.is_failing = True
        with pytest.raises(StorageFullError):
            put(target, 3, 7)
        assert target.ledger.open_builds == [OPEN]
        assert content(target) == state_at(1)
        failing.is_failing = False
        put(target, 3, 7)
        assert content(target) == state_at(7)
    assert not (tmp_path / "target/.mailboat/linked").exists()


def test_what_is_held_back_is_on_disk_once(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as target:
        put(target, 1, 2, OPEN)
        (large,) = (tmp_path / "target/.mailboat/staging").iterdir()
        number = large.stat().st_ino
        put(target, 2, 2)
        assert (tmp_path / "target/current/film").stat().st_ino == number


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_other_kinds_show_every_commit_whatever_is_open(tmp_path: Path, kind: str) -> None:
    with closing(open_target(f"{kind}:{tmp_path / 'target'}")) as target:
        put(target, 0, 2, OPEN)
        assert content(target) == state_at(2)


@pytest.mark.parametrize("kind", ["files", "generations", "sqlite"])
def test_a_target_of_the_format_before_builds_is_brought_up_to_date(tmp_path: Path, kind: str) -> None:
    text = f"{kind}:{tmp_path / 'target'}"
    with closing(open_target(text)) as target:
        put(target, 0, 2)
    database = tmp_path / ("target" if kind == "sqlite" else "target/.mailboat/state.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            "DROP TABLE open_build; DROP TABLE pending_job; DROP TABLE pool_done;"
            "ALTER TABLE state DROP COLUMN reports; ALTER TABLE state DROP COLUMN pool;"
            "ALTER TABLE command DROP COLUMN is_void; DROP TABLE restored;"
            "PRAGMA user_version = 2;"
        )
    with closing(open_target(text)) as target:
        assert target.ledger.open_builds == []
        put(target, 2, 4, OPEN)
        assert target.ledger.open_builds == [OPEN]
