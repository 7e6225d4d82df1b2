"""Attempts at builds that are not the first: what they go on with, and what they may not take for done."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from mailboat.bulk.build_claims import POLL_SECONDS, BuildBusyError, BuildLostError
from mailboat.bulk.build_reports import BuildReport
from mailboat.bulk.build_run import FURTHER_ROUNDS, BuildOrder, BuildOvertakenError
from mailboat.content.digest import source_digest
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import BlobMissingError
from mailboat.failpoints import Failpoint
from mailboat.model.identifiers import BuildId, Offset, PackageId
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.publisher.published import StagedNode
from mailboat.subscriber.subscriber import Until
from mailboat.testing.clocks import SkippingClock
from mailboat.wire.package_messages import decode_package
from support.bulk_scenario import LocalStages, recipe_for, run
from support.crashes import CrashError
from support.engines import PACKAGES, Engine, EngineParts, memory_engine, write_site

NAMED = BuildId("release-7")


def _die() -> None:
    raise CrashError


class Deaths:
    """Kills a driver, or does something else, once, at the n-th time that it reaches a step."""

    def __init__(self) -> None:
        self._at: Failpoint | None = None
        self._left = 0
        self._happen: Callable[[], object] = _die

    def plan(self, failpoint: Failpoint, count: int = 1, happen: Callable[[], object] = _die) -> None:
        """Die at the next one."""
        self._at, self._left, self._happen = failpoint, count, happen

    def reach(self, failpoint: Failpoint) -> None:
        """See `Failpoints`."""
        if failpoint is not self._at:
            return
        self._left -= 1
        if not self._left:
            self._at = None
            self._happen()


@pytest.fixture
def deaths() -> Deaths:
    return Deaths()


@pytest.fixture
def engine(tmp_path: Path, deaths: Deaths) -> Iterator[Engine]:
    """Journal and blobs in memory, and a driver that may die."""
    with memory_engine(tmp_path / "home", EngineParts(SkippingClock(), deaths, synchronous="OFF")) as opened:
        yield opened


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A link to the first of two releases, which have some pages in common."""
    pages = {f"{letter}/{number}.html": letter * 600 for letter in "ab" for number in range(9)}
    write_site(tmp_path / "r1", {**pages, "index.html": "home", "old/1.html": "only here"})
    write_site(tmp_path / "r2", {**{name: text + "2" for name, text in pages.items()}, "new/1.html": "only there"})
    (tmp_path / "current").symlink_to("r1")
    return tmp_path / "current"


def switch(site: Path, release: str) -> None:
    site.unlink()
    site.symlink_to(release)


def build(engine: Engine, site: Path, build_id: BuildId | None = None) -> BuildReport:
    """An attempt, a second after what was before it."""
    engine.parts.clock.wait(threading.Event(), 1.0)
    return run(engine, BuildOrder(recipe_for(engine, site), build_id))


def die(engine: Engine, deaths: Deaths, site: Path, at: tuple[Failpoint, int], build_id: BuildId | None = None) -> None:
    """An attempt that dies."""
    deaths.plan(*at)
    with pytest.raises(CrashError):
        build(engine, site, build_id)


def ask(engine: Engine, action: Action, path: str) -> None:
    engine.publisher().publish(DistributionRequest(action, (NodePath(path),)))


def assert_imported(engine: Engine, site: Path) -> None:
    """A subscriber that starts now comes to the site."""
    with closing(engine.target("sqlite", "fresh")) as target:
        engine.subscriber(target).run(Until.CAUGHT_UP)
        assert target.ledger.given_up() == []
        assert source_digest(target.source()) == source_digest(FolderSource(site))


DEATHS = [
    (Failpoint.BULK_ROWS_STORED, 1),
    (Failpoint.BULK_PUBLISHING_STORED, 1),
    (Failpoint.BULK_PART_PUBLISHED, 1),
    (Failpoint.BULK_PART_PUBLISHED, 5),
]


@pytest.mark.parametrize("build_id", [None, NAMED])
@pytest.mark.parametrize("at", DEATHS)
def test_dead_build_with_a_successor_starts_over_as_a_new_build(
    engine: Engine, deaths: Deaths, site: Path, at: tuple[Failpoint, int], build_id: BuildId | None
) -> None:
    die(engine, deaths, site, at, build_id)
    switch(site, "r2")
    build(engine, site)
    switch(site, "r1")
    report = build(engine, site, build_id)
    assert report.published == report.total
    assert_imported(engine, site)
    assert build(engine, site, build_id).published == 0


