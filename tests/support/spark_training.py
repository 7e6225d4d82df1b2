"""What a Spark session of the tests does, in a few seconds: its Java machine archives the classes that this needs.

Run by spark-submit with a folder for its files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from mailboat.bulk.spark.arrow_columns import ArrowColumn
from mailboat.bulk.spark.spark_session import SessionSettings, open_session, register_formats
from mailboat.bulk.spark.stages import Stage, StageRunner
from pyspark.errors import PySparkException
from support.page_forest import ForestSettings, make_forest


def main(folder: Path) -> None:
    """Read tables, run a stage, and meet an error."""
    make_forest(folder / "site", ForestSettings(pages=20, sections=2))
    with open_session(SessionSettings(None, "training")) as session:
        register_formats(session)
        table = session.read.format("mailboat").option("tasks", 2).load(str(folder / "site"))
        table.where("type = 'nt:file'").orderBy("path").collect()
        table.groupBy("type").count().collect()
        with suppress(PySparkException):
            session.read.format("mailboat").option("root", "none").load(str(folder / "site")).count()

        def perform(work: bytes) -> Iterator[int]:
            yield len(work)

        stage = Stage("build", {"number": ArrowColumn("INT", pa.int32(), lambda one: one)}, perform)
        list(StageRunner(session).run(stage, [b"first", b"second"]))


main(Path(sys.argv[1]))
