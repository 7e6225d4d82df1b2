"""One attempt at a build after the other: what is published, what is not published again, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest
from mailboat.bulk.bin_builder import BinBuilder
from mailboat.bulk.build_claims import (
    LEASE_SECONDS,
    POLL_SECONDS,
    BuildBusyError,
    BuildClaim,
    BuildDriver,
    BuildLostError,
    claimed_build,
    is_alive,
    this_driver,
)
from mailboat.bulk.build_manifest import ManifestDamagedError, marked_present
from mailboat.bulk.build_records import BinResult, BuildProblem, BuiltBin, Recipe
from mailboat.bulk.build_registry import BuildRegistry
from mailboat.bulk.build_run import FURTHER_ROUNDS, STORE_SECONDS, BuildConflictError, BuildIncompleteError, BuildOrder
from mailboat.bulk.cutter import Bin, BinKind, Budget
from mailboat.bulk.identity import checked_build_id, package_id_of
from mailboat.bulk.publication import RESUME_SECONDS
from mailboat.bulk.source_branches import cut_whole
from mailboat.config.document import LimitsConfig
from mailboat.content.digest import source_digest
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import BlobMissingError, MailboatError, StorageFullError, UsageError
from mailboat.failpoints import Failpoint
from mailboat.model.identifiers import BuildId, FileIdentity
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.nodes import Binary, Node, Property
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.model.values import PropertyType
from mailboat.packages.codec_registry import FILEVAULT
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.properties import format_properties
from mailboat.packages.filevault.sources import open_archive_source, open_checkout_source
from mailboat.packages.tree import TreeCodec
from mailboat.publisher.state import PublisherState
from mailboat.subscriber.subscriber import Until
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.memory_content import MemorySource
from mailboat.wire.package_messages import decode_package
from support.bulk_scenario import BUDGET, ChangingStages, LocalStages, recipe_for, run
from support.crashes import CrashError, RaisingFailpoints
from support.engines import Engine, EngineParts, memory_engine, write_site

SITE: dict[str, str | bytes] = {
    **{f"{letter}/{number}.html": letter * 600 for letter in "ab" for number in range(9)},
    "index.html": "home",
    "big.bin": bytes(range(256)) * 500,
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with some pages."""
    write_site(tmp_path / "site", SITE)
    return tmp_path / "site"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Journal and blobs in memory."""
    with memory_engine(tmp_path / "home") as opened:
        yield opened


def messages(engine: Engine) -> list[PackageMessage]:
    return [decode_package(record.value) for record in engine.records()]


def assert_imported(engine: Engine, site: Path) -> None:
    """A subscriber that starts now comes to the site."""
    with closing(engine.target("sqlite", "fresh")) as target:
        engine.subscriber(target).run(Until.CAUGHT_UP)
        assert target.ledger.given_up() == []
        assert source_digest(target.source()) == source_digest(FolderSource(site))


def test_a_build_publishes_its_packages_in_order_and_subscribers_come_to_the_source(engine: Engine, site: Path) -> None:
    report = run(engine, BuildOrder(recipe_for(engine, site)))
    found = messages(engine)
    assert report.state == "complete"
    assert report.published == report.total == report.packages == report.built == len(found)
    assert (report.first_offset, report.last_offset) == (0, len(found) - 1)
    places = [item.bulk for item in found if item.bulk is not None]
    assert [(place.build_id, place.sequence, place.total) for place in places] == [
        (report.build_id, number, len(found)) for number in range(len(found))
    ]
    made_ms = found[0].package_id.split("-")[1]
    assert [item.request_id for item in found] == [
        f"bulk-{report.build_id}-{made_ms}-{number}" for number in range(len(found))
    ]
    assert found[0].deep_paths == ()
    assert any(item.payload_ref for item in found)
    assert any(item.payload for item in found)
    assert_imported(engine, site)


def test_the_same_build_again_publishes_and_builds_nothing(engine: Engine, site: Path) -> None:
    first = run(engine, BuildOrder(recipe_for(engine, site)))
    stages = LocalStages(engine.blobs)
    again = run(engine, BuildOrder(recipe_for(engine, site)), stages)
    assert (again.build_id, again.published, again.present) == (first.build_id, 0, first.packages)
    assert stages.built == []
    assert len(messages(engine)) == first.packages


def test_a_named_build_that_is_complete_is_not_even_listed_again(engine: Engine, site: Path) -> None:
    order = BuildOrder(recipe_for(engine, site), BuildId("release-7"))
    count = run(engine, order).published
    (site / "index.html").write_text("later")
    assert run(engine, order).published == 0
    assert len(messages(engine)) == count


def test_a_build_with_the_id_of_a_forgotten_one_publishes_everything(engine: Engine, site: Path) -> None:
    order = BuildOrder(recipe_for(engine, site), BuildId("release-7"))
    first = run(engine, order)
    engine.publisher().publish(DistributionRequest(Action.DELETE, (NodePath("/a"),)))
    BuildRegistry(engine.blobs.builds).forget(BuildId("release-7"))
    engine.parts.clock.wait(threading.Event(), 1.0)
    assert run(engine, order).published == first.published
    assert_imported(engine, site)


def test_a_changed_tree_publishes_changed_packages_and_what_is_gone(engine: Engine, site: Path) -> None:
    first = run(engine, BuildOrder(recipe_for(engine, site)))
    (site / "a/3.html").write_text("different")
    (site / "b/1.html").unlink()
    stages = LocalStages(engine.blobs)
    second = run(engine, BuildOrder(recipe_for(engine, site)), stages)
    assert second.build_id != first.build_id
    assert 0 < len(stages.built) < first.packages / 2
    assert second.published == len(stages.built) + 1
    assert messages(engine)[-1].paths == ("/b/1.html",)
    assert_imported(engine, site)


def test_an_identical_copy_of_the_source_publishes_nothing(engine: Engine, site: Path, tmp_path: Path) -> None:
    first = run(engine, BuildOrder(recipe_for(engine, site)))
    engine.parts.clock.wait(threading.Event(), 1.0)
    shutil.copytree(site, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(site)
    (tmp_path / "copy").rename(site)
    for page in site.rglob("*.html"):
        page.chmod(0o600)
    second = run(engine, BuildOrder(recipe_for(engine, site)))
    assert (second.published, second.present) == (0, first.packages)
    assert second.built > 0
    assert second.state == "complete"
    (site / "a/3.html").write_text("different")
    third = run(engine, BuildOrder(recipe_for(engine, site)))
    assert 0 < third.published == third.built < first.packages
    assert_imported(engine, site)


def test_all_of_an_identical_copy_is_published_when_asked_for(engine: Engine, site: Path) -> None:
    first = run(engine, BuildOrder(recipe_for(engine, site)))
    os.utime(site / "index.html", ns=(1, 1))
    assert run(engine, BuildOrder(recipe_for(engine, site), is_all=True)).published == first.packages


@pytest.mark.parametrize(
    ("identity", "is_touched", "built"),
    [
        (FileIdentity.INODE, False, 8),
        (FileIdentity.MTIME, False, 0),
        (FileIdentity.MTIME, True, 8),
        (FileIdentity.CONTENT, True, 0),
    ],
)
def test_a_copy_is_recognised_by_what_was_chosen(
    engine: Engine, site: Path, tmp_path: Path, identity: FileIdentity, is_touched: bool, built: int
) -> None:
    recipe = msgspec.structs.replace(recipe_for(engine, site), file_identity=identity)
    run(engine, BuildOrder(recipe))
    copy_in_place(site, tmp_path)
    if is_touched:
        for page in (path for path in site.rglob("*") if path.is_file()):
            os.utime(page, ns=(1, 1))
    stages = LocalStages(engine.blobs)
    report = run(engine, BuildOrder(recipe), stages)
    assert (len(stages.built), report.published) == (built, 0)


def copy_in_place(site: Path, folder: Path) -> None:
    """Exchange every file for a copy with the same times, as a second node's disk has it."""
    shutil.copytree(site, folder / "copy")
    shutil.rmtree(site)
    (folder / "copy").rename(site)


