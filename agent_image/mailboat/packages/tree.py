"""The `tree` format: protobuf records, fast to write and to read; the default between our agents.

Specified in `docs/formats/tree.md`, for the choice see `docs/decisions/0005-default-package-format.md`. A small package
is parsed by one call, a large one is read record by record; both accept exactly the same packages.

Nearly all packages have one deep root, and packages of siblings carry the same nodes above it, byte by byte. So the
root is taken from its place in the bytes, and the nodes above are known by their bytes once they were checked. Any
other header is left to `wire/tree_records.py`.

A batch of packages that each bring one whole subtree is judged by a few calls for all of it and one short loop
(`read_together`). Any doubt ends that without an error: the packages are then read one by one, by the code that names
what is wrong.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import filterfalse
from typing import BinaryIO, Final, NamedTuple

from mailboat.config.document import LimitsConfig
from mailboat.content.keys import SEPARATOR
from mailboat.errors import LimitExceededError, UntrustedInputError
from mailboat.model.changes import Subtrees, TreeChange
from mailboat.model.filters import FilterSet, WorkspaceFilter
from mailboat.model.namespaces import NO_NAMESPACES, NamespaceTable
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath, parse_path, parse_paths
from mailboat.packages.codec_registry import TREE
from mailboat.packages.filevault.patterns import compile_java
from mailboat.packages.port import PackageContents, PackageSummary
from mailboat.packages.tree_order import check_order, is_in_key_order, may_collide
from mailboat.packages.tree_reader import (
    TreePackageReader,
    check_count,
    check_digest,
    check_header,
    check_lengths,
    not_covered,
    with_ancestors,
)
from mailboat.packages.tree_writer import TreePackageCounter, TreePackageWriter
from mailboat.wire.node_bodies import OpenBinary
from mailboat.wire.tree_batch import (
    OpaqueNode,
    OpaquePackage,
    ancestors_in_header,
    are_bodies_right,
    is_count_right,
    namespaces_of,
    parse_packages,
)
from mailboat.wire.tree_records import (
    Header,
    decode_ancestors,
    deep_root_of,
    digest_in_trailer,
    parse_package,
    take_header,
    take_namespaces,
    take_nodes,
)


def _subtrees_of(
    packages: Sequence[OpaquePackage],
    payloads: Sequence[bytes],
    roots: Sequence[NodePath],
    limits: LimitsConfig,
    headers: TreeHeaders,
) -> Subtrees | None:
    """The packages as subtrees with these roots, which are checked paths; None unless all are right and simple."""
    counts: list[int] = []
    nodes: list[OpaqueNode] = []
    namespaces: list[NamespaceTable] = []
    for package, root, payload in zip(packages, roots, payloads, strict=True):
        its_nodes = package.node[:]
        count = len(its_nodes)
        if not 0 < count <= limits.max_entries or len(payload) > limits.max_total_bytes:
            return None
        if not is_count_right(package, count):
            return None
        ancestors = ancestors_in_header(package.header, root)
        if ancestors is None or (ancestors and not headers.are_above(ancestors, root)):
            return None
        if package.HasField("namespace"):
            namespaces.append(namespaces_of(payload))
        counts.append(count)
        nodes += its_nodes
    paths, bodies = [node.path for node in nodes], [node.body for node in nodes]
    subtrees = Subtrees(roots, counts, parse_paths(paths), bodies, namespaces)
    _check_collisions(subtrees, limits)
    return subtrees if _are_whole(subtrees) and are_bodies_right(subtrees.paths, bodies) else None


def _are_whole(subtrees: Subtrees) -> bool:
    """Whether each begins with its root, and goes on in the order of keys with no node before its parent."""
    keys = "\n".join(subtrees.paths).replace("/", SEPARATOR).split("\n")
    end = 0
    for root, count in zip(subtrees.roots, subtrees.counts, strict=True):
        begin, end = end, end + count
        if subtrees.paths[begin] != root:
            return False
        before = keys[begin]
        seen = {before}
        for key in keys[begin + 1 : end]:
            if key <= before or key[: key.rindex(SEPARATOR)] not in seen:
                return False
            seen.add(key)
            before = key
    return True


def _check_collisions(subtrees: Subtrees, limits: LimitsConfig) -> None:
    """That no names in a folder collide. Raises: LimitExceededError."""
    if not limits.refuse_collisions or not may_collide("\n".join(subtrees.paths)):
        return
    end = 0
    for count in subtrees.counts:
        begin, end = end, end + count
        check_order(subtrees.paths[begin:end], refuse_collisions=True)


REMEMBERED: Final = 256
MAX_REMEMBERED_BYTES: Final = 4096


class Chain(NamedTuple):
    """Checked nodes, each an ancestor of the next, and the last one's path with a slash."""

    records: list[NodeRecord]
    prefix: str


