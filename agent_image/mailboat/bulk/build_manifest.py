"""The manifest of a build: one row for each package, in Parquet, kept next to the packages.

It is what a build resumes from and what an audit reads. Rows are added as bins come, in any order; when all are there,
one more document says which of them the build has. A bin whose signature is here need not be built again. Memory is
that of one bucket, and of the digests of the bins. The only home of pyarrow outside `bulk/spark`.
"""

from __future__ import annotations

import hashlib
import io
import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import accumulate, chain, groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mailboat.blobs.port import NamedDocuments
from mailboat.blobs.references import BlobReference
from mailboat.bulk.build_records import BuiltBin, BuiltNode
from mailboat.bulk.cutter import BinKind, Order
from mailboat.content.keys import ROOT_KEY
from mailboat.errors import StopError
from mailboat.model.identifiers import BuildId
from mailboat.model.paths import NodePath

BUCKET_ROWS: Final = 2_000
HELD_BYTES: Final = 16 * 1024 * 1024
"""Rows that are not stored yet; a build that dies builds their packages again."""

_DIGEST: Final = pa.binary(32)

ROW_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("roots", pa.list_(pa.string())),
        ("deep_roots", pa.list_(pa.string())),
        ("signature", _DIGEST),
        ("content_bytes", pa.int64()),
        ("package_bytes", pa.int64()),
        ("package_digest", _DIGEST),
        ("tree_digest", _DIGEST),
        ("payload", pa.binary()),
        ("binaries", pa.list_(pa.struct([("digest", _DIGEST), ("length_bytes", pa.int64())]))),
        ("node_paths", pa.list_(pa.string())),
        ("node_digests", pa.list_(_DIGEST)),
        ("stored_bytes", pa.int64()),
        ("is_present", pa.bool_()),
    ]
)

ORDER_SCHEMA: Final = pa.schema([("signature", _DIGEST)])


class ManifestDamagedError(StopError):
    """A part of a build's manifest is missing or unreadable, so the build cannot be resumed.

    Remove the build with `mailboat bulk forget ID` and start a new one, which publishes its packages again.
    """


def row_of(one: BuiltBin) -> dict[str, Any]:
    """A package as a row, by the names of `ROW_SCHEMA`."""
    return {
        "kind": one.kind.value,
        "roots": list(one.roots),
        "deep_roots": sorted(one.deep_roots),
        "signature": one.signature,
        "content_bytes": one.content_bytes,
        "package_bytes": one.package_bytes,
        "package_digest": one.package_digest,
        "tree_digest": one.tree_digest,
        "payload": one.payload,
        "binaries": [binary._asdict() for binary in one.binaries],
        "node_paths": [node.path for node in one.nodes],
        "node_digests": [node.digest for node in one.nodes],
        "stored_bytes": one.stored_bytes,
        "is_present": one.is_present,
    }


def built_of(row: Mapping[str, Any]) -> BuiltBin:
    """The package of a row."""
    return BuiltBin(
        BinKind(row["kind"]),
        tuple(map(NodePath, row["roots"])),
        row["signature"],
        frozenset(map(NodePath, row["deep_roots"])),
        row["content_bytes"],
        row["package_bytes"],
        row["package_digest"],
        row["tree_digest"],
        row["payload"],
        tuple(BlobReference(binary["digest"], binary["length_bytes"]) for binary in row["binaries"]),
        tuple(
            BuiltNode(NodePath(path), digest)
            for path, digest in zip(row["node_paths"], row["node_digests"], strict=True)
        ),
        row["stored_bytes"],
        row["is_present"],
    )


