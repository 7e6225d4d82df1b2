"""The difference of two trees, as a stream: what one has and the other has not, or has otherwise.

Both sides are compared by the digests of their nodes in key order, one step at a time, so memory holds neither tree;
only nodes that differ are read, to find what differs in them. A source that can't give its digests in that order is
listed into a temporary SQLite file first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from mailboat.content.keys import key_of, path_of
from mailboat.content.port import DigestedSource, Source
from mailboat.content.watched_sources import namespaces_of
from mailboat.model.namespaces import NO_NAMESPACES
from mailboat.model.nodes import Node, Property
from mailboat.model.paths import ROOT, NodePath
from mailboat.wire.node_bodies import node_digest

ChangeKind = Literal["added", "removed", "changed", "namespaces"]

_END: Final = ("\U0010ffff", b"")
"""Sorts after every key."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One node that differs.

    Attributes:
        path: Where it is.
        kind: From the left side's point of view: `added` is on the right only, `removed` on the left only. Of the root,
            `namespaces` says that prefixes stand for others.
        details: Of a changed node what changed: `type`, `mixins`, `order`, or names of properties; or the prefixes.
    """

    path: NodePath
    kind: ChangeKind
    details: tuple[str, ...] = ()


def differences(left: Source, right: Source, path: NodePath = ROOT) -> Iterator[Difference]:
    """The changes that make `left` into `right` below `path`, in key order. Raises: as the sources.

    Last come the prefixes that both sides know, and that stand for different namespaces.
    """
    ours, theirs = keyed_digests(left, path), keyed_digests(right, path)
    mine, other = next(ours, _END), next(theirs, _END)
    while mine is not _END or other is not _END:
        if mine[0] < other[0]:
            yield Difference(path_of(mine[0]), "removed")
            mine = next(ours, _END)
        elif other[0] < mine[0]:
            yield Difference(path_of(other[0]), "added")
            other = next(theirs, _END)
        else:
            if mine[1] != other[1]:
                where = path_of(mine[0])
                yield Difference(where, "changed", changed_parts(left.node(where), right.node(where)))
            mine, other = next(ours, _END), next(theirs, _END)
    mine_by_prefix, other_by_prefix = namespaces_of(left) or NO_NAMESPACES, namespaces_of(right) or NO_NAMESPACES
    common = sorted(mine_by_prefix.keys() & other_by_prefix.keys())
    named = tuple(prefix for prefix in common if mine_by_prefix[prefix] != other_by_prefix[prefix])
    if named:
        yield Difference(ROOT, "namespaces", named)


def changed_parts(left: Node | None, right: Node | None) -> tuple[str, ...]:
    """What differs between two forms of a node, apart from its children."""
    if left is None or right is None:
        return ()
    mine, other = _properties(left), _properties(right)
    parts = [
        ("type", left.primary_type != right.primary_type),
        ("mixins", left.mixin_types != right.mixin_types),
        ("order", left.child_order != right.child_order),
        *((name, mine.get(name) != other.get(name)) for name in sorted({*mine, *other})),
    ]
    return tuple(name for name, is_changed in parts if is_changed)


def keyed_digests(source: Source, path: NodePath) -> Iterator[tuple[str, bytes]]:
    """Key and digest of every node of a subtree, in key order. Raises: as the source."""
    if isinstance(source, DigestedSource):
        for where, digest in source.digests(path):
            yield key_of(where), digest
        return
    listing = sqlite3.connect("")  # a temporary file that SQLite removes
    try:
        listing.execute("CREATE TABLE listing (key TEXT PRIMARY KEY, digest BLOB) WITHOUT ROWID")
        rows = ((key_of(node.path), node_digest(node)) for node in source.walk(path))
        listing.executemany("INSERT OR REPLACE INTO listing VALUES (?, ?)", rows)
        yield from listing.execute("SELECT key, digest FROM listing ORDER BY key")
    finally:
        listing.close()


def _properties(node: Node) -> dict[str, Property]:
    return {prop.name: prop for prop in node.properties}
