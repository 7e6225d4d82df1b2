"""Hooks before and after an import, and for invalidations.

What is promised: `before` has run, successfully, before content of its package becomes visible, but may run more than
once, since a batch can be rolled back. When it fails the package fails, and is tried again like any failure. `after`
runs once after the commit, or not at all when the process dies in between; its failure is counted and logged, and
never imports the package anew. `invalidate` stands for the import of an INVALIDATE and behaves like `before`.
The original runs its post-processor in a way that a failure imports the package again, or reports content as failed
that is in place (facts in docs/delivery.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from mailboat.frozen import Frozen
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.paths import NodePath

_LOG: Final = logging.getLogger(__name__)


class ProcessedPackage(Frozen):
    """What a hook is told of a package."""

    offset: Offset
    package_id: PackageId
    package_type: str
    action: Action
    pub_agent_name: AgentName | None
    paths: tuple[NodePath, ...]
    deep_paths: tuple[NodePath, ...]


class Processor(Protocol):
    """A hook. Called from the subscriber's thread, one package at a time, in order."""

    def process(self, package: ProcessedPackage) -> None:
        """Do what the hook is for, within a time of its own. Any exception means that it failed."""


class Processors(Frozen):
    """The hooks of a subscriber; None where there is none."""

    before: Processor | None = None
    after: Processor | None = None
    invalidate: Processor | None = None


def run_after(processors: Processors, packages: Sequence[ProcessedPackage]) -> int:
    """Run the hook after the imports of these packages; how many of its runs failed."""
    hook, failures = processors.after, 0
    if hook is None:
        return failures
    for package in packages:
        try:
            hook.process(package)
        except Exception:  # noqa: BLE001  # a hook is foreign code, and the content is in place
            where = {"package": package.package_id, "offset": package.offset}
            _LOG.warning("the hook after an import failed", exc_info=True, extra=where)
            failures += 1
    return failures


def processed_package(offset: Offset, message: PackageMessage) -> ProcessedPackage:
    """What a hook is told of the message at `offset`."""
    return ProcessedPackage(
        offset,
        message.package_id,
        message.package_type,
        message.action,
        message.pub_agent_name,
        message.paths,
        message.deep_paths,
    )