@pytest.mark.parametrize("identity", [FileIdentity.MTIME, FileIdentity.CONTENT])
def test_executors_build_from_their_own_copy(
    engine: Engine, site: Path, tmp_path: Path, identity: FileIdentity
) -> None:
    class OtherNode(LocalStages):
        def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
            wanted = list(bins)
            copy_in_place(site, tmp_path)
            yield from super().build(recipe, wanted)

    recipe = msgspec.structs.replace(recipe_for(engine, site), file_identity=identity)
    assert run(engine, BuildOrder(recipe), OtherNode(engine.blobs)).state == "complete"


class SavingStages(LocalStages):
    """Saves a file while the tree is built, so many times."""

    def __init__(self, engine: Engine, file: Path, times: int) -> None:
        super().__init__(engine.blobs)
        self._file = file
        self._left = times

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        if self._left:
            self._left -= 1
            self._file.write_text(f"saved, {self._left} more times to come")
        yield from super().build(recipe, bins)


@pytest.mark.parametrize("build_id", [None, BuildId("release-7")])
def test_a_file_that_is_saved_during_a_build_is_built_again_by_the_same_command(
    engine: Engine, site: Path, build_id: BuildId | None
) -> None:
    stages = SavingStages(engine, site / "a/3.html", FURTHER_ROUNDS)
    report = run(engine, BuildOrder(recipe_for(engine, site), build_id), stages)
    assert (report.state, report.problems) == ("complete", ())
    assert len(stages.built) <= report.packages + FURTHER_ROUNDS
    assert_imported(engine, site)
    assert run(engine, BuildOrder(recipe_for(engine, site))).published == 0


