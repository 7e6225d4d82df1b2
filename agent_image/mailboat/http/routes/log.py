"""What the log holds: its bounds, its topics, and the messages of packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field, with_config
from starlette.concurrency import run_in_threadpool

from mailboat.api.archive import (
    MAX_RECORDS,
    BenchPlan,
    ExpiryView,
    JournalFigures,
    RecordView,
    RetentionView,
    TopicSetup,
    TruncationView,
    VerificationView,
)
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
from mailboat.http.ports import MAX_OFFSET, ApiPorts, CurrentCall, Ports, operation
from mailboat.model.messages import TopicRole

# An agent measures while it serves: its memory and the journal's load are bounded.
_MAX_BENCH_BYTES: Final = 1024 * 1024
_MAX_BENCH_ROUNDS: Final = 10_000
_MAX_BENCH_SECONDS: Final = 30.0

router = APIRouter(prefix="/api/v1", tags=["journal"])


@with_config(ConfigDict(title="VerifyOrder", extra="forbid"))
@dataclass(frozen=True, slots=True)
class VerifyDocument:
    """A request to check the journal.

    Attributes:
        read_blobs: Read every byte of every blob as well.
    """

    read_blobs: bool = False


@with_config(ConfigDict(title="TruncateOrder", extra="forbid"))
@dataclass(frozen=True, slots=True)
class TruncateDocument:
    """A request to remove the oldest messages of a topic.

    Attributes:
        before: The first offset to keep.
        dry_run: Remove nothing; name the subscribers that would lose packages.
    """

    before: Annotated[int, Field(ge=0, le=MAX_OFFSET)]
    dry_run: bool = True


@with_config(ConfigDict(title="EnsureOrder", extra="forbid"))
@dataclass(frozen=True, slots=True)
class EnsureDocument:
    """A request to create or correct the topics.

    Attributes:
        dry_run: Change nothing; list the differences.
    """

    dry_run: bool = True


@with_config(ConfigDict(title="BenchOrder", extra="forbid"))
@dataclass(frozen=True, slots=True)
class BenchDocument:
    """A request to measure the journal.

    Attributes:
        message_bytes: Size of a message.
        rounds: Number of messages per latency figure.
        seconds: Duration per batch size.
    """

    message_bytes: Annotated[int, Field(ge=1, le=_MAX_BENCH_BYTES)] = 1000
    rounds: Annotated[int, Field(ge=10, le=_MAX_BENCH_ROUNDS)] = 200
    seconds: Annotated[float, Field(ge=0.05, le=_MAX_BENCH_SECONDS)] = 1.0


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
    call.concerns({"read_blobs": document.read_blobs})
    return await run_in_threadpool(lambda: ports.archive.verify(reads_blobs=document.read_blobs))


@router.post(
    "/journal/{role}/truncate", **operation(Verb.ADMIN, "Remove the oldest messages", example=TRUNCATION, also=(404,))
)
async def truncate_topic(
    role: TopicName, document: TruncateDocument, ports: Ports, call: CurrentCall
) -> TruncationView:
    """Removes the messages before an offset, but no part of a package in pieces. Default: a dry run."""
    call.concerns({"topic": role.value, "before": document.before, "dry_run": document.dry_run})
    return await run_in_threadpool(
        lambda: ports.archive.truncate(role.value, document.before, is_dry_run=document.dry_run)
    )


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
async def ensure_topics(document: EnsureDocument, ports: Ports, call: CurrentCall) -> TopicSetup:
    """Creates missing topics, and applies the configuration to the others. Default: a dry run."""
    call.concerns({"dry_run": document.dry_run})
    return await run_in_threadpool(lambda: ports.archive.ensure_topics(is_dry_run=document.dry_run))


@router.post("/journal/bench", **operation(Verb.ADMIN, "Measure the journal", example=BENCH))
async def bench_journal(document: BenchDocument, ports: Ports) -> JournalFigures:
    """Measures latency and throughput on a temporary topic. One caller at a time (429)."""
    plan = BenchPlan(document.message_bytes, document.rounds, document.seconds)
    return await run_in_threadpool(ports.archive.bench, plan)


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
