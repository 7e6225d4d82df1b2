"""What the driver and its tasks exchange: rows and work come back as they were, and crafted ones run nothing."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mailboat.api.problems import error_class
from mailboat.blobs.references import BlobReference
from mailboat.bulk.build_records import BuildProblem, BuiltBin, BuiltNode, Recipe
from mailboat.bulk.cutter import Bin, BinKind, SkeletonNode, Unit
from mailboat.bulk.source_branches import Branch
from mailboat.bulk.spark.arrow_columns import batch_of
from mailboat.bulk.spark.exchange import (
    CUT_COLUMNS,
    BuildWork,
    CutWork,
    ExecutorWorkspace,
    build_row,
    cut_of,
    cut_row,
    error_of,
    error_row,
    packed,
    unpacked,
)
from mailboat.content.listed_nodes import ListedNode, UnlistedEntry
from mailboat.errors import (
    BlobStoreUnavailableError,
    MailboatError,
    RetryableError,
    SourceChangedError,
    StorageFullError,
    UsageError,
)
from mailboat.model.paths import NodePath

PAGE, OTHER = NodePath("/en/é.html"), NodePath("/en/b")
DIGEST = bytes(range(32))
BIN = Bin(BinKind.CONTENT, (PAGE, OTHER), 9, 2, DIGEST)
RECIPE = Recipe("/srv/site", (NodePath("/"),), log="kafka:abc", publisher="author")


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """The first error found by name imports all modules, the first rows pandas: no single test accounts for that."""
    error_class("Unheard")
    through_arrow(cut_row(SkeletonNode(PAGE, 1, DIGEST)))


class Runs:
    """Runs a command where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def through_arrow(row: Any) -> dict[str, Any]:
    (found,) = batch_of(CUT_COLUMNS, [row]).to_pylist()
    return dict(found)


@pytest.mark.parametrize("item", ["failed", "unlisted", "x", "content bin"])
def test_a_crafted_row_of_a_sink_runs_nothing(tmp_path: Path, item: str) -> None:
    file = tmp_path / "ran"
    row = {"item": item, "paths": ["/x"], "content_bytes": 0, "nodes": 0, "signature": b""}
    for error in (pickle.dumps(Runs(file)), {"name": pickle.dumps(Runs(file))}, None):
        with suppress(UsageError):
            cut_of({**row, "error": error})
        assert not file.exists()
    with pytest.raises(UsageError, match="invalid row"):
        cut_of({**row, "item": "failed", "error": pickle.dumps(Runs(file))})


@pytest.mark.parametrize(
    "item",
    [
        BIN,
        Bin(BinKind.SKELETON, (NodePath("/"),), 0, 1, DIGEST),
        Unit(PAGE, 3, 2, DIGEST),
        SkeletonNode(PAGE, 1, DIGEST),
        ListedNode(OTHER, 7, DIGEST),
    ],
)
def test_rows_of_a_cut_come_back_as_they_were(item: Any) -> None:
    assert cut_of(through_arrow(cut_row(item))) == item


@pytest.mark.parametrize(
    "error",
    [
        UsageError("no", next_step="do it", path="/a", count=3),
        StorageFullError("disk full", retry_after_seconds=4.0),
        BlobStoreUnavailableError("503 SlowDown", status=503),
        SourceChangedError("changed", path="/a"),
    ],
)
def test_errors_come_back_with_name_message_and_facts(error: MailboatError) -> None:
    unlisted = cut_of(through_arrow(cut_row(UnlistedEntry(PAGE, error))))
    assert isinstance(unlisted, UnlistedEntry)
    back = unlisted.error
    assert (type(back), back.message, back.next_step, back.where) == (
        type(error),
        error.message,
        error.next_step,
        error.where,
    )
    assert back.exit_code == error.exit_code


def test_an_error_of_another_version_keeps_its_name() -> None:
    cell = {"name": "NotYetInvented", "message": "what", "next_step": None, "facts": '{"message": "x", "path": "/a"}'}
    back = error_of(cell)
    assert (type(back), back.message, back.where) == (MailboatError, "what", {"path": "/a", "error": "NotYetInvented"})
    assert isinstance(error_of({**cell, "name": "StorageFull", "facts": None}), RetryableError)
    assert error_row(None) is None


def test_work_comes_back_as_it_was() -> None:
    place = ExecutorWorkspace("/srv/home", json.dumps({"publisher": {"name": "author"}}))
    build = BuildWork(place, RECIPE, (BIN,))
    assert msgspec.json.decode(msgspec.json.encode(build), type=BuildWork) == build
    cut = CutWork(RECIPE, (Branch(PAGE, is_deep=True), Branch(OTHER, is_deep=False)))
    assert msgspec.json.decode(msgspec.json.encode(cut), type=CutWork) == cut


def test_results_come_back_as_they_were() -> None:
    built = BuiltBin(
        BinKind.CONTENT,
        (PAGE,),
        DIGEST,
        frozenset([PAGE]),
        9,
        10,
        DIGEST,
        DIGEST,
        b"payload",
        (BlobReference(DIGEST, 9),),
        (BuiltNode(PAGE, DIGEST),),
    )
    problem = BuildProblem(OTHER, "SourceChanged", "changed")
    rows = [build_row(DIGEST, built), build_row(bytes(32), problem)]
    assert list(unpacked(packed(rows))) == [(DIGEST, built), (bytes(32), problem)]
    ((_, ended),) = unpacked(packed([build_row(None, StorageFullError("full"))]))
    assert isinstance(ended, StorageFullError)
    assert list(unpacked(packed([]))) == []