class FillingStages(LocalStages):
    """The disk is full after some packages."""

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        for number, one in enumerate(super().build(recipe, bins)):
            if number == 3:
                raise StorageFullError("no room for blobs")
            yield one


def test_packages_built_before_an_error_are_not_built_again(engine: Engine, site: Path) -> None:
    with pytest.raises(StorageFullError) as caught:
        run(engine, BuildOrder(recipe_for(engine, site)), FillingStages(engine.blobs))
    (begun,) = BuildRegistry(engine.blobs.builds).builds()
    assert caught.value.where["build"] == begun.build_id
    stages = LocalStages(engine.blobs)
    report = run(engine, BuildOrder(recipe_for(engine, site)), stages)
    assert len(stages.built) == report.packages - 3
    assert_imported(engine, site)


class SlowStages(LocalStages):
    """Each package takes half of the time after which rows are stored; `stored` is how many are, as they come."""

    def __init__(self, engine: Engine, site: Path) -> None:
        super().__init__(engine.blobs)
        self.engine = engine
        self.recipe = recipe_for(engine, site)
        self.stored = list[int]()

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        for item in super().build(recipe, bins):
            self.engine.parts.clock.wait(threading.Event(), STORE_SECONDS / 2)
            yield item
            library = BuildRegistry(self.engine.blobs.builds)
            self.stored.append(sum(1 for _ in library.manifest(library.builds()[0]).signatures()))


def test_rows_are_stored_while_packages_are_built(engine: Engine, site: Path) -> None:
    stages = SlowStages(engine, site)
    run(engine, BuildOrder(stages.recipe), stages)
    assert stages.stored[:5] == [0, 2, 2, 4, 4]


def test_going_back_to_an_earlier_revision_is_another_build(engine: Engine, site: Path) -> None:
    ids = [run(engine, BuildOrder(recipe_for(engine, site))).build_id]
    for text in ("other", "home"):
        (site / "index.html").write_text(text)
        os.utime(site / "index.html", ns=(1, 1))
        ids.append(run(engine, BuildOrder(recipe_for(engine, site))).build_id)
    assert len(set(ids)) == 3
    assert_imported(engine, site)


def test_after_a_build_publish_changed_ships_only_what_changed_since(engine: Engine, site: Path) -> None:
    run(engine, BuildOrder(recipe_for(engine, site)))
    source = FolderSource(site)
    assert list(engine.publisher().publish_changed(source)) == []
    (site / "index.html").write_text("later")
    (receipt,) = engine.publisher().publish_changed(source)
    assert receipt.paths == ("/index.html",)


