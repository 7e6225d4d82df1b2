"""Bulk builds on a real Spark session: what is published equals the source, once and in order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mailboat.bulk.assembly import ports_for, recipe_for
from mailboat.bulk.build_records import BuildRequest
from mailboat.bulk.build_reports import BuildReport
from mailboat.bulk.build_run import BuildOrder, BuildRun
from mailboat.bulk.cutter import Bin, Budget
from mailboat.bulk.source_branches import cut_whole
from mailboat.bulk.spark.exchange import ExecutorWorkspace, cut_of, cut_row
from mailboat.bulk.spark.pipeline import NEVER_SMALL, SmallBuild, SparkPipeline
from mailboat.bulk.spark.sink import bins_frame
from mailboat.bulk.spark.stages import StageRunner
from mailboat.composition.home import Home
from mailboat.composition.source_openers import open_source
from mailboat.composition.workspace import Workspace
from mailboat.content.listed_nodes import ListedNode, UnlistedEntry
from mailboat.errors import UsageError
from mailboat.model.identifiers import Offset
from mailboat.model.messages import PackageMessage
from mailboat.model.paths import ROOT, NodePath
from mailboat.wire.messages import decode_message
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from support.page_forest import ForestSettings, change_some, make_forest

pytestmark = pytest.mark.timeout(900)  # Java starts, and compiles, on what cores there are

BUDGET = Budget(60_000, 40)
OPTIONS = {"maxContentBytes": BUDGET.max_content_bytes, "maxNodes": BUDGET.max_nodes}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with a hot folder, a path that is as deep as paths can be, and a file larger than any package."""
    site = tmp_path / "site"
    make_forest(site, ForestSettings(pages=240, sections=12, heat=1.6))
    deep = site.joinpath("deep", *(f"d{level}" for level in range(98)))
    deep.mkdir(parents=True)
    (deep / "end.txt").write_text("the end")
    (site / "large.bin").write_bytes(bytes(range(256)) * 1024)
    return site


def build(spark: SparkSession, home: Path, source: Path, budget: Budget = BUDGET) -> tuple[BuildReport, StageRunner]:
    with Workspace(Home(home)) as workspace:
        recipe = recipe_for(workspace, BuildRequest(str(source), [ROOT], budget))
        runner = StageRunner(spark)
        ports = ports_for(workspace, SparkPipeline(runner, ExecutorWorkspace.of(workspace.home), NEVER_SMALL))
        return BuildRun(BuildOrder(recipe), ports).run(), runner


def messages(boat: Any) -> list[Any]:
    with Workspace(Home(boat.home)) as workspace:
        bounds = workspace.journal.bounds(workspace.package_topic)
        records = [
            workspace.journal.record_at(workspace.package_topic, Offset(offset)) for offset in range(bounds.next_offset)
        ]
        found = [decode_message(record.headers, record.value) for record in records if record is not None]
        return [item for item in found if isinstance(item, PackageMessage)]


def test_a_build_is_imported_equals_its_source_and_is_not_published_again(
    spark: SparkSession, boat: Any, site: Path, tmp_path: Path
) -> None:
    report, runner = build(spark, boat.home, site)
    assert (report.state, report.published, report.problems) == ("complete", report.total, ())
    assert report.total > 10
    target = f"files:{tmp_path / 'web'}"
    boat.do("subscribe", "web", "--into", target, "--until", "caught-up")
    assert boat.do("content", "diff", site, target).lines == ["no difference"]
    parts = [message.bulk for message in messages(boat)]
    assert [(part.build_id, part.sequence, part.total) for part in parts] == [
        (report.build_id, sequence, report.total) for sequence in range(report.total)
    ]
    assert [figure.name for figure in runner.figures] == ["cut", "build"]
    assert all(figure.tasks > 1 and figure.skew >= 1 and figure.seconds > 0 for figure in runner.figures)

    again, _ = build(spark, boat.home, site)
    assert (again.published, again.built, again.build_id) == (0, 0, report.build_id)

    assert change_some(site, 0.02) > 0
    (site / "large.bin").unlink()
    changed, _ = build(spark, boat.home, site)
    assert 0 < changed.published < report.total / 2
    boat.do("subscribe", "web", "--until", "caught-up")
    assert boat.do("content", "diff", site, target).lines == ["no difference"]
    assert boat.do("publish", site, "--changed").out.startswith("nothing"), "the publisher knows what was published"


def test_the_bins_are_those_of_a_cut_without_spark(spark: SparkSession, boat: Any, site: Path) -> None:
    with Workspace(Home(boat.home)) as workspace:
        recipe = recipe_for(workspace, BuildRequest(str(site), [ROOT], BUDGET))
        place = ExecutorWorkspace.of(workspace.home)
    with closing(open_source(str(site))) as source:
        expected = {item for item in cut_whole(source, recipe.roots, BUDGET) if isinstance(item, Bin)}
    assert set(SparkPipeline(StageRunner(spark), place, NEVER_SMALL).cut(recipe)) == expected
    assert set(SparkPipeline(StageRunner(spark), place).cut(recipe)) == expected


