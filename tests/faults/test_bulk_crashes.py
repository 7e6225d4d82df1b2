"""Drivers of bulk builds that die at every step, two of one build at once, and one that was frozen meanwhile."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from mailboat.bulk.build_registry import BuildRegistry, BuildState
from mailboat.content.sources.folder import FolderSource
from mailboat.failpoints import Failpoint
from mailboat.model.messages import PackageMessage
from mailboat.subscriber.subscriber import Until
from mailboat.wire.package_messages import decode_package
from support import bulk_scenario
from support.engines import Engine, digest_of
from support.forks import FORKS, end_of, fork, preload, run_child

BULK = [failpoint for failpoint in Failpoint if failpoint.startswith("bulk-")]
APPENDING = [Failpoint.PUBLISHER_INTENT_STORED, Failpoint.PUBLISHER_APPENDED, Failpoint.PUBLISHER_RECEIPT_STORED]
IN_LOOPS = {Failpoint.BULK_PART_STAGED, Failpoint.BULK_PART_PUBLISHED, *APPENDING}
NAMED = "release-7"
CASES = [
    *((item, count, None) for item in (*BULK, *APPENDING) for count in ((1, 4) if item in IN_LOOPS else (1,))),
    (Failpoint.BULK_ROWS_STORED, 1, NAMED),
    (Failpoint.BULK_PUBLISHING_STORED, 1, NAMED),
    (Failpoint.BULK_PART_PUBLISHED, 4, NAMED),
]
BEFORE, PUBLISHED = 12, 10
preload("support.bulk_scenario")


def parts(engine: Engine) -> list[PackageMessage]:
    """The packages of the second build, as the log has them."""
    return [decode_package(record.value) for record in engine.records()[BEFORE:]]


def check(folder: Path) -> None:
    """Each package of the build stands in the log once, in order; a subscriber has the site, and so has the memory."""
    with Engine(folder / "home") as engine:
        found = [part.bulk for part in parts(engine) if part.bulk is not None]
        assert [(item.sequence, item.total) for item in found] == [(number, PUBLISHED) for number in range(PUBLISHED)]
        assert len({item.build_id for item in found}) == 1
        (build,) = [
            build for build in BuildRegistry(engine.blobs.builds).builds() if build.build_id == found[0].build_id
        ]
        assert build.state is BuildState.COMPLETE
        target = engine.target("sqlite")
        engine.subscriber(target).run(Until.CAUGHT_UP)
        site = FolderSource(folder / "site")
        assert digest_of(target.source()) == digest_of(site)
        assert list(engine.publisher().publish_changed(site)) == []
        target.close()


def test_every_step_of_the_driver_has_a_crash_test() -> None:
    assert {one for one, _, _ in CASES} >= {failpoint for failpoint in Failpoint if failpoint.startswith("bulk-")}


@pytest.mark.rotates("failpoint")
@pytest.mark.parametrize(("failpoint", "count", "build_id"), CASES)
def test_a_driver_killed_at_any_step_publishes_each_package_once(
    tmp_path: Path, failpoint: Failpoint, count: int, build_id: str | None
) -> None:
    bulk_scenario.prepare(tmp_path)
    assert run_child(bulk_scenario.build, str(tmp_path), build_id, failpoint, count) == -signal.SIGKILL
    assert run_child(bulk_scenario.build, str(tmp_path), build_id) == 0
    assert run_child(bulk_scenario.build, str(tmp_path), build_id) == 0
    check(tmp_path)


@pytest.mark.parametrize("count", [1, 4])
def test_a_driver_whose_memory_was_lost_finds_its_packages_in_the_log(tmp_path: Path, count: int) -> None:
    bulk_scenario.prepare(tmp_path)
    step = Failpoint.BULK_PART_PUBLISHED
    assert run_child(bulk_scenario.build, str(tmp_path), NAMED, step, count) == -signal.SIGKILL
    for file in (tmp_path / "home").glob("author.db*"):
        file.unlink()
    assert run_child(bulk_scenario.build, str(tmp_path), NAMED) == 0
    with Engine(tmp_path / "home") as engine:
        found = [part.bulk.sequence for part in parts(engine) if part.bulk is not None]
        assert found == list(range(PUBLISHED))


def test_of_two_drivers_of_one_build_one_publishes_and_the_other_does_nothing(tmp_path: Path) -> None:
    bulk_scenario.prepare(tmp_path)
    barrier = FORKS.Barrier(2)
    both = [fork(bulk_scenario.build_when_all_are_ready, str(tmp_path), barrier) for _ in range(2)]
    codes = {end_of(item) for item in both}
    assert codes <= {0, bulk_scenario.BUSY_EXIT_CODE}
    assert 0 in codes
    check(tmp_path)
