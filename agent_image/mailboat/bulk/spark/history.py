"""The distribution history as tables: `mailboat.packages` is the package topic, `mailboat.statuses` the status topic.

    spark.read.format("mailboat.packages").load(".mailboat").where("offset >= 100").groupBy("publisher").count()

One row for each record, at the bounds of the moment of planning; those that can't be decoded are rows with an `error`,
so nothing is left out silently. The options `from` and `before` say which offsets are read, `offsetsPerTask` how many
by one task. Payloads are no column: `mailboat packages` fetches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mailboat.bulk.spark.arrow_columns import ArrowColumn, batches, chosen, default_ddl
from mailboat.bulk.spark.format_options import BatchFormat, check_options
from mailboat.bulk.spark.log_partitions import (
    LOG_OPTIONS,
    LogPlace,
    StretchPartition,
    place_of,
    records_between,
    stretches,
)
from mailboat.clock import moment_of
from mailboat.errors import UntrustedInputError
from mailboat.journal.port import Record
from mailboat.model.messages import CommandResult, Message, PackageMessage, StatusMessage, TopicRole
from mailboat.wire.messages import decode_message

_TEXTS: Final = pa.list_(pa.string())
_TIME: Final = pa.timestamp("us", tz="UTC")


class Row(NamedTuple):
    """A record and its decoded content; `error` is why it has none."""

    record: Record
    message: Message | None
    error: str | None


def _package(row: Row) -> PackageMessage | None:
    return row.message if isinstance(row.message, PackageMessage) else None


def _status(row: Row) -> StatusMessage | CommandResult | None:
    return row.message if isinstance(row.message, StatusMessage | CommandResult) else None


def time_of(milliseconds: int | None) -> datetime | None:
    """Wall time of milliseconds since 1970 UTC."""
    return None if milliseconds is None else moment_of(milliseconds)


def _of_package(name: str) -> Any:
    return lambda row: getattr(_package(row), name, None)


def _of_status(name: str) -> Any:
    return lambda row: getattr(_status(row), name, None)


def _of_cause(name: str) -> Any:
    return lambda row: getattr(getattr(_status(row), "cause", None), name, None)


def _of_part(name: str) -> Any:
    return lambda row: getattr(getattr(_package(row), "bulk", None), name, None)


def _transport(row: Row) -> str | None:
    message = _package(row)
    if message is None:
        return None
    if message.payload is not None:
        return "inline"
    return "none" if message.payload_ref is None else "reference"


_COMMON: Final[dict[str, ArrowColumn[Row]]] = {
    "offset": ArrowColumn("BIGINT", pa.int64(), lambda row: row.record.offset),
    "appended_at": ArrowColumn("TIMESTAMP", _TIME, lambda row: time_of(row.record.appended_ms)),
}
_ERROR: Final[dict[str, ArrowColumn[Row]]] = {"error": ArrowColumn("STRING", pa.string(), lambda row: row.error)}

PACKAGE_COLUMNS: Final[dict[str, ArrowColumn[Row]]] = {
    **_COMMON,
    "package_id": ArrowColumn("STRING", pa.string(), _of_package("package_id")),
    "action": ArrowColumn("STRING", pa.string(), _of_package("action")),
    "publisher": ArrowColumn("STRING", pa.string(), _of_package("pub_agent_name")),
    "paths": ArrowColumn("ARRAY<STRING>", _TEXTS, _of_package("paths")),
    "deep_paths": ArrowColumn("ARRAY<STRING>", _TEXTS, _of_package("deep_paths")),
    "package_type": ArrowColumn("STRING", pa.string(), _of_package("package_type")),
    "length_bytes": ArrowColumn("BIGINT", pa.int64(), _of_package("package_length_bytes")),
    "transport": ArrowColumn("STRING", pa.string(), _transport),
    "tree_digest": ArrowColumn("BINARY", pa.binary(), _of_package("tree_digest")),
    "request_id": ArrowColumn("STRING", pa.string(), _of_package("request_id")),
    "user": ArrowColumn("STRING", pa.string(), _of_package("user_id")),
    "requested_at": ArrowColumn("TIMESTAMP", _TIME, lambda row: time_of(_of_package("created_ms")(row))),
    "build_id": ArrowColumn("STRING", pa.string(), _of_part("build_id")),
    "sequence": ArrowColumn("BIGINT", pa.int64(), _of_part("sequence")),
    "total": ArrowColumn("BIGINT", pa.int64(), _of_part("total")),
    **_ERROR,
}

STATUS_COLUMNS: Final[dict[str, ArrowColumn[Row]]] = {
    **_COMMON,
    "subscriber": ArrowColumn("STRING", pa.string(), _of_status("sub_agent_name")),
    "instance": ArrowColumn("STRING", pa.string(), _of_status("sub_sling_id")),
    "publisher": ArrowColumn("STRING", pa.string(), _of_status("pub_agent_name")),
    "package_offset": ArrowColumn("BIGINT", pa.int64(), _of_status("offset")),
    "status": ArrowColumn("STRING", pa.string(), lambda row: _of_status("status")(row) or _of_status("state")(row)),
    "package_id": ArrowColumn("STRING", pa.string(), _of_status("package_id")),
    "command": ArrowColumn("STRING", pa.string(), _of_status("verb")),
    "attempts": ArrowColumn("INT", pa.int32(), _of_status("attempts")),
    "cause": ArrowColumn("STRING", pa.string(), _of_cause("code")),
    "message": ArrowColumn("STRING", pa.string(), lambda row: _of_cause("message")(row) or _of_status("message")(row)),
    **_ERROR,
}


class PackageHistory(BatchFormat):
    """`mailboat.packages`: one row for each message of the package topic."""

    known_options: ClassVar[frozenset[str]] = LOG_OPTIONS

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "mailboat.packages"

    def schema(self) -> str:
        """All columns."""
        return default_ddl(PACKAGE_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns that are asked for."""
        check_options(self.options, self.known_options)
        return TopicReader(place_of(self.options), TopicRole.PACKAGE, schema.names)


