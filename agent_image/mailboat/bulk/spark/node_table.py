"""`mailboat`: the nodes of any SOURCE of the command line as a table, one row for each.

    spark.read.format("mailboat").load("./site").where("path LIKE '/en/%'").groupBy("type").sum("content_bytes")

Options: `roots` (a JSON list of content paths, `["/"]` if left out), `types` (a JSON list of node types, all if left
out), `tasks` (about how many there will be). A schema of fewer columns is read with less work. Targets and zips are
read at one state: one that changed since the query was planned ends it by SourceChangedError. A plain folder has no
such state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.types import StructType

from mailboat.bulk.source_branches import Branch, outermost, plan_branches
from mailboat.bulk.spark.arrow_columns import ArrowColumn, batches, chosen, default_ddl
from mailboat.bulk.spark.exchange import CUT_COLUMNS
from mailboat.bulk.spark.format_options import BatchFormat, check_options, positive_of, texts_of
from mailboat.bulk.spark.sink import PackageWriter, sink_order
from mailboat.bulk.spark.stages import runs_of
from mailboat.composition.environment import expanded_path
from mailboat.composition.places import absolute_target
from mailboat.composition.source_openers import open_source
from mailboat.content.binaries import content_bytes_of
from mailboat.content.locations import TARGET_KINDS, opened_ledger
from mailboat.content.sources.folder_entries import signature_of
from mailboat.errors import LimitExceededError, SourceChangedError, SourceMissingError, UsageError
from mailboat.model.nodes import Binary, Node, Property
from mailboat.model.paths import ROOT, NodePath, name_of, parent_of, parse_path
from mailboat.wire.node_bodies import node_digest


def state_of(source: str) -> str | None:
    """Something that changes whenever the source does; None where there is nothing of the kind.

    Raises:
        SourceMissingError, TargetCorruptError.
    """
    kind, colon, _ = source.partition(":")
    if colon and kind in TARGET_KINDS:
        with opened_ledger(absolute_target(source)) as ledger:
            return str(ledger.position())
    place = expanded_path(source)
    try:
        return str(signature_of(place.stat())) if not place.is_dir() else None
    except FileNotFoundError as error:
        raise SourceMissingError(f"{source!r} does not exist") from error


DEFAULT_TASKS: Final = 64
MAX_DATA_BYTES: Final = 1024 * 1024 * 1024
"""Of a file whose bytes are asked for: Spark's rows end at 2 GiB, and the row is in memory several times."""
READ_OPTIONS: Final = frozenset({"roots", "types", "tasks"})
_PROPERTY: Final = pa.struct(
    [("name", pa.string()), ("type", pa.string()), ("values", pa.list_(pa.string())), ("is_multiple", pa.bool_())]
)


def _property(one: Property) -> dict[str, Any]:
    values = [_reference(value) if isinstance(value, Binary) else value for value in one.values]
    return {"name": one.name, "type": one.type.name, "values": values, "is_multiple": one.is_multiple}


def _reference(binary: Binary) -> str:
    return f"sha256:{binary.digest.hex()}:{binary.length_bytes}"


def _data(node: Node) -> bytes | None:
    if node.data is None:
        return None
    if node.data.length_bytes > MAX_DATA_BYTES:
        raise LimitExceededError(
            f"{node.path} has {node.data.length_bytes} bytes, and the column data holds {MAX_DATA_BYTES} at most",
            next_step="leave `data` out of the schema, or leave the file out by the option roots",
            path=node.path,
            limit="data",
        )
    with closing(node.data.open()) as stream:
        return stream.read()