class Manifest:
    """The manifest of one build. One thread at a time.

    Attributes:
        build_id: Whose it is.

    Rows lie in buckets, which are stretches of the order of publication: each is small enough to be sorted in memory,
    however the rows came.
    """

    def __init__(self, documents: NamedDocuments, build_id: BuildId, borders: Sequence[Order]) -> None:
        """Read nothing yet. `borders` are where the buckets behind the first one begin, the same for all attempts."""
        self._documents = documents
        self.build_id = build_id
        self._prefix = f"{build_id}.rows-"
        self._order_name = f"{build_id}.order"
        self._borders = borders
        self._pending: dict[int, list[BuiltBin]] = {}
        self._pending_bytes = 0
        self._chunks: dict[int, int] = {}

    def add(self, one: BuiltBin) -> None:
        """Take a row; now and then some are stored. Raises: as `NamedDocuments.write`."""
        self._pending.setdefault(bisect_right(self._borders, one.order), []).append(one)
        self._pending_bytes += _weight(one)
        if self._pending_bytes >= HELD_BYTES:
            # the largest bucket goes: few large documents instead of many small ones
            self._store(max(self._pending, key=lambda bucket: sum(map(_weight, self._pending[bucket]))))

    def flush(self) -> None:
        """Store what was taken."""
        for bucket in sorted(self._pending):
            self._store(bucket)

    def signatures(self) -> Iterator[tuple[bytes, bool]]:
        """Of all rows that are stored, stale ones too: the signature, and whether it `is_present`."""
        for name in self._documents.names(self._prefix):
            table = self._read(name, ["signature", "is_present"])
            for row in table.to_pylist():
                yield row["signature"], row["is_present"]

    def store_order(self, signatures: Iterable[bytes]) -> None:
        """Say which rows the build has, by their signatures, in order: from now on it is whole."""
        self.flush()
        # after the rows: a crash in between leaves a manifest without an order, which is not whole
        table = _table([{"signature": signature} for signature in signatures], ORDER_SCHEMA)
        self._documents.write(self._order_name, _parquet(table))

    def order(self) -> frozenset[bytes]:
        """Which rows the build has, by signature. Attempts at earlier revisions may have left others.

        Raises: ManifestDamagedError, also before `store_order`; as `NamedDocuments.read`.
        """
        return frozenset(self._read(self._order_name).column("signature").to_pylist())

    def packages(self) -> frozenset[bytes]:
        """The `package_key` of each row that the build has.

        Raises: ManifestDamagedError, also before `store_order`; as `NamedDocuments.read`.
        """
        wanted, found = self.order(), set[bytes]()
        for name in self._documents.names(self._prefix):
            table = self._read(name, ["signature", "kind", "roots", "package_digest"])
            found.update(
                package_key(row["kind"], row["roots"], row["package_digest"])
                for row in table.to_pylist()
                if row["signature"] in wanted
            )
        return frozenset(found)

    def rows(self, wanted: frozenset[bytes]) -> Iterator[BuiltBin]:
        """The rows of these signatures, each once, in the order of publication. Memory is that of a bucket.

        Raises: ManifestDamagedError; as `NamedDocuments.read`.
        """
        buckets = groupby(self._documents.names(self._prefix), key=self._bucket_of)
        for _, names in buckets:
            # of rows with one signature the one stored last counts: what was present once may be built now
            found = {
                row.signature: row
                for name in names
                for row in map(built_of, self._read(name).to_pylist())
                if row.signature in wanted
            }
            yield from sorted(found.values(), key=lambda one: one.order)

    def ordered(self, fresh: int | None = None) -> Iterator[BuiltBin]:
        """The rows of the build in the order of publication, from `store_order` on.

        Args:
            fresh: How many of them are to be published, where that is known.

        Raises:
            ManifestDamagedError: Before the first row, when any is gone or can't be read.
            RetryableError: As `NamedDocuments.read`.
        """
        wanted = self.order()
        found = dict[bytes, bool]()
        for name in self._documents.names(self._prefix):
            table = self._read(name)  # also columns that are unused here: they are read before any is published
            each = zip(table.column("signature").to_pylist(), table.column("is_present").to_pylist(), strict=True)
            found.update((signature, is_present) for signature, is_present in each if signature in wanted)
        if len(found) < len(wanted):
            raise self._damaged(f"{len(wanted) - len(found)} of its {len(wanted)} rows are gone")
        there = sum(not is_present for is_present in found.values())
        if fresh not in {None, there}:
            raise self._damaged(f"{fresh} of its rows are to be published, {there} are there")
        yield from self.rows(wanted)

    def remove(self) -> None:
        """Forget the manifest."""
        for name in (*self._documents.names(self._prefix), self._order_name):
            self._documents.remove(name)

    def _store(self, bucket: int) -> None:
        rows = self._pending.pop(bucket)
        prefix = f"{self._prefix}{bucket:05d}-"
        # numbered behind the rows of earlier attempts, which stay
        if bucket not in self._chunks:
            names = self._documents.names(prefix)
            self._chunks[bucket] = int(names[-1].removeprefix(prefix)) + 1 if names else 0
        table = _table([row_of(row) for row in rows], ROW_SCHEMA)
        self._documents.write(f"{prefix}{self._chunks[bucket]:04d}", _parquet(table))
        self._chunks[bucket] += 1
        self._pending_bytes -= sum(map(_weight, rows))

    def _bucket_of(self, name: str) -> str:
        return name.removeprefix(self._prefix).partition("-")[0]

    def _read(self, name: str, columns: list[str] | None = None) -> pa.Table:
        stored = self._documents.read(name)
        if stored is None:
            raise self._damaged(f"its part {name} is gone")
        try:
            file = pq.ParquetFile(io.BytesIO(stored), page_checksum_verification=True)
            if file.schema_arrow.equals(ORDER_SCHEMA if name == self._order_name else ROW_SCHEMA):
                return file.read(columns)
        except (pa.ArrowException, OSError, ValueError) as error:  # Arrow reports damaged pages by OSError
            raise self._damaged(f"its part {name} can't be read: {error}") from error
        raise self._damaged(f"its part {name} has other columns")

    def _damaged(self, what: str) -> ManifestDamagedError:
        return ManifestDamagedError(
            f"the manifest of the build {self.build_id} is damaged: {what}",
            next_step=f"mailboat bulk forget {self.build_id}, then build again",
            build=self.build_id,
        )


