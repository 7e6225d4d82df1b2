"""Merges a node of a package with the existing one, by import modes and property rules. Pure decisions.

REPLACE puts what the package says; properties that the property rules do not cover stay as they are. MERGE_PROPERTIES
adds what is missing and changes nothing; UPDATE_PROPERTIES adds and overwrites, and removes nothing. Both keep the type
of an existing node; a plain file is one thing: MERGE_PROPERTIES leaves it alone, UPDATE_PROPERTIES replaces
another type. MERGE leaves the documents alone whose root exists, and is MERGE_PROPERTIES for all others. So do
the importers of Apache Jackrabbit FileVault 4.2: `FileArtifactHandler`, `GenericArtifactHandler`, `DocViewImporter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mailboat.model.filters import ImportMode, WorkspaceFilter
from mailboat.model.nodes import FILE_TYPE, Node, NodeRecord, Property
from mailboat.model.paths import NodePath, is_within, paths_above


def merge_node(present: Node | None, incoming: Node, owned: WorkspaceFilter) -> Node:
    """The node that results from importing `incoming`, which `owned` covers, where `present` is."""
    covered = tuple(prop for prop in incoming.properties if owned.covers_property(incoming.path, prop.name))
    if present is None:
        return _with(incoming, covered, incoming.mixin_types)
    mode = owned.mode_of(incoming.path)
    if mode is ImportMode.REPLACE:
        kept = [prop for prop in present.properties if not owned.covers_property(incoming.path, prop.name)]
        return _with(incoming, _overlay(kept, covered), incoming.mixin_types)
    mixins = {*present.mixin_types, *incoming.mixin_types}
    if mode is ImportMode.UPDATE_PROPERTIES:
        if incoming.is_plain_file and present.primary_type != FILE_TYPE:
            return incoming
        return _with(present, _overlay(present.properties, covered), mixins, _order(present, incoming))
    if incoming.is_plain_file:
        return present
    return _with(present, _overlay(covered, present.properties), mixins, _order(present, incoming))


def recreates_files(path: NodePath, owned: WorkspaceFilter) -> bool:
    """Whether a plain file replaces another node with all below it, also what `owned` does not cover."""
    return owned.covers_alone(path) or owned.mode_of(path) is ImportMode.UPDATE_PROPERTIES


class DocumentMerge:
    """Which nodes of one package mode MERGE leaves alone.

    FileVault decides for a document: if its root exists, the whole document is left out, also nodes in it that are
    missing. What lies below in documents, files and folders of its own is decided separately.
    """

    def __init__(self, owned: WorkspaceFilter, exists: Callable[[NodePath], bool]) -> None:
        """`exists` says whether the target has a node, asked before anything of its document is put."""
        self._owned = owned
        self._exists = exists
        self._documents: list[tuple[NodePath, bool]] = []
        self._replaced: set[NodePath] = set()

    def leaves_alone(self, record: NodeRecord) -> bool:
        """Whether a record is left out. To be asked for each one, in order."""
        path = record.path
        while self._documents and not is_within(path, self._documents[-1][0]):
            self._documents.pop()
        if record.is_inner and self._documents:
            is_left = self._documents[-1][1]
        else:
            is_left = self._owned.mode_of(path) is ImportMode.MERGE and self._exists(path)
            self._documents.append((path, is_left))
        if is_left and self._owned.replaces(path):
            self._replaced.add(path)
        return is_left

    def keeps(self, path: NodePath) -> bool:
        """Whether a node stays that the package replaces: its document, or that of a node above, was left out."""
        return bool(self._replaced) and not self._replaced.isdisjoint((path, *paths_above(path)))


def _overlay(under: Iterable[Property], over: Iterable[Property]) -> list[Property]:
    found = {prop.name: prop for prop in under}
    found.update((prop.name, prop) for prop in over)
    return list(found.values())


def _order(present: Node, incoming: Node) -> tuple[str, ...] | None:
    """FileVault moves what a package names behind the other children, in the package's order: `NodeNameList`."""
    before, after = present.child_order, incoming.child_order
    if before is None or after is None:
        return after if before is None else before
    if len(after) < 2:
        return before + tuple(name for name in after if name not in before)
    moved = frozenset(after)
    return tuple(name for name in before if name not in moved) + after


def _with(
    node: Node, properties: Iterable[Property], mixins: Iterable[str], order: tuple[str, ...] | None = None
) -> Node:
    held = tuple(sorted(properties, key=lambda one: one.name))
    return Node(node.path, node.primary_type, tuple(sorted(mixins)), held, node.child_order if order is None else order)
