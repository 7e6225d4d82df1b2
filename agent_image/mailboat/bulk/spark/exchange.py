"""What the driver and its tasks exchange: work as JSON, results and errors as columns. Never a pickled object.

A row may come from a foreign file: the sink takes any DataFrame with its columns. So nothing here runs what it
reads: work becomes a record field by field, an error is a name, a message and facts, and a built package is the row of
its manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, assert_never

import pyarrow as pa

from mailboat.api.problems import error_class
from mailboat.bulk.build_manifest import ROW_SCHEMA, built_of, row_of
from mailboat.bulk.build_records import BinResult, BuildProblem, BuiltBin, Recipe
from mailboat.bulk.cutter import Bin, BinKind, Cut, SkeletonNode, Unit
from mailboat.bulk.source_branches import Branch
from mailboat.bulk.spark.arrow_columns import ArrowColumn, batches
from mailboat.composition.home import Home
from mailboat.config.decoder import decode_config, encode_config
from mailboat.content.listed_nodes import ListedNode, UnlistedEntry
from mailboat.errors import MailboatError, RetryableError, UsageError
from mailboat.model.paths import NodePath, parse_path

_TEXT: Final = pa.string()


@dataclass(frozen=True, slots=True)
class ExecutorWorkspace:
    """Where executors find what a build works with.

    Attributes:
        home: The home's folder, which relative files of the configuration belong to.
        config: The configuration's document as JSON; secrets are named in it, not held.
    """

    home: str
    config: str

    @staticmethod
    def of(home: Home) -> ExecutorWorkspace:
        """The place of a home."""
        return ExecutorWorkspace(str(home.path.absolute()), json.dumps(encode_config(home.config)))

    def open_home(self) -> Home:
        """The home, as an executor sees it. Raises: ConfigInvalidError."""
        return Home(Path(self.home), decode_config(json.loads(self.config)))


@dataclass(frozen=True, slots=True)
class CutWork:
    """Branches for one task to cut."""

    recipe: Recipe
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class BuildWork:
    """Bins for one task to build."""

    place: ExecutorWorkspace
    recipe: Recipe
    bins: tuple[Bin, ...]


# ------------------------------------------------------------------------------------------------------------ errors

ERROR_DDL: Final = "STRUCT<name: STRING, message: STRING, next_step: STRING, facts: STRING>"
ERROR_TYPE: Final = pa.struct([("name", _TEXT), ("message", _TEXT), ("next_step", _TEXT), ("facts", _TEXT)])


def error_row(error: MailboatError | None) -> dict[str, str | None] | None:
    """An error as a cell: its facts are a JSON object."""
    if error is None:
        return None
    facts = {
        key: value if isinstance(value, str | int | float | bool) else str(value) for key, value in error.where.items()
    }
    return {
        "name": error.name,
        "message": error.message,
        "next_step": error.next_step,
        "facts": json.dumps(facts),
    }


def error_of(cell: Any) -> MailboatError:
    """The error in a cell: one of our classes by its name, `MailboatError` where this version has no such class.

    Raises: UsageError for a cell that holds none.
    """
    try:
        name, message, next_step = cell["name"], cell["message"], cell["next_step"]
        facts = json.loads(cell["facts"] or "{}")
    except (KeyError, TypeError, ValueError, RecursionError) as found:
        raise UsageError(f"invalid row: its error is not an error of a task: {found}") from found
    if not isinstance(name, str) or not isinstance(message, str) or not isinstance(facts, dict):
        raise UsageError("invalid row: its error is not an error of a task")
    kind = error_class(name) or MailboatError
    known = {key: value for key, value in facts.items() if isinstance(value, str | int | float | bool)}
    if kind is MailboatError:
        known["error"] = name
    error = kind.__new__(kind)
    begin = RetryableError.__init__ if isinstance(error, RetryableError) else MailboatError.__init__
    reserved = {"self", "message", "next_step", "retry_after_seconds"}
    begin(error, message, next_step=next_step, **{key: value for key, value in known.items() if key not in reserved})  # type: ignore[arg-type]  # facts are never `retry_after_seconds`
    return error


# --------------------------------------------------------------------------------------------------------------- cut


class CutRow(NamedTuple):
    """Something that a cut gave, or why it could not go on."""

    item: str
    paths: tuple[NodePath, ...]
    content_bytes: int = 0
    nodes: int = 0
    signature: bytes | None = None
    error: Mapping[str, str | None] | None = None
    recipe: bytes | None = None

    @property
    def row_bytes(self) -> int:
        """About how large the row is."""
        return sum(map(len, self.paths)) + 100


CUT_COLUMNS: Final[dict[str, ArrowColumn[CutRow]]] = {
    "item": ArrowColumn("STRING", _TEXT, lambda row: row.item),
    "paths": ArrowColumn("ARRAY<STRING>", pa.list_(_TEXT), lambda row: row.paths),
    "content_bytes": ArrowColumn("BIGINT", pa.int64(), lambda row: row.content_bytes),
    "nodes": ArrowColumn("BIGINT", pa.int64(), lambda row: row.nodes),
    "signature": ArrowColumn("BINARY", pa.binary(), lambda row: row.signature),
    "error": ArrowColumn(ERROR_DDL, ERROR_TYPE, lambda row: row.error),
    "recipe": ArrowColumn("BINARY", pa.binary(), lambda row: row.recipe),
}


def cut_row(item: Cut, recipe: bytes | None = None) -> CutRow:
    """What a cut gave, as a row; `recipe` is the fingerprint of what it was cut by, where the row leaves the build."""
    match item:
        case Bin():
            row = CutRow(f"{item.kind} bin", item.roots, item.content_bytes, item.nodes, item.signature)
        case Unit():
            row = CutRow("unit", (item.path,), item.content_bytes, item.nodes, item.signature)
        case SkeletonNode():
            row = CutRow("skeleton", (item.path,), item.content_bytes, 1, item.signature)
        case ListedNode():
            row = CutRow("node", (item.path,), item.content_bytes, 1, item.signature)
        case UnlistedEntry():
            row = CutRow("unlisted", (item.path,), error=error_row(item.error))
        case _:
            assert_never(item)
    return row._replace(recipe=recipe)


def cut_of(row: Any) -> Cut:
    """The other way. Raises: what the cut was ended by; UsageError for a row that no cut gave."""
    if row["item"] == "failed":
        raise error_of(row["error"])
    try:
        return _cut_of(row)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(f"invalid row: not a row of a cut: {error}") from error


def _cut_of(row: Any) -> Cut:
    paths, content_bytes, nodes = tuple(map(parse_path, row["paths"])), int(row["content_bytes"]), int(row["nodes"])
    if row["item"] == "unlisted":
        return UnlistedEntry(paths[0], error_of(row["error"]))
    signature = bytes(row["signature"])
    match row["item"].split(" "):
        case [kind, "bin"]:
            return Bin(BinKind(kind), paths, content_bytes, nodes, signature)
        case ["unit"]:
            return Unit(paths[0], content_bytes, nodes, signature)
        case ["skeleton"]:
            return SkeletonNode(paths[0], content_bytes, signature)
        case ["node"]:
            return ListedNode(paths[0], content_bytes, signature)
        case _:
            raise ValueError(f"unknown item {row['item']!r:.40}")


# ------------------------------------------------------------------------------------------------------------- build


class BuildRow(NamedTuple):
    """A result of the build stage.

    Attributes:
        signature: Of the bin; None where `result` ended the task.
        result: Its outcome.
        cells: A built package as the row of a manifest; empty otherwise.
    """

    signature: bytes | None
    result: BinResult | MailboatError
    cells: Mapping[str, Any]

    @property
    def row_bytes(self) -> int:
        """About how large the row is."""
        return 500 + len(self.cells.get("payload") or b"") + 150 * len(self.cells.get("node_paths", ()))


def build_row(signature: bytes | None, result: BinResult | MailboatError) -> BuildRow:
    """A result as a row."""
    cells = row_of(result) if isinstance(result, BuiltBin) else {"signature": signature}
    return BuildRow(signature, result, cells)


def _cell(name: str) -> Any:
    return lambda row: row.cells.get(name)


def _problem(row: BuildRow) -> dict[str, str] | None:
    return row.result._asdict() if isinstance(row.result, BuildProblem) else None


def _ended_by(row: BuildRow) -> dict[str, str | None] | None:
    return error_row(row.result if isinstance(row.result, MailboatError) else None)


def _spark_type(kind: pa.DataType) -> tuple[str, pa.DataType]:
    """A type of a manifest's column in Spark's SQL and for Spark's Arrow, which has no binaries of fixed size."""
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind):
        return "BINARY", pa.binary()
    if pa.types.is_list(kind):
        ddl, inner = _spark_type(kind.value_type)
        return f"ARRAY<{ddl}>", pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [(field.name, *_spark_type(field.type)) for field in kind]
        ddl = ", ".join(f"{name}: {ddl}" for name, ddl, _ in fields)
        return f"STRUCT<{ddl}>", pa.struct([(name, inner) for name, _, inner in fields])
    return {pa.string(): "STRING", pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN"}[kind], kind


_PROBLEM_TYPE: Final = pa.struct([("path", _TEXT), ("name", _TEXT), ("message", _TEXT)])
BUILD_COLUMNS: Final[dict[str, ArrowColumn[BuildRow]]] = {
    **{field.name: ArrowColumn(*_spark_type(field.type), _cell(field.name)) for field in ROW_SCHEMA},
    "problem": ArrowColumn("STRUCT<path: STRING, name: STRING, message: STRING>", _PROBLEM_TYPE, _problem),
    "error": ArrowColumn(ERROR_DDL, ERROR_TYPE, _ended_by),
}


def result_of(row: Mapping[str, Any]) -> BinResult | MailboatError:
    """A row of the build stage as what it says."""
    if row["error"] is not None:
        return error_of(row["error"])
    if row["problem"] is not None:
        problem = row["problem"]
        return BuildProblem(NodePath(problem["path"]), problem["name"], problem["message"])
    return built_of(row)


def packed(rows: Iterable[BuildRow]) -> bytes:
    """Rows of the build stage as an Arrow stream."""
    into = pa.BufferOutputStream()
    schema = pa.schema([(name, one.arrow) for name, one in BUILD_COLUMNS.items()])
    with pa.ipc.new_stream(into, schema) as stream:
        for batch in batches(BUILD_COLUMNS, rows, lambda row: row.row_bytes):
            stream.write_batch(batch)
    return bytes(into.getvalue())


def unpacked(stream: bytes) -> Iterator[tuple[bytes, BinResult | MailboatError]]:
    """The rows of an Arrow stream: of each the signature of its bin, and its result."""
    with pa.ipc.open_stream(stream) as batches_read:
        for batch in batches_read:
            for row in batch.to_pylist():
                yield bytes(row["signature"] or b""), result_of(row)
