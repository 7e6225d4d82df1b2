"""What the log holds: its bounds, its topics, and the messages of packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.concurrency import run_in_threadpool

from mailboat.api.archive import (
    MAX_RECORDS,
    ExpiryView,
    JournalFigures,
    RecordView,
    RetentionView,
    TopicSetup,
    TruncationView,
    VerificationView,
)
from mailboat.api.orders import MAX_OFFSET, BenchOrder, EnsureOrder, TruncateOrder, VerifyOrder
from mailboat.api.records import JournalDocument
from mailboat.config.document import Verb
from mailboat.control.journal_archive import MessageView
from mailboat.errors import DistributionMissingError
from mailboat.http.examples import (
    BENCH,
    EXPIRY,
    JOURNAL,
    MESSAGE,
    RECORD,
    RETENTION,
    TOPIC,
    TOPIC_SETUP,
    TRUNCATION,
    VERIFICATION,
)
from mailboat.http.ports import ApiPorts, CurrentCall, Ports, operation
from mailboat.model.messages import TopicRole

router = APIRouter(prefix="/api/v1", tags=["journal"])


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
async def verify_journal(order: VerifyOrder, ports: Ports, call: CurrentCall) -> VerificationView:
    """Reads every message and changes nothing. One caller at a time (429), as a large journal takes minutes."""
    call.concerns({"read_blobs": order.read_blobs})
    return await run_in_threadpool(lambda: ports.archive.verify(reads_blobs=order.read_blobs))


@router.post(
    "/journal/{role}/truncate", **operation(Verb.ADMIN, "Remove the oldest messages", example=TRUNCATION, also=(404,))
)
async def truncate_topic(role: TopicName, order: TruncateOrder, ports: Ports, call: CurrentCall) -> TruncationView:
    """Removes the messages before an offset, but no part of a package in pieces. Default: a dry run."""
    call.concerns({"topic": role.value, "before": order.before, "dry_run": order.dry_run})
    return await run_in_threadpool(lambda: ports.archive.truncate(role.value, order.before, is_dry_run=order.dry_run))


@router.post("/journal/expire", **operation(Verb.ADMIN, "Apply the retention", example=EXPIRY))
async def remove_expired(ports: Ports) -> ExpiryView:
    """Removes the messages that are older than the configured retention."""
    return await run_in_threadpool(ports.archive.remove_expired)


@router.get("/journal/retention", **operation(Verb.VIEW, "Retention by consumption", example=RETENTION))
def show_retention(ports: Ports) -> RetentionView:
    """The subscribers that hold packages back, and the first offset that retention by consumption keeps."""
    return ports.archive.retention()


@router.post("/journal/retention", **operation(Verb.ADMIN, "Apply retention by consumption", example=RETENTION))
async def apply_retention(ports: Ports) -> RetentionView:
    """Moves the head of the package topic there now."""
    return await run_in_threadpool(lambda: ports.archive.retention(is_applied=True))


@router.post("/journal/ensure", **operation(Verb.ADMIN, "Create or correct the topics", example=TOPIC_SETUP))
async def ensure_topics(order: EnsureOrder, ports: Ports, call: CurrentCall) -> TopicSetup:
    """Creates missing topics, and applies the configuration to the others. Default: a dry run."""
    call.concerns({"dry_run": order.dry_run})
    return await run_in_threadpool(lambda: ports.archive.ensure_topics(is_dry_run=order.dry_run))


@router.post("/journal/bench", **operation(Verb.ADMIN, "Measure the journal", example=BENCH))
async def bench_journal(order: BenchOrder, ports: Ports) -> JournalFigures:
    """Measures latency and throughput on a temporary topic. One caller at a time (429)."""
    return await run_in_threadpool(ports.archive.bench, order)


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