@pytest.mark.parametrize("at", DEATHS[:-1])
def test_what_a_dead_build_found_to_be_present_is_looked_at_again(
    engine: Engine, deaths: Deaths, site: Path, at: tuple[Failpoint, int]
) -> None:
    build(engine, site)
    write_site(site, {"index.html": "later"})
    die(engine, deaths, site, at)
    switch(site, "r2")
    build(engine, site)
    switch(site, "r1")
    build(engine, site)
    assert_imported(engine, site)


@pytest.mark.parametrize("build_id", [None, NAMED])
@pytest.mark.parametrize("at", DEATHS)
def test_a_dead_build_that_nothing_followed_goes_on(
    engine: Engine, deaths: Deaths, site: Path, at: tuple[Failpoint, int], build_id: BuildId | None
) -> None:
    engine.publisher().publish(add_request([NodePath("/a/1.html")]), FolderSource(site))
    die(engine, deaths, site, at, build_id)
    before = len(engine.records())
    stages = LocalStages(engine.blobs)
    report = run(engine, BuildOrder(recipe_for(engine, site), build_id), stages)
    assert stages.built == []
    assert report.published == len(engine.records()) - before == report.total - (before - 1)
    assert_imported(engine, site)


def test_a_publication_of_the_source_after_a_dead_build_is_not_turned_back_by_halves(
    engine: Engine, deaths: Deaths, site: Path
) -> None:
    build(engine, site)
    write_site(site, {"index.html": "later", "a/1.html": "later"})
    die(engine, deaths, site, (Failpoint.BULK_PART_PUBLISHED, 1))
    stamps = [(site / name).stat().st_mtime_ns for name in ("index.html", "a/1.html")]
    (site / "index.html").write_text("other")
    list(engine.publisher().publish_changed(FolderSource(site)))
    (site / "index.html").write_text("later")
    os.utime(site / "index.html", ns=(stamps[0], stamps[0]))
    build(engine, site)
    assert_imported(engine, site)


def test_a_fresh_disk_publishes_again_what_was_deleted_after_the_last_build(engine: Engine, site: Path) -> None:
    first = build(engine, site)
    ask(engine, Action.DELETE, "/a")
    engine.forget_state()
    (site / "b/1.html").unlink()
    assert build(engine, site).published > first.published
    assert_imported(engine, site)
    engine.forget_state()
    assert build(engine, site).published == 0


def test_a_fresh_disk_publishes_again_what_it_can_not_look_up_in_the_log(engine: Engine, site: Path) -> None:
    first = build(engine, site)
    ask(engine, Action.DELETE, "/a")
    engine.journal.truncate(PACKAGES, Offset(first.published + 1))
    engine.forget_state()
    assert build(engine, site).published == first.published


def test_a_fresh_disk_takes_a_build_for_present_whatever_is_published_elsewhere(
    engine: Engine, site: Path, tmp_path: Path
) -> None:
    recipe = recipe_for(engine, site, ["/a"])
    run(engine, BuildOrder(recipe))
    build(engine, tmp_path / "r2")
    ask(engine, Action.DELETE, "/b")
    ask(engine, Action.INVALIDATE, "/a/1.html")
    engine.forget_state()
    assert run(engine, BuildOrder(recipe)).published == 0


@pytest.mark.parametrize("build_id", [None, NAMED])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_fresh_disk_goes_on_with_a_dead_build_until_something_else_follows(
    engine: Engine, deaths: Deaths, site: Path, build_id: BuildId | None, *, is_first: bool
) -> None:
    if not is_first:
        build(engine, site)
        write_site(site, {f"{letter}/{number}.html": "later" for letter in "ab" for number in range(9)})
    before = len(engine.records())
    for count in (1, 4):
        die(engine, deaths, site, (Failpoint.BULK_PART_PUBLISHED, count), build_id)
        engine.forget_state()
    dead = [decode_package(record.value).bulk for record in engine.records()[before:]]
    assert [item and item.sequence for item in dead] == list(range(6))
    ask(engine, Action.DELETE, "/a")
    engine.forget_state()
    build(engine, site, build_id)
    assert_imported(engine, site)


@pytest.mark.parametrize("build_id", [None, NAMED])
def test_a_second_build_of_a_source_does_nothing_while_the_first_is_under_way(
    engine: Engine, deaths: Deaths, site: Path, build_id: BuildId | None
) -> None:
    def begin_another() -> None:
        write_site(site, {"index.html": "later", "b/2.html": "later"})
        with pytest.raises(BuildBusyError, match=f"is at work on a build of {site}"):
            build(engine, site, build_id)

    deaths.plan(Failpoint.BULK_PART_PUBLISHED, 2, begin_another)
    build(engine, site)
    build(engine, site, build_id)
    assert_imported(engine, site)
    assert not [name for name in engine.blobs.builds.names() if ".claim-" in name]


