"""What goes wrong in a task of a bulk build: it runs twice, its store is full or away, its source changes.

Tasks are functions of their work, so most of it needs no session: the task is run here, with the faults in its ports.
What a killed executor and a storm of 503s come to is in `tests/integration/test_bulk_cluster.py`.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from mailboat.bulk.assembly import recipe_for
from mailboat.bulk.build_records import BuildProblem, BuildRequest, BuiltBin, Recipe
from mailboat.bulk.cutter import Bin, Budget, Cut
from mailboat.bulk.identity import recipe_fingerprint
from mailboat.bulk.source_branches import Branch, cut_whole
from mailboat.bulk.spark import pipeline, sink
from mailboat.bulk.spark.arrow_columns import ArrowColumn, batch_of
from mailboat.bulk.spark.exchange import CUT_COLUMNS, BuildWork, ExecutorWorkspace, cut_of, cut_row
from mailboat.bulk.spark.pipeline import NEVER_SMALL, SparkPipeline, build_stage, build_work, cut_stage, cut_work
from mailboat.bulk.spark.sink import FrameMismatchError, PackageWriter, sink_order
from mailboat.bulk.spark.stages import SparkJobFailedError, Stage, StageRunner
from mailboat.composition.home import Home
from mailboat.composition.source_openers import open_source
from mailboat.composition.workspace import Workspace
from mailboat.content.listed_nodes import ListedNode, UnlistedEntry
from mailboat.errors import (
    BlobStoreUnavailableError,
    PathRefusedError,
    PlaceUnusableError,
    RetryableError,
    SourceChangedError,
    StorageFullError,
    UsageError,
)
from mailboat.model.paths import ROOT, NodePath
from pyspark.sql import SparkSession
from support.page_forest import ForestSettings, change_some, make_forest

pytestmark = pytest.mark.timeout(900)  # Java starts, and compiles, on what cores there are

BUDGET = Budget(40_000, 30)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    make_forest(tmp_path / "site", ForestSettings(pages=80, sections=6))
    return tmp_path / "site"


@pytest.fixture
def order(boat: Any, site: Path) -> tuple[ExecutorWorkspace, Recipe, list[Bin]]:
    """What a build of the site is made from: all packages go to the blob store."""
    file = boat.home / "mailboat.yaml"
    with Workspace(Home(boat.home)) as workspace:
        recipe = recipe_for(workspace, BuildRequest(str(site), [ROOT], BUDGET))
        place = ExecutorWorkspace.of(workspace.home)
    bins = [item for item in cut_now(site) if isinstance(item, Bin)]
    assert file.is_file()
    return place, recipe, bins


def work_of(order: tuple[ExecutorWorkspace, Recipe, list[Bin]]) -> bytes:
    """All bins as the work of one task."""
    place, recipe, bins = order
    return msgspec.json.encode(BuildWork(place, recipe, tuple(bins)))


def stored(boat: Any) -> set[Path]:
    return {path for path in (boat.home / "blobs").rglob("*") if path.is_file() and len(path.name) == 64}


class Broken:
    """A blob store whose `put` fails so often, after it took so many."""

    def __init__(self, store: Any, error: Exception, times: int, after: int = 2) -> None:
        self.store, self.error, self.times, self.after, self.puts = store, error, times, after, 0

    def put(self, *given: Any) -> Any:
        self.puts += 1
        if self.after < self.puts <= self.after + self.times:
            raise self.error
        return self.store.put(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the stores that tasks open fail."""
    real, made = pipeline.open_blobs, list[Broken]()

    def break_stores(error: Exception, times: int) -> list[Broken]:
        def opened(*given: Any) -> Broken:
            made.append(Broken(real(*given), error, times))
            return made[-1]

        monkeypatch.setattr(pipeline, "open_blobs", opened)
        return made

    return break_stores


def test_a_task_that_runs_twice_at_once_stores_and_says_the_same(boat: Any, order: Any) -> None:
    place, recipe, bins = order
    work = msgspec.json.encode(BuildWork(place, recipe, tuple(bins)))
    together = threading.Barrier(2)

    def task() -> list[Any]:
        together.wait()
        return [row.result for row in build_work(work)]

    with ThreadPoolExecutor(2) as pool:
        first, second = [item.result() for item in (pool.submit(task), pool.submit(task))]
    assert first == second
    large = {item.package_digest.hex() for item in first if item.payload is None}
    assert large
    assert {path.name for path in stored(boat)} == large


def test_work_shared_among_other_tasks_gives_the_same_packages(order: Any) -> None:
    place, recipe, bins = order
    alone, many = build_stage(place, recipe, bins, 1)[1], build_stage(place, recipe, bins, 7)[1]
    assert len(alone) < len(many)
    results = [{row.result for work in works for row in build_work(work)} for works in (alone, many)]
    assert results[0] == results[1]


