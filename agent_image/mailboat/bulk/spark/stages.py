"""Stages of a job: work that the driver hands out, one piece for each task, and rows that come back in bounded memory.

A stage is a DataFrame: the pieces are its rows, one to a partition, and `mapInArrow` does them, so nothing is shuffled.
Its results are kept on the executors' disks and fetched partition by partition, or, where they are known to be few,
come to the driver with the job. A task that Spark runs twice, because
it failed or was slow, must give the same rows again. Called by the jobs of this package, in the driver.
"""

from __future__ import annotations

import gc
import heapq
import statistics
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyspark import StorageLevel

from mailboat.bulk.spark.arrow_columns import Columns, batches
from mailboat.bulk.spark.spark_errors import is_of_spark
from mailboat.clock import Clock, SystemClock
from mailboat.errors import RetryableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Item = TypeVar("_Item")

_WORK: Final = "task INT, work BINARY"
_POLL_SECONDS: Final = 0.2
BRANCHES_PER_CORE: Final = 16
"""Of a source, to be divided among tasks: branches differ in size, and runs of many small ones are about equal."""
TASKS_PER_CORE: Final = 4
"""More than one, so that a core that is done early takes another task, and no more than their start is worth."""

Advance = Callable[[int], None]
"""Receives how many items of a stage are done; a task reports when it ends, so this comes in steps."""


class SparkJobFailedError(RetryableError):
    """Spark gave up a job: executors were lost, or a task failed too often.

    Spark's log has the full reason. Built packages are kept: run the same command again.
    """


@dataclass(frozen=True, slots=True)
class StageFigures:
    """How a stage went.

    Attributes:
        name: `cut`, `build`, `compare`.
        seconds: From its beginning until its last task was done.
        tasks: How many.
        slowest_seconds: Of the task that took longest.
        median_seconds: Of half of the tasks.
    """

    name: str
    seconds: float
    tasks: int
    slowest_seconds: float
    median_seconds: float

    @property
    def skew(self) -> float:
        """How much longer the slowest task took than half of them; 1 is even."""
        return self.slowest_seconds / self.median_seconds if self.median_seconds > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage does.

    Attributes:
        name: For figures.
        columns: Of its rows, which each have `task` and `elapsed_seconds` besides; `task` counts from 0.
        perform: Runs in the executor with a piece of work; gives records for the columns.
    """

    name: str
    columns: Columns[Any]
    perform: Callable[[bytes], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class StageRows:
    """All rows of a stage.

    Attributes:
        table: The rows, as Spark gave them.
        seconds: How long the stage took.
    """

    table: pa.Table
    seconds: float

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row by its columns' names."""
        for batch in self.table.to_batches():
            yield from batch.to_pylist()


