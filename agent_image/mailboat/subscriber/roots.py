"""The roots of a subscriber: the only content that packages may change in its target.

A package is taken as a whole or refused as a whole, before anything is written. What counts is the paths that the
message names and the roots of the package's filter, which say what is removed as well. Folders on the way to a root are
made empty where they are missing; what a package says about them is dropped, as it is content outside.
"""

from __future__ import annotations

from collections.abc import Iterable

from mailboat.errors import UntrustedInputError
from mailboat.model.changes import TreeChange
from mailboat.model.filters import FilterSet, WorkspaceFilter
from mailboat.model.messages import PackageMessage
from mailboat.model.paths import NodePath, is_within


class RootsExceededError(UntrustedInputError):
    """A package would change content outside the subscriber's roots. Nothing of it was imported.

    The package is in the error queue. If the subscriber is to have that content, add the path to its `roots`
    (`agents.subscribers[].roots`, or `spec.roots` of its SubscriberPool) and import the package with
    `mailboat errors redrive`. Otherwise have the publisher publish paths within the roots.
    """


class Roots:
    """The roots of one subscriber, at least one."""

    def __init__(self, roots: tuple[NodePath, ...]) -> None:
        """Check against these."""
        self._roots = roots

    def check(self, message: PackageMessage) -> None:
        """Refuse a package by its message, before its payload is fetched. Raises: RootsExceededError."""
        self._refuse_outside(message.paths, message)

    def limited(self, change: TreeChange, message: PackageMessage) -> TreeChange:
        """The change without what it says of folders outside. Raises: RootsExceededError: it owns content there."""
        self._refuse_outside((one.root for one in change.filter.sets), message)
        records = (record for record in change.records if self._holds(record.path))
        return change._replace(records=list(records) if isinstance(change.records, list) else records)

    def part_of(self, change: TreeChange) -> TreeChange:
        """Of a whole tree, what lies within the roots, as the change of an empty target."""
        outermost = [one for one in self._roots if not any(is_within(one, root) for root in self._roots if root != one)]
        own = WorkspaceFilter(tuple(FilterSet(one) for one in dict.fromkeys(outermost)))
        return change._replace(filter=own, records=(one for one in change.records if self._holds(one.path)))

    def _refuse_outside(self, paths: Iterable[NodePath], message: PackageMessage) -> None:
        for path in paths:
            if not self._holds(path):
                raise RootsExceededError(
                    f"the package would change {path[:200]}, outside the roots {', '.join(self._roots)[:200]}",
                    package=message.package_id,
                    path=path[:200],
                )

    def _holds(self, path: NodePath) -> bool:
        return any(is_within(path, root) for root in self._roots)