def test_builds_of_two_sources_may_be_under_way_at_once(engine: Engine, deaths: Deaths, site: Path) -> None:
    reports = list[BuildReport]()
    deaths.plan(Failpoint.BULK_PART_PUBLISHED, 2, lambda: reports.append(build(engine, site.parent / "r2")))
    reports.append(build(engine, site))
    assert [report.published for report in reports] == [report.total for report in reports]


def test_a_driver_that_was_frozen_finds_that_another_one_has_its_source(
    engine: Engine, deaths: Deaths, site: Path
) -> None:
    def thaw() -> None:
        for name in engine.blobs.builds.names("source-"):
            engine.blobs.builds.remove(name)
        engine.parts.clock.wait(threading.Event(), POLL_SECONDS)

    deaths.plan(Failpoint.BULK_PART_PUBLISHED, 1, thaw)
    with pytest.raises(BuildLostError, match=f"took over a build of {site}"):
        build(engine, site)


def replace_by_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/")


@pytest.mark.parametrize("is_fresh", [True, False])
@pytest.mark.parametrize("build_id", [None, NAMED])
def test_what_was_left_out_and_is_gone_now_is_removed(
    engine: Engine, site: Path, build_id: BuildId | None, *, is_fresh: bool
) -> None:
    build(engine, site)
    replace_by_link(site / "index.html")
    for _ in range(2):
        assert [problem.path for problem in build(engine, site, build_id).problems] == ["/index.html"]
    (site / "index.html").unlink()
    if is_fresh:
        engine.forget_state()
    report = build(engine, site, build_id)
    assert (report.published, report.problems) == (1, ())
    assert_imported(engine, site)
    assert build(engine, site, build_id).published == 0


@pytest.mark.parametrize("build_id", [None, NAMED])
def test_what_was_left_out_and_is_repaired_is_published(engine: Engine, site: Path, build_id: BuildId | None) -> None:
    replace_by_link(site / "index.html")
    first = build(engine, site, build_id)
    assert build(engine, site, build_id).published == 0
    (site / "index.html").unlink()
    (site / "index.html").write_text("home again")
    report = build(engine, site, build_id)
    assert 0 < report.published < first.published
    assert report.problems == ()
    assert_imported(engine, site)
    again = build(engine, site, build_id)
    assert (again.published, again.problems) == (0, ())


@pytest.mark.parametrize("at", DEATHS)
def test_a_dead_build_does_not_leave_out_what_is_gone_since(
    engine: Engine, deaths: Deaths, site: Path, at: tuple[Failpoint, int]
) -> None:
    build(engine, site)
    write_site(site, {f"{letter}/{number}.html": "later" for letter in "ab" for number in range(9)})
    replace_by_link(site / "index.html")
    die(engine, deaths, site, at)
    (site / "index.html").unlink()
    assert build(engine, site).problems == ()
    assert_imported(engine, site)


def test_other_reasons_to_leave_out_the_same_are_told(engine: Engine, site: Path) -> None:
    for _ in range(2):
        replace_by_link(site / "index.html")
        assert [problem.name for problem in build(engine, site).problems] == ["PathRefused"]
        (site / "index.html").unlink()
        os.mkfifo(site / "index.html")
        report = build(engine, site)
        assert report.published == 0
        assert [problem.path for problem in report.problems] == ["/index.html"]


@pytest.mark.parametrize("build_id", [None, NAMED])
def test_an_attempt_builds_again_only_what_lies_in_the_blob_store_for_too_long(
    engine: Engine, deaths: Deaths, site: Path, build_id: BuildId | None
) -> None:
    counts = list[int]()
    for hours in (0, 7, 7, 1):
        engine.parts.clock.wait(threading.Event(), hours * 3600.0)
        stages = LocalStages(engine.blobs)
        deaths.plan(Failpoint.BULK_ROWS_STORED)
        with suppress(CrashError):
            run(engine, BuildOrder(recipe_for(engine, site), build_id), stages)
        counts.append(len(stages.built))
    stored = len(list(engine.blobs.list()))
    assert 0 < stored < 8
    assert counts == [8, stored, stored, 0]
    assert_imported(engine, site)


def test_an_attempt_relies_on_blobs_for_half_of_the_grace_period(engine: Engine, deaths: Deaths, site: Path) -> None:
    die(engine, deaths, site, (Failpoint.BULK_ROWS_STORED, 1))
    engine.parts.clock.wait(threading.Event(), 29 * 60.0)
    stages = LocalStages(engine.blobs)
    run(engine, BuildOrder(recipe_for(engine, site)), stages, grace_seconds=3600.0)
    assert stages.built == []
    assert_imported(engine, site)


