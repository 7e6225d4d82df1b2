"""SIGKILL while builds are imported that are to be shown as a whole: nothing lost, and readers never see a half."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.content.digest import tree_digest
from mailboat.failpoints import Failpoint
from mailboat.model.paths import ROOT
from support import forks
from support.engines import Engine
from support.exposure_scenario import Author, Step, build_of, digest_of_files, digest_seen, import_all

FAILPOINTS = [
    *(Failpoint.SUBSCRIBER_BATCH_READ, Failpoint.SUBSCRIBER_BATCH_BEGUN, Failpoint.SUBSCRIBER_PACKAGE_APPLIED),
    *(Failpoint.SUBSCRIBER_BEFORE_COMMIT, Failpoint.SUBSCRIBER_COMMITTED, Failpoint.SUBSCRIBER_STATUS_SENT),
    *(Failpoint.TARGET_HELD_BACK, Failpoint.TARGET_GENERATION_BUILT, Failpoint.TARGET_GENERATION_FLIPPED),
]
LOG = [
    Step("a"),
    Step("gone"),
    *build_of("b1", "a", "b", "c", "d", "e")[:4],
    Step("gone", None),
    Step("b", "in between"),
    *build_of("b1", "a", "b", "c", "d", "e")[4:],
    Step("a", "alone"),
    *build_of("b2", "a", None, "b"),
    *build_of("b3", "b", "d"),
]
forks.preload("support.exposure_scenario")


def run_child(folder: Path, failpoint: Failpoint | None = None, count: int = 1) -> int:
    """Import in a process of its own; 0 or minus the signal that ended it."""
    return forks.run_child(import_all, str(folder), failpoint, count)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Author]:
    folder = tmp_path_factory.mktemp("published")
    with Engine(folder) as engine:
        author = Author(engine)
        author.publish(LOG)
    return folder, author


def shown(folder: Path) -> str:
    return digest_seen(folder / "edge-generations")


@pytest.mark.rotates("failpoint")
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_build_is_shown_as_a_whole_whatever_step_the_subscriber_dies_at(
    published: tuple[Path, Author], tmp_path: Path, failpoint: Failpoint, count: int
) -> None:
    source, author = published
    folder = Path(shutil.copytree(source, tmp_path / "copy"))
    assert run_child(folder, failpoint, count) == -signal.SIGKILL
    at = author.whole.index(shown(folder))
    with Engine(folder) as engine, closing(engine.target("generations")):
        at_opening = author.whole.index(shown(folder))
    assert at_opening >= at
    assert run_child(folder) == 0
    assert shown(folder) == author.whole[-1] == digest_of_files({"a": "b2", "b": "b3", "c": "b1", "d": "b3", "e": "b1"})
    with Engine(folder) as engine, closing(engine.target("generations")) as target:
        assert Counter(status.offset for status in engine.statuses()) == dict.fromkeys(range(len(LOG)), 1)
        assert tree_digest(target.source().walk(ROOT)).hex() == author.whole[-1]
        position = target.ledger.position()
        assert position is not None
        assert position.next_offset == len(LOG)
        assert target.ledger.open_builds == []
    own = folder / "edge-generations" / ".mailboat"
    assert list((own / "staging").iterdir()) == []
    assert not (own / "building").exists()
    assert not (own / "linked").exists()


def test_a_subscriber_that_dies_again_and_again_comes_to_the_end(
    published: tuple[Path, Author], tmp_path: Path
) -> None:
    source, author = published
    folder = Path(shutil.copytree(source, tmp_path / "copy"))
    at, kills = 0, 0
    while run_child(folder, Failpoint.SUBSCRIBER_COMMITTED) != 0:
        kills += 1
        found = author.whole[at:].index(shown(folder))
        at += found
    assert shown(folder) == author.whole[-1]
    assert kills >= 6