def test_what_others_published_of_the_source_meanwhile_is_not_taken_for_present(engine: Engine, site: Path) -> None:
    first = run(engine, BuildOrder(recipe_for(engine, site)))
    source = FolderSource(site)
    engine.publisher().publish(add_request([NodePath("/index.html")]), source)
    (site / "index.html").write_text("later")
    again = run(engine, BuildOrder(recipe_for(engine, site)))
    assert again.published == first.packages
    assert_imported(engine, site)


def test_all_publishes_everything_again_and_stores_nothing_twice(engine: Engine, site: Path) -> None:
    first = run(engine, BuildOrder(recipe_for(engine, site)))
    blobs = len(list(engine.blobs.list()))
    second = run(engine, BuildOrder(recipe_for(engine, site), is_all=True))
    assert (second.published, len(list(engine.blobs.list()))) == (first.published, blobs)


def test_a_fresh_memory_learns_of_the_last_build_from_its_manifest(engine: Engine, site: Path, tmp_path: Path) -> None:
    first = run(engine, BuildOrder(recipe_for(engine, site)))
    (site / "b/1.html").unlink()
    engine.state = PublisherState(tmp_path / "other.db", engine.parts.clock, "OFF")
    second = run(engine, BuildOrder(recipe_for(engine, site)))
    engine.state.close()
    assert second.published < first.published / 2
    assert messages(engine)[-1].paths == ("/b/1.html",)
    assert_imported(engine, site)


def test_what_can_not_be_read_is_left_out_and_not_removed(engine: Engine, site: Path) -> None:
    run(engine, BuildOrder(recipe_for(engine, site)))
    (site / "a/3.html").unlink()
    (site / "a/3.html").symlink_to("/")
    report = run(engine, BuildOrder(recipe_for(engine, site)))
    assert [(problem.path, problem.name) for problem in report.problems] == [("/a/3.html", "PathRefused")]
    with closing(engine.target("sqlite", "fresh")) as target:
        engine.subscriber(target).run(Until.CAUGHT_UP)
        assert target.source().node(NodePath("/a/3.html")) is not None


def test_a_source_that_changes_while_it_is_read_fails_by_name_and_publishes_nothing(engine: Engine, site: Path) -> None:
    order = BuildOrder(recipe_for(engine, site), BuildId("release-7"))
    with pytest.raises(BuildIncompleteError, match="SourceChanged") as raised:
        run(engine, order, ChangingStages(engine, site / "a/3.html"))
    assert raised.value.where["build"] == "release-7"
    assert messages(engine) == []
    stages = LocalStages(engine.blobs)
    report = run(engine, order, stages)
    assert 0 < len(stages.built) <= 2  # the others were built by the first attempt
    assert report.published == report.packages
    assert_imported(engine, site)


def test_a_build_id_belongs_to_one_order(engine: Engine, site: Path) -> None:
    run(engine, BuildOrder(recipe_for(engine, site), BuildId("release-7")))
    with pytest.raises(BuildConflictError, match="release-7 was begun by the publisher author for"):
        run(engine, BuildOrder(recipe_for(engine, site, ["/a"]), BuildId("release-7")))


def test_a_build_of_some_paths_says_nothing_of_the_others(engine: Engine, site: Path) -> None:
    run(engine, BuildOrder(recipe_for(engine, site)))
    (site / "b/1.html").unlink()
    (site / "a/1.html").unlink()
    run(engine, BuildOrder(recipe_for(engine, site, ["/a"])))
    assert messages(engine)[-1].paths == ("/a/1.html",)


def test_the_packages_of_a_build_have_the_same_bytes_and_ids_in_every_build(site: Path, tmp_path: Path) -> None:
    found = list[list[BuiltBin]]()
    for name in ("one", "two"):
        with memory_engine(tmp_path / name) as engine:
            recipe = msgspec.structs.replace(recipe_for(engine, site), log="")
            builder = BinBuilder(recipe, FolderSource(site), engine.blobs, {"tree": TreeCodec()})
            bins = [item for item in cut_whole(FolderSource(site), recipe.roots, BUDGET) if isinstance(item, Bin)]
            built = [builder.build(item) for item in (bins if name == "one" else reversed(bins))]
            found.append(sorted((item for item in built if isinstance(item, BuiltBin)), key=lambda one: one.order))
    assert found[0] == found[1]
    ids = {package_id_of(BuildId("b"), 3, item.package_digest, 1) for item in found[0]}
    assert len(ids) == len(found[0])
    assert all(item.startswith("dstrpck-1-") and item[24] == "8" for item in ids)


