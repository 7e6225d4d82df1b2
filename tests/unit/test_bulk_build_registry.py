"""The builds that are known: whose they are, which go on, and what becomes of documents that can't be understood."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.blobs.memory import MemoryBlobStore
from mailboat.bulk import build_claims
from mailboat.bulk.assembly import recipe_for as recipe_of_home
from mailboat.bulk.build_claims import BuildClaim, BuildDriver, claimed_build, claimed_source, this_driver
from mailboat.bulk.build_manifest import ManifestDamagedError
from mailboat.bulk.build_records import BuildProblem, BuildRequest, Recipe
from mailboat.bulk.build_registry import Build, BuildRegistry, BuildState
from mailboat.bulk.build_run import BuildOrder
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.content.keys import ROOT_KEY
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import PermanentError
from mailboat.model.identifiers import AgentName, BuildId, Offset, PackageId
from mailboat.model.paths import ROOT, NodePath
from mailboat.subscriber.subscriber import Until
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.bulk_scenario import ChangingStages, LocalStages, recipe_for, run
from support.engines import Engine, memory_engine, write_site

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
    reports = [run(item, BuildOrder(recipe_for(item, site))) for item in (engine, other)]
    assert reports[0].build_id != reports[1].build_id
    again = [run(item, BuildOrder(recipe_for(item, site))) for item in (engine, other)]
    assert [(item.published, item.build_id) for item in again] == [(0, report.build_id) for report in reports]


def test_a_recipe_names_the_publisher_that_is_asked_for_or_configured(boat: Any, site: Path) -> None:
    with Workspace(Home(boat.home)) as workspace:
        wish = BuildRequest(str(site), [ROOT])
        workspace.publisher(SECOND)  # known from now on
        found = [recipe_of_home(workspace, wish, name).publisher for name in (None, SECOND)]
        assert found == [workspace.home.config.publisher.name, SECOND]


def test_a_build_that_says_nothing_of_its_publisher_is_nobodys(engine: Engine, site: Path) -> None:
    recipe, library = recipe_for(engine, site), BuildRegistry(engine.blobs.builds)
    report = run(engine, BuildOrder(recipe))
    name = f"{report.build_id}.build"
    document = json.loads(library.documents.read(name) or b"")
    del document["recipe"]["publisher"]
    library.documents.write(name, json.dumps(document).encode())
    assert [build.build_id for build in library.builds()] == [report.build_id]
    assert library.latest(recipe) is None


UNNAMED = f"bulk-{24 * '0'}"


def test_build_of_a_changed_source_resumes_under_its_id(engine: Engine, site: Path) -> None:
    order, library = BuildOrder(recipe_for(engine, site)), BuildRegistry(engine.blobs.builds)
    with pytest.raises(PermanentError, match="SourceChanged") as raised:
        run(engine, order, ChangingStages(engine, site / "a/3.html"))
    stages = LocalStages(engine.blobs)
    report = run(engine, order, stages)
    assert report.build_id == raised.value.where["build"]
    assert 0 < len(stages.built) <= 2 < report.packages == report.published, "the others were built before"
    assert library.ids() == [report.build_id]
    assert imported(engine, at="edge") == {node.path for node in FolderSource(site).walk(ROOT)}


def test_what_was_built_and_never_published_is_not_taken_for_present_by_the_next_build(
    engine: Engine, site: Path
) -> None:
    order = BuildOrder(recipe_for(engine, site))
    gone = site.with_name("gone")
    with pytest.raises(PermanentError, match="SourceChanged"):
        run(engine, order, ChangingStages(engine, site / "a/3.html"))
    site.rename(gone)
    write_site(site, {"other.html": "another release"})
    assert run(engine, order).present == 0
    shutil.rmtree(site)
    gone.rename(site)
    assert run(engine, order).present == 0
    assert imported(engine, at="edge") == {node.path for node in FolderSource(site).walk(ROOT)}


@pytest.mark.parametrize(
    ("build_id", "state", "revision", "goes_on"),
    [
        (UNNAMED, BuildState.BUILDING, "listed", True),
        (UNNAMED, BuildState.BUILDING, "another", True),
        (UNNAMED, BuildState.PUBLISHING, "listed", True),
        (UNNAMED, BuildState.PUBLISHING, "another", False),
        (UNNAMED, BuildState.COMPLETE, "listed", False),
        ("release-7", BuildState.BUILDING, "listed", True),
        ("release-7", BuildState.BUILDING, "another", False),
    ],
)
def test_a_build_that_no_one_named_goes_on_at_any_revision_until_it_is_published(
    engine: Engine, site: Path, build_id: str, state: BuildState, revision: str, *, goes_on: bool
) -> None:
    recipe, library = recipe_for(engine, site), BuildRegistry(engine.blobs.builds)
    library.write(Build(BuildId(build_id), recipe, 1, revision, state))
    assert (library.unfinished(recipe, "listed") is not None) == goes_on
    assert library.unfinished(msgspec.structs.replace(recipe, publisher=SECOND), "listed") is None


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
WHOLE = Build(
    BuildId("b"),
    Recipe("/srv/site", (NodePath("/a"), NodePath("/b")), log="a log", publisher="author"),
    1,
    "00" * 32,
    BuildState.COMPLETE,
    ((1, ROOT_KEY),),
    3,
    problems=(BuildProblem(NodePath("/a/x"), "SourceChanged", "a path vanished"),),
    scan_from=Offset(3),
    last_package_id=PackageId("dstrpck-1"),
    last_offset=Offset(4),
    completed_ms=2,
)


def places(found: Any) -> Iterator[tuple[str | int, ...]]:
    """The places of all values of a document, the document itself first."""
    yield ()
    inner = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for name, value in inner:
        yield from ((name, *place) for place in places(value))


def placed(found: Any, place: tuple[str | int, ...], value: Any) -> Any:
    """A document with another value in a place."""
    if not place:
        return value
    changed = found.copy()
    changed[place[0]] = placed(found[place[0]], place[1:], value)
    return changed


def stored(record: Any) -> Any:
    return json.loads(msgspec.json.encode(record))


def library_of(document: Any) -> BuildRegistry:
    library = BuildRegistry(MemoryBlobStore(SkippingClock()).builds)
    library.documents.write("b.build", json.dumps(document).encode())
    return library


def test_a_build_is_read_as_it_was_written_also_by_a_version_that_knows_less_or_more_of_it() -> None:
    library = BuildRegistry(MemoryBlobStore(SkippingClock()).builds)
    library.write(WHOLE)
    assert library.read(WHOLE.build_id) == WHOLE
    document = stored(WHOLE)
    del document["completed_ms"]
    assert library_of({**document, "later": [1]}).read(WHOLE.build_id) == replace(WHOLE, completed_ms=None)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("created_ms",), None),
        (("created_ms",), True),
        (("created_ms",), -1),
        (("completed_ms",), "soon"),
        (("last_offset",), 1 << 63),
        (("state",), "done"),
        (("build_id",), "another"),
        (("recipe", "roots"), "/a"),
        (("recipe", "budget", "max_nodes"), 1.5),
        (("recipe",), {"source": "/a", "roots": [], "unheard": 1}),
        (("borders", 0), [1]),
        (("problems", 0, 0), 7),
    ],
)
def test_a_build_whose_document_can_not_be_understood_is_damaged_and_passed_over(
    place: tuple[str | int, ...], value: object
) -> None:
    library = library_of(placed(stored(WHOLE), place, value))
    with pytest.raises(ManifestDamagedError, match="what is known of the build b can't be read") as raised:
        library.read(BuildId("b"))
    assert raised.value.next_step == "mailboat bulk forget b, then build again"
    assert library.builds() == []


@given(st.sampled_from([*places(stored(WHOLE))]), ANY_JSON)
def test_whatever_a_document_says_a_build_is_read_or_damaged(place: tuple[str | int, ...], value: Any) -> None:
    library = library_of(placed(stored(WHOLE), place, value))
    with suppress(ManifestDamagedError):
        library.read(BuildId("b"))
    library.latest(WHOLE.recipe)
    library.unfinished(WHOLE.recipe, WHOLE.revision)
    library.prune(WHOLE.recipe)


def test_a_document_that_is_nested_without_end_is_damaged() -> None:
    library = library_of({})
    library.documents.write("b.build", b'{"created_ms":' + b"[" * 100_000)
    with pytest.raises(ManifestDamagedError):
        library.read(BuildId("b"))


CLAIM = BuildDriver("one", "there", 4_000_000, "1", 0)


@given(st.sampled_from([*places(stored(CLAIM))]), ANY_JSON)
def test_whatever_a_claim_says_it_is_free_when_no_one_renews_it(place: tuple[str | int, ...], value: Any) -> None:
    clock = SkippingClock()
    claim = replace(CLAIM, renewed_ms=int(clock.now().timestamp() * 1000))
    documents = MemoryBlobStore(clock).builds
    documents.write("b.claim-000007", json.dumps(placed(stored(claim), place, value)).encode())
    with BuildClaim(documents, claimed_build(BuildId("b")), this_driver(), clock).held():
        assert documents.names() == ["b.claim-000008"]
    assert documents.names() == []


def test_what_has_the_name_of_a_claim_but_no_number_is_passed_over(engine: Engine) -> None:
    documents = engine.blobs.builds
    for name in ("b.claim-abc", "b.claim-1", "b.claim-0000001"):
        documents.write(name, json.dumps(stored(CLAIM)).encode())
    claim = BuildClaim(documents, claimed_build(BuildId("b")), this_driver(), engine.parts.clock)
    with claim.held():
        assert "b.claim-000001" in documents.names()
        claim.check()


def test_a_defect_while_a_claim_is_renewed_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SkippingClock()
    documents = MemoryBlobStore(clock).builds
    claim = BuildClaim(documents, claimed_build(BuildId("b")), this_driver(), clock)
    renewed = threading.Event()

    def fail(*_: object) -> None:
        renewed.set()
        raise ValueError("of the store")

    monkeypatch.setattr(build_claims, "LEASE_SECONDS", 0.01)
    with claim.held():
        monkeypatch.setattr(documents, "write", fail)
        assert renewed.wait(PATIENCE_SECONDS)
        with pytest.raises(ValueError, match="of the store"):
            wait_until(claim.check)
