"""What a Spark session holds while stage after stage runs in it: no rows outlive their stage, libraries cost once."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from mailboat.bulk.spark.arrow_columns import ArrowColumn
from mailboat.bulk.spark.stages import Stage, StageRunner
from mailboat.testing.wait import wait_until
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long("spark"), pytest.mark.timeout(900)]  # Java starts, and compiles, on what cores there are

ROW_BYTES, ROWS, STAGES = 100_000, 20, 6
LIBRARY_OBJECTS = 10_000
"""PyArrow and PySpark alone bring more."""


class Piece(NamedTuple):
    """A row as large as the record of a package."""

    data: bytes

    @property
    def row_bytes(self) -> int:
        return len(self.data)


COLUMNS: dict[str, ArrowColumn[Piece]] = {"data": ArrowColumn("BINARY", pa.binary(), lambda row: row.data)}


def pieces(work: bytes) -> Iterator[Piece]:
    """Rows that can't be made smaller by packing them."""
    numbers = random.Random(work)
    yield from (Piece(numbers.randbytes(ROW_BYTES)) for _ in range(ROWS))


def uncollected(work: bytes) -> Iterator[Piece]:
    """How many objects a worker leaves out when it looks for garbage."""
    yield Piece(b"%s%d" % (work, gc.get_freeze_count()))


def held_bytes(machine: Any) -> int:
    """What is alive in the Java machine."""
    machine.java.lang.System.gc()
    runtime = machine.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def fetched(runner: StageRunner, stage: Stage, works: list[bytes]) -> list[bytes]:
    return [row.data for row in runner.run(stage, works)]


def gathered(runner: StageRunner, stage: Stage, works: list[bytes]) -> list[bytes]:
    return [row["data"] for row in runner.gathered(stage, works).rows()]


@pytest.mark.parametrize("rows_of", [fetched, gathered])
def test_the_rows_of_a_stage_are_let_go_when_they_were_read(
    spark: SparkSession, rows_of: Callable[[StageRunner, Stage, list[bytes]], list[bytes]]
) -> None:
    runner = StageRunner(spark)
    stage = Stage("pieces", COLUMNS, pieces)

    def run() -> None:
        found = [len(data) for data in rows_of(runner, stage, [b"one", b"two"])]
        assert found == [ROW_BYTES] * ROWS * 2

    run()  # loads what stages need
    before = held_bytes(spark._jvm)
    for _ in range(STAGES):
        run()
    brought = STAGES * 2 * ROWS * ROW_BYTES
    # Spark lets go of a task's result in a thread of its own
    wait_until(lambda: held_bytes(spark._jvm) - before < brought / 4, "the rows to be let go")


def test_a_worker_does_not_look_through_its_libraries_after_each_task(spark: SparkSession) -> None:
    rows = StageRunner(spark).run(Stage("uncollected", COLUMNS, uncollected), [b"", b""])
    assert all(int(row.data) > LIBRARY_OBJECTS for row in rows)
