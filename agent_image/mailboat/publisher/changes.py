"""How the changes of a source are cut into packages: a pure plan, in the order in which they must be published.

The order is given (`published.py`): removals whose parent changes too come first, since a folder may become a file;
then what is new or different, parents before children; then the other removals, so that readers find the new pages
before the old ones go. A package takes what comes next until a budget is spent. Its filter owns exactly what changed:
single nodes alone, a subtree that is wholly new and wholly in the package as one deep root, a removed subtree as one.
Filters of one run never overlap, and the same changes give the same packages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mailboat.content.digest import node_digest
from mailboat.model.filters import FilterSet, WorkspaceFilter
from mailboat.model.identifiers import RequestId
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT, NodePath, is_within
from mailboat.model.requests import MAX_PATHS
from mailboat.packages.prefixes import prefixes_of


@dataclass(frozen=True, slots=True)
class ChangeBudget:
    """How much one package of `publish_changed` may carry; a single node beyond it travels alone.

    Attributes:
        max_nodes: Nodes put or removed. At most the request's limit of paths, as each is named in the message.
        max_content_bytes: Bytes of the nodes' values and binaries, wherever the binaries travel.
    """

    max_nodes: int = MAX_PATHS
    max_content_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the source and what was published.

    Attributes:
        path: Where.
        is_removal: It is gone from the source.
        is_alone: Nothing is said of what is below it. A removal otherwise takes the subtree; a node otherwise is new,
            and so is all below it.
        content_bytes: Bytes of its values and binaries.
        is_file: It is a file, for people.
    """

    path: NodePath
    is_removal: bool = False
    is_alone: bool = True
    content_bytes: int = 0
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """What one package will carry.

    Attributes:
        puts: Paths of the nodes to carry, as they are walked.
        removals: Changes that remove.
        roots: The roots that the package owns; those among `deep_roots` with their subtrees.
        deep_roots: See there.
        content_bytes: Bytes of values and binaries.
        files: How many of the nodes are files.
    """

    puts: tuple[NodePath, ...]
    removals: tuple[Change, ...]
    roots: tuple[NodePath, ...]
    deep_roots: frozenset[NodePath]
    content_bytes: int
    files: int

    @property
    def filter(self) -> WorkspaceFilter:
        """What the package owns, the most specific root first."""
        ordered = sorted(self.roots, key=lambda root: (root == "/", -root.count("/"), root))
        return WorkspaceFilter(tuple(FilterSet(root, is_shallow=root not in self.deep_roots) for root in ordered))


def change_digest(node: Node, namespaces: NamespaceTable | None) -> bytes:
    """Digest of a node and of what its prefixes stand for in the source: a change of either is published."""
    digest = node_digest(node)
    if not namespaces:
        return digest
    used = sorted((prefix, *namespaces[prefix]) for prefix in prefixes_of(node) if prefix in namespaces)
    if not used:
        return digest
    return hashlib.sha256(digest + "\0".join("\t".join(one) for one in used).encode()).digest()


def plan_changes(changes: Iterable[Change], budget: ChangeBudget) -> Iterator[ChangeGroup]:
    """Cut changes into groups, one for each package. Memory is bounded by the budget."""
    pending: list[Change] = []
    spent_bytes = 0
    for change in changes:
        is_full = len(pending) >= budget.max_nodes or spent_bytes + change.content_bytes > budget.max_content_bytes
        if pending and is_full:
            yield _group(pending, change)
            pending, spent_bytes = [], 0
        pending.append(change)
        spent_bytes += change.content_bytes
    if pending:
        yield _group(pending, None)


def request_id_for(source_uri: str, packages_before: int, group: ChangeGroup, digests: Sequence[bytes]) -> RequestId:
    """The request id of a group: the same after a crash, another when the source changes back and forth.

    Args:
        source_uri: The source.
        packages_before: How many packages of it were published before.
        group: What the package carries.
        digests: Of its nodes, in order, see `change_digest`.
    """
    total = hashlib.sha256(f"{source_uri}\0{packages_before}\0".encode())
    for path, digest in zip(group.puts, digests, strict=True):
        total.update(path.encode() + b"\0" + digest)
    for removal in group.removals:
        total.update(b"-" + removal.path.encode() + b"\0")
    return RequestId(f"changed-{total.hexdigest()[:40]}")


def _group(changes: Sequence[Change], following: Change | None) -> ChangeGroup:
    puts = [change for change in changes if not change.is_removal]
    removals = tuple(change for change in changes if change.is_removal)
    deep = {removal.path for removal in removals if not removal.is_alone}
    roots: list[NodePath] = []
    covered: NodePath | None = None
    for put in puts:
        if covered is not None and is_within(put.path, covered):
            continue
        covered = put.path if _is_complete(put, following) else None
        if covered is not None:
            deep.add(covered)
        roots.append(put.path)
    return ChangeGroup(
        tuple(put.path for put in puts),
        removals,
        (*roots, *(removal.path for removal in removals)),
        frozenset(deep),
        sum(change.content_bytes for change in changes),
        sum(put.is_file for put in puts),
    )


def _is_complete(put: Change, following: Change | None) -> bool:
    if put.is_alone or put.path == ROOT:
        return False
    return following is None or following.is_removal or not is_within(following.path, put.path)
