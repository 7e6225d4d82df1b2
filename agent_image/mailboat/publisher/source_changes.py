"""Publishing what changed in a source: compare, cut into packages, and append each with the memory of it.

How changes are cut is a pure plan (`plan_changes`), in the order in which they must be published. The order is given
(`published.py`): removals whose parent changes too come first, since a folder may become a file; then what is new or
different, parents before children; then the other removals, so that readers find the new pages before the old ones go.
A package takes what comes next until a limit is reached. Its filter owns exactly what changed: single nodes alone, a
subtree that is wholly new and wholly in the package as one deep root, a removed subtree as one. Filters of one run
never overlap, and the same changes give the same packages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from mailboat.content.binaries import content_bytes_of
from mailboat.content.keys import key_of
from mailboat.content.port import Source
from mailboat.content.watched_sources import unwatched
from mailboat.errors import SourceChangedError, SourceMissingError
from mailboat.model.filters import FilterSet, WorkspaceFilter, policy_of
from mailboat.model.identifiers import RequestId
from mailboat.model.messages import Action
from mailboat.model.nodes import FILE_TYPE, Node
from mailboat.model.paths import ROOT, NodePath, is_within
from mailboat.model.requests import MAX_PATHS_BYTES, DistributionRequest
from mailboat.packages.codec_registry import FILEVAULT
from mailboat.publisher.appender import Appender, Receipt, receipt_of
from mailboat.publisher.builder import PackageBuilder, shipment_from
from mailboat.publisher.published import NO_NODE, ChangeDigests, SourceChange, SourceNode, StagedNode
from mailboat.publisher.publisher_settings import PublisherPorts, PublisherSettings


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
        replaced: Those of the roots whose subtrees are carried whole in the place of what was published.
    """

    puts: tuple[NodePath, ...]
    removals: tuple[SourceChange, ...]
    roots: tuple[NodePath, ...]
    deep_roots: frozenset[NodePath]
    content_bytes: int
    files: int
    replaced: tuple[NodePath, ...] = ()

    @property
    def filter(self) -> WorkspaceFilter:
        """What the package owns, the most specific root first."""
        ordered = sorted(self.roots, key=lambda root: (root == "/", -root.count("/"), root))
        return WorkspaceFilter(tuple(FilterSet(root, is_shallow=root not in self.deep_roots) for root in ordered))


def plan_changes(changes: Iterable[SourceChange], max_nodes: int, max_content_bytes: int) -> Iterator[ChangeGroup]:
    """Cut changes into groups, one per package; a node beyond the limits is one. Bounds memory."""
    pending: list[SourceChange] = []
    spent_bytes = path_bytes = 0
    for change in changes:
        length = len(change.path.encode())
        is_full = (
            len(pending) >= max_nodes
            or spent_bytes + change.content_bytes > max_content_bytes
            or path_bytes + length > MAX_PATHS_BYTES
        )
        if pending and is_full:
            yield _group(pending, change)
            pending, spent_bytes, path_bytes = [], 0, 0
        pending.append(change)
        spent_bytes += change.content_bytes
        path_bytes += length
    if pending:
        yield _group(pending, None)


def request_id_for(source_uri: str, packages_before: int, group: ChangeGroup, digests: Sequence[bytes]) -> RequestId:
    """The request id of a group: the same after a crash, another when the source changes back and forth.

    `packages_before` counts packages of the source; `digests` are of the group's nodes, in order: see `ChangeDigests`.
    """
    total = hashlib.sha256(f"{source_uri}\0{packages_before}\0".encode())
    for path, digest in zip(group.puts, digests, strict=True):
        total.update(path.encode() + b"\0" + digest)
    for removal in group.removals:
        total.update(b"-" + removal.path.encode() + b"\0")
    return RequestId(f"changed-{total.hexdigest()[:40]}")


def _group(changes: Sequence[SourceChange], following: SourceChange | None) -> ChangeGroup:
    puts = [change for change in changes if not change.is_removal]
    replaced = tuple(put.path for put in puts if put.is_whole)
    if replaced:
        puts.sort(key=lambda put: key_of(put.path))
    removals = tuple(change for change in changes if change.is_removal)
    deep = {removal.path for removal in removals if not removal.is_alone}
    roots: list[NodePath] = []
    covered: NodePath | None = None
    for put in puts:
        if covered is not None and is_within(put.path, covered):
            continue
        covered = put.path if put.is_whole or _is_complete(put, following) else None
        if covered is not None:
            deep.add(covered)
        roots.append(put.path)
    return ChangeGroup(
        tuple(path for put in puts for path in (put.path, *put.below)),
        removals,
        (*roots, *(removal.path for removal in removals)),
        frozenset(deep),
        sum(change.content_bytes for change in changes),
        sum(put.is_file for put in puts),
        replaced,
    )


