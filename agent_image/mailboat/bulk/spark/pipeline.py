"""The pipeline of a bulk build on Spark: list, weigh and cut in one stage, build in the next; rows of the manifest.

Both stages are functions of their work alone: executors open the source and the blob store themselves, with the same
configuration, so a task that runs again, or twice at once, stores the same blobs and gives the same rows. The driver
holds what the cut leaves open, which is the nodes of cut folders, and the bins of the pieces that are being built. What
is small it cuts and builds in its own process: that takes less time than a session takes to start. Called by the driver
of a build.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from mailboat.bulk.assembly import source_of
from mailboat.bulk.bin_builder import BinBuilder
from mailboat.bulk.build_records import BinResult, Recipe
from mailboat.bulk.cutter import Bin, Loose, finish_cut
from mailboat.bulk.source_branches import Branch, cut_branch, cut_if_small, plan_branches
from mailboat.bulk.spark.exchange import (
    BUILD_COLUMNS,
    CUT_COLUMNS,
    BuildRow,
    BuildWork,
    CutRow,
    CutWork,
    ExecutorWorkspace,
    build_row,
    cut_of,
    cut_row,
    error_row,
    result_of,
)
from mailboat.bulk.spark.stages import (
    BRANCHES_PER_CORE,
    TASKS_PER_CORE,
    Stage,
    StageRows,
    StageRunner,
    even_groups,
    runs_of,
)
from mailboat.clock import SystemClock
from mailboat.composition.package_formats import CodecsOnDemand, codec_names, namespaces_of
from mailboat.composition.stores import open_blobs
from mailboat.content.listed_nodes import UnlistedEntry
from mailboat.errors import MailboatError, RetryableError, StorageFullError, StorageReadOnlyError
from mailboat.json_decoder import decoder_of

NODE_WEIGHT_BYTES: Final = 4 * 1024
"""What a node costs besides its bytes, for even tasks."""
DRIVER_NODES: Final = 50_000
"""Listing and cutting so many takes about as long as a session takes to start; and a finished build needs none."""
DRIVER_PACKAGES: Final = 200
DRIVER_BYTES: Final = 200 * 1024 * 1024
"""The driver builds up to so much in its own process: a session takes longer to start."""

# Measured: pieces of 16 MiB per core cost twice the CPU of one job, for a build of 43 packages.
FIRST_PIECE_BYTES: Final = 64 * 1024 * 1024
LARGEST_PIECE_BYTES: Final = 1024 * 1024 * 1024
"""The weight of a piece for each core: a dead driver loses at most the pieces that were being built."""
PIECE_SECONDS: Final = 8.0
"""Pieces grow while they take less: a job's own price is some tenths of a second."""
PIECE_BINS: Final = 4_000
PIECE_NODES: Final = 200_000
PIECE_PATH_BYTES: Final = 16 * 1024 * 1024
"""Limits of a piece for the driver's memory, which holds its work and its rows."""
PIECES_AT_ONCE: Final = 2
"""While the rows of one piece come to the driver, and its slowest task ends, the next one is built."""

ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.5
_FOR_PEOPLE: Final = (StorageFullError, StorageReadOnlyError)
"""Failures that no pause repairs: the build ends with this error."""


class SmallBuild(NamedTuple):
    """What the driver does in its own process, without Spark.

    Attributes:
        nodes: It cuts a tree of at most so many.
        packages: It builds at most so many missing packages,
        content_bytes: with at most so much content.
    """

    nodes: int = DRIVER_NODES
    packages: int = DRIVER_PACKAGES
    content_bytes: int = DRIVER_BYTES


NEVER_SMALL: Final = SmallBuild(0, 0, 0)
"""Spark does everything."""


