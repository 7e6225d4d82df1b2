"""The pipeline of a bulk build on Spark: list, weigh and cut in one stage, build in the next; rows of the manifest.

Both stages are functions of their work alone: executors open the source and the blob store themselves, with the same
configuration, so a task that runs again, or twice at once, stores the same blobs and gives the same rows. The driver
holds what the cut leaves open, which is the nodes of cut folders, and the bins of one wave. A small tree it cuts by
itself, so a build that is found finished starts no session. Called by the driver of a build.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from mailboat.agent.composition import CodecsOnDemand, codec_names
from mailboat.agent.home import Home
from mailboat.agent.locations import open_source
from mailboat.agent.stores import open_blobs
from mailboat.bulk.building import BinBuilder, BuildPorts
from mailboat.bulk.cutting import Bin, BinKind, Cut, Loose, SkeletonNode, Unit, finish_cut
from mailboat.bulk.listing import Branch, cut_branch, cut_if_small, plan_branches
from mailboat.bulk.records import BinResult, Recipe
from mailboat.bulk.spark.columns import Column
from mailboat.bulk.spark.stages import Stage, StageRunner, even_groups, runs_of
from mailboat.clock import SystemClock
from mailboat.config.decoding import decode_config, encode_config
from mailboat.content.listing import ListedNode, Unlisted
from mailboat.errors import MailboatError, RetryableError, StorageFullError, StorageReadOnlyError
from mailboat.model.paths import NodePath

BRANCHES_PER_CORE: Final = 16
BINS_PER_TASK: Final = 2_000
TASKS_PER_CORE: Final = 4
NODE_WEIGHT_BYTES: Final = 4 * 1024
"""What a node costs beside its bytes, for even tasks."""
DRIVER_NODES: Final = 50_000
"""Listing and cutting so many takes about as long as a session takes to start; and a finished build needs none."""
ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.5
_FOR_PEOPLE: Final = (StorageFullError, StorageReadOnlyError)
"""What no pause mends: the build ends by this name."""


@dataclass(frozen=True, slots=True)
class WorkPlace:
    """Where executors find what a build works with.

    Attributes:
        home: The home's folder, which relative files of the configuration belong to.
        config: The configuration's document; secrets are named in it, not held.
    """

    home: str
    config: Mapping[str, Any]

    @staticmethod
    def of(home: Home) -> WorkPlace:
        """The place of a home."""
        return WorkPlace(str(home.path.absolute()), encode_config(home.config))

    def open_home(self) -> Home:
        """The home, as an executor sees it. Raises: ConfigInvalidError."""
        return Home(Path(self.home), decode_config(self.config))


class CutRow(NamedTuple):
    """Something that a cut gave, or why it could not go on."""

    item: str
    paths: tuple[NodePath, ...]
    content_bytes: int = 0
    nodes: int = 0
    signature: bytes | None = None
    error: bytes | None = None

    @property
    def row_bytes(self) -> int:
        """About how large the row is."""
        return sum(map(len, self.paths)) + 100


class BuildRow(NamedTuple):
    """A result of the build stage."""

    result: BinResult | MailboatError
    record: bytes

    @property
    def row_bytes(self) -> int:
        """About how large the row is."""
        return len(self.record) + 100


def _built(name: str) -> Callable[[BuildRow], Any]:
    return lambda row: getattr(row.result, name, None)


_TEXT: Final = pa.string()
CUT_COLUMNS: Final[dict[str, Column[CutRow]]] = {
    "item": Column("STRING", _TEXT, lambda row: row.item),
    "paths": Column("ARRAY<STRING>", pa.list_(_TEXT), lambda row: row.paths),
    "content_bytes": Column("BIGINT", pa.int64(), lambda row: row.content_bytes),
    "nodes": Column("BIGINT", pa.int64(), lambda row: row.nodes),
    "signature": Column("BINARY", pa.binary(), lambda row: row.signature),
    "error": Column("BINARY", pa.binary(), lambda row: row.error),
}
BUILD_COLUMNS: Final[dict[str, Column[BuildRow]]] = {
    "kind": Column("STRING", _TEXT, _built("kind")),
    "signature": Column("BINARY", pa.binary(), _built("signature")),
    "content_bytes": Column("BIGINT", pa.int64(), _built("content_bytes")),
    "package_bytes": Column("BIGINT", pa.int64(), _built("package_bytes")),
    "package_digest": Column("BINARY", pa.binary(), _built("package_digest")),
    "stored_bytes": Column("BIGINT", pa.int64(), _built("stored_bytes")),
    "problem": Column("STRING", _TEXT, _built("name")),
    "record": Column("BINARY", pa.binary(), lambda row: row.record),
}


class SparkPipeline:
    """The stages of one build."""

    def __init__(self, runner: StageRunner, place: WorkPlace, driver_nodes: int = DRIVER_NODES) -> None:
        """Nothing runs yet. A tree of at most `driver_nodes` is cut in the driver, without Spark."""
        self._runner = runner
        self._place = place
        self._driver_nodes = driver_nodes

    def cut(self, recipe: Recipe) -> Iterator[Bin | Unlisted]:
        """Cut the source into bins, in no order; what can't be listed is told.

        Raises:
            SourceMissingError: A root is not in the source.
            SourceChangedError, SparkJobFailedError.
        """
        with closing(open_source(recipe.source)) as source:
            small = cut_if_small(source, recipe.roots, recipe.budget, self._driver_nodes)
            if small is not None:
                yield from small
                return
            branches = plan_branches(source, recipe.roots, self._runner.parallelism * BRANCHES_PER_CORE)
        loose = list[Loose]()
        for row in self._runner.run(*cut_stage(recipe, branches, self._runner.parallelism * TASKS_PER_CORE)):
            item = cut_of(row)
            if isinstance(item, Bin):
                yield item
            else:
                loose.append(item)
        yield from finish_cut(loose, recipe.budget)

    def build(self, recipe: Recipe, bins: Sequence[Bin]) -> Iterator[BinResult]:
        """Build and store the packages of some bins, in no order; what is wrong with their content is told.

        Raises:
            StorageFullError, StorageReadOnlyError: Of an executor; what was built before is stored.
            SparkJobFailedError.
        """
        if not bins:
            return
        for row in self._runner.run(*build_stage(self._place, recipe, bins, self._runner.parallelism)):
            result = pickle.loads(bytes(row.record))  # noqa: S301  # of our own task
            if isinstance(result, MailboatError):
                raise result
            yield result


def cut_stage(recipe: Recipe, branches: Sequence[Branch], tasks: int) -> tuple[Stage, list[bytes]]:
    """The stage that cuts some branches, and its work: runs of neighbours, so that walks stay near each other."""
    works = [pickle.dumps((recipe, tuple(run))) for run in runs_of(branches, tasks)]
    return Stage("cut", CUT_COLUMNS, cut_work), works


def build_stage(place: WorkPlace, recipe: Recipe, bins: Sequence[Bin], parallelism: int) -> tuple[Stage, list[bytes]]:
    """The stage that builds some bins, and its work: groups of about equal weight, the heaviest first."""
    wanted = max(parallelism * TASKS_PER_CORE, len(bins) // BINS_PER_TASK)
    weights = [one.content_bytes + one.nodes * NODE_WEIGHT_BYTES for one in bins]
    groups = even_groups(weights, wanted)
    works = [pickle.dumps((place, recipe, [bins[index] for index in group])) for group in groups]
    return Stage("build", BUILD_COLUMNS, build_work), works


def cut_work(work: bytes) -> Iterator[CutRow]:
    """Cut some branches: what a task does."""
    recipe, branches = pickle.loads(work)  # noqa: S301  # of our own driver
    try:
        with closing(open_source(recipe.source)) as source:
            for branch in branches:
                for item in cut_branch(source, branch, recipe.budget):
                    yield cut_row(item)
    except MailboatError as error:
        yield CutRow("failed", (), error=pickle.dumps(error))


def build_work(work: bytes) -> Iterator[BuildRow]:
    """Build some bins: what a task does. A passing fault of the store is waited out, then left to Spark to try again.

    Raises:
        RetryableError: The store did not recover.
    """
    place, recipe, bins = pickle.loads(work)  # noqa: S301  # of our own driver
    home = place.open_home()
    try:
        with (
            closing(open_source(recipe.source)) as source,
            closing(open_blobs(home, SystemClock(), lambda: recipe.log)) as blobs,
        ):
            builder = BinBuilder(recipe, BuildPorts(source, blobs, CodecsOnDemand(codec_names(home.config))))
            for one in bins:
                result = _patiently(builder, one)
                yield BuildRow(result, pickle.dumps(result))
    except MailboatError as error:
        if isinstance(error, RetryableError) and not isinstance(error, _FOR_PEOPLE):
            raise
        yield BuildRow(error, pickle.dumps(error))


def _patiently(builder: BinBuilder, one: Bin) -> BinResult:
    for attempt in range(1, ATTEMPTS):
        try:
            return builder.build(one)
        except _FOR_PEOPLE:
            raise
        except RetryableError as error:
            threading.Event().wait(error.retry_after_seconds or _PAUSE_SECONDS * 2**attempt)
    return builder.build(one)


def cut_row(item: Cut) -> CutRow:
    """What a cut gave, as a row."""
    match item:
        case Bin():
            return CutRow(f"{item.kind} bin", item.roots, item.content_bytes, item.nodes, item.signature)
        case Unit():
            return CutRow("unit", (item.path,), item.content_bytes, item.nodes, item.signature)
        case SkeletonNode():
            return CutRow("skeleton", (item.path,), item.content_bytes, 1, item.signature)
        case ListedNode():
            return CutRow("node", (item.path,), item.content_bytes, 1, item.signature)
        case Unlisted():
            return CutRow("unlisted", (item.path,), error=pickle.dumps(item.error))


def cut_of(row: Any) -> Cut:
    """The other way. Raises: what the cut was ended by."""
    if row["item"] == "failed":
        raise _error_of(row)
    paths, content_bytes = tuple(map(NodePath, row["paths"])), row["content_bytes"]
    signature = bytes(row["signature"] or b"")
    match row["item"].split(" "):
        case [kind, "bin"]:
            return Bin(BinKind(kind), paths, content_bytes, row["nodes"], signature)
        case ["unit"]:
            return Unit(paths[0], content_bytes, row["nodes"], signature)
        case ["skeleton"]:
            return SkeletonNode(paths[0], content_bytes, signature)
        case ["node"]:
            return ListedNode(paths[0], content_bytes, signature)
        case _:
            return Unlisted(paths[0], _error_of(row))


def _error_of(row: Any) -> MailboatError:
    error = pickle.loads(bytes(row["error"]))  # noqa: S301  # of our own task
    assert isinstance(error, MailboatError)  # noqa: S101  # as `cut_row` made it
    return error
