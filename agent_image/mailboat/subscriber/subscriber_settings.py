"""The settings of a subscriber, the ports that it works with, and the port of its hooks."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from mailboat.blobs.port import BlobStore
from mailboat.blobs.references import ReferenceCodec
from mailboat.clock import Clock, SystemClock
from mailboat.config.document import LimitsConfig, StagingConfig, SubscriberConfig
from mailboat.content.port import Target
from mailboat.failpoints import Failpoints, NoFailpoints
from mailboat.frozen import Frozen
from mailboat.journal.port import Journal
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.job_rules import JobRule
from mailboat.model.messages import PACKAGE_TOPIC, STATUS_TOPIC, Action, PackageMessage
from mailboat.model.paths import NodePath
from mailboat.packages.port import PackageCodec
from mailboat.subscriber.figures import ImportMeter, Observer
from mailboat.tracing import NoTracer, Tracer


class SubscriberSettings(Frozen):
    """The settings of one subscriber.

    Attributes:
        name: The subscriber agent.
        sling_id: The instance that it runs in.
        follow: The publishers whose packages are imported; None imports all.
        roots: The only paths that packages may change, each with all below it; none: all.
        package_topic: Where packages come from.
        status_topic: Where confirmations go.
        command_topic: Where commands come from; None takes none.
        discovery_topic: Where a golden subscriber's announcements are; None asks for none.
        is_editable: Take clear commands, and confirm every package, not only those given up.
        staging: Wait for a golden subscriber; None does not wait.
        announcement_seconds: How long the golden subscriber's last announcement is believed before it is read again.
        config: The section `subscriber`; `max_retries` and `expose` are this subscriber's own.
        limits: What packages may be.
        skipped_records: The position is stored after so many messages that were only skipped.
        skipped_seconds: And after so long at the end of the log.
        heavy_bytes: Content in one batch, beyond which it is committed before it is full.
        job_rules: Jobs to add for packages that were imported.
        is_gap_accepted: Go on where the position does not fit the log (`--accept-gap`), see `continuity.py`.
        spool: The folder whose disk has what is too large for memory; None: the system's folder for temporary files.
    """

    name: AgentName
    sling_id: SlingId
    follow: frozenset[AgentName] | None = None
    roots: tuple[NodePath, ...] = ()
    package_topic: TopicName = PACKAGE_TOPIC
    status_topic: TopicName = STATUS_TOPIC
    command_topic: TopicName | None = None
    discovery_topic: TopicName | None = None
    is_editable: bool = False
    staging: StagingConfig | None = None
    announcement_seconds: float = 10.0
    config: SubscriberConfig = field(default_factory=SubscriberConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    skipped_records: int = 1000
    skipped_seconds: float = 5.0
    heavy_bytes: int = 64 * 1024 * 1024
    job_rules: tuple[JobRule, ...] = ()
    is_gap_accepted: bool = False
    spool: str | None = None


class ProcessedPackage(Frozen):
    """A package as a hook sees it."""

    offset: Offset
    package_id: PackageId
    package_type: str
    action: Action
    pub_agent_name: AgentName | None
    paths: tuple[NodePath, ...]
    deep_paths: tuple[NodePath, ...]


class Processor(Protocol):
    """A hook. Called from the subscriber's thread, one package at a time, in order.

    `before` has run, successfully, before content of its package becomes visible, but may run more than once, since a
    batch can be rolled back; when it fails the package fails, and is retried like any failure. `after` runs after the
    commit, at least once (`hooks.py`); its failure never imports the package again. `invalidate` stands for the import
    of an INVALIDATE and behaves like `before`. A failing post-processor of Sling imports the package again, or reports
    content as failed that is in place (docs/delivery.md).
    """

    def process(self, package: ProcessedPackage) -> None:
        """Do what the hook is for, within a time of its own. Any exception means that it failed."""


class Processors(Frozen):
    """The hooks of a subscriber; None: no such hook."""

    before: Processor | None = None
    after: Processor | None = None
    invalidate: Processor | None = None


class ImportPorts(Frozen):
    """What imports work with while no target is open; they close none of it.

    Attributes:
        journal: Where packages come from and confirmations go.
        blobs: Where large binaries and packages are.
        codecs: The package formats by package type.
        clock: The time.
        failpoints: Where tests make it fail.
        random: Jitter of pauses.
        references: How references to packages are read, and checked where there is a key.
        processors: Hooks before and after an import.
        meter: Measures imports; None measures nothing.
        tracer: Records spans of imports.
    """

    journal: Journal
    blobs: BlobStore
    codecs: Mapping[str, PackageCodec]
    clock: Clock = field(default_factory=SystemClock)
    failpoints: Failpoints = field(default_factory=NoFailpoints)
    random: random.Random = field(default_factory=random.SystemRandom)
    references: ReferenceCodec = field(default_factory=ReferenceCodec)
    processors: Processors = field(default_factory=Processors)
    meter: ImportMeter | None = None
    tracer: Tracer = field(default_factory=NoTracer)

    def on(self, target: Target) -> SubscriberPorts:
        """The same with an open target."""
        return SubscriberPorts(**vars(self), target=target)


class SubscriberPorts(ImportPorts):
    """The same with an open target.

    Attributes:
        target: The content, with the ledger that is kept in the same store.
        observer: Receives progress.
    """

    target: Target = field(kw_only=True)
    observer: Observer = field(default_factory=Observer, kw_only=True)


def processed_package(offset: Offset, message: PackageMessage) -> ProcessedPackage:
    """Return the message at `offset` as a hook sees it."""
    return ProcessedPackage(
        offset,
        message.package_id,
        message.package_type,
        message.action,
        message.pub_agent_name,
        message.paths,
        message.deep_paths,
    )
