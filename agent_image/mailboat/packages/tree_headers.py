"""The header of a small `tree` package, read without parsing it again: one deep root, and the nodes above it.

Nearly all packages have one deep root, and packages of siblings carry the same nodes above it, byte by byte. So the
root is taken from its place in the bytes, and the nodes above are known by their bytes once they were checked. Any
other header is left to `wire/tree.py`. Used by `TreeCodec` with packages that `parse_package` accepted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from mailboat.model.filters import FilterSet, WorkspaceFilter
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath, parse_path
from mailboat.wire.tree import Header, decode_ancestors, deep_root_of

REMEMBERED: Final = 256
MAX_REMEMBERED_BYTES: Final = 4096


class Chain(NamedTuple):
    """Checked nodes, each an ancestor of the next, and the last one's path with a slash."""

    records: list[NodeRecord]
    prefix: str


class TreeHeaders:
    """Reads headers, and remembers a bounded number of nodes above roots. Any thread may use it."""

    def __init__(self) -> None:
        """Nothing is remembered yet."""
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
    for path, _, binaries in records:
        if binaries or not path.startswith(prefix) or path == prefix:
            return None
        prefix = "/" if path == "/" else f"{path}/"
    return Chain(records, prefix)
