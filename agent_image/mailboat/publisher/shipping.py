"""Publishing what changed: compare, cut, and ship group by group, each with the memory of it in the same step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from mailboat.content.binaries import content_bytes_of
from mailboat.content.port import Source
from mailboat.content.watched import namespaces_of
from mailboat.errors import SourceChangedError
from mailboat.model.messages import Action
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath, is_within
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.appending import Appender, Prepared
from mailboat.publisher.changes import ChangeGroup, change_digest, plan_changes, request_id_for
from mailboat.publisher.packaging import PackageBuilder, shipment_from
from mailboat.publisher.published import SourceNode, StagedNode
from mailboat.publisher.receipts import Receipt, receipt_of
from mailboat.publisher.settings import PublisherPorts, PublisherSettings

_STRAYS_LIVE: Final = timedelta(days=7)


class ChangeShipper:
    """Ships the changes of sources for one publisher."""

    def __init__(
        self, settings: PublisherSettings, ports: PublisherPorts, builder: PackageBuilder, appender: Appender
    ) -> None:
        """Nothing is read yet."""
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
        with state.locks.exclusive("changes"), state.locks.publication_under_way():
            source_id = self._published.follow(source.uri, self._appender.identity())
            self._published.discard_strays(int((self._ports.clock.now() - _STRAYS_LIVE).timestamp() * 1000))
            for group in self.groups(source, roots, on_compared):
                yield self._ship_group(source, source_id, group, user_id)

    def groups(
        self, source: Source, roots: Sequence[NodePath], on_compared: Callable[[int], None] | None = None
    ) -> Iterator[ChangeGroup]:
        """What would be shipped. Changes nothing but temporary tables."""
        source_id = self._published.source_id(source.uri, self._appender.identity())
        outermost = [root for root in roots if not any(is_within(root, other) and root != other for other in roots)]
        namespaces = namespaces_of(source)
        nodes = (_described(node, namespaces) for root in dict.fromkeys(outermost) for node in source.walk(root))
        content_bytes = self._published.compare(source_id, outermost, nodes)
        if on_compared is not None:
            on_compared(content_bytes)
        yield from plan_changes(self._published.changes(), self._settings.changes)

    def checked_groups(self, source: Source, roots: Sequence[NodePath]) -> Iterator[ChangeGroup]:
        """The same; nodes that the format of the packages can't hold are refused, as shipping them would be."""
        for group in self.groups(source, roots):
            shipment = shipment_from(source, group.filter, ())
            check = self._builder.checker(shipment)
            if check is not None:
                for node in (*shipment.ancestors, *(self._node(source, path) for path in group.puts)):
                    check(node)
            yield group

    def _ship_group(self, source: Source, source_id: int, group: ChangeGroup, user_id: str | None) -> Receipt:
        nodes = [self._node(source, path) for path in group.puts]
        namespaces = namespaces_of(source)
        digests = [change_digest(node, namespaces) for node in nodes]
        request_id = request_id_for(source.uri, self._published.packages(source_id), group, digests)
        request = DistributionRequest(Action.ADD, group.roots, group.deep_roots, request_id, user_id)
        package_id = self._builder.new_package_id()
        with self._published.stager(package_id, (source_id,)) as staged:
            for removal in group.removals:
                staged.add(StagedNode(removal.path, None))
            for node, digest in zip(nodes, digests, strict=True):
                staged.add(StagedNode(node.path, digest))
        shipment = shipment_from(source, group.filter, nodes)
        built = self._builder.build(request, package_id, shipment)
        placed = self._appender.append([Prepared(built.message, request.fingerprint, True, (source_id,))])
        return receipt_of(request, request_id, placed[0], built, removed=len(group.removals))

    @staticmethod
    def _node(source: Source, path: NodePath) -> Node:
        node = source.node(path)
        if node is None:
            raise SourceChangedError("a path vanished while changes were published", path=path)
        return node


def _described(node: Node, namespaces: NamespaceTable | None) -> SourceNode:
    return SourceNode(node.path, change_digest(node, namespaces), content_bytes_of(node), node.data is not None)
