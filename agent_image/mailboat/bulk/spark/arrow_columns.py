"""Columns of our tables: Arrow types, how a record becomes a value, and batches of bounded size.

A reader computes the columns that its schema names and no others, so `.schema("path string")` reads no content. Batches
end by rows and by bytes, so that a task's memory does not grow with what it reads. Used by every format here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from mailboat.errors import UsageError

BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 4 * 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ArrowColumn(Generic[T]):
    """One column.

    Attributes:
        ddl: Its type as Spark SQL writes it.
        arrow: The same for Arrow.
        value: Of a record.
        is_default: Whether a table without a given schema has it.
    """

    ddl: str
    arrow: pa.DataType
    value: Callable[[T], Any]
    is_default: bool = True


Columns = Mapping[str, ArrowColumn[T]]


def default_ddl(columns: Columns[T]) -> str:
    """The schema of a table that is asked for nothing else."""
    return ", ".join(f"{name} {one.ddl}" for name, one in columns.items() if one.is_default)


def chosen(columns: Columns[T], names: Sequence[str]) -> dict[str, ArrowColumn[T]]:
    """The columns of a schema. Raises: UsageError for one that the table does not have."""
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise UsageError(f"there is no column {unknown[0]!r}; known are {', '.join(columns)}")
    return {name: columns[name] for name in names}


def batches(
    columns: Columns[T], records: Iterable[T], size_of: Callable[[T], int] = lambda _: 0
) -> Iterator[pa.RecordBatch]:
    """The records as Arrow batches; `size_of` says about how many bytes a record brings."""
    held, size = list[T](), 0
    for record in records:
        held.append(record)
        size += size_of(record)
        if len(held) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch_of(columns, held)
            held, size = [], 0
    if held:
        yield batch_of(columns, held)


def batch_of(columns: Columns[T], records: Sequence[T]) -> pa.RecordBatch:
    """One batch."""
    arrays = [pa.array([column.value(record) for record in records], column.arrow) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, one.arrow) for name, one in columns.items()]))