def with_whole_policies(changes: Iterable[SourceChange], source: Source) -> Iterator[SourceChange]:
    """Changes in which an access control list travels whole.

    FileVault replaces a list by the entries that the package carries, so an entry alone would drop the others.
    """
    carried = set[NodePath]()
    for change in changes:
        policy = policy_of(change.path)
        if policy is None or (change.is_removal and change.path == policy):
            yield change
        elif policy not in carried:
            nodes = list(source.walk(policy)) if source.node(policy) is not None else []
            if nodes:
                carried.add(policy)
                size = sum(map(content_bytes_of, nodes))
                below = tuple(node.path for node in nodes[1:])
                yield SourceChange(policy, is_alone=False, content_bytes=size, is_whole=True, below=below)
            else:
                yield change


def _is_empty(source: Source) -> bool:
    return next(iter(unwatched(source).walk(ROOT)), None) is None


def _is_complete(put: SourceChange, following: SourceChange | None) -> bool:
    if put.is_alone or put.path == ROOT:
        return False
    return following is None or following.is_removal or not is_within(following.path, put.path)


_LONGEST_REQUEST_ID: Final = RequestId(f"changed-{'0' * 40}")


class ChangeShipper:
    """Ships the changes of sources for one publisher."""

    def __init__(
        self, settings: PublisherSettings, ports: PublisherPorts, builder: PackageBuilder, appender: Appender
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._builder = builder
        self._appender = appender
        self._published = ports.state.published

    def ship(
        self,
        source: Source,
        roots: Sequence[NodePath],
        user_id: str | None,
        on_compared: Callable[[int], None] | None = None,
    ) -> Iterator[Receipt]:
        """Publish the differences, package by package; see `Publisher.publish_changed`."""
        state = self._ports.state
        # One process at a time: two would compare at once and publish the same differences.
        with state.locks.exclusive("changes"), state.locks.publication_under_way():
            source_id = self._published.follow(source.uri, self._appender.identity())
            for group in self.groups(source, roots, on_compared):
                yield self._ship_group(source, source_id, group, user_id)

    def groups(
        self, source: Source, roots: Sequence[NodePath], on_compared: Callable[[int], None] | None = None
    ) -> Iterator[ChangeGroup]:
        """What would be shipped. Changes nothing but temporary tables."""
        source_id = self._published.source_id(source.uri, self._appender.identity())
        # A node below two roots would be read twice.
        outermost = [root for root in roots if not any(is_within(root, other) and root != other for other in roots)]
        digests = ChangeDigests(source)
        nodes = (
            SourceNode(node.path, digests.of(node), content_bytes_of(node), node.primary_type == FILE_TYPE)
            for root in dict.fromkeys(outermost)
            for node in source.walk(root)
        )
        first = list(islice(nodes, 1))
        content_bytes = self._published.compare(source_id, outermost, chain(first, nodes))
        if not first and next(self._published.changes(), None) is not None and _is_empty(source):
            # The mount point of a volume that is not mounted is an empty folder: all would be removed everywhere.
            raise SourceMissingError(
                f"{source.uri} is empty, and content of it was published",
                next_step="mount its volume, or remove what was published: mailboat delete PATH …",
            )
        if on_compared is not None:
            on_compared(content_bytes)
        changes = self._published.changes()
        if self._settings.config.package_type_name == FILEVAULT:
            changes = with_whole_policies(changes, source)
        yield from plan_changes(changes, self._settings.max_change_nodes, self._settings.config.changed_package_bytes)

    def checked_groups(self, source: Source, roots: Sequence[NodePath]) -> Iterator[ChangeGroup]:
        """The same; nodes that the format of the packages can't hold are refused, as shipping them would be."""
        for group in self.groups(source, roots):
            request = DistributionRequest(Action.ADD, group.roots, group.deep_roots, _LONGEST_REQUEST_ID)
            nodes = (self._node(source, path) for path in group.puts)
            self._builder.check(request, shipment_from(source, group.filter, nodes))
            yield group

    def _ship_group(self, source: Source, source_id: int, group: ChangeGroup, user_id: str | None) -> Receipt:
        nodes = [self._node(source, path) for path in group.puts]
        digests = list(map(ChangeDigests(source).of, nodes))
        request_id = request_id_for(source.uri, self._published.packages(source_id), group, digests)
        request = DistributionRequest(Action.ADD, group.roots, group.deep_roots, request_id, user_id)
        package_id = self._builder.new_package_id()
        with self._published.stager(package_id, (source_id,)) as staged:
            for removal in group.removals:
                staged.add(StagedNode(removal.path, NO_NODE if removal.is_alone else None))
            # Before the nodes: what was published below is gone, and these take its place.
            for path in group.replaced:
                staged.add(StagedNode(path, None))
            for node, digest in zip(nodes, digests, strict=True):
                staged.add(StagedNode(node.path, digest))
            shipment = shipment_from(source, group.filter, nodes)
            built = self._builder.build(request, package_id, shipment, lambda: shipment)  # its nodes are a list
        publication = built._replace(removed=len(group.removals), followed=(source_id,))
        (placed,) = self._appender.append([publication])
        return receipt_of(publication, placed)

    @staticmethod
    def _node(source: Source, path: NodePath) -> Node:
        node = source.node(path)
        if node is None:
            raise SourceChangedError("a path vanished while changes were published", path=path)
        return node
