"""Targets killed at every step: the content that is found is that of the position found, and the rest follows."""

from __future__ import annotations

import shutil
import signal
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.content.locations import open_target
from mailboat.content.targets.generations import CURRENT
from mailboat.errors import TargetCorruptError
from mailboat.failpoints import Failpoint, NoFailpoints
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT
from mailboat.operations.target_snapshots import take_snapshot
from support.crashes import KillingFailpoints
from support.forks import preload, run_child
from support.target_scenario import HISTORY, import_all, import_history, restore_and_die, state_at, target_in

KINDS = ("sqlite", "files", "generations")
OF_SUBSCRIBER = (Failpoint.SUBSCRIBER_PACKAGE_APPLIED, Failpoint.SUBSCRIBER_COMMITTED)
OF_FILES = (Failpoint.TARGET_REDO_STORED, Failpoint.TARGET_FILE_REPLACED, Failpoint.TARGET_REDO_DONE)
OF_BUILDS = (Failpoint.TARGET_HELD_BACK,)  # see test_exposure_crashes.py
OF_GENERATIONS = (Failpoint.TARGET_GENERATION_BUILT, Failpoint.TARGET_GENERATION_FLIPPED)
STEPS = [
    *((kind, failpoint) for kind in KINDS for failpoint in OF_SUBSCRIBER),
    *(("files", failpoint) for failpoint in OF_FILES),
    *(("generations", failpoint) for failpoint in OF_GENERATIONS),
]


preload("support.crash_scenario", "support.target_scenario")


def kill_at(target: str, failpoint: Failpoint, nth: int) -> bool:
    """Import in a child process that is killed at the n-th time the step is reached; False when it never was."""
    code = run_child(import_history, target, KillingFailpoints(failpoint, nth))
    assert code in {0, -signal.SIGKILL}
    return code != 0


def content_and_position(target_text: str) -> tuple[list[Node], int]:
    """What is found when the target is opened."""
    with closing(open_target(target_text)) as target, closing(target.source()) as source:
        position = target.ledger.position()
        return list(source.walk(ROOT)), 0 if position is None else position.next_offset


def test_every_failpoint_of_targets_is_among_these() -> None:
    assert {*OF_FILES, *OF_BUILDS, *OF_GENERATIONS} == {
        failpoint for failpoint in Failpoint if failpoint.name.startswith("TARGET_")
    }


@pytest.mark.parametrize(("kind", "failpoint"), STEPS)
def test_after_a_kill_the_content_is_that_of_the_position(tmp_path: Path, kind: str, failpoint: Failpoint) -> None:
    kills = 0
    for nth in count(1):
        folder = tmp_path / str(nth)
        folder.mkdir()
        target = target_in(folder, kind)
        if not kill_at(target, failpoint, nth):
            break
        kills += 1
        content, position = content_and_position(target)
        assert content == state_at(position)
        assert import_all(target) == state_at(len(HISTORY))
        shutil.rmtree(folder)
    assert kills >= 3


def test_a_generation_that_was_not_committed_is_gone_after_a_kill(tmp_path: Path) -> None:
    target = target_in(tmp_path, "generations")
    assert kill_at(target, Failpoint.TARGET_GENERATION_BUILT, 2)
    content_and_position(target)
    left = {path.name for path in (tmp_path / "target").iterdir()}
    assert len(left) == 3
    assert left == {".mailboat", CURRENT, (tmp_path / "target" / CURRENT).readlink().name}


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_restored_from_an_older_copy_replays_and_converges(tmp_path: Path, kind: str) -> None:
    (tmp_path / "live").mkdir()
    assert kill_at(target_in(tmp_path / "live", kind), Failpoint.SUBSCRIBER_COMMITTED, 2)
    shutil.copytree(tmp_path / "live", tmp_path / "copy", symlinks=True)
    assert import_all(target_in(tmp_path / "live", kind)) == state_at(len(HISTORY))
    shutil.rmtree(tmp_path / "live")
    shutil.copytree(tmp_path / "copy", tmp_path / "live", symlinks=True)
    content, position = content_and_position(target_in(tmp_path / "live", kind))
    assert (content, position) == (state_at(4), 4)
    assert import_all(target_in(tmp_path / "live", kind)) == state_at(len(HISTORY))


RESTORE_STEPS = [
    *((kind, None) for kind in KINDS),
    *(("files", failpoint) for failpoint in OF_FILES),
    *(("generations", failpoint) for failpoint in OF_GENERATIONS),
]


@pytest.mark.parametrize(("kind", "failpoint"), RESTORE_STEPS)
def test_a_target_killed_while_it_is_replaced_has_the_old_content_or_the_new(
    tmp_path: Path, kind: str, failpoint: Failpoint | None
) -> None:
    """And goes on from there to the end of the log, without a repair."""
    target, snapshot = target_in(tmp_path, kind), tmp_path / "snapshot"
    assert kill_at(target, Failpoint.SUBSCRIBER_COMMITTED, 2)
    take_snapshot(target, snapshot, SystemClock())
    newest, seen = len(HISTORY), set[int]()
    for nth in (1, 3, 100):
        assert import_all(target) == state_at(newest)
        assert run_child(restore_and_die, str(snapshot), target, failpoint, nth) == -signal.SIGKILL
        content, position = content_and_position(target)
        assert position in {4, newest}
        assert content == state_at(position)
        seen.add(position)
    assert seen == ({4} if failpoint in OF_FILES or failpoint is Failpoint.TARGET_GENERATION_FLIPPED else {4, newest})
    assert import_all(target) == state_at(newest)


def test_a_database_without_its_log_is_an_older_copy_that_replays(tmp_path: Path) -> None:
    target = target_in(tmp_path, "sqlite")
    assert kill_at(target, Failpoint.SUBSCRIBER_COMMITTED, 3)
    (tmp_path / "target.db-wal").unlink()
    content, position = content_and_position(target)
    assert content == state_at(position)
    assert import_all(target) == state_at(len(HISTORY))


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_database_is_refused_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    target = target_in(tmp_path, kind)
    import_history(target, NoFailpoints())
    database = tmp_path / ("target.db" if kind == "sqlite" else "target/.mailboat/state.db")
    damaged = bytearray(database.read_bytes())
    damaged[4096:8192] = b"\xa5" * 4096
    database.write_bytes(damaged)
    with pytest.raises(TargetCorruptError):
        open_target(target)
    assert database.read_bytes() == damaged


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [b"", b"not a database, " * 100])
def test_a_database_that_is_none_is_refused(tmp_path: Path, kind: str, content: bytes) -> None:
    target = target_in(tmp_path, kind)
    import_history(target, NoFailpoints())
    database = tmp_path / ("target.db" if kind == "sqlite" else "target/.mailboat/state.db")
    database.write_bytes(content)
    with pytest.raises(TargetCorruptError):
        open_target(target)
    assert database.read_bytes() == content


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_whose_database_is_gone_is_never_begun_again(tmp_path: Path, kind: str) -> None:
    target = target_in(tmp_path, kind)
    import_history(target, NoFailpoints())
    (tmp_path / ("target.db" if kind == "sqlite" else "target/.mailboat/state.db")).unlink()
    with pytest.raises(TargetCorruptError):
        open_target(target)


def test_a_generation_that_someone_removed_is_reported(tmp_path: Path) -> None:
    target = target_in(tmp_path, "generations")
    import_history(target, NoFailpoints())
    shutil.rmtree(tmp_path / "target" / (tmp_path / "target" / CURRENT).readlink())
    with pytest.raises(TargetCorruptError, match="is gone"):
        open_target(target)