def test_what_an_interrupted_start_did_not_learn_of_earlier_builds_is_learned_by_the_next(
    engine: Engine, site: Path
) -> None:
    def torn() -> Iterator[StagedNode]:
        yield StagedNode(NodePath("/index.html"), bytes(32))
        raise CrashError

    build(engine, site)
    engine.forget_state()
    switch(site, "r2")
    parts, uri = engine.publisher().parts, recipe_for(engine, site).source
    with pytest.raises(CrashError):
        parts.remember(uri, torn(), (PackageId("dstrpck-1"), Offset(0)), is_doubted=False)
    build(engine, site)
    assert_imported(engine, site)


class Editor:
    """A user who changes a page and publishes it alone during a build."""

    def __init__(self, engine: Engine, site: Path) -> None:
        self._engine = engine
        self.site = site
        self.edits = 0

    def edit(self, page: str = "a/1.html") -> None:
        """Change or make the page, and publish it."""
        self.edits += 1
        self._engine.parts.clock.wait(threading.Event(), 1.0)
        write_site(self.site, {page: f"edit {self.edits}"})
        self._engine.publisher().publish(add_request([NodePath(f"/{page}")], is_deep=False), FolderSource(self.site))


@pytest.fixture
def editor(engine: Engine, site: Path) -> Editor:
    return Editor(engine, site)


@pytest.mark.parametrize("page", ["a/1.html", "single.html"])
@pytest.mark.parametrize("build_id", [None, NAMED])
@pytest.mark.parametrize(
    "at", [Failpoint.BULK_ROWS_STORED, Failpoint.BULK_PUBLISHING_STORED, Failpoint.BULK_PART_PUBLISHED]
)
def test_a_page_that_is_published_beside_a_build_stays(
    engine: Engine, deaths: Deaths, editor: Editor, page: str, build_id: BuildId | None, at: Failpoint
) -> None:
    site = editor.site
    build(engine, site)
    switch(site, "r2")
    deaths.plan(at, happen=lambda: editor.edit(page))
    build(engine, site, build_id)
    assert editor.edits == 1
    assert_imported(engine, site)
    assert build(engine, site).published == 0


def test_a_build_looks_once_more_for_what_was_published_beside_it_and_builds_only_that(
    engine: Engine, deaths: Deaths, site: Path, editor: Editor
) -> None:
    deaths.plan(Failpoint.BULK_PART_PUBLISHED, 2, happen=editor.edit)
    stages = LocalStages(engine.blobs)
    run(engine, BuildOrder(recipe_for(engine, site), is_all=True), stages)
    first = LocalStages(engine.blobs)
    assert len(stages.built) < 2 * sum(1 for _ in first.cut(recipe_for(engine, site)))
    assert_imported(engine, site)


def test_a_build_that_is_never_alone_with_its_paths_says_so(
    engine: Engine, deaths: Deaths, site: Path, editor: Editor
) -> None:
    def edit_again() -> None:
        editor.edit()
        deaths.plan(Failpoint.BULK_PART_PUBLISHED, happen=edit_again)

    deaths.plan(Failpoint.BULK_PART_PUBLISHED, happen=edit_again)
    with pytest.raises(BuildOvertakenError, match="during it and its 3 further rounds"):
        build(engine, site)
    assert editor.edits > FURTHER_ROUNDS
    deaths.plan(Failpoint.BULK_COMPLETE_STORED, happen=lambda: None)
    build(engine, site)
    assert_imported(engine, site)


def test_what_others_publish_elsewhere_beside_a_build_brings_no_further_round(
    engine: Engine, deaths: Deaths, site: Path
) -> None:
    deaths.plan(Failpoint.BULK_PART_PUBLISHED, happen=lambda: ask(engine, Action.DELETE, "/elsewhere"))
    engine.parts.clock.wait(threading.Event(), 1.0)
    report = run(engine, BuildOrder(recipe_for(engine, site, ["/a", "/b"])))
    assert report.published == report.total == len(engine.records()) - 1


@pytest.mark.parametrize("build_id", [None, NAMED])
def test_an_attempt_builds_again_what_a_sweep_took_of_the_one_before(
    engine: Engine, deaths: Deaths, site: Path, build_id: BuildId | None
) -> None:
    die(engine, deaths, site, (Failpoint.BULK_ROWS_STORED, 1), build_id)
    swept = next(iter(engine.blobs.list())).digest
    engine.blobs.delete(swept)
    build(engine, site, build_id)
    assert_imported(engine, site)


def test_an_attempt_publishes_nothing_more_when_a_sweep_took_what_is_to_be_published(
    engine: Engine, deaths: Deaths, site: Path
) -> None:
    die(engine, deaths, site, (Failpoint.BULK_PUBLISHING_STORED, 1))
    engine.blobs.delete(next(iter(engine.blobs.list())).digest)
    with pytest.raises(BlobMissingError, match="nothing more was published"):
        build(engine, site)
    assert engine.records() == []