def a_checkout(folder: Path, handling: str = "merge") -> Path:
    """A node and its access control list, and how a package of it asks for that to be imported."""
    head = '<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:rep="internal" jcr:primaryType='
    for file, text in (
        ("jcr_root/a/.content.xml", f'{head}"nt:unstructured"/>'),
        ("jcr_root/a/_rep_policy.xml", f'{head}"rep:ACL"/>'),
        ("META-INF/vault/properties.xml", format_properties({"acHandling": handling})),
    ):
        place = folder / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def test_what_changes_the_import_of_access_control_is_built_again(engine: Engine, tmp_path: Path) -> None:
    stages = LocalStages(engine.blobs, {FILEVAULT: FilevaultCodec()})
    for handling, published in (("merge", 2), ("merge", 0), ("merge_preserve", 1), ("clear", 2)):
        checkout = a_checkout(tmp_path / "checkout", handling)
        recipe = recipe_for(engine, checkout, ["/a"], Budget(max_nodes=1))
        report = run(engine, BuildOrder(msgspec.structs.replace(recipe, package_type=FILEVAULT)), stages)
        assert (handling, report.published) == (handling, published)


def test_limits_of_the_configuration_hold_for_packages(engine: Engine, site: Path) -> None:
    recipe = recipe_for(engine, site)
    ports = FolderSource(site), engine.blobs, {"tree": TreeCodec()}, LimitsConfig(max_entries=1)
    whole = Bin(BinKind.CONTENT, (NodePath("/a"),), 0, 1, b"")
    problem = BinBuilder(recipe, *ports).build(whole)
    assert isinstance(problem, BuildProblem)
    assert (problem.name, "more nodes than limits.max_entries" in problem.message) == ("LimitExceeded", True)


def test_access_control_and_node_types_of_a_source_are_kept(engine: Engine, tmp_path: Path) -> None:
    types = {"META-INF/vault/nodetypes.cnd": b"[acme:page]\n"}
    for name, content in types.items():
        (a_checkout(tmp_path / "checkout") / name).write_bytes(content)
    source = open_checkout_source(a_checkout(tmp_path / "checkout"))
    recipe = recipe_for(engine, tmp_path / "checkout", ["/a"])
    recipe = msgspec.structs.replace(recipe, package_type=FILEVAULT, inline_package_bytes=10_000)
    builder = BinBuilder(recipe, source, engine.blobs, {FILEVAULT: FilevaultCodec()})
    (one,) = [item for item in cut_whole(source, recipe.roots, BUDGET) if isinstance(item, Bin)]
    built = builder.build(one)
    assert isinstance(built, BuiltBin)
    assert built.payload is not None
    (tmp_path / "built.zip").write_bytes(built.payload)
    with closing(open_archive_source(tmp_path / "built.zip")) as package:
        assert package.properties["acHandling"] == "merge"
        assert package.node_types() == types


def test_large_binaries_of_nodes_above_the_roots_are_stored(engine: Engine) -> None:
    """A FileVault package names them by digest, so an import without the blob would fail."""
    large = Binary(bytes(range(256)) * 400)
    above = Node(NodePath("/a"), "nt:unstructured", (), (Property("thumbnail", (large,), PropertyType.BINARY),))
    source = MemorySource([Node(NodePath("/"), "rep:root"), above, Node(NodePath("/a/b"), "nt:unstructured")])
    recipe = msgspec.structs.replace(recipe_for(engine, Path("site"), ["/a/b"]), package_type=FILEVAULT)
    builder = BinBuilder(recipe, source, engine.blobs, {FILEVAULT: FilevaultCodec()})
    (one,) = [item for item in cut_whole(source, recipe.roots, BUDGET) if isinstance(item, Bin)]
    built = builder.build(one)
    assert isinstance(built, BuiltBin)
    assert [binary.digest for binary in built.binaries] == [large.digest]
    assert engine.blobs.stat(large.digest) is not None