def borders_of(orders: Iterable[Order]) -> list[Order]:
    """Where the buckets of a build with bins at these places begin; what closes the build has one of its own."""
    return [*sorted(orders)[BUCKET_ROWS::BUCKET_ROWS], (len(BinKind) - 1, ROOT_KEY)]


def package_key(kind: str, roots: Sequence[str], package_digest: bytes) -> bytes:
    """What a package is recognised by, whatever was listed for it: 32 bytes of what it owns, and of its content."""
    return hashlib.sha256(json.dumps([kind, list(roots)]).encode() + package_digest).digest()


def marked_present(one: BuiltBin) -> BuiltBin:
    """The row of a bin that an earlier build published: nothing of it is published again."""
    return replace(one, payload=None, stored_bytes=0, is_present=True)


def _table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table, by buffers: `pa.array` imports pandas where it is installed, which is half of a small build."""
    return pa.table([_column([row[field.name] for row in rows], field.type) for field in schema], schema=schema)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values of the types of this module's schemas, none of them null but a payload."""
    count = len(values)
    if pa.types.is_int64(kind):
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(array("q", values))])
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, count, [None, _bits(values)])
    if pa.types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(b"".join(values))])
    if pa.types.is_struct(kind):
        children = [_column([value[field.name] for value in values], field.type) for field in kind]
        return pa.Array.from_buffers(kind, count, [None], children=children)
    if pa.types.is_list(kind):
        child = _column(list(chain.from_iterable(values)), kind.value_type)
        return pa.Array.from_buffers(kind, count, [None, _offsets(values)], children=[child])
    encoded = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    present = None if None not in values else _bits([value is not None for value in values])
    return pa.Array.from_buffers(kind, count, [present, _offsets(encoded), pa.py_buffer(b"".join(encoded))])


def _offsets(values: Iterable[Sized]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate(map(len, values), initial=0)))


def _bits(values: Sequence[bool]) -> pa.Buffer:
    number = sum(value << index for index, value in enumerate(values))
    return pa.py_buffer(number.to_bytes(len(values) // 8 + 1, "little"))


def _weight(one: BuiltBin) -> int:
    # about the bytes that a row takes in memory
    return len(one.payload or b"") + 150 * len(one.nodes) + 500


def _parquet(table: pa.Table) -> bytes:
    into = io.BytesIO()
    pq.write_table(table, into, compression="zstd", write_page_checksum=True)
    return into.getvalue()
