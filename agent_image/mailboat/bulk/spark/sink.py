"""The sink of the `mailboat` format: a DataFrame of bins becomes packages in the log, in order, each once.

    bins_frame(runner, recipe).write.format("mailboat").mode("append").option("source", "./site").save(".mailboat")

Executors build the packages of their rows and store them; `commit` publishes from the driver, as `mailboat bulk build`
does it. A task that fails leaves blobs that nothing names, for the sweeper. Options: `source`, `roots` (a JSON list),
`maxContentBytes` and `maxNodes` (the budget that the bins were cut with), `buildId`, `config`. What tasks report goes
through the driver's memory, as large as the manifest; for trees of millions of nodes there is the command.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from mailboat.bulk.assembly import BuildWish, ports_for, recipe_for
from mailboat.bulk.cutting import Bin, Budget
from mailboat.bulk.identity import checked_build_id
from mailboat.bulk.records import BinResult, Recipe
from mailboat.bulk.running import BuildOrder, BuildRun
from mailboat.bulk.spark.columns import batch_of, default_ddl
from mailboat.bulk.spark.log_reading import LogPlace, place_of
from mailboat.bulk.spark.options import number_of, texts_of
from mailboat.bulk.spark.pipeline import CUT_COLUMNS, SparkPipeline, WorkPlace, build_work, cut_of, cut_row
from mailboat.bulk.spark.stages import StageRunner
from mailboat.content.listing import Unlisted
from mailboat.errors import MailboatError, UsageError
from mailboat.model.identifiers import BuildId
from mailboat.model.paths import parse_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BuiltTask(WriterCommitMessage):
    """What one task was given, and what became of it."""

    items: tuple[Bin | Unlisted, ...]
    results: tuple[BinResult, ...]


@dataclass(frozen=True, slots=True)
class SinkOrder:
    """What the sink is told.

    Attributes:
        place: The home.
        recipe: What the bins were cut by.
        work: Where executors find the home.
        build_id: As `BuildOrder`.
    """

    place: LogPlace
    recipe: Recipe
    work: WorkPlace
    build_id: BuildId | None = None


def bins_frame(session: SparkSession, recipe: Recipe, place: WorkPlace) -> DataFrame:
    """The bins of a source as a DataFrame, cut now, with what can't be listed. Raises: as `SparkPipeline.cut`."""
    import pyarrow as pa

    rows = [cut_row(item) for item in SparkPipeline(StageRunner(session), place).cut(recipe)]
    table = pa.Table.from_batches([batch_of(CUT_COLUMNS, rows)])
    return session.createDataFrame(table, default_ddl(CUT_COLUMNS))


def sink_order(options: Mapping[str, str]) -> SinkOrder:
    """What a query's options say. Raises: UsageError, HomeMissingError; as the journal."""
    source = options.get("source")
    if source is None:
        raise UsageError('name the source that the bins were cut from: .option("source", SOURCE)')
    place = place_of(options)
    known = Budget()
    budget = Budget(
        number_of(options, "maxContentBytes", known.max_content_bytes), number_of(options, "maxNodes", known.max_nodes)
    )
    roots = [parse_path(text) for text in texts_of(options, "roots") or ["/"]]
    given = options.get("buildId")
    with place.open() as workspace:
        recipe = recipe_for(workspace, BuildWish(source, roots, budget))
        work = WorkPlace.of(workspace.home)
    return SinkOrder(place, recipe, work, None if given is None else checked_build_id(given))


class PackageWriter(DataSourceArrowWriter):
    """Builds in executors, and publishes in the driver."""

    def __init__(self, order: SinkOrder) -> None:
        """Nothing is written yet."""
        self._order = order

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BuiltTask:
        """Build and store the packages of some bins. Raises: as `build_work`; errors of the store."""
        items = [cut_of(row) for batch in iterator for row in batch.to_pylist()]
        kept = [one for one in items if isinstance(one, Bin | Unlisted)]
        if len(kept) != len(items):
            raise UsageError("these rows are no bins: they come from `bins_frame`, or from its columns")
        bins = [one for one in kept if isinstance(one, Bin)]
        results = list[BinResult]()
        for row in build_work(pickle.dumps((self._order.work, self._order.recipe, bins))):
            if isinstance(row.result, MailboatError):
                raise row.result
            results.append(row.result)
        return BuiltTask(tuple(kept), tuple(results))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks built, in order. Raises: as `BuildRun.run`."""
        done = [one for one in messages if isinstance(one, BuiltTask)]
        with self._order.place.open() as workspace:
            order = BuildOrder(self._order.recipe, self._order.build_id)
            BuildRun(order, ports_for(workspace, _Done(done))).run()


class _Done:
    """The stages of a build that were done by the tasks of a sink."""

    def __init__(self, tasks: Sequence[BuiltTask]) -> None:
        self._tasks = tasks

    def cut(self, recipe: Recipe) -> Iterator[Bin | Unlisted]:  # noqa: ARG002  # see `BuildStages`
        for task in self._tasks:
            yield from task.items

    def build(self, recipe: Recipe, bins: Sequence[Bin]) -> Iterator[BinResult]:  # noqa: ARG002
        wanted = {one.signature for one in bins}
        for task in self._tasks:
            found = (one for one in task.items if isinstance(one, Bin))
            yield from (result for one, result in zip(found, task.results, strict=True) if one.signature in wanted)