def test_a_vanished_path_is_a_problem_with_its_path(engine: Engine, site: Path) -> None:
    recipe = recipe_for(engine, site)
    builder = BinBuilder(recipe, FolderSource(site), engine.blobs, {"tree": TreeCodec()})
    gone = Bin(BinKind.CONTENT, (NodePath("/nowhere"),), 0, 1, b"")
    assert builder.build(gone) == BuildProblem(
        NodePath("/nowhere"), "SourceChanged", "a path vanished while it was built"
    )


def driver(token: str, renewed_ms: int = 0, host: str = "here", started: str = "1") -> BuildDriver:
    return BuildDriver(token, host, 4_000_000, started, renewed_ms)


def test_a_claim_is_alive_while_it_is_renewed_and_its_process_is_there() -> None:
    here = driver("me")
    assert is_alive(driver("a", 1_000), here, 2_000, "1")
    assert not is_alive(driver("a", 1_000), here, 2_000, "")
    assert not is_alive(driver("a", 1_000), here, 2_000, "another process of that id")
    assert is_alive(driver("a", 1_000, host="there"), here, 2_000, "")
    assert not is_alive(driver("a", 1_000, host="there"), here, 1_000 + int(LEASE_SECONDS * 1000), "")


class LivingClock(SkippingClock):
    """Something happens during a wait."""

    def __init__(self, happen: Callable[[], object]) -> None:
        super().__init__()
        self._happen = happen

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        """See `Clock.wait`."""
        super().wait(event, timeout_seconds)
        self._happen()
        return event.is_set()


def test_a_second_driver_is_refused_as_soon_as_the_first_is_heard_of(engine: Engine) -> None:
    documents = engine.blobs.builds
    clock = LivingClock(lambda: documents.write("b.claim-000001", json.dumps(asdict(renewed())).encode()))

    def renewed() -> BuildDriver:
        return driver("one", int(clock.now().timestamp() * 1000), host="there")

    BuildClaim(documents, claimed_build(BuildId("b")), driver("one", host="there"), clock)._take()
    second = BuildClaim(documents, claimed_build(BuildId("b")), driver("two"), clock)
    began = clock.monotonic()
    with pytest.raises(BuildBusyError, match="process 4000000 on there, is at work on the build b"), second.held():
        pass
    assert clock.monotonic() - began == POLL_SECONDS
    assert documents.names("b.claim-") == ["b.claim-000001"]


def test_a_second_driver_waits_for_the_end_of_a_lease_that_no_one_renews(engine: Engine) -> None:
    clock = SkippingClock()
    documents = engine.blobs.builds
    first = BuildClaim(documents, claimed_build(BuildId("b")), driver("one", host="there"), clock)
    second = BuildClaim(documents, claimed_build(BuildId("b")), driver("two"), clock)
    first._take()
    began = clock.monotonic()
    second._take()
    assert clock.monotonic() - began == LEASE_SECONDS
    with pytest.raises(BuildLostError, match="took over the build b"):
        first.check()
    second.check()
    first._release()
    assert len(documents.names("b.claim-")) == 1
    second._release()
    assert not documents.names("b.claim-")


def test_a_held_claim_is_given_back(engine: Engine) -> None:
    claim = BuildClaim(engine.blobs.builds, claimed_build(BuildId("b")), this_driver(), engine.parts.clock)
    with claim.held():
        claim.check()
    with claim.held():
        claim.check()
    assert not engine.blobs.builds.names("b.claim-")


@pytest.mark.parametrize("text", ["a" * 46, "x.rows-1", "x.build", "-a", "", "a b"])
def test_a_build_id_that_can_not_name_a_manifest_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        checked_build_id(text)


