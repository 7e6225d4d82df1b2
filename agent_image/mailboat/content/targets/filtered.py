"""Changes whose filters have rules or modes: node by node, compared with the target's nodes.

The exact and slow alternative to `TreeTable.apply_simple`. A covered node that the package does not carry is removed by
REPLACE, the deepest first; it stays where something below it is not covered, as that is never changed and needs it.
"""

from __future__ import annotations

from collections.abc import Iterator

from mailboat.content.keys import Key, key_of, path_of
from mailboat.content.merge_rules import merge_node
from mailboat.content.targets.tree_table import TreeTable
from mailboat.model.changes import ChangeCount, TreeChange
from mailboat.model.filters import FilterSet, ImportMode, WorkspaceFilter
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath
from mailboat.wire.nodes import decode_node, encode_node


def apply_filtered(table: TreeTable, change: TreeChange, stamp: int) -> ChangeCount:
    """Put and remove what a change says, whatever its filter is."""
    put = size = 0
    new_files: list[NodePath] = []
    for record in change.records:
        rules = change.filter.set_for(record.path)
        if rules is None or not rules.covers(record.path):
            put += table.make_ancestor(record, stamp, change.filter.covers)
            continue
        merged = _merged(table, record, rules)
        if rules.is_shallow and table.is_new_file(merged, (key_of(record.path),)):
            new_files.append(record.path)
        table.put([merged], stamp, change.filter.covers)
        put += 1
        size += len(merged.body) + sum(binary.length_bytes for binary in record.binaries)
    removed = _remove_uncarried(table, change.filter, stamp)
    removed += sum(table.delete_below(path, stamp) for path in new_files)
    return ChangeCount(put, removed, size)


def _merged(table: TreeTable, record: NodeRecord, rules: FilterSet) -> NodeRecord:
    if rules.mode is ImportMode.REPLACE and not rules.property_rules:
        return record
    by_digest = {binary.digest: binary for binary in record.binaries}
    incoming = decode_node(record.path, record.body, lambda digest: by_digest[digest].open())
    return encode_node(merge_node(table.node(key_of(record.path)), incoming, rules))


def _remove_uncarried(table: TreeTable, workspace_filter: WorkspaceFilter, stamp: int) -> int:
    removed = 0
    for rules in workspace_filter.sets:
        if rules.mode is not ImportMode.REPLACE:
            continue
        for key in _candidates(table, rules, stamp):
            path = path_of(key)
            if workspace_filter.set_for(path) is rules and rules.covers(path):
                removed += table.delete_alone(key)
    return removed


def _candidates(table: TreeTable, rules: FilterSet, stamp: int) -> Iterator[Key]:
    root = key_of(rules.root)
    if not rules.is_shallow:
        return table.uncarried(root, stamp)
    return iter([root] if table.is_uncarried(root, stamp) else [])
