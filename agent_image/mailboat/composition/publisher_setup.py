"""Opens a publisher of a home, as the configuration says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import NamedTuple, Protocol

from mailboat.blobs.port import BlobStore
from mailboat.clock import Clock
from mailboat.composition.home import Home
from mailboat.config.document import transfer_of
from mailboat.journal.port import Journal
from mailboat.model.identifiers import AgentName, parse_topic_name
from mailboat.model.messages import TopicRole
from mailboat.packages.port import PackageCodec
from mailboat.publisher.publisher import Publisher
from mailboat.publisher.publisher_settings import PublicationMeter, PublisherPorts, PublisherSettings
from mailboat.publisher.state import PublisherState
from mailboat.tracing import Tracer


class Meters(Protocol):
    """Meters and tracer of an agent process."""

    @property
    def tracer(self) -> Tracer:
        """Records spans."""

    def publisher_meter(self, name: str) -> PublicationMeter:
        """The meter of a publisher, the same one each time."""


class PublisherParts(NamedTuple):
    """What a workspace has opened for its publishers."""

    journal: Journal
    blobs: BlobStore
    codecs: Mapping[str, PackageCodec]
    clock: Clock
    meters: Meters | None


@contextmanager
def open_publisher(home: Home, name: AgentName, parts: PublisherParts) -> Iterator[Publisher]:
    """A publisher with its state, which leaving the context closes."""
    with closing(PublisherState(home.publishers_path / f"{name}.db")) as state:
        ports = PublisherPorts(parts.journal, parts.blobs, parts.codecs, state, parts.clock)
        if parts.meters is not None:
            ports = replace(ports, meter=parts.meters.publisher_meter(name), tracer=parts.meters.tracer)
        yield Publisher(publisher_settings(home, name), ports)


def publisher_settings(home: Home, name: AgentName) -> PublisherSettings:
    """The engine's settings, from the configuration."""
    config = home.config
    return PublisherSettings(
        name=name,
        sling_id=home.sling_id,
        package_topic=parse_topic_name(config.journal.topic_name(TopicRole.PACKAGE)),
        config=replace(config.publisher, transfer=transfer_of(config)),
        limits=config.limits,
        spool=home.spool,
    )