class TreeHeaders:
    """Reads headers, and remembers a bounded number of nodes above roots. Any thread may use it."""

    def __init__(self) -> None:
        self._chain = lru_cache(REMEMBERED)(_chain_of)

    def are_above(self, ancestors: bytes, root: NodePath) -> bool:
        """Whether encoded nodes, that protobuf has parsed, are a chain above the root. Raises: as `read`."""
        if len(ancestors) > MAX_REMEMBERED_BYTES:
            return False
        chain = self._chain(ancestors)
        return chain is not None and root.startswith(chain.prefix) and root != chain.prefix

    def read(self, payload: bytes) -> Header | None:
        """The header of a package that was parsed, checked as a whole; None where it is not of the simple form.

        Raises: PackageCorruptError, PathRefusedError.
        """
        found = deep_root_of(payload)
        if found is None:
            return None
        root, ancestors = parse_path(found[0]), found[1]
        if not ancestors:
            return Header(WorkspaceFilter((FilterSet(root),)), [])
        if len(ancestors) > MAX_REMEMBERED_BYTES:
            return None
        chain = self._chain(ancestors)
        if chain is None or not root.startswith(chain.prefix) or root == chain.prefix:
            return None
        return Header(WorkspaceFilter((FilterSet(root),)), chain.records)


def _chain_of(encoded: bytes) -> Chain | None:
    """The nodes in this part of a header; None unless they are a chain, and whole without the blob store."""
    records = decode_ancestors(encoded)
    prefix = ""
    for path, _, binaries, _ in records or ():
        if binaries or not path.startswith(prefix) or path == prefix:
            return None
        prefix = "/" if path == "/" else f"{path}/"
    return None if records is None else Chain(records, prefix)


MAX_AT_ONCE_BYTES: Final = 4 * 1024**2
"""A larger package is read record by record: one call would hold all of it several times."""


class TreeCodec:
    """See `PackageCodec`. Any thread may use it."""

    package_type: Final = TREE

    def __init__(self, namespaces: Mapping[str, str] | None = None) -> None:
        """Build a codec; `namespaces` by prefix are those that the configuration names."""
        self._namespaces = namespaces or {}
        self._headers = TreeHeaders()

    def write(self, contents: PackageContents, into: BinaryIO) -> PackageSummary:
        """See `PackageCodec.write`; errors: see `TreePackageWriter.write`."""
        return TreePackageWriter(contents, into, self._namespaces).write()

    def check(self, contents: PackageContents) -> None:
        TreePackageCounter(contents, self._namespaces).write()

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
        expected, trailer_at = digest_in_trailer(payload, len(nodes))
        if not are_bytes_checked:
            check_digest(expected, hashlib.sha256(memoryview(payload)[:trailer_at]).digest())
        header = self._headers.read(payload)
        if header is None:
            header = take_header(package.header, compile_java, open_blob)
            check_header(header)
        package_filter, ancestors = header
        records = take_nodes(nodes, open_blob)
        paths = [record[0] for record in records]
        if not is_in_key_order(paths, refuse_collisions=limits.refuse_collisions):
            check_order(paths, refuse_collisions=limits.refuse_collisions)
        for path in filterfalse(package_filter.covers, paths):
            raise not_covered(path)
        if ancestors:
            is_above_all = package_filter.is_simple  # no rule leaves out a node below a root
            records = ancestors + records if is_above_all else list(with_ancestors(header, records))
        _check_total(len(payload), records, limits)
        namespaces = take_namespaces(package) if len(package.namespace) else NO_NAMESPACES
        return TreeChange(package_filter, records, namespaces)

    def read_together(
        self, payloads: Sequence[bytes], roots: Sequence[NodePath], limits: LimitsConfig
    ) -> Subtrees | None:
        packages = parse_packages(payloads)
        try:
            return None if packages is None else _subtrees_of(packages, payloads, roots, limits, self._headers)
        except UntrustedInputError:
            # not raised: one by one, the packages are read by the code that names what is wrong
            return None

    def open(
        self,
        stream: BinaryIO,
        limits: LimitsConfig,
        open_blob: OpenBinary | None,
        *,
        are_bytes_checked: bool = False,
    ) -> TreePackageReader:
        return TreePackageReader(stream, limits, open_blob, are_bytes_checked=are_bytes_checked)


def _check_total(payload_bytes: int, records: list[NodeRecord], limits: LimitsConfig) -> None:
    total = payload_bytes
    for record in records:
        if record[2]:
            total += check_lengths(record, limits, but={})
    if total > limits.max_total_bytes:
        raise LimitExceededError(
            f"a tree package holds {total} bytes, more than limits.max_total_bytes", limit=limits.max_total_bytes
        )