def test_a_finished_build_of_a_small_tree_is_recognised_without_a_session(
    spark: SparkSession, boat: Any, site: Path
) -> None:
    first, _ = build(spark, boat.home, site)
    with Workspace(Home(boat.home)) as workspace:
        recipe = recipe_for(workspace, BuildRequest(str(site), [ROOT], BUDGET))
        runner = StageRunner(lambda: pytest.fail("a session was opened"))
        ports = ports_for(workspace, SparkPipeline(runner, ExecutorWorkspace.of(workspace.home)))
        again = BuildRun(BuildOrder(recipe), ports).run()
    assert (again.build_id, again.published, again.built) == (first.build_id, 0, 0)
    assert (runner.figures, runner.start_seconds) == ([], None)


@pytest.mark.long("spark")
def test_a_session_begins_with_the_first_stage_that_needs_it(spark: SparkSession, boat: Any, site: Path) -> None:
    with Workspace(Home(boat.home)) as workspace:
        recipe = recipe_for(workspace, BuildRequest(str(site), [ROOT], BUDGET))
        runner = StageRunner(lambda: spark)
        small = SmallBuild(packages=2)
        ports = ports_for(workspace, SparkPipeline(runner, ExecutorWorkspace.of(workspace.home), small))
        assert BuildRun(BuildOrder(recipe), ports).run().state == "complete"
    assert [figure.name for figure in runner.figures] == ["build"]
    assert runner.start_seconds is not None


@pytest.mark.long("spark")
def test_what_cannot_be_published_is_told_and_the_rest_built(
    spark: SparkSession, boat: Any, site: Path, tmp_path: Path
) -> None:
    (site / "s01" / "secret.html").symlink_to("/nowhere")
    report, _ = build(spark, boat.home, site)
    assert [(problem.path, problem.name) for problem in report.problems] == [("/s01/secret.html", "PathRefused")]
    assert report.state == "complete"
    (site / "s01" / "secret.html").unlink()
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    assert boat.do("content", "diff", site, f"files:{tmp_path / 'web'}").lines == ["no difference"]


@pytest.mark.long("spark")
def test_a_data_frame_of_bins_can_be_saved_as_packages(
    spark: SparkSession, boat: Any, site: Path, tmp_path: Path
) -> None:
    bins = bins_frame(spark, str(site), str(boat.home), **OPTIONS)
    assert bins.where("nodes > 40").count() == 0
    writer = bins.repartition(4).write.format("mailboat").option("source", str(site))
    budgeted = writer.option("maxContentBytes", BUDGET.max_content_bytes).option("maxNodes", BUDGET.max_nodes)
    budgeted.option("buildId", "by-hand").mode("append").save(str(boat.home))
    assert {message.bulk.build_id for message in messages(boat)} == {"by-hand"}
    assert len(messages(boat)) == bins.count()
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    assert boat.do("content", "diff", site, f"files:{tmp_path / 'web'}").lines == ["no difference"]


@pytest.mark.long("spark")
def test_a_sink_that_fails_publishes_nothing(spark: SparkSession, boat: Any, site: Path) -> None:
    bins = bins_frame(spark, str(site), str(boat.home))
    writer = bins.write.format("mailboat").option("source", str(site))
    with pytest.raises(PySparkException, match="a log is appended to"):
        writer.mode("overwrite").save(str(boat.home))
    change_some(site, 1.0)
    with pytest.raises(PySparkException, match="SourceChanged"):
        writer.mode("append").save(str(boat.home))
    assert messages(boat) == []


@pytest.mark.long("spark")
def test_a_sink_takes_nothing_but_all_bins_of_its_source(spark: SparkSession, boat: Any, site: Path) -> None:
    def save(frame: DataFrame, **options: Any) -> None:
        writer = frame.write.format("mailboat").option("source", str(site)).options(**options)
        writer.mode("append").save(str(boat.home))

    bins = bins_frame(spark, str(site), str(boat.home), **OPTIONS)
    save(bins.orderBy(bins.signature).unionAll(bins.limit(3)), **OPTIONS)
    first = messages(boat)
    assert len(first) == bins.count() > 10
    assert change_some(site, 0.02) > 0

    bins = bins_frame(spark, str(site), str(boat.home), **OPTIONS)
    only = bins_frame(spark, str(site), str(boat.home), roots=["/s01"], **OPTIONS)
    for frame in (bins.limit(0), bins.limit(1)):
        with pytest.raises(PySparkException, match=r"FrameMismatch: [1-9]\d* of .* are not among the rows"):
            save(frame, **OPTIONS)
    for frame, options in ((only, OPTIONS), (bins, {})):
        with pytest.raises(PySparkException, match="FrameMismatch: these rows were cut from another source"):
            save(frame, **options)
    assert messages(boat) == first
    save(only, roots='["/s01"]', **OPTIONS)
    save(bins, **OPTIONS)
    assert boat.do("publish", site, "--changed").out.startswith("nothing"), "the publisher knows what was published"


def test_rows_of_a_cut_come_back_as_they_were() -> None:
    refused = UnlistedEntry(NodePath("/a"), UsageError("no", path="/a"))
    back = cut_of(cut_row(refused)._asdict())
    assert isinstance(back, UnlistedEntry)
    assert (back.path, back.error.message, back.error.where) == ("/a", "no", {"path": "/a"})
    node = ListedNode(NodePath("/b"), 7, b"s" * 32)
    assert cut_of(cut_row(node)._asdict()) == node
