"""Looking into a journal: what its topics hold, what a record says, and whether everything fits together.

Nothing here changes anything. Called by `mailboat journal`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from mailboat.api.archive import ProblemView
from mailboat.blobs.port import BlobStore
from mailboat.blobs.references import BlobReference, ReferenceCodec
from mailboat.clock import SystemClock, moment_of
from mailboat.errors import JournalCorruptError, MailboatError, UntrustedInputError
from mailboat.frozen import Frozen
from mailboat.journal.port import Edge, Journal, ReadLimits, Record, Start
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.model.messages import (
    CommandMessage,
    CommandResult,
    DiscoveryMessage,
    DistributedEvent,
    Message,
    PackageMessage,
    RedriveMessage,
    StatusMessage,
    SuspendMessage,
)
from mailboat.model.pieces import PieceMessage, is_run
from mailboat.model.registrations import RegistryMessage
from mailboat.subscriber.piece_store import PieceStore
from mailboat.wire.events import RecordedJobEvent, decode_event, decode_job_event
from mailboat.wire.messages import decode_message
from mailboat.wire.protobuf import MAX_NAME_CHARACTERS

_READ: Final = ReadLimits(max_records=500, max_bytes=8 * 1024 * 1024)
_CHUNK_BYTES: Final = 1024 * 1024
_LAST_MESSAGES: Final = 20


class Verification(Frozen):
    """What a check of the journal came to."""

    records: int
    blobs: int
    findings: tuple[ProblemView, ...]


def records_of(journal: Journal, topic: TopicName, start: Start = Edge.EARLIEST) -> Iterator[Record]:
    """The records of a topic from `start` to the end that it has by then. Raises: as `JournalReader.read`."""
    reader = journal.reader(topic, start)
    try:
        is_at_end = False
        while not is_at_end:
            batch = reader.read(_READ, 0.0)
            yield from batch.records
            is_at_end = batch.is_at_end
    finally:
        reader.close()


def recent_publishers(journal: Journal, topic: TopicName) -> Mapping[AgentName, datetime]:
    """Publishers of the last messages on the package topic, and when their newest was appended."""
    bounds = journal.bounds(topic)
    start = Offset(max(bounds.earliest_offset, bounds.next_offset - _LAST_MESSAGES))
    found: dict[AgentName, datetime] = {}
    for record in records_of(journal, topic, start):
        message = readable(record)
        if not isinstance(message, PackageMessage) or message.pub_agent_name is None:
            continue
        if len(message.pub_agent_name) <= MAX_NAME_CHARACTERS:
            found[message.pub_agent_name] = moment_of(record.appended_ms)
    return found


def readable(record: Record) -> Message | None:
    """A decoded record; None where decoding fails: anyone may write to a topic. `journal verify` names it."""
    try:
        return decode_message(record.headers, record.value)
    except UntrustedInputError:
        return None


def decode_record(record: Record, *, is_event: bool = False) -> Message | DistributedEvent | RecordedJobEvent:
    """What a record says. Raises: MessageCorruptError."""
    if not is_event:
        return decode_message(record.headers, record.value)
    return decode_job_event(record.headers, record.value) or decode_event(record.headers, record.value)


def journal_damage(journal: Journal) -> Sequence[ProblemView]:
    """What the journal itself finds wrong with its storage."""
    return [ProblemView(TopicName("*"), None, text) for text in journal.upkeep.find_damage()]


def verify_journal(
    journal: Journal, topics: Sequence[TopicName], blobs: BlobStore, *, event_topic: TopicName, reads_blobs: bool
) -> Verification:
    """Read every record: none is missing, messages decode, digests fit, the blobs that are referred to are there.

    Args:
        journal: The log.
        topics: Which topics to check.
        blobs: Where its blobs are.
        event_topic: The topic whose records are JSON.
        reads_blobs: Read every byte of every blob, instead of asking for its length.
    """
    check = _Check(journal, blobs, reads_blobs=reads_blobs)
    count = 0
    for topic in topics:
        for record in check.records(topic):
            count += 1
            check.record(topic, record, is_event=topic == event_topic)
    return Verification(count, len(check.seen), tuple(check.findings))


class _Check:
    """The state of one verification: what was found, and which blobs were checked."""

    def __init__(self, journal: Journal, blobs: BlobStore, *, reads_blobs: bool) -> None:
        self._journal = journal
        self.findings: list[ProblemView] = []
        self.seen: dict[bytes, str | None] = {}
        self._blobs = blobs
        self._reads_blobs = reads_blobs

    def complain(self, topic: TopicName, offset: Offset | None, problem: str) -> None:
        self.findings.append(ProblemView(topic, offset, problem))

    def records(self, topic: TopicName) -> Iterator[Record]:
        """The records of a topic, also those behind a hole; the journal itself says whether it may have holes."""
        start: Start | None = Edge.EARLIEST
        previous = -1
        while start is not None:
            begin, start = start, None
            try:
                for record in records_of(self._journal, topic, begin):
                    if record.offset <= previous:
                        self.complain(topic, record.offset, f"comes after offset {previous}")
                    previous = record.offset
                    yield record
            except JournalCorruptError as error:
                missing, resumes = error.where.get("offset"), error.where.get("resumes")
                if not isinstance(missing, int) or not isinstance(resumes, int):
                    raise
                self.complain(topic, Offset(missing), error.message)
                start = Offset(resumes)

    def record(self, topic: TopicName, record: Record, *, is_event: bool) -> None:
        if not record.value:  # a tombstone takes back what its key said
            return
        try:
            message = decode_record(record, is_event=is_event)
            problems = list(self._problems_of(message, topic, record)) if isinstance(message, PackageMessage) else []
        except MailboatError as error:
            problems = [str(error)]
        for problem in problems:
            self.complain(topic, record.offset, problem)

    def _problems_of(self, message: PackageMessage, topic: TopicName, record: Record) -> Iterator[str]:
        if message.payload is not None:
            yield from _payload_problems(message, message.payload)
        if message.payload_ref is not None and is_run(message.payload_ref):
            yield from self._piece_problems(message, topic, record)
        elif message.payload_ref is not None:
            yield from self._blob_problems(ReferenceCodec().parse(message.payload_ref), "the package")
        for binary in message.binaries:
            yield from self._blob_problems(BlobReference(binary.digest, binary.length_bytes), "a binary")

    def _piece_problems(self, message: PackageMessage, topic: TopicName, record: Record) -> Iterator[str]:

        pieces = PieceStore(self._journal, topic, SystemClock())
        try:
            pieces.open(message, record.offset, message.package_length_bytes, lambda: None).close()
        except MailboatError as error:
            yield str(error)

    def _blob_problems(self, blob: BlobReference, what: str) -> Iterator[str]:
        if blob.digest not in self.seen:
            self.seen[blob.digest] = self._problem_of(blob)
        problem = self.seen[blob.digest]
        if problem is not None:
            yield f"{what}: {problem}"

    def _problem_of(self, blob: BlobReference) -> str | None:
        info = self._blobs.stat(blob.digest)
        if info is None:
            return f"the blob {blob.digest.hex()} is missing"
        if info.length_bytes != blob.length_bytes:
            return f"the blob {blob.digest.hex()} has {info.length_bytes} bytes instead of {blob.length_bytes}"
        return self._read(blob) if self._reads_blobs else None

    def _read(self, blob: BlobReference) -> str | None:
        try:
            with self._blobs.open(blob.digest, blob.length_bytes) as stream:
                while stream.read(_CHUNK_BYTES):
                    pass
        except MailboatError as error:
            return str(error)
        return None


def _payload_problems(message: PackageMessage, payload: bytes) -> Iterator[str]:
    if len(payload) != message.package_length_bytes:
        yield f"the package has {len(payload)} bytes, the message promises {message.package_length_bytes}"
    if message.package_digest is not None and hashlib.sha256(payload).digest() != message.package_digest:
        yield "the package does not have the digest that the message promises"


def summary_of(message: Message | DistributedEvent | RecordedJobEvent) -> str:
    """One line that says what a message is about."""
    match message:
        case PackageMessage() | PieceMessage():
            return _package_summary(message)
        case StatusMessage():
            cause = "" if message.cause is None else f"   {message.cause.code}: {message.cause.message}"
            return f"{message.sub_agent_name}: {message.status} offset {message.offset}{cause}"
        case DiscoveryMessage() | RegistryMessage():
            return _member_summary(message)
        case CommandMessage() | RedriveMessage() | SuspendMessage() | CommandResult():
            return f"{message.sub_agent_name}: {_command_summary(message)}"
        case DistributedEvent():
            return f"distributed {message.package_id} offset {message.offset}"
    return "ping" if not isinstance(message, RecordedJobEvent) else f"{message.type} job {message.job}"


def _package_summary(message: PackageMessage | PieceMessage) -> str:
    if isinstance(message, PieceMessage):
        return f"piece {message.index} of {message.package_id}   {len(message.content)} bytes"
    paths = " ".join(message.paths[:3]) + (f" … {len(message.paths)} paths" if len(message.paths) > 3 else "")
    return f"{message.action} {paths}".rstrip() + f"   {message.package_length_bytes} bytes {_way_of(message)}"


def _member_summary(message: DiscoveryMessage | RegistryMessage) -> str:
    if isinstance(message, RegistryMessage):
        return f"registered: {', '.join(registration.name for registration in message.registrations[:5]) or 'none'}"
    states = ", ".join(f"{state.pub_agent_name} at {state.offset}" for state in message.states)
    return f"{message.sub_agent_name}: {message.state or 'alive'}   {states}".rstrip()


def _way_of(message: PackageMessage) -> str:
    """How the package travels."""
    if message.payload is not None:
        return "inline"
    if message.payload_ref is None:
        return "no package"
    return "in chunks" if is_run(message.payload_ref) else "by reference"


def _command_summary(message: CommandMessage | RedriveMessage | SuspendMessage | CommandResult) -> str:
    if isinstance(message, CommandMessage):
        return f"clear up to offset {message.clear_up_to_offset}"
    if isinstance(message, RedriveMessage):
        return f"redrive offset {message.offset}"
    if isinstance(message, SuspendMessage):
        return str(message.verb)
    told = "" if message.message is None else f"   {message.message}"
    return f"{message.verb} offset {message.offset} {message.state}{told}"