NODE_COLUMNS: Final[dict[str, ArrowColumn[Node]]] = {
    "path": ArrowColumn("STRING", pa.string(), lambda node: node.path),
    "parent": ArrowColumn("STRING", pa.string(), lambda node: None if node.path == ROOT else parent_of(node.path)),
    "name": ArrowColumn("STRING", pa.string(), lambda node: name_of(node.path)),
    "type": ArrowColumn("STRING", pa.string(), lambda node: node.primary_type),
    "mixins": ArrowColumn("ARRAY<STRING>", pa.list_(pa.string()), lambda node: list(node.mixin_types)),
    "properties": ArrowColumn(
        "ARRAY<STRUCT<name: STRING, type: STRING, values: ARRAY<STRING>, is_multiple: BOOLEAN>>",
        pa.list_(_PROPERTY),
        lambda node: list(map(_property, node.properties)),
    ),
    "child_order": ArrowColumn("ARRAY<STRING>", pa.list_(pa.string()), lambda node: node.child_order),
    "content_bytes": ArrowColumn("BIGINT", pa.int64(), content_bytes_of),
    "digest": ArrowColumn("BINARY", pa.binary(), node_digest),
    "data": ArrowColumn("BINARY", pa.binary(), _data, is_default=False),
}


@dataclass(frozen=True, slots=True)
class SourceQuery:
    """What is read.

    Attributes:
        source: As a user gives it.
        roots: Content paths; what is at and below them is read.
        types: The node types that are read; None is all.
        tasks: About how many tasks share the work.
    """

    source: str
    roots: tuple[NodePath, ...] = (ROOT,)
    types: frozenset[str] | None = None
    tasks: int = DEFAULT_TASKS


def query_of(options: Mapping[str, str]) -> SourceQuery:
    """What a query's options say. Raises: UsageError, PathRefusedError."""
    source = options.get("path")
    if source is None:
        raise UsageError('name the source: spark.read.format("mailboat").load(SOURCE)')
    tasks = positive_of(options, "tasks", DEFAULT_TASKS)
    roots = texts_of(options, "roots") or ["/"]
    types = texts_of(options, "types")
    return SourceQuery(source, outermost(map(parse_path, roots)), None if types is None else frozenset(types), tasks)


class BranchesPartition(InputPartition):
    """What one task reads, and of which state of the source."""

    def __init__(self, branches: Sequence[Branch], state: str | None) -> None:
        super().__init__(tuple(branches))
        self.branches = tuple(branches)
        self.state = state


class MailboatFormat(BatchFormat):
    """`mailboat`: one row for each node of a source."""

    known_options: ClassVar[frozenset[str]] = READ_OPTIONS

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "mailboat"

    def schema(self) -> str:
        """All columns but `data`."""
        return default_ddl(NODE_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns that are asked for."""
        check_options(self.options, self.known_options)
        return NodeReader(query_of(self.options), schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  # PySpark's signature
        """A writer that builds packages of bins and publishes them; see `sink.py`. Raises: UsageError."""
        chosen(CUT_COLUMNS, schema.names)
        if overwrite:
            raise UsageError('a log is appended to: .mode("append")')
        return PackageWriter(sink_order(self.options))


class NodeReader(DataSourceReader):
    """Reads the nodes of a source by branches."""

    def __init__(self, query: SourceQuery, names: Sequence[str]) -> None:
        """Raises: UsageError for a column that the table does not have."""
        self._query = query
        self._names = list(chosen(NODE_COLUMNS, names))

    def partitions(self) -> Sequence[InputPartition]:
        """Branches of the tree as it is now."""
        state = state_of(self._query.source)
        with closing(open_source(self._query.source)) as source:
            branches = plan_branches(source, self._query.roots, self._query.tasks)
        return [BranchesPartition(run, state) for run in runs_of(branches, self._query.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some branches."""
        assert isinstance(partition, BranchesPartition)  # noqa: S101  # from `partitions`
        types = self._query.types
        with closing(open_source(self._query.source)) as source:
            walked = (source.walk(branch.path, is_deep=branch.is_deep) for branch in partition.branches)
            nodes = (node for walk in walked for node in walk if types is None or node.primary_type in types)
            yield from batches(chosen(NODE_COLUMNS, self._names), nodes, content_bytes_of)
        if state_of(self._query.source) != partition.state:
            raise SourceChangedError(f"{self._query.source} changed since the query was planned")