class StatusHistory(BatchFormat):
    """`mailboat.statuses`: one row for each confirmation, and each answer to a command."""

    known_options: ClassVar[frozenset[str]] = LOG_OPTIONS

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "mailboat.statuses"

    def schema(self) -> str:
        """All columns."""
        return default_ddl(STATUS_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns that are asked for."""
        check_options(self.options, self.known_options)
        return TopicReader(place_of(self.options), TopicRole.STATUS, schema.names)


class TopicReader(DataSourceReader):
    """Reads one topic by stretches of offsets."""

    def __init__(self, place: LogPlace, role: TopicRole, names: Sequence[str]) -> None:
        """Raises: UsageError for a column that the table does not have."""
        self._place = place
        self._role = role
        self._names = list(names)
        chosen(self._known(), self._names)

    def partitions(self) -> Sequence[InputPartition]:
        """Stretches of what the topic holds now."""
        with self._place.open() as workspace:
            topic = workspace.topic(self._role)
            return stretches(workspace.journal, topic, self._place.offsets, self._place.stretch_offsets)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a stretch."""
        assert isinstance(partition, StretchPartition)  # noqa: S101  # from `partitions`
        with self._place.open() as workspace:
            records = records_between(workspace.journal, workspace.topic(self._role), partition)
            yield from batches(chosen(self._known(), self._names), map(_row, records))

    def _known(self) -> dict[str, ArrowColumn[Row]]:
        return PACKAGE_COLUMNS if self._role is TopicRole.PACKAGE else STATUS_COLUMNS


def _row(record: Record) -> Row:
    try:
        return Row(record, decode_message(record.headers, record.value), None)
    except UntrustedInputError as error:
        return Row(record, None, str(error))
