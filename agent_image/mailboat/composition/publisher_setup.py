"""Opens a publisher of a home, as the configuration says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import NamedTuple, Protocol

from mailboat.blobs.port import BlobStore
from mailboat.clock import Clock
from mailboat.composition.home import Home
from mailboat.composition.package_formats import are_pieces_cut, package_type_of
from mailboat.config.document import Transfer
from mailboat.journal.port import Journal
from mailboat.model.identifiers import AgentName, parse_topic_name
from mailboat.model.messages import TopicRole
from mailboat.packages.port import PackageCodec
from mailboat.publisher.piece_writer import PieceSettings
from mailboat.publisher.publisher import Publisher
from mailboat.publisher.settings import ChangeBudget, PublicationMeter, PublisherPorts, PublisherSettings
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
        yield Publisher(_settings(home, name), ports)


def _settings(home: Home, name: AgentName) -> PublisherSettings:
    config = home.config
    publisher = config.publisher
    return PublisherSettings(
        name=name,
        sling_id=home.sling_id,
        package_topic=parse_topic_name(config.journal.topic_name(TopicRole.PACKAGE)),
        package_type=package_type_of(config),
        inline_package_bytes=publisher.inline_package_bytes,
        inline_binary_bytes=publisher.inline_binary_bytes,
        max_package_bytes=config.limits.max_total_bytes,
        is_self_contained=publisher.transfer is Transfer.INLINE,
        are_pieces_cut=are_pieces_cut(config),
        are_large_refused=publisher.transfer is Transfer.INLINE,
        refuse_collisions=config.limits.refuse_collisions,
        limits=config.limits,
        pieces=PieceSettings(piece_bytes=publisher.piece_bytes),
        changes=ChangeBudget(max_content_bytes=publisher.changed_package_bytes),
    )
