"""What the log holds: its bounds, its topics, and the messages of packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path

from mailboat.api.records import JournalView
from mailboat.config.document import Verb
from mailboat.control.journal_archive import MessageView, TopicView
from mailboat.errors import DistributionMissingError
from mailboat.http.examples import JOURNAL, MESSAGE, TOPIC
from mailboat.http.ports import MAX_OFFSET, ApiPorts, Ports, operation

router = APIRouter(prefix="/api/v1", tags=["journal"])


@dataclass(frozen=True, slots=True)
class JournalDocument:
    """The journal and its topics.

    Attributes:
        journal: What keeps the log, and the bounds of the package topic.
        topics: All topics, each with its bounds.
    """

    journal: JournalView
    topics: tuple[TopicView, ...]


PackageReference = Annotated[
    str,
    Path(description="An offset of the package topic, a package id, or a request id.", max_length=200, examples=["97"]),
]


@router.get("/journal", **operation(Verb.VIEW, "The journal", example={"journal": JOURNAL, "topics": [TOPIC]}))
def show_journal(ports: Ports) -> JournalDocument:
    """What keeps the log, and from where to where its topics go."""
    return JournalDocument(ports.control.status().journal, tuple(ports.archive.topics()))


@router.get("/packages/{reference:path}", **operation(Verb.VIEW, "A package's message", example=MESSAGE, also=(404,)))
def show_package(reference: PackageReference, ports: Ports) -> MessageView:
    """What the message says: everything but the package's bytes. What became of it, its distribution says."""
    if reference.isascii() and reference.isdecimal():
        return ports.archive.message(min(int(reference), MAX_OFFSET))
    return ports.archive.message(_offset_of(ports, reference))


def _offset_of(ports: ApiPorts, reference: str) -> int:
    for publisher in ports.control.status().publishers:
        try:
            return ports.control.distribution(publisher.name, reference).offset
        except DistributionMissingError:
            continue
    raise DistributionMissingError(f"the log holds no package {reference}", package=reference)
