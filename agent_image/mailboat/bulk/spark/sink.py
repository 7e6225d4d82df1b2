"""The sink of the `mailboat` format: a DataFrame of bins becomes packages in the log, in order, each once.

    bins = bins_frame(spark, source="./site", home=".mailboat")
    bins.write.format("mailboat").mode("append").option("source", "./site").save(".mailboat")

Executors build the packages of their rows and store them, once the rows say that they were cut as the options say;
`commit` publishes from the driver, as `mailboat bulk build`
does it. What is published is the whole source, so `commit` first cuts it by the options, as it is then, and takes
nothing but the bins of that cut: of rows that are not there, all would be taken for removed. A job that fails leaves
blobs that nothing names, for the sweeper. Options: `source`, `roots` (a JSON list), `maxContentBytes` and `maxNodes`
(the budget that the bins were cut with), `buildId`, `config`. What tasks report goes through the driver's memory, as
large as the manifest; for trees of millions of nodes there is the command.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from mailboat.bulk.assembly import ports_for, recipe_for, source_of
from mailboat.bulk.build_records import BinResult, BuildProblem, BuildRequest, Recipe
from mailboat.bulk.build_run import BuildOrder, BuildRun
from mailboat.bulk.cutter import Bin, Budget
from mailboat.bulk.identity import checked_build_id, recipe_fingerprint
from mailboat.bulk.source_branches import cut_whole
from mailboat.bulk.spark.arrow_columns import batch_of, default_ddl
from mailboat.bulk.spark.exchange import CUT_COLUMNS, ExecutorWorkspace, cut_of, cut_row, packed, unpacked
from mailboat.bulk.spark.format_options import check_options, choice_of, number_of, texts_of
from mailboat.bulk.spark.log_partitions import LogPlace, place_of
from mailboat.bulk.spark.pipeline import SparkPipeline, built_here, built_rows
from mailboat.bulk.spark.stages import StageRunner
from mailboat.content.listed_nodes import UnlistedEntry
from mailboat.errors import MailboatError, SourceChangedError, UsageError
from mailboat.model.identifiers import BuildId, FileIdentity
from mailboat.model.paths import parse_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FrameMismatchError(UsageError):
    """The rows written to the sink are not the bins of its source: some are missing, or cut differently.

    Nothing was published. Write all rows of `bins_frame`, with the options with which they were cut. If the source
    changed, cut again.
    """


WRITE_OPTIONS: Final = frozenset(
    ("source", "roots", "maxContentBytes", "maxNodes", "fileIdentity", "buildId", "config")
)


@dataclass(frozen=True)
class BuiltTask(WriterCommitMessage):
    """Results of the bins of one task: rows as an Arrow stream, see `exchange.packed`."""

    rows: bytes

    def results(self) -> dict[bytes, BinResult]:
        """The result of each bin, by its signature. Raises: what ended the task."""
        found = dict[bytes, BinResult]()
        for signature, result in unpacked(self.rows):
            if isinstance(result, MailboatError):
                raise result
            found[signature] = result
        return found


@dataclass(frozen=True, slots=True)
class SinkOrder:
    """Options of the sink.

    Attributes:
        place: The home.
        recipe: What the bins were cut by.
        work: Where executors find the home.
        build_id: As `BuildOrder`.
    """

    place: LogPlace
    recipe: Recipe
    work: ExecutorWorkspace
    build_id: BuildId | None = None


def bins_frame(session: SparkSession, source: str, home: str = ".mailboat", **options: object) -> DataFrame:
    """The bins of a source as a DataFrame, cut now, with what can't be listed.

    Args:
        session: Does the cut where the tree is large.
        source: As on the command line.
        home: The home to publish from.
        options: The sink's own: `roots` (a list of content paths), `maxContentBytes`, `maxNodes`, `config`.

    Raises:
        HomeMissingError, UsageError: As the command.
        SourceMissingError, SparkJobFailedError: As `SparkPipeline.cut`.
    """
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    order = sink_order({**texts, "path": home, "source": source})
    fingerprint = recipe_fingerprint(order.recipe)
    found = SparkPipeline(StageRunner(session), order.work).cut(order.recipe)
    table = pa.Table.from_batches([batch_of(CUT_COLUMNS, [cut_row(item, fingerprint) for item in found])])
    return session.createDataFrame(table, default_ddl(CUT_COLUMNS))


def sink_order(options: Mapping[str, str]) -> SinkOrder:
    """What a query's options say. Raises: UsageError, HomeMissingError; as the journal."""
    check_options(options, WRITE_OPTIONS)
    source = options.get("source")
    if not source:
        raise UsageError('name the source that the bins were cut from: .option("source", SOURCE)')
    place = place_of(options)
    known = Budget()
    budget = Budget(
        number_of(options, "maxContentBytes", known.max_content_bytes), number_of(options, "maxNodes", known.max_nodes)
    )
    roots = [parse_path(text) for text in texts_of(options, "roots") or ["/"]]
    given, identity = options.get("buildId"), choice_of(options, "fileIdentity", FileIdentity.INODE)
    with place.open() as workspace:
        recipe = recipe_for(workspace, BuildRequest(source, roots, budget, identity))
        work = ExecutorWorkspace.of(workspace.home)
    return SinkOrder(place, recipe, work, None if given is None else checked_build_id(given))


