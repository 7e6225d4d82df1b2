"""Hooks before and after an import, and for invalidations.

What is promised: `before` has run, successfully, before content of its package becomes visible, but may run more than
once, since a batch can be rolled back. When it fails the package fails, and is tried again like any failure. `after`
runs after the commit, at least once (`after_calls.py`); its failure never imports the package again. `invalidate`
stands for the import of an INVALIDATE and behaves like `before`. Sling runs its post-processor in a way that a failure
imports the package again, or reports content as failed that is in place (facts in docs/delivery.md).
"""

from __future__ import annotations

from typing import Protocol

from mailboat.frozen import Frozen
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import Action, FailureCause, PackageMessage
from mailboat.model.paths import NodePath


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


class AfterFigures(Frozen):
    """The calls of the hook `after`.

    Attributes:
        failures: Attempts that failed, in this run.
        waiting: Calls that are still to be made.
        set_aside: Calls whose attempts are used up.
        cause: Why the last attempt failed; None when the last one succeeded.
    """

    failures: int = 0
    waiting: int = 0
    set_aside: int = 0
    cause: FailureCause | None = None


class Processors(Frozen):
    """The hooks of a subscriber; None where there is none."""

    before: Processor | None = None
    after: Processor | None = None
    invalidate: Processor | None = None


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
