"""What the log holds: its bounds, its topics, and the messages of packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, with_config
from starlette.concurrency import run_in_threadpool

from mailboat.api.archive import MAX_RECORDS, RecordView, TopicView, VerificationView
from mailboat.api.records import JournalView
from mailboat.config.document import Verb
from mailboat.control.journal_archive import MessageView
from mailboat.errors import DistributionMissingError
from mailboat.http.examples import JOURNAL, MESSAGE, RECORD, TOPIC, VERIFICATION
from mailboat.http.ports import MAX_OFFSET, ApiPorts, CurrentCall, Ports, operation
from mailboat.model.messages import TopicRole

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


@with_config(ConfigDict(title="VerifyOrder", extra="forbid"))
@dataclass(frozen=True, slots=True)
class VerifyDocument:
    """A request to check the journal.

    Attributes:
        read_blobs: Read every byte of every blob as well.
    """

    read_blobs: bool = False


TopicName = Annotated[TopicRole, Path(description="The topic: package, status, discovery, command or event.")]
FromOffset = Annotated[int | None, Query(description="First offset. Default: the last messages.", ge=0, le=MAX_OFFSET)]
MaxRecords = Annotated[int, Query(description="Maximum number of messages.", ge=1, le=MAX_RECORDS)]
PackageReference = Annotated[
    str,
    Path(description="An offset of the package topic, a package id, or a request id.", max_length=200, examples=["97"]),
]


@router.get("/journal", **operation(Verb.VIEW, "The journal", example={"journal": JOURNAL, "topics": [TOPIC]}))
def show_journal(ports: Ports) -> JournalDocument:
    """What keeps the log, and from where to where its topics go."""
    return JournalDocument(ports.control.status().journal, tuple(ports.archive.topics()))


@router.get("/journal/{role}/messages", **operation(Verb.VIEW, "Messages of a topic", example=[RECORD]))
def list_messages(
    role: TopicName, ports: Ports, from_offset: FromOffset = None, max_items: MaxRecords = 20
) -> Sequence[RecordView]:
    """The messages of a topic in one line each, oldest first."""
    return ports.archive.records(role.value, from_offset, max_items)


@router.post("/journal/verify", **operation(Verb.ADMIN, "Check the whole journal", example=VERIFICATION))
async def verify_journal(document: VerifyDocument, ports: Ports, call: CurrentCall) -> VerificationView:
    """Reads every message and changes nothing. One caller at a time (429), as a large journal takes minutes."""
    call.what |= {"read_blobs": document.read_blobs}
    return await run_in_threadpool(lambda: ports.archive.verify(reads_blobs=document.read_blobs))


@router.get("/packages/{reference:path}", **operation(Verb.VIEW, "A package's message", example=MESSAGE, also=(404,)))
def show_package(reference: PackageReference, ports: Ports) -> MessageView:
    """What the message says: everything but the package's bytes. The outcome is part of its distribution."""
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