class PackageWriter(DataSourceArrowWriter):
    """Builds in executors, and publishes in the driver."""

    def __init__(self, order: SinkOrder) -> None:
        """Nothing is written yet."""
        self._order = order

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BuiltTask:
        """Build and store the packages of some bins.

        Raises:
            FrameMismatchError: The rows were cut by something else than the options say; nothing is built.
            UsageError: They are no rows of a cut.
            MailboatError: As `built_rows`; errors of the store.
        """
        fingerprint, items = recipe_fingerprint(self._order.recipe), list[object]()
        for row in (row for batch in iterator for row in batch.to_pylist()):
            if row.get("recipe") != fingerprint:
                raise FrameMismatchError(
                    "these rows were cut from another source, with other roots, another budget or another configuration"
                    " than in the options, so none is built: use the same values for `bins_frame` and for the options"
                )
            items.append(cut_of(row))
        kept = [item for item in items if isinstance(item, Bin | UnlistedEntry)]
        if len(kept) != len(items):
            raise UsageError("these rows are no bins: they come from `bins_frame`, or from its columns")
        bins = {part.signature: part for part in kept if isinstance(part, Bin)}
        done = BuiltTask(packed(built_rows(self._order.work, self._order.recipe, [*bins.values()])))
        done.results()  # what ended the work ends the task, and so the job, before anything is committed
        return done

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks built, in order.

        Raises:
            FrameMismatchError: The rows are not all bins of the source, or there are others; none is published.
            SourceChangedError: It changed since they were cut; none is published.
            MailboatError: As `BuildRun.run`.
        """
        done = [message for message in messages if isinstance(message, BuiltTask)]
        with self._order.place.open() as workspace:
            order = BuildOrder(self._order.recipe, self._order.build_id)
            BuildRun(order, ports_for(workspace, _Done(done, self._order.work))).run()


class _Done:
    """The stages of a build whose packages were built by the tasks of a sink; what changed since is built here."""

    def __init__(self, tasks: Sequence[BuiltTask], work: ExecutorWorkspace) -> None:
        self._results = {signature: result for task in tasks for signature, result in task.results().items()}
        self._work = work
        self._is_first = True

    def cut(self, recipe: Recipe) -> Iterator[Bin | UnlistedEntry]:
        """Cut the source here. Raises, at the end of the first cut: FrameMismatchError, SourceChangedError."""
        strange, total, missing = set(self._results), 0, 0
        with closing(source_of(recipe)) as source:
            for item in cut_whole(source, recipe.roots, recipe.budget):
                if isinstance(item, Bin):
                    total += 1
                    missing += item.signature not in self._results
                    strange.discard(item.signature)
                yield item
        is_first, self._is_first = self._is_first, False
        # Rows left out would count as removed. What later rounds find to differ, `build` makes here.
        if is_first and (missing or strange):
            raise self._changed(recipe) or FrameMismatchError(
                f"{missing} of the {total} bins of {recipe.source} are not among the rows, and {len(strange)} of the"
                " rows are none of them, so none is published: write all rows of `bins_frame`, with roots,"
                " maxContentBytes and maxNodes as they were cut, or split the source again if it changed"
            )

    def _changed(self, recipe: Recipe) -> SourceChangedError | None:
        for result in self._results.values():
            if isinstance(result, BuildProblem) and result.name == "SourceChanged":
                return SourceChangedError(
                    f"{recipe.source} is not what the bins were cut from, so none is published: {result.message};"
                    " split it again, and write those bins",
                    path=result.path,
                )
        return None

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        """What the tasks built, and by this process what a further round of the build finds to be different."""
        changed = list[Bin]()
        for bin_ in bins:
            if bin_.signature in self._results:
                yield self._results[bin_.signature]
            else:
                changed.append(bin_)
        yield from built_here(self._work, recipe, changed)
