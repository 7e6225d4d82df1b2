"""The settings of a publisher, the ports that it works with, and the port of its meter."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mailboat.blobs.port import BlobStore
from mailboat.blobs.references import ReferenceCodec
from mailboat.clock import Clock, SystemClock
from mailboat.config.document import LimitsConfig, PublisherConfig
from mailboat.config.section_keys import MEBIBYTE
from mailboat.failpoints import Failpoints, NoFailpoints
from mailboat.journal.port import Journal
from mailboat.model.identifiers import AgentName, SlingId, TopicName
from mailboat.model.messages import PACKAGE_TOPIC, Action
from mailboat.model.requests import MAX_PATHS
from mailboat.packages.port import PackageCodec
from mailboat.publisher.state import PublisherState
from mailboat.tracing import NoTracer, Tracer


@dataclass(frozen=True, slots=True)
class PublisherSettings:
    """The settings of one publisher.

    Attributes:
        name: The publisher agent.
        sling_id: The instance that it runs in.
        package_topic: Where its packages go.
        config: The section `publisher`. Its `transfer` is decided, and never `auto`.
        limits: What packages may be.
        max_message_bytes: The largest message that the journal takes.
        max_paths: Paths of one request.
        max_change_nodes: Nodes put or removed by one package of `publish_changed`; each is a path of its message.
        append_records: How many packages `publish_all` appends in one step at most.
        append_bytes: And how many bytes of messages, or of pieces, about; some three times that is in memory at once.
        spool: The folder whose disk has what is too large for memory; None: the system's folder for temporary files.
    """

    name: AgentName
    sling_id: SlingId
    package_topic: TopicName = PACKAGE_TOPIC
    config: PublisherConfig = field(default_factory=PublisherConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    max_message_bytes: int = 1_000_000
    max_paths: int = MAX_PATHS
    max_change_nodes: int = MAX_PATHS
    append_records: int = 100
    append_bytes: int = 4 * MEBIBYTE
    spool: str | None = None


class PublicationMeter:
    """Called from the publisher's thread; must neither block nor raise. This one measures nothing."""

    def built(self, package_bytes: int, seconds: float) -> None:
        """A package was built."""

    def appended(self, actions: Sequence[Action], seconds: float) -> None:
        """Messages are durable in the log, all of one append."""

    def appended_in_pieces(self, pieces: int) -> None:
        """A message is durable whose package travels in so many pieces before it."""

    def repeated(self) -> None:
        """A request was asked for again that stands in the log already."""

    def refused(self, error: Exception) -> None:
        """A request failed; nothing of it was published."""


@dataclass(frozen=True, slots=True)
class PublisherPorts:
    """What a publisher works with; it closes none of it.

    Attributes:
        journal: Where messages are appended.
        blobs: Where large binaries and packages are stored before the message names them.
        codecs: The package formats by package type.
        state: What it remembers: intents, receipts, and what was last published of which source.
        clock: The time.
        failpoints: Where tests make it fail.
        random: For package ids; the system's source of randomness unless a test needs predictable ids.
        references: How references to packages are written, and signed where there is a key.
        meter: Measures publications.
        tracer: Records spans of publications.
    """

    journal: Journal
    blobs: BlobStore
    codecs: Mapping[str, PackageCodec]
    state: PublisherState
    clock: Clock = field(default_factory=SystemClock)
    failpoints: Failpoints = field(default_factory=NoFailpoints)
    random: random.Random = field(default_factory=random.SystemRandom)
    references: ReferenceCodec = field(default_factory=ReferenceCodec)
    meter: PublicationMeter = field(default_factory=PublicationMeter)
    tracer: Tracer = field(default_factory=NoTracer)