def test_a_damaged_manifest_is_a_named_state(engine: Engine, site: Path) -> None:
    report = run(engine, BuildOrder(recipe_for(engine, site)))
    library = BuildRegistry(engine.blobs.builds)
    build = library.read(report.build_id)
    assert build is not None
    (name,) = [name for name in library.documents.names() if ".rows-" in name][:1]
    library.documents.write(name, b"no parquet")
    with pytest.raises(ManifestDamagedError, match="can't be read"):
        list(library.manifest(build).ordered())
    library.documents.remove(name)
    library.documents.write(f"{report.build_id}.build", b"[]")
    with pytest.raises(ManifestDamagedError, match="what is known of the build"):
        library.read(report.build_id)


def test_a_manifest_with_a_flipped_byte_is_told_with_its_part_or_read_as_it_was(engine: Engine, site: Path) -> None:
    report = run(engine, BuildOrder(recipe_for(engine, site)))
    library = BuildRegistry(engine.blobs.builds)
    manifest = library.manifest(library.builds()[0])
    rows, told = list(manifest.ordered()), 0
    for name in (name for part in ("rows-", "order") for name in library.documents.names(f"{report.build_id}.{part}")):
        stored = library.documents.read(name) or b""
        for place in range(0, len(stored), 13):
            library.documents.write(name, stored[:place] + bytes([stored[place] ^ 255]) + stored[place + 1 :])
            try:
                assert list(manifest.ordered()) == rows
            except ManifestDamagedError as error:
                told += name in str(error)
        library.documents.write(name, stored)
    assert told > 100


def test_a_part_of_a_manifest_that_has_other_columns_is_damaged(engine: Engine, site: Path) -> None:
    report = run(engine, BuildOrder(recipe_for(engine, site)))
    library = BuildRegistry(engine.blobs.builds)
    order = library.documents.read(f"{report.build_id}.order") or b""
    (name,) = library.documents.names(f"{report.build_id}.rows-")
    library.documents.write(name, order)
    with pytest.raises(ManifestDamagedError, match=f"{name} has other columns"):
        list(library.manifest(library.builds()[0]).ordered())


def truncate_record(engine: Engine, build_id: str) -> None:
    documents = engine.blobs.builds
    documents.write(f"{build_id}.build", (documents.read(f"{build_id}.build") or b"")[:100])


def test_a_damaged_record_of_one_source_holds_up_no_build_of_another(
    engine: Engine, site: Path, tmp_path: Path
) -> None:
    run(engine, BuildOrder(recipe_for(engine, site), BuildId("damaged")))
    truncate_record(engine, "damaged")
    write_site(tmp_path / "other", {"other.html": "other"})
    order = BuildOrder(recipe_for(engine, tmp_path / "other"))
    assert run(engine, order).published == 1
    assert run(engine, order).published == 0


def test_a_build_whose_record_is_damaged_ends_until_it_is_forgotten(engine: Engine, site: Path) -> None:
    order = BuildOrder(recipe_for(engine, site), BuildId("damaged"))
    run(engine, order)
    truncate_record(engine, "damaged")
    with pytest.raises(ManifestDamagedError, match="what is known of the build damaged") as raised:
        run(engine, order)
    assert raised.value.next_step == "mailboat bulk forget damaged, then build again"
    library = BuildRegistry(engine.blobs.builds)
    assert (library.ids(), library.builds()) == (["damaged"], [])
    library.forget(BuildId("damaged"))
    assert list(library.documents.names()) == []
    assert run(engine, order).state == "complete"
    assert_imported(engine, site)


def test_old_builds_of_a_source_are_forgotten_and_the_newest_are_kept(engine: Engine, site: Path) -> None:
    for number in range(7):
        (site / "index.html").write_text(f"revision {number}")
        run(engine, BuildOrder(recipe_for(engine, site), BuildId(f"b{number}")))
    library = BuildRegistry(engine.blobs.builds)
    assert {build.build_id for build in library.builds()} == {f"b{number}" for number in range(2, 7)}
    assert {name.split(".")[0] for name in library.documents.names()} == {f"b{number}" for number in range(2, 7)}


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[Engine]:
    """An engine whose driver dies as soon as all is built, until its failpoints are calm."""
    failpoints = RaisingFailpoints(random.Random(1), 1.0, [Failpoint.BULK_PUBLISHING_STORED])
    with memory_engine(tmp_path / "dying", EngineParts(SkippingClock(), failpoints, synchronous="OFF")) as opened:
        yield opened