class StageRunner:
    """Runs stages of one session: `run` one at a time, `gathered` from several threads.

    Attributes:
        figures: How the stages went that were run.
        start_seconds: How long the session took to open; None where it was there, or nothing needed it.
    """

    def __init__(
        self,
        session: SparkSession | Callable[[], SparkSession],
        advance: Advance | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Nothing runs yet. A session that is given as a way to open one is opened when the first stage needs it."""
        self._given = session
        self._clock = SystemClock() if clock is None else clock
        self._advance = advance
        self.figures: list[StageFigures] = []
        self.start_seconds: float | None = None

    @cached_property
    def _session(self) -> SparkSession:
        if not callable(self._given):
            return self._given
        began = self._clock.monotonic()
        session = self._given()
        self.start_seconds = self._clock.monotonic() - began
        return session

    @property
    def parallelism(self) -> int:
        """How many tasks can run at the same time."""
        return max(1, self._session.sparkContext.defaultParallelism)

    def frame(self, stage: Stage, works: Sequence[bytes]) -> DataFrame:
        """The stage as a DataFrame that was not computed yet."""
        return self._counted(stage, works, self._session.sparkContext.accumulator(0))

    def _counted(self, stage: Stage, works: Sequence[bytes], done: Any) -> DataFrame:
        pieces = self._session.sparkContext.parallelize(list(enumerate(map(bytearray, works))), max(1, len(works)))
        ddl = ", ".join(f"{name} {one.ddl}" for name, one in stage.columns.items())
        given = self._session.createDataFrame(pieces, _WORK)
        return given.mapInArrow(_in_arrow(stage, done), f"task INT, elapsed_seconds DOUBLE, {ddl}")

    def gathered(self, stage: Stage, works: Sequence[bytes]) -> StageRows:
        """All rows of a stage that the driver can hold, by one job.

        Raises:
            SparkJobFailedError: Spark gave up.
        """
        began = self._clock.monotonic()
        with _failures_of(stage):
            table = self.frame(stage, works).toArrow()
        seconds = self._clock.monotonic() - began
        elapsed = dict.fromkeys(range(len(works)), 0.0)
        for task, spent in zip(
            table.column("task").to_pylist(), table.column("elapsed_seconds").to_pylist(), strict=True
        ):
            elapsed[task] = max(elapsed[task], spent)
        self._note(stage, seconds, elapsed)
        return StageRows(table, seconds)

    def _note(self, stage: Stage, seconds: float, elapsed: dict[int, float]) -> None:
        times = sorted(elapsed.values()) or [0.0]
        self.figures.append(StageFigures(stage.name, seconds, len(times), times[-1], statistics.median(times)))

    def run(self, stage: Stage, works: Sequence[bytes]) -> Iterator[Any]:
        """The rows of a stage, as they are fetched from the executors, task by task.

        Raises:
            SparkJobFailedError: Spark gave up.
        """
        done = self._session.sparkContext.accumulator(0)
        # persisted: the job below computes each task once, and the iterator fetches its rows without another run
        kept = self._counted(stage, works, done).persist(StorageLevel.DISK_ONLY)
        began = self._clock.monotonic()
        elapsed = dict.fromkeys(range(len(works)), 0.0)
        try:
            with _failures_of(stage), self._watched(done):
                kept.write.format("noop").mode("overwrite").save()
            seconds = self._clock.monotonic() - began
            with _failures_of(stage):
                # not of the frame: Spark keeps the jobs of its iterator, with all that they brought, to the end
                for row in kept.rdd.toLocalIterator(prefetchPartitions=True):
                    elapsed[row.task] = max(elapsed[row.task], row.elapsed_seconds)
                    yield row
        finally:
            kept.unpersist()
        self._note(stage, seconds, elapsed)

    @contextmanager
    def _watched(self, done: Any) -> Iterator[None]:
        if self._advance is None:
            yield
            return
        ended, advance = threading.Event(), self._advance

        def watch() -> None:
            while not ended.wait(_POLL_SECONDS):
                advance(done.value)

        watcher = threading.Thread(target=watch, name="stage-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            advance(done.value)


def _in_arrow(stage: Stage, done: Any) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does. Nothing of the driver but the stage goes with it."""

    def run(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not gc.get_freeze_count():
            gc.freeze()  # PySpark collects after each task, and would look through all libraries each time
        clock = SystemClock()
        began = clock.monotonic()
        for pieces in given:
            for task, work in zip(pieces.column(0).to_pylist(), pieces.column(1).to_pylist(), strict=True):
                count = 0
                for found in batches(stage.columns, stage.perform(bytes(work)), _row_bytes):
                    count += found.num_rows
                    yield _stamped(found, task, clock.monotonic() - began)
                done.add(count)

    return run


def _row_bytes(record: object) -> int:
    size = getattr(record, "row_bytes", 0)
    return size if isinstance(size, int) else 0


def _stamped(batch: pa.RecordBatch, task: int, elapsed_seconds: float) -> pa.RecordBatch:
    rows = batch.num_rows
    front = [pa.array([task] * rows, pa.int32()), pa.array([elapsed_seconds] * rows, pa.float64())]
    return pa.RecordBatch.from_arrays([*front, *batch.columns], names=["task", "elapsed_seconds", *batch.schema.names])


@contextmanager
def _failures_of(stage: Stage) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        reason = next((line for line in reversed(str(error).strip().splitlines()) if "Error: " in line), str(error))
        raise SparkJobFailedError(f"the stage {stage.name} failed: {reason.strip()[:500]}") from error


def even_groups(weights: Sequence[int], wanted: int) -> list[list[int]]:
    """Indices of the items as at most `wanted` groups of about equal weight, the heaviest group first."""
    count = max(1, min(wanted, len(weights)))
    groups: list[list[int]] = [[] for _ in range(count)]
    lightest = [(0, number) for number in range(count)]
    for index in sorted(range(len(weights)), key=lambda index: -weights[index]):
        weight, number = heapq.heappop(lightest)
        groups[number].append(index)
        heapq.heappush(lightest, (weight + weights[index], number))
    return [sorted(groups[number]) for _, number in sorted(lightest, reverse=True) if groups[number]]


def runs_of(items: Sequence[_Item], wanted: int) -> list[Sequence[_Item]]:
    """The items as at most `wanted` runs of neighbours; one empty run when there are none."""
    count = max(1, min(wanted, len(items)))
    borders = [len(items) * number // count for number in range(count + 1)]
    return [items[low:high] for low, high in pairwise(borders)]
