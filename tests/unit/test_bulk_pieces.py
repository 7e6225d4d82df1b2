"""Pieces of a build on Spark: how large they are, and what comes of the others when one ends by an error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from mailboat.bulk.assembly import recipe_for
from mailboat.bulk.build_records import BuildProblem, BuildRequest
from mailboat.bulk.cutter import Bin, BinKind
from mailboat.bulk.spark.arrow_columns import batch_of
from mailboat.bulk.spark.exchange import BUILD_COLUMNS, BuildRow, ExecutorWorkspace, build_row
from mailboat.bulk.spark.pipeline import (
    FIRST_PIECE_BYTES,
    NEVER_SMALL,
    PIECE_BINS,
    PIECE_NODES,
    PIECE_SECONDS,
    BinBatches,
    SmallBuild,
    SparkPipeline,
)
from mailboat.bulk.spark.sink import sink_order
from mailboat.bulk.spark.stages import StageRows, StageRunner
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.errors import MailboatError, StorageFullError, UsageError
from mailboat.model.paths import ROOT, NodePath
from support.engines import write_site


def bin_of(number: int, content_bytes: int = 0, nodes: int = 1) -> Bin:
    """A bin with one path."""
    return Bin(BinKind.CONTENT, (NodePath(f"/{number}"),), content_bytes, nodes, number.to_bytes(32))


def test_pieces_grow_while_they_take_little_time() -> None:
    bins = [bin_of(number, FIRST_PIECE_BYTES, 0) for number in range(14)]
    pieces, sizes = BinBatches(bins, 2), list[int]()
    for piece in pieces:
        sizes.append(len(piece))
        pieces.took(0.1 if len(sizes) < 3 else PIECE_SECONDS)
    assert sizes == [2, 4, 8]


@pytest.mark.parametrize(
    ("bins", "sizes"),
    [
        ([bin_of(number, 0, 0) for number in range(PIECE_BINS + 1)], [PIECE_BINS, 1]),
        ([bin_of(number, 0, PIECE_NODES) for number in range(2)], [1, 1]),
        ([bin_of(0, 2**50), bin_of(1)], [1, 1]),
        ([], []),
    ],
)
def test_pieces_are_bounded_by_bins_nodes_and_bytes(bins: list[Bin], sizes: list[int]) -> None:
    assert [len(piece) for piece in BinBatches(bins, 10_000)] == sizes


class FakeRunner:
    """Gives a problem for each bin of the works, and for one of them an error instead."""

    parallelism = 1

    def __init__(self, failing: int) -> None:
        self.failing = failing
        self.pieces = 0

    def gathered(self, _stage: Any, works: Sequence[bytes]) -> StageRows:
        self.pieces += 1
        is_failing = self.pieces == self.failing
        rows: list[BuildRow] = [build_row(bytes(32), BuildProblem(ROOT, "X", str(len(work)))) for work in works]
        if is_failing:
            rows.append(build_row(None, StorageFullError("no room")))
        return StageRows(pa.Table.from_batches([batch_of(BUILD_COLUMNS, rows)]), 0.1)


def test_what_other_pieces_built_is_given_before_the_error_of_one(boat: Any, tmp_path: Path) -> None:
    write_site(tmp_path / "site", {"a": "x"})
    with Workspace(Home(boat.home)) as workspace:
        recipe = recipe_for(workspace, BuildRequest(str(tmp_path / "site"), [ROOT]))
        place = ExecutorWorkspace.of(workspace.home)
    bins = [bin_of(number, FIRST_PIECE_BYTES + 1) for number in range(9)]
    runner = FakeRunner(failing=1)
    results, ended = list[Any](), list[MailboatError]()
    try:
        for result in SparkPipeline(cast("StageRunner", runner), place, NEVER_SMALL).build(recipe, bins):
            results.append(result)
    except StorageFullError as error:
        ended.append(error)
    assert len(ended) == 1
    assert len(results) == runner.pieces == 2


def test_a_source_with_rules_is_refused_by_command_and_sink(boat: Any, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    filters = '<filter root="/a"><exclude pattern="/a/b"/></filter><filter root="/c"/>'
    write_site(
        checkout,
        {
            "META-INF/vault/filter.xml": f'<workspaceFilter version="1.0">{filters}</workspaceFilter>',
            "jcr_root/a/b.txt": "x",
            "jcr_root/c/d.txt": "x",
        },
    )
    options = {"path": str(boat.home), "source": str(checkout)}
    with pytest.raises(UsageError, match="has rules or a mode for /a"):
        sink_order(options)
    assert sink_order({**options, "roots": '["/c"]'}).recipe.roots == ("/c",)
    with Workspace(Home(boat.home)) as workspace:
        for roots in ([ROOT], [NodePath("/a")]):
            with pytest.raises(UsageError, match="has rules or a mode for /a"):
                recipe_for(workspace, BuildRequest(str(checkout), roots))


def test_the_driver_builds_a_few_packages_itself(boat: Any, tmp_path: Path) -> None:
    write_site(tmp_path / "site", {"a": "x", "b": "y"})
    with Workspace(Home(boat.home)) as workspace:
        recipe = recipe_for(workspace, BuildRequest(str(tmp_path / "site"), [ROOT]))
        place = ExecutorWorkspace.of(workspace.home)
    runner = FakeRunner(failing=0)
    pipeline = SparkPipeline(cast("StageRunner", runner), place, SmallBuild(packages=2, content_bytes=1_000))
    found = [bin_ for bin_ in pipeline.cut(recipe) if isinstance(bin_, Bin)]
    assert [type(item).__name__ for item in pipeline.build(recipe, found)] == ["BuiltBin"]
    assert runner.pieces == 0
    for large in ([bin_of(number) for number in range(3)], [bin_of(0, 1_001)]):
        list(pipeline.build(recipe, large))
    assert runner.pieces == 2
