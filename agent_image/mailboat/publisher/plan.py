"""What a publish would ship. Changes nothing: no message, no blob, no memory of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mailboat.api.records import PublicationPlan
from mailboat.content.binaries import content_bytes_of
from mailboat.content.port import Source
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest
from mailboat.packages.tree_order import PathOrder, check_order
from mailboat.publisher.changes import ChangeGroup
from mailboat.publisher.packaging import ObserveNode, Shipment, shipment_of

_SHOWN: Final = 20

MakeChecker = Callable[[Shipment], ObserveNode | None]
"""Gives what refuses nodes that a package of this shipment can't hold: `PackageBuilder.checker`."""


def plan_request(
    request: DistributionRequest, source: Source | None, checker: MakeChecker, *, are_collisions_refused: bool
) -> PublicationPlan:
    """What publishing a checked request would ship.

    Raises:
        UsageError: The format of the packages can't hold a node.
        LimitExceededError: Names collide, see `PathOrder.add`.
        SourceMissingError, and what the source raises.
    """
    shown = request.paths[:_SHOWN]
    if source is None:
        deletes = len(request.paths) if request.action is Action.DELETE else 0
        removed = shown if deletes else ()
        return PublicationPlan(packages=1, deletes=deletes, first_paths=shown, first_removals=removed)
    nodes = files = content_bytes = 0
    order = PathOrder(are_collisions_refused=are_collisions_refused)
    shipment = shipment_of(request, source)
    check = checker(shipment)
    if check is not None:
        for ancestor in shipment.ancestors:
            check(ancestor)
    for node in shipment.nodes:
        if check is not None:
            check(node)
        order.add(node.path)
        nodes += 1
        files += node.data is not None
        content_bytes += content_bytes_of(node)
    return PublicationPlan(1, nodes, files, content_bytes, 0, content_bytes, shown)


def plan_groups(groups: Iterable[ChangeGroup], *, are_collisions_refused: bool) -> PublicationPlan:
    """What publishing these groups would ship. Raises: LimitExceededError, where names in one of them collide."""
    packages = nodes = files = content_bytes = deletes = largest = 0
    shown: list[NodePath] = []
    removed: set[NodePath] = set()
    for group in groups:
        check_order(group.puts, are_collisions_refused=are_collisions_refused)
        packages += 1
        nodes += len(group.puts)
        files += group.files
        content_bytes += group.content_bytes
        deletes += len(group.removals)
        largest = max(largest, group.content_bytes)
        first = group.roots[: _SHOWN - len(shown)]
        shown += first
        removed |= {removal.path for removal in group.removals}.intersection(first)
    return PublicationPlan(
        packages, nodes, files, content_bytes, deletes, largest, tuple(shown), tuple(sorted(removed))
    )
