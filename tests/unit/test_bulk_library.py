"""The builds that are known: whose they are, which go on, and what becomes of documents that can't be understood."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.bulk.cutting import Bin
from mailboat.bulk.fencing import BuildClaim, claimed_source, this_driver
from mailboat.bulk.library import Build, BuildState, Library
from mailboat.bulk.records import BinResult, Recipe
from mailboat.bulk.running import BuildOrder
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import PermanentError
from mailboat.model.identifiers import AgentName, BuildId
from mailboat.model.paths import ROOT
from mailboat.subscriber.subscription import Until
from mailboat.testing.bulk_scenario import LocalStages, recipe_for, run
from mailboat.testing.engines import Engine, memory_engine, write_site

SECOND = AgentName("second")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with memory_engine(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def other(engine: Engine, tmp_path: Path) -> Iterator[Engine]:
    """Another publisher with a home of its own, on the same journal and blobs."""
    with Engine(tmp_path / "second", engine.parts, journal=engine.journal, blobs=engine.blobs) as opened:
        opened.publishing = opened.publishing_with(name=SECOND)
        yield opened


@pytest.fixture
def site(tmp_path: Path) -> Path:
    pages = {f"{letter}/{number}.html": letter * 600 for letter in "ab" for number in range(9)}
    write_site(tmp_path / "site", {**pages, "index.html": "home"})
    return tmp_path / "site"


def imported(engine: Engine, *, at: str) -> set[str]:
    """The paths that a subscriber which starts now comes to."""
    with closing(engine.target("sqlite", at)) as target:
        engine.subscriber(target).run(Until.CAUGHT_UP)
        assert target.ledger.given_up() == []
        return {node.path for node in target.source().walk(ROOT)}


def test_what_another_publisher_published_of_the_same_source_stays(engine: Engine, other: Engine, site: Path) -> None:
    write_site(site, {f"old/{number}.html": "o" * 600 for number in range(9)})
    run(engine, BuildOrder(recipe_for(engine, site)))
    first = imported(engine, at="first")
    for file in (site / "old").iterdir():
        file.unlink()
    (site / "old").rmdir()
    write_site(site, {"new/1.html": "only in the second"})

    report = run(other, BuildOrder(recipe_for(other, site)))
    assert (report.published, report.present) == (report.packages, 0), "it published nothing before"
    assert imported(engine, at="second") == first | {"/new", "/new/1.html"}

    report = run(engine, BuildOrder(recipe_for(engine, site)))
    assert report.present > 0, "the first one goes on from its own build"
    assert not any(path.startswith("/old") for path in imported(engine, at="third"))


def test_publishers_of_one_source_do_not_wait_for_each_other(engine: Engine, other: Engine, site: Path) -> None:
    claimed = claimed_source(recipe_for(engine, site))
    with BuildClaim(engine.blobs.builds, claimed, this_driver(), engine.parts.clock).held():
        assert run(other, BuildOrder(recipe_for(other, site))).state == "complete"


def test_two_publishers_build_under_ids_of_their_own(engine: Engine, other: Engine, site: Path) -> None:
    reports = [run(one, BuildOrder(recipe_for(one, site))) for one in (engine, other)]
    assert reports[0].build_id != reports[1].build_id
    again = [run(one, BuildOrder(recipe_for(one, site))) for one in (engine, other)]
    assert [(one.published, one.build_id) for one in again] == [(0, one.build_id) for one in reports]


def test_a_build_that_says_nothing_of_its_publisher_is_nobodys(engine: Engine, site: Path) -> None:
    recipe, library = recipe_for(engine, site), Library(engine.blobs.builds)
    report = run(engine, BuildOrder(recipe))
    name = f"{report.build_id}.build"
    document = json.loads(library.documents.read(name) or b"")
    del document["recipe"]["publisher"]
    library.documents.write(name, json.dumps(document).encode())
    assert [one.build_id for one in library.builds()] == [report.build_id]
    assert library.latest(recipe) is None


class ChangingStages(LocalStages):
    """While the tree is built, a file of it changes."""

    def __init__(self, engine: Engine, file: Path) -> None:
        super().__init__(engine.blobs)
        self._file = file

    def build(self, recipe: Recipe, bins: Sequence[Bin]) -> Iterator[BinResult]:
        self._file.write_text("changed under the reader")
        yield from super().build(recipe, bins)


def test_a_build_whose_source_changed_meanwhile_goes_on_under_its_id_and_builds_what_is_missing(
    engine: Engine, site: Path
) -> None:
    order, library = BuildOrder(recipe_for(engine, site)), Library(engine.blobs.builds)
    with pytest.raises(PermanentError, match="SourceChanged") as raised:
        run(engine, order, ChangingStages(engine, site / "a/3.html"))
    stages = LocalStages(engine.blobs)
    report = run(engine, order, stages)
    assert report.build_id == raised.value.where["build"]
    assert 0 < len(stages.built) <= 2 < report.packages == report.published, "the others were built before"
    assert library.ids() == [report.build_id]
    assert imported(engine, at="edge") == {node.path for node in FolderSource(site).walk(ROOT)}


@pytest.mark.parametrize(
    ("state", "revision", "goes_on"),
    [
        (BuildState.BUILDING, "listed", True),
        (BuildState.BUILDING, "another", True),
        (BuildState.PUBLISHING, "listed", True),
        (BuildState.PUBLISHING, "another", False),
        (BuildState.COMPLETE, "listed", False),
    ],
)
def test_a_build_goes_on_at_any_revision_until_it_is_published(
    engine: Engine, site: Path, state: BuildState, revision: str, *, goes_on: bool
) -> None:
    recipe, library = recipe_for(engine, site), Library(engine.blobs.builds)
    library.write(Build(BuildId("b"), recipe, 1, revision, state))
    assert (library.unfinished(recipe, "listed") is not None) == goes_on
    assert library.unfinished(replace(recipe, publisher=SECOND), "listed") is None
