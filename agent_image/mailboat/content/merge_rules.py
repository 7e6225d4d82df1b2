"""How a node of a package meets the one that is there: import modes and property rules, as a pure decision.

REPLACE puts what the package says; properties that the property rules do not cover stay as they are. MERGE_PROPERTIES
adds what is missing and changes nothing; UPDATE_PROPERTIES adds and overwrites, and removes nothing (importmode.md of
Apache Jackrabbit FileVault; where FileVault's own importers disagree with it, the document counts).
"""

from __future__ import annotations

from collections.abc import Iterable

from mailboat.model.filters import ImportMode, WorkspaceFilter
from mailboat.model.nodes import Node, Property


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
    if mode is ImportMode.MERGE_PROPERTIES:
        return _with(present, _overlay(covered, present.properties), mixins, _order(present, incoming))
    return _with(incoming, _overlay(present.properties, covered), mixins, _order(incoming, present))


def _overlay(under: Iterable[Property], over: Iterable[Property]) -> list[Property]:
    found = {one.name: one for one in under}
    found.update((one.name, one) for one in over)
    return list(found.values())


def _order(first: Node, second: Node) -> tuple[str, ...] | None:
    return second.child_order if first.child_order is None else first.child_order


def _with(
    node: Node, properties: Iterable[Property], mixins: Iterable[str], order: tuple[str, ...] | None = None
) -> Node:
    held = tuple(sorted(properties, key=lambda one: one.name))
    return Node(node.path, node.primary_type, tuple(sorted(mixins)), held, node.child_order if order is None else order)
