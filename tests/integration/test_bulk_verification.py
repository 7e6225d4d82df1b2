"""Comparing targets with their source on Spark: what differs, by kind, whatever task meets it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from mailboat.bulk.source_branches import Branch
from mailboat.bulk.spark.stages import StageRunner
from mailboat.bulk.spark.verification import (
    CompareWork,
    Comparison,
    compare_work,
    difference_frame,
    find_differences,
)
from mailboat.errors import SourceMissingError
from mailboat.model.paths import ROOT, NodePath
from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # Java starts, and compiles, on what cores there are


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A site, and a copy that lacks, changes and adds something."""
    site, copy = tmp_path / "site", tmp_path / "copy"
    for folder in range(6):
        (site / f"f{folder}" / "deep").mkdir(parents=True)
        for number in range(5):
            (site / f"f{folder}" / "deep" / f"{number}.html").write_text(f"{folder} {number}")
    shutil.copytree(site, copy)
    shutil.rmtree(copy / "f1")
    (copy / "f2" / "deep" / "3.html").write_text("other")
    (copy / "f3" / "deep" / "more.html").write_text("more")
    (copy / "extra").mkdir()
    (copy / "extra" / "page.html").write_text("page")
    (copy / "f4" / "deep" / "0.html").unlink()
    return site, copy


EXPECTED = {
    ("/f1", "missing"),
    ("/f1/deep", "missing"),
    *((f"/f1/deep/{number}.html", "missing") for number in range(5)),
    ("/f2/deep/3.html", "changed"),
    ("/f3/deep/more.html", "extra"),
    ("/extra", "extra"),
    ("/extra/page.html", "extra"),
    ("/f4/deep/0.html", "missing"),
}


def test_what_differs_is_a_table_and_what_equals_is_none(spark: SparkSession, pair: tuple[Path, Path]) -> None:
    site, copy = pair
    runner = StageRunner(spark)
    comparison = Comparison(str(site), (f"files:{copy}", f"files:{site}"), (ROOT,))
    frame = difference_frame(runner, comparison)
    assert frame.columns == ["target", "path", "kind", "details"]
    rows = frame.collect()
    assert {(row.path, row.kind) for row in rows} == EXPECTED
    assert {row.target for row in rows} == {f"files:{copy}"}
    assert [row.details for row in rows if row.kind == "changed"] == [["jcr:data"]]
    assert {
        (find_difference.path, find_difference.kind) for find_difference in find_differences(runner, comparison)
    } == EXPECTED
    assert [figure.name for figure in runner.figures] == ["compare"]


@pytest.mark.long("spark")
@pytest.mark.parametrize("is_deep", [True, False])
def test_a_target_that_cannot_be_read_is_told_and_the_others_compared(
    pair: tuple[Path, Path], *, is_deep: bool
) -> None:
    site, copy = pair
    comparison = Comparison(str(site), ("files:/nowhere", f"files:{copy}"), (ROOT,))
    branches = [Branch(NodePath("/f2"), is_deep=is_deep), Branch(NodePath("/f2/deep"), is_deep=True)]
    found = list(compare_work(msgspec.json.encode(CompareWork(comparison, tuple(branches)))))
    assert (found[0].kind, found[0].target, found[0].details[0]) == ("failed", "files:/nowhere", "SourceMissing")
    assert {(item.path, item.kind) for item in found[1:]} == {("/f2/deep/3.html", "changed")}


def test_a_target_that_is_not_there_is_told_once(spark: SparkSession, pair: tuple[Path, Path]) -> None:
    site, copy = pair
    found = list(
        find_differences(StageRunner(spark), Comparison(str(site), ("files:/nowhere", f"files:{copy}"), (ROOT,)))
    )
    assert [(item.target, item.path) for item in found if item.kind == "failed"] == [("files:/nowhere", "/")]
    assert {(item.path, item.kind) for item in found if item.target == f"files:{copy}"} == EXPECTED
    alone = list(find_differences(StageRunner(spark), Comparison(str(site), ("files:/nowhere",), (ROOT,))))
    assert [item.kind for item in alone] == ["failed"]


@pytest.mark.long("spark")
def test_a_root_that_the_source_does_not_have_is_named(spark: SparkSession, pair: tuple[Path, Path]) -> None:
    with pytest.raises(SourceMissingError, match="/fr"):
        difference_frame(StageRunner(spark), Comparison(str(pair[0]), (), (NodePath("/fr"),)))


def test_a_node_alone_can_be_missing_or_extra(pair: tuple[Path, Path]) -> None:
    site, copy = pair
    alone = [Branch(NodePath("/f1"), is_deep=False), Branch(NodePath("/extra"), is_deep=False)]
    comparison = Comparison(str(site), (f"files:{copy}",), (ROOT,))
    found = list(compare_work(msgspec.json.encode(CompareWork(comparison, tuple(alone)))))
    assert [(item.path, item.kind) for item in found] == [
        ("/f1", "missing"),
        ("/extra", "extra"),
        ("/extra/page.html", "extra"),
    ]