class SparkPipeline:
    """The stages of one build."""

    def __init__(self, runner: StageRunner, place: ExecutorWorkspace, small: SmallBuild | None = None) -> None:
        """Nothing runs yet."""
        self._runner = runner
        self._place = place
        self._small = SmallBuild() if small is None else small

    def cut(self, recipe: Recipe) -> Iterator[Bin | UnlistedEntry]:
        """Cut the source into bins, in no order; what can't be listed is returned, too.

        Raises:
            SourceMissingError: A root is not in the source.
            SourceChangedError, SparkJobFailedError.
        """
        with closing(source_of(recipe)) as source:
            small = cut_if_small(source, recipe.roots, recipe.budget, self._small.nodes)
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

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        """Build and store the packages of some bins, in no order; what is wrong with their content is returned.

        Raises:
            StorageFullError, StorageReadOnlyError: Of an executor, after all that was built was given.
            RetryableError: Of the driver, where it builds in its own process.
            SparkJobFailedError.
        """
        rest = iter(bins)
        few, is_all = self._few(rest)
        if is_all:
            yield from built_here(self._place, recipe, few)
            return
        yield from self._distributed(recipe, chain(few, rest))

    def _few(self, bins: Iterator[Bin]) -> tuple[list[Bin], bool]:
        """The first bins, and whether they are all, and so few that the driver builds them."""
        found, content_bytes = list[Bin](), 0
        for bin_ in bins:
            found.append(bin_)
            content_bytes += bin_.content_bytes
            if len(found) > self._small.packages or content_bytes > self._small.content_bytes:
                return found, False
        return found, True

    def _distributed(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        """The pieces one after the other, two at a time. What ended one is raised when the other's rows were given."""
        running, ended = deque[Future[StageRows]](), list[MailboatError]()
        pieces = BinBatches(bins, self._runner.parallelism)
        with ThreadPoolExecutor(PIECES_AT_ONCE, thread_name_prefix="bulk-piece") as pool:
            for piece in pieces:
                running.append(pool.submit(self._gathered, recipe, piece))
                if len(running) < PIECES_AT_ONCE:
                    continue
                yield from self._results(running.popleft(), pieces, ended)
                if ended:
                    break
            while running:
                yield from self._results(running.popleft(), pieces, ended)
        if ended:
            raise ended[0]

    def _gathered(self, recipe: Recipe, bins: Sequence[Bin]) -> StageRows:
        return self._runner.gathered(*build_stage(self._place, recipe, bins, self._runner.parallelism))

    def _results(
        self, future: Future[StageRows], pieces: BinBatches, ended: list[MailboatError]
    ) -> Iterator[BinResult]:
        try:
            found = future.result()
        except MailboatError as error:
            ended.append(error)
            return
        pieces.took(found.seconds)
        for row in found.rows():
            result = result_of(row)
            if isinstance(result, MailboatError):
                ended.append(result)
            else:
                yield result


class BinBatches:
    """Bins in pieces that Spark builds as one job: larger ones while they take little time. Iterate once."""

    def __init__(self, bins: Iterable[Bin], parallelism: int) -> None:
        """Begin with small pieces, of which the rows come soon."""
        self._bins = bins
        self._most = LARGEST_PIECE_BYTES * parallelism
        self._weight = FIRST_PIECE_BYTES * parallelism

    def took(self, seconds: float) -> None:
        """A piece took so long."""
        if seconds < PIECE_SECONDS:
            self._weight = min(self._weight * 2, self._most)

    def __iter__(self) -> Iterator[list[Bin]]:
        piece, size = list[Bin](), _Size()
        for bin_ in self._bins:
            further = size.with_bin(bin_)
            if piece and (further.weight > self._weight or len(piece) >= PIECE_BINS or further.is_large()):
                yield piece
                piece, further = [], _Size().with_bin(bin_)
            piece.append(bin_)
            size = further
        if piece:
            yield piece


class _Size(NamedTuple):
    weight: int = 0
    nodes: int = 0
    path_bytes: int = 0

    def with_bin(self, one: Bin) -> _Size:
        return _Size(self.weight + _weight(one), self.nodes + one.nodes, self.path_bytes + sum(map(len, one.roots)))

    def is_large(self) -> bool:
        return self.nodes > PIECE_NODES or self.path_bytes > PIECE_PATH_BYTES


def _weight(one: Bin) -> int:
    return one.content_bytes + one.nodes * NODE_WEIGHT_BYTES


def cut_stage(recipe: Recipe, branches: Sequence[Branch], tasks: int) -> tuple[Stage, list[bytes]]:
    """The stage that cuts some branches, and its work: runs of neighbours, so that walks stay near each other."""
    works = [msgspec.json.encode(CutWork(recipe, tuple(run))) for run in runs_of(branches, tasks)]
    return Stage("cut", CUT_COLUMNS, cut_work), works


def build_stage(
    place: ExecutorWorkspace, recipe: Recipe, bins: Sequence[Bin], parallelism: int
) -> tuple[Stage, list[bytes]]:
    """The stage that builds some bins, and its work: groups of about equal weight, the heaviest first."""
    groups = even_groups([_weight(bin_) for bin_ in bins], parallelism * TASKS_PER_CORE)
    works = [msgspec.json.encode(BuildWork(place, recipe, tuple(bins[index] for index in group))) for group in groups]
    return Stage("build", BUILD_COLUMNS, build_work), works


def cut_work(work: bytes) -> Iterator[CutRow]:
    """Cut some branches: what a task does."""
    given = decoder_of(CutWork).decode(work)
    try:
        with closing(source_of(given.recipe)) as source:
            for branch in given.branches:
                for item in cut_branch(source, branch, given.recipe.budget):
                    yield cut_row(item)
    except MailboatError as error:
        yield CutRow("failed", (), error=error_row(error))


def build_work(work: bytes) -> Iterator[BuildRow]:
    """Build some bins: what a task does. Raises: as `built_rows`."""
    given = decoder_of(BuildWork).decode(work)
    return built_rows(given.place, given.recipe, given.bins)


def built_rows(place: ExecutorWorkspace, recipe: Recipe, bins: Sequence[Bin]) -> Iterator[BuildRow]:
    """Build some bins here. A passing fault of the store is waited out; an error that ends the work is its last row.

    Raises:
        RetryableError: The store did not recover. Spark tries a task again elsewhere.
    """
    home = place.open_home()
    try:
        with (
            closing(source_of(recipe)) as source,
            closing(open_blobs(home, SystemClock(), lambda: recipe.log)) as blobs,
        ):
            codecs = CodecsOnDemand(codec_names(home.config), namespaces_of(home.config))
            builder = BinBuilder(recipe, source, blobs, codecs, home.config.limits)
            for bin_ in bins:
                yield build_row(bin_.signature, _with_retries(builder, bin_))
    except MailboatError as error:
        if isinstance(error, RetryableError) and not isinstance(error, _FOR_PEOPLE):
            raise
        # As a row, not raised: Spark would repeat the task (spark.task.maxFailures, 4), and a full disk stays full.
        yield build_row(None, error)


def built_here(place: ExecutorWorkspace, recipe: Recipe, bins: Sequence[Bin]) -> Iterator[BinResult]:
    """Build some bins in this process. Raises: as `built_rows`; what ended the work."""
    for row in built_rows(place, recipe, bins) if bins else ():
        if isinstance(row.result, MailboatError):
            raise row.result
        yield row.result


def _with_retries(builder: BinBuilder, one: Bin) -> BinResult:
    for attempt in range(1, ATTEMPTS):
        try:
            return builder.build(one)
        except _FOR_PEOPLE:
            raise
        except RetryableError as error:
            threading.Event().wait(error.retry_after_seconds or _PAUSE_SECONDS * 2**attempt)
    return builder.build(one)