def run_until_built(engine: Engine, order: BuildOrder) -> None:
    """An attempt whose driver dies when all is built and nothing is published."""
    with pytest.raises((MailboatError, CrashError)):
        run(engine, order)
    assert isinstance(engine.parts.failpoints, RaisingFailpoints)
    engine.parts.failpoints.calm()
    assert messages(engine) == []


@pytest.mark.parametrize("is_binary", [True, False])
def test_build_that_was_swept_publishes_nothing_until_rebuilt(dying: Engine, site: Path, *, is_binary: bool) -> None:
    order = BuildOrder(recipe_for(dying, site), BuildId("old"))
    run_until_built(dying, order)
    dying.parts.clock.wait(threading.Event(), RESUME_SECONDS + 1)
    film = hashlib.sha256((site / "big.bin").read_bytes()).digest()
    for blob in list(dying.blobs.list()):
        if (blob.digest == film) is is_binary:
            dying.blobs.delete(blob.digest)
    with pytest.raises(BlobMissingError, match="a package of the build old needs the blob") as raised:
        run(dying, order)
    assert (raised.value.where["digest"] == film.hex()) is is_binary
    assert messages(dying) == []
    library = BuildRegistry(dying.blobs.builds)
    library.forget(BuildId("old"))
    run(dying, order)
    assert_imported(dying, site)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("old.rows-", "9 of its 9 rows are gone"),
        ("old.rows-00000-0001", "of its 9 rows are gone"),
        ("old.order", "its part old.order is gone"),
    ],
)
def test_a_build_whose_manifest_lost_a_part_publishes_nothing_until_it_is_built_again(
    dying: Engine, site: Path, monkeypatch: pytest.MonkeyPatch, lost: str, said: str
) -> None:
    monkeypatch.setattr("mailboat.bulk.build_manifest.HELD_BYTES", 2_000)
    order = BuildOrder(recipe_for(dying, site), BuildId("old"))
    run_until_built(dying, order)
    library = BuildRegistry(dying.blobs.builds)
    for name in library.documents.names(lost):
        library.documents.remove(name)
    with pytest.raises(ManifestDamagedError, match=said) as raised:
        run(dying, order)
    assert raised.value.next_step == "mailboat bulk forget old, then build again"
    assert messages(dying) == []
    library.forget(BuildId("old"))
    run(dying, order)
    assert_imported(dying, site)


def test_a_build_whose_newer_row_of_a_package_is_gone_does_not_take_it_for_present(dying: Engine, site: Path) -> None:
    run_until_built(dying, BuildOrder(recipe_for(dying, site), BuildId("old")))
    library = BuildRegistry(dying.blobs.builds)
    manifest = library.manifest(library.builds()[0])
    first = next(manifest.ordered())
    manifest.add(marked_present(first))
    manifest.flush()
    with pytest.raises(ManifestDamagedError, match="of its rows are to be published"):
        run(dying, BuildOrder(recipe_for(dying, site), BuildId("old")))
    assert messages(dying) == []


def test_an_old_build_whose_blobs_are_there_is_published_to_its_end(dying: Engine, site: Path) -> None:
    order = BuildOrder(recipe_for(dying, site), BuildId("old"))
    run_until_built(dying, order)
    dying.parts.clock.wait(threading.Event(), RESUME_SECONDS + 1)
    report = run(dying, order)
    assert report.published == report.packages == len(messages(dying))
    assert_imported(dying, site)


def test_a_manifest_keeps_the_order_over_its_buckets(
    engine: Engine, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailboat.bulk.build_manifest.BUCKET_ROWS", 3)
    monkeypatch.setattr("mailboat.bulk.build_manifest.HELD_BYTES", 2_000)
    report = run(engine, BuildOrder(recipe_for(engine, site, budget=Budget(1_000, 1))))
    build = BuildRegistry(engine.blobs.builds).read(report.build_id)
    assert build is not None
    assert len(build.borders) > 3
    rows = list(BuildRegistry(engine.blobs.builds).manifest(build).ordered())
    assert [row.order for row in rows] == sorted(row.order for row in rows)
    assert len(rows) == report.packages
    assert_imported(engine, site)
