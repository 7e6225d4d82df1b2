"""Reading several small `tree` packages at once: the same rules as one by one, asked of all of them together.

A batch of packages that each bring one whole subtree is judged by a few calls for all of it and one short loop. Any
doubt, and anything out of the ordinary, ends it without a word: the packages are then read one by one by `TreeCodec`,
which accepts the same packages and names what is wrong. Used by `TreeCodec.read_together`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mailboat.config.document import LimitsConfig
from mailboat.content.keys import SEPARATOR
from mailboat.errors import UntrustedInputError
from mailboat.model.changes import Subtrees
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.paths import NodePath, parse_paths
from mailboat.packages.tree_order import check_order
from mailboat.wire.tree_batch import (
    OpaqueNode,
    OpaquePackage,
    ancestors_in_header,
    are_bodies_right,
    is_count_right,
    namespaces_of,
    parse_packages,
)

AreAbove = Callable[[bytes, NodePath], bool]
"""Whether encoded nodes of a header are right and lie above a root."""


def read_subtrees(
    payloads: Sequence[bytes], roots: Sequence[NodePath], limits: LimitsConfig, are_above: AreAbove
) -> Subtrees | None:
    """The packages as subtrees with these roots, which are checked paths; None unless all are right and simple."""
    packages = parse_packages(payloads)
    try:
        return None if packages is None else _subtrees_of(packages, payloads, roots, limits, are_above)
    except UntrustedInputError:
        return None


def _subtrees_of(
    packages: Sequence[OpaquePackage],
    payloads: Sequence[bytes],
    roots: Sequence[NodePath],
    limits: LimitsConfig,
    are_above: AreAbove,
) -> Subtrees | None:
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
        if ancestors is None or (ancestors and not are_above(ancestors, root)):
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
    """That no names in a folder collide; names that are all of lower-case ASCII can't. Raises: LimitExceededError."""
    lines = "\n".join(subtrees.paths)
    if not limits.refuse_collisions or (lines.isascii() and lines == lines.lower()):
        return
    end = 0
    for count in subtrees.counts:
        begin, end = end, end + count
        check_order(subtrees.paths[begin:end], refuse_collisions=True)
