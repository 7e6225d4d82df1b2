"""The `tree` format: protobuf records, fast to write and to read; the default between our agents.

Specified in `docs/formats/tree.md`, for the choice see `docs/decisions/0005-default-package-format.md`. A small package
is parsed by one call, a large one is read record by record; both accept exactly the same packages.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

from mailboat.config.document import LimitsConfig
from mailboat.errors import LimitExceededError
from mailboat.model.changes import Subtrees, TreeChange
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.namespaces import NO_NAMESPACES
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath
from mailboat.packages.codec_registry import TREE
from mailboat.packages.filevault.patterns import compile_java
from mailboat.packages.port import PackageContents, PackageSummary
from mailboat.packages.tree_batch import read_subtrees
from mailboat.packages.tree_headers import TreeHeaders
from mailboat.packages.tree_order import check_order, is_in_key_order
from mailboat.packages.tree_reader import (
    TreePackageReader,
    check_count,
    check_digest,
    check_header,
    check_lengths,
    not_covered,
)
from mailboat.wire.nodes import OpenBinary
from mailboat.wire.tree import (
    Header,
    TreePackage,
    digest_in_trailer,
    parse_package,
    take_header,
    take_namespaces,
    take_nodes,
)

if TYPE_CHECKING:
    from mailboat.packages.tree_writer import TreePackageWriter

MAX_AT_ONCE_BYTES: Final = 4 * 1024**2
"""A larger package is read record by record: one call would hold all of it several times."""


class TreeCodec:
    """See `PackageCodec`. Any thread may use it."""

    def __init__(self, namespaces: Mapping[str, str] | None = None) -> None:
        """Build a codec; `namespaces` by prefix are those that the configuration names."""
        self._namespaces = namespaces or {}
        self._headers = TreeHeaders()

    @property
    def package_type(self) -> str:
        """`tree`."""
        return TREE

    def write(self, contents: PackageContents, into: BinaryIO) -> PackageSummary:
        """See `PackageCodec.write`; errors: see `TreePackageWriter.write`."""
        return _writer(contents, into, self._namespaces).write()

    def check(self, contents: PackageContents) -> None:
        _writer(contents, None, self._namespaces).write()

    def read_bytes(
        self,
        payload: bytes,
        limits: LimitsConfig,
        open_blob: OpenBinary | None,
        *,
        are_bytes_checked: bool = False,
    ) -> TreeChange:
        package = parse_package(payload) if len(payload) <= MAX_AT_ONCE_BYTES else None
        if package is None:
            reader = self.open(io.BytesIO(payload), limits, open_blob, are_bytes_checked=are_bytes_checked)
            change = reader.change()
            return change._replace(records=list(change.records))
        nodes = package.node
        check_count(len(nodes), limits)
        said, trailer_at = digest_in_trailer(payload, len(nodes))
        if not are_bytes_checked:
            check_digest(said, hashlib.sha256(memoryview(payload)[:trailer_at]).digest())
        package_filter, ancestors = self._headers.read(payload) or _whole_header(package, open_blob)
        records = take_nodes(nodes, open_blob)
        _check_paths(package_filter, [record[0] for record in records], limits)
        if ancestors:
            records = ancestors + records
        _check_total(len(payload), records, limits)
        namespaces = take_namespaces(package) if len(package.namespace) else NO_NAMESPACES
        return TreeChange(package_filter, records, namespaces)

    def read_together(
        self, payloads: Sequence[bytes], roots: Sequence[NodePath], limits: LimitsConfig
    ) -> Subtrees | None:
        return read_subtrees(payloads, roots, limits, self._headers.are_above)

    def open(
        self,
        stream: BinaryIO,
        limits: LimitsConfig,
        open_blob: OpenBinary | None,
        *,
        are_bytes_checked: bool = False,
    ) -> TreePackageReader:
        return TreePackageReader(stream, limits, open_blob, are_bytes_checked=are_bytes_checked)


def _whole_header(package: TreePackage, open_blob: OpenBinary | None) -> Header:
    header = take_header(package.header, compile_java, open_blob)
    check_header(header)
    return header


def _check_paths(package_filter: WorkspaceFilter, paths: list[NodePath], limits: LimitsConfig) -> None:
    if not is_in_key_order(paths, refuse_collisions=limits.refuse_collisions):
        check_order(paths, refuse_collisions=limits.refuse_collisions)
    uncovered = package_filter.first_uncovered(paths)
    if uncovered is not None:
        raise not_covered(uncovered)


def _check_total(payload_bytes: int, records: list[NodeRecord], limits: LimitsConfig) -> None:
    total = payload_bytes
    for record in records:
        if record[2]:
            total += check_lengths(record, limits, but={})
    if total > limits.max_total_bytes:
        raise LimitExceededError(
            f"a tree package holds {total} bytes, more than limits.max_total_bytes", limit=limits.max_total_bytes
        )


def _writer(contents: PackageContents, into: BinaryIO | None, namespaces: Mapping[str, str]) -> TreePackageWriter:
    """What writes a package; without `into`, what only counts."""
    from mailboat.packages.tree_writer import (  # noqa: PLC0415  # a subscriber writes none
        TreePackageCounter,
        TreePackageWriter,
    )

    if into is None:
        return TreePackageCounter(contents, namespaces)
    return TreePackageWriter(contents, into, namespaces)
