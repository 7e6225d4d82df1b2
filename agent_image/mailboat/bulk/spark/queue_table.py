"""`mailboat.queues`: every package that waits for a subscriber, as a row for each pair.

    spark.read.format("mailboat.queues").load(".mailboat").groupBy("subscriber").count()

A queue is a view, so the table is made of positions (asked once, when the query is planned) and the package topic after
the lowest of them, read once for all subscribers. Options are those of `mailboat.packages`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mailboat.bulk.spark.arrow_columns import ArrowColumn, batches, chosen, default_ddl
from mailboat.bulk.spark.format_options import BatchFormat, check_options
from mailboat.bulk.spark.history import time_of
from mailboat.bulk.spark.log_partitions import (
    LOG_OPTIONS,
    MAX_OFFSET,
    LogPlace,
    StretchPartition,
    place_of,
    records_between,
    stretches,
)
from mailboat.composition.workspace import Workspace
from mailboat.control.subscriber_directory import directory_of
from mailboat.journal.port import Record
from mailboat.model.identifiers import AgentName
from mailboat.queues.entries import QueueEntry, decode_entries


class Waiter(NamedTuple):
    """A subscriber with its position, for one query."""

    name: AgentName
    instance: str
    next_offset: int
    attempts: int
    follow: tuple[AgentName, ...]

    def waits_for(self, entry: QueueEntry) -> bool:
        """Whether the package is in its queue."""
        return entry.offset >= self.next_offset and (not self.follow or entry.publisher in self.follow)


class WaitingPackage(NamedTuple):
    """A package and a subscriber that has not imported it."""

    waiter: Waiter
    entry: QueueEntry


QUEUE_COLUMNS: Final[dict[str, ArrowColumn[WaitingPackage]]] = {
    "subscriber": ArrowColumn("STRING", pa.string(), lambda row: row.waiter.name),
    "instance": ArrowColumn("STRING", pa.string(), lambda row: row.waiter.instance),
    "publisher": ArrowColumn("STRING", pa.string(), lambda row: row.entry.publisher),
    "offset": ArrowColumn("BIGINT", pa.int64(), lambda row: row.entry.offset),
    "package_id": ArrowColumn("STRING", pa.string(), lambda row: row.entry.package_id),
    "action": ArrowColumn("STRING", pa.string(), lambda row: row.entry.action),
    "first_path": ArrowColumn("STRING", pa.string(), lambda row: row.entry.first_path),
    "path_count": ArrowColumn("INT", pa.int32(), lambda row: row.entry.path_count),
    "length_bytes": ArrowColumn("BIGINT", pa.int64(), lambda row: row.entry.length_bytes),
    "appended_at": ArrowColumn("TIMESTAMP", pa.timestamp("us", tz="UTC"), lambda row: time_of(row.entry.appended_ms)),
    "user": ArrowColumn("STRING", pa.string(), lambda row: row.entry.user_id),
    "attempts": ArrowColumn(
        "INT", pa.int32(), lambda row: row.waiter.attempts if row.entry.offset == row.waiter.next_offset else 0
    ),
}


class QueueTable(BatchFormat):
    """`mailboat.queues`. A subscriber that has no position yet waits for all that the log holds."""

    known_options: ClassVar[frozenset[str]] = LOG_OPTIONS

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "mailboat.queues"

    def schema(self) -> str:
        """All columns."""
        return default_ddl(QUEUE_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns that are asked for."""
        check_options(self.options, self.known_options)
        return QueueReader(place_of(self.options), schema.names)


class QueuePartition(StretchPartition):
    """A stretch, and who waits for what of it."""

    def __init__(self, stretch: StretchPartition, waiters: tuple[Waiter, ...]) -> None:
        super().__init__(stretch.low, stretch.high)
        self.waiters = waiters


class QueueReader(DataSourceReader):
    """Reads the package topic from the lowest position on."""

    def __init__(self, place: LogPlace, names: Sequence[str]) -> None:
        """Raises: UsageError for a column that the table does not have."""
        self._place = place
        self._columns = list(chosen(QUEUE_COLUMNS, names))

    def partitions(self) -> Sequence[InputPartition]:
        """Stretches from the lowest position on; reads the positions of all subscribers."""
        with self._place.open() as workspace:
            waiters = tuple(_waiters(workspace))
            lowest = min((waiter.next_offset for waiter in waiters), default=MAX_OFFSET)
            offsets = self._place.offsets
            wanted = range(max(lowest, offsets.start), offsets.stop)
            found = stretches(workspace.journal, workspace.package_topic, wanted, self._place.stretch_offsets)
            return [QueuePartition(stretch, waiters) for stretch in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a stretch."""
        assert isinstance(partition, QueuePartition)  # noqa: S101  # from `partitions`
        with self._place.open() as workspace:
            records = records_between(workspace.journal, workspace.package_topic, partition)
            rows = (row for record in records for row in _rows(record, partition.waiters))
            yield from batches(chosen(QUEUE_COLUMNS, self._columns), rows)


def _rows(record: Record, waiters: Sequence[Waiter]) -> Iterator[WaitingPackage]:
    for entry in decode_entries((record,), None).entries:
        for waiter in waiters:
            if waiter.waits_for(entry):
                yield WaitingPackage(waiter, entry)


def _waiters(workspace: Workspace) -> Iterator[Waiter]:
    for member in directory_of(workspace).members():
        if member.has_queues:
            yield Waiter(
                member.name, member.queue_name.sling_id, member.next_offset or 0, member.attempts, member.follow
            )
