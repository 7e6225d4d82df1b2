"""The effect of packages on a tree, in the simplest form: the model that every target is compared with.

A dictionary of nodes, no speed, no disk. `changes` draws sequences of packages over few names, so that they meet.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from hypothesis import strategies as st

from mailboat.content.merge_rules import DocumentMerge, merge_node, recreates_files
from mailboat.content.port import Target
from mailboat.model.changes import TreeChange
from mailboat.model.filters import FilterRule, FilterSet, ImportMode, WorkspaceFilter, filter_for
from mailboat.model.nodes import Node, folder_node
from mailboat.model.paths import NodePath, ancestors_of, child_of, is_within
from mailboat.model.positions import Position
from mailboat.testing.trees import TreeShape, in_walk_order, nodes, records, small_binaries
from mailboat.wire.node_bodies import encode_node

NAMES = ("a", "b", ".node.json", "é")


class ModelTree:
    """The nodes by path."""

    def __init__(self, nodes: Mapping[NodePath, Node] = MappingProxyType({})) -> None:
        """Start with these nodes."""
        self.nodes = dict(nodes)

    def copy(self) -> ModelTree:
        """The same nodes, to be changed apart."""
        return ModelTree(self.nodes)

    def walk(self) -> list[Node]:
        """All nodes in walk order."""
        return in_walk_order(self.nodes.values())

    def apply(self, carried: Sequence[Node], workspace_filter: WorkspaceFilter) -> None:
        """Put and remove what a package with these nodes and this filter says."""
        before = set(self.nodes)
        emptied = []
        documents, left = DocumentMerge(workspace_filter, self.nodes.__contains__), set()
        for node in carried:
            if documents.leaves_alone(encode_node(node)):
                left.add(node.path)
            elif workspace_filter.covers(node.path):
                present = self.nodes.get(node.path)
                merged = merge_node(present, node, workspace_filter)
                was_file = present is not None and present.is_plain_file
                if (
                    recreates_files(node.path, workspace_filter)
                    and node.path != "/"
                    and merged.is_plain_file
                    and not was_file
                ):
                    emptied.append(node.path)
                if workspace_filter.imports_list(node.path):
                    emptied.append(node.path)
                self._put(merged)
            elif node.path != "/" and node.path not in self.nodes:
                self._put(node)
        paths = {node.path for node in carried}
        self._drop({path for path in before - paths if workspace_filter.replaces(path) and not documents.keeps(path)})
        kept = {path for path in paths - left if workspace_filter.covers(path)} | (self.nodes.keys() - before)
        for above in emptied:
            self._drop({path for path in self.nodes if is_within(path, above) and path != above} - kept)

    def _drop(self, gone: Collection[NodePath]) -> None:
        """Remove nodes, but for those that have others below them."""
        for path in sorted(gone, key=lambda path: -path.count("/")):
            if path == "/" or not any(is_within(other, path) and other != path for other in self.nodes):
                del self.nodes[path]

    def remove(self, paths: Iterable[NodePath]) -> None:
        """Remove subtrees."""
        for root in paths:
            self.nodes = {path: node for path, node in self.nodes.items() if not is_within(path, root)}

    def _put(self, node: Node) -> None:
        self.nodes[node.path] = node
        for above in ancestors_of(node.path):
            self.nodes.setdefault(above, folder_node(above))


def paths() -> st.SearchStrategy[NodePath]:
    """Paths over few names, up to three deep; sometimes the root."""
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)
    return st.one_of(names.map(lambda parts: NodePath("/" + "/".join(parts))), names.map(_root_or_first))


def _root_or_first(parts: list[str]) -> NodePath:
    return NodePath("/") if len(parts) == 1 else child_of(NodePath("/"), parts[0])


@st.composite
def filters(draw: st.DrawFn) -> WorkspaceFilter:
    """Filters of requests mostly, sometimes with rules, property rules or modes."""
    is_ruled = not draw(st.integers(0, 2))
    roots = draw(st.lists(paths(), min_size=1, max_size=3, unique=not is_ruled))
    if not is_ruled:
        deep = draw(st.lists(st.sampled_from(roots), unique=True))
        return filter_for(roots, deep)
    return WorkspaceFilter(tuple(draw(_sets(root)) for root in roots))


def _sets(root: NodePath) -> st.SearchStrategy[FilterSet]:
    rule = st.builds(FilterRule, st.booleans(), st.sampled_from(["/a(/.*)?", ".*/b", ".*b/.*", "/.*"]).map(re.compile))
    property_rule = st.builds(FilterRule, st.booleans(), st.just(re.compile(".*/[a-m][^/]*")))
    return st.builds(
        FilterSet,
        st.just(root),
        is_shallow=st.booleans(),
        rules=st.lists(rule, max_size=2).map(tuple),
        property_rules=st.lists(property_rule, max_size=1).map(tuple),
        mode=st.sampled_from(ImportMode),
    )


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[Node], WorkspaceFilter]:
    """Nodes in walk order and the filter that they come with."""
    shape = TreeShape(binaries=small_binaries(20))
    drawn = [draw(nodes(path, shape)) for path in draw(st.lists(paths(), max_size=5, unique=True))]
    owned = draw(filters())
    if owned.keeps_documents:
        drawn = [replace(node, is_inner=draw(st.booleans())) for node in drawn]
    return in_walk_order(drawn), owned


def as_change(carried: Sequence[Node], workspace_filter: WorkspaceFilter, *, is_stream: bool = False) -> TreeChange:
    """What a codec would give to a target: a list from a small package, a stream from a large one."""
    encoded = records(carried)
    return TreeChange(workspace_filter, iter(encoded) if is_stream else encoded)


Step = tuple[list[Node], WorkspaceFilter] | list[NodePath] | None
"""A package, or paths to remove; None gives the batch up."""

STEPS = st.one_of(changes(), changes(), st.lists(paths(), min_size=1, max_size=2))


def import_batch(target: Target, model: ModelTree, next_position: Position, steps: Sequence[Step]) -> ModelTree:
    """Do to a target in one batch what is done to the model; the model of what is committed then."""
    tried, offset = model.copy(), next_position.next_offset
    with target.batch() as batch:
        for step in steps:
            if step is None:
                return model
            if isinstance(step, tuple):
                batch.apply(as_change(*step, is_stream=offset % 2 == 1), offset)
                tried.apply(*step)
            else:
                batch.remove(step, offset)
                tried.remove(step)
        batch.commit(next_position)
    return tried