def test_a_passing_fault_of_the_store_is_waited_out(order: Any, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_PAUSE_SECONDS", 0.001)
    stores = broken(BlobStoreUnavailableError("503 SlowDown", retry_after_seconds=0.001), times=3)
    results = [row.result for row in build_work(work_of(order))]
    assert [type(result) for result in results] == [BuiltBin] * len(order[2])
    assert len(stores) == 1


def test_a_store_that_stays_away_ends_the_task_for_spark_to_try_again(
    order: Any, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_PAUSE_SECONDS", 0.001)
    broken(BlobStoreUnavailableError("503 SlowDown"), times=1_000)
    rows = build_work(work_of(order))
    with pytest.raises(RetryableError, match="SlowDown"):
        list(rows)


def test_a_full_disk_is_told_by_name_and_what_was_built_before_it_stays(boat: Any, order: Any, broken: Any) -> None:
    broken(StorageFullError("no room for blobs"), times=1_000)
    results = [row.result for row in build_work(work_of(order))]
    assert [type(result) for result in results[:-1]] == [BuiltBin] * (len(results) - 1)
    assert isinstance(results[-1], StorageFullError)
    assert len(results) < len(order[2])
    assert stored(boat)


def test_a_source_that_changed_since_it_was_cut_is_no_package_and_the_others_are_built(site: Path, order: Any) -> None:
    bins = order[2]
    assert change_some(site, 0.05) > 0
    results = [row.result for row in build_work(work_of(order))]
    problems = [result for result in results if isinstance(result, BuildProblem)]
    assert {problem.name for problem in problems} == {"SourceChanged"}
    assert 0 < len(problems) < len(bins) == len(results)


def sink_of(boat: Any, site: Path, build_id: str = "by-hand") -> PackageWriter:
    """The writer of a sink for the bins of the site."""
    options = {"path": str(boat.home), "source": str(site), "buildId": build_id}
    return PackageWriter(sink_order(options | {"maxContentBytes": "40000", "maxNodes": "30"}))


def rows_of(boat: Any, site: Path, items: Sequence[Cut]) -> Iterator[pa.RecordBatch]:
    """The items as a task of a sink gets them, cut as its options say."""
    options = {"path": str(boat.home), "source": str(site), "maxContentBytes": "40000", "maxNodes": "30"}
    fingerprint = recipe_fingerprint(sink_order(options).recipe)
    for part in (items[:2], items[2:]):
        yield batch_of(CUT_COLUMNS, [cut_row(item, fingerprint) for item in part])


def cut_now(site: Path) -> list[Bin | UnlistedEntry]:
    """The whole site as it is."""
    with closing(open_source(str(site))) as source:
        return list(cut_whole(source, [ROOT], BUDGET))


def published(boat: Any) -> int:
    """How many messages the log of packages has."""
    with Workspace(Home(boat.home)) as workspace:
        return workspace.journal.bounds(workspace.package_topic).next_offset


def test_a_task_of_a_sink_builds_its_rows_and_the_commit_publishes_them(boat: Any, site: Path, order: Any) -> None:
    bins = order[2]
    unlisted = UnlistedEntry(NodePath("/odd"), PathRefusedError("a pipe"))
    writer = sink_of(boat, site)
    done = writer.write(rows_of(boat, site, [*bins, unlisted]))
    assert [*done.results()] == [bin_.signature for bin_ in bins]
    assert {type(result) for result in done.results().values()} == {BuiltBin}
    writer.commit([done, None])
    (build,) = boat.json("bulk", "status")["builds"]
    assert (build["build_id"], build["published"]) == ("by-hand", len(bins))


def test_a_row_that_a_sink_gets_twice_counts_once(boat: Any, site: Path, order: Any) -> None:
    bins = order[2]
    writer = sink_of(boat, site)
    writer.commit([writer.write(rows_of(boat, site, [*bins, *bins[:5]])), writer.write(rows_of(boat, site, bins[3:8]))])
    (build,) = boat.json("bulk", "status")["builds"]
    assert (build["published"], build["total"]) == (len(bins), len(bins))


def test_what_cannot_be_listed_is_not_removed_by_a_sink_whose_rows_do_not_tell_it(
    boat: Any, site: Path, tmp_path: Path
) -> None:
    page = site / "s00" / "index.html"
    page.write_text("a page")
    writer = sink_of(boat, site)
    writer.commit([writer.write(rows_of(boat, site, cut_now(site)))])
    page.unlink()
    page.symlink_to("/nowhere")
    writer = sink_of(boat, site, "without-the-page")
    writer.commit([writer.write(rows_of(boat, site, [item for item in cut_now(site) if isinstance(item, Bin)]))])
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    assert (tmp_path / "web" / "s00" / "index.html").read_text() == "a page"


def test_a_page_that_came_after_the_cut_is_not_removed_by_a_sink(boat: Any, site: Path) -> None:
    boat.do("publish", site, "--changed")
    bins = cut_now(site)
    (site / "late.html").write_text("later")
    boat.do("publish", site, "--changed")
    before = published(boat)
    writer = sink_of(boat, site)
    done = writer.write(rows_of(boat, site, bins))
    with pytest.raises(FrameMismatchError, match="split the source again if it changed"):
        writer.commit([done])
    assert published(boat) == before


def test_a_page_that_is_published_beside_a_sink_stays(
    boat: Any, site: Path, order: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = list[int]()

    def cut_then_publish(*asked: Any) -> Iterator[Bin | UnlistedEntry]:
        yield from cut_whole(*asked)
        listings.append(published(boat))
        if len(listings) == 1:
            (site / "late.html").write_text("later")
            boat.do("publish", site, "/late.html")

    monkeypatch.setattr(sink, "cut_whole", cut_then_publish)
    writer = sink_of(boat, site)
    writer.commit([writer.write(rows_of(boat, site, order[2]))])
    assert listings[0] == 0
    assert len(listings) > 1
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    boat.do("content", "diff", site, f"files:{tmp_path / 'web'}")


def test_a_sink_tells_a_source_that_changed_before_its_bins_were_built(boat: Any, site: Path, order: Any) -> None:
    assert change_some(site, 0.05) > 0
    writer = sink_of(boat, site)
    with pytest.raises(SourceChangedError, match="is not what the bins were cut from"):
        writer.commit([writer.write(rows_of(boat, site, order[2]))])
    assert published(boat) == 0


def test_rows_that_are_no_bins_are_refused_by_a_sink(boat: Any, site: Path) -> None:
    node = ListedNode(NodePath("/a"), 1, bytes(32))
    with pytest.raises(UsageError, match="these rows are no bins"):
        sink_of(boat, site).write(rows_of(boat, site, [node]))
    with pytest.raises(UsageError, match="name the source"):
        sink_order({"path": str(boat.home)})


def test_a_store_that_is_full_ends_the_task_of_a_sink_by_its_name(
    boat: Any, site: Path, order: Any, broken: Any
) -> None:
    broken(StorageFullError("no room for blobs"), times=1_000)
    with pytest.raises(StorageFullError, match="no room for blobs"):
        sink_of(boat, site).write(rows_of(boat, site, order[2]))


def test_a_path_that_cannot_be_read_is_told_and_the_others_are_cut(site: Path, order: Any) -> None:
    place, recipe, _ = order
    (site / "s00" / "odd.html").symlink_to("/nowhere")
    stage, works = cut_stage(recipe, [Branch(ROOT, is_deep=True)], 3)
    items = [cut_of(row._asdict()) for work in works for row in stage.perform(work)]
    assert [item.path for item in items if isinstance(item, UnlistedEntry)] == ["/s00/odd.html"]
    assert any(isinstance(item, Bin) for item in items)
    assert place


def test_a_source_that_is_gone_is_told_by_name(site: Path, order: Any) -> None:
    _, recipe, _ = order
    _, works = cut_stage(recipe, [Branch(NodePath("/s00"), is_deep=True)], 1)
    site.rename(site.with_name("moved"))
    (row,) = cut_work(works[0])
    with pytest.raises(Exception, match="does not exist") as caught:
        cut_of(row._asdict())
    assert type(caught.value).__name__ == "SourceMissingError"


@pytest.mark.long("spark")
def test_what_an_executor_cannot_store_ends_the_build_and_says_where(spark: SparkSession, order: Any) -> None:
    place, recipe, bins = order
    blobs = Path(place.home) / "blobs"
    shutil.rmtree(blobs)
    blobs.write_text("in the way")
    with pytest.raises(PlaceUnusableError, match="blobs cannot be used as a folder"):
        list(SparkPipeline(StageRunner(spark), place, NEVER_SMALL).build(recipe, bins))


def test_a_stage_that_spark_gives_up_is_told_with_its_reason(spark: SparkSession) -> None:
    away = BlobStoreUnavailableError("the store is away")

    def perform(work: bytes) -> Iterator[int]:  # travels by value: executors can't import this module
        if work == b"second":
            raise away
        yield 1

    told = list[int]()
    runner = StageRunner(spark, told.append)
    stage = Stage("build", {"number": ArrowColumn("INT", pa.int32(), lambda one: one)}, perform)
    with pytest.raises(SparkJobFailedError, match=r"the stage build failed: .*the store is away"):
        list(runner.run(stage, [b"first", b"second"]))
    assert [row.number for row in runner.run(stage, [b"first"])] == [1]
    assert told[-1] == 1
