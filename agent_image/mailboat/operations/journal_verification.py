"""The check of a whole journal: no record is missing, messages decode, digests fit, blobs that are referred to exist.

Nothing here changes anything. Called by `mailboat journal verify`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from mailboat.api.archive import MAX_PROBLEMS, ProblemView
from mailboat.blobs.port import BlobStore
from mailboat.blobs.references import BlobReference, ReferenceCodec
from mailboat.clock import SystemClock
from mailboat.errors import JournalCorruptError, MailboatError, PositionOutOfRangeError
from mailboat.journal.port import Edge, Journal, Record, Start, records_of
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.messages import PackageMessage
from mailboat.model.pieces import is_run
from mailboat.operations.journal_inspection import decode_record
from mailboat.subscriber.piece_store import PieceStore

_CHUNK_BYTES: Final = 1024 * 1024


def verify_journal(
    journal: Journal, topics: Sequence[TopicName], blobs: BlobStore, *, event_topic: TopicName, reads_blobs: bool
) -> JournalCheck:
    """Read every record: none is missing, messages decode, digests fit, the blobs that are referred to are there.

    Last, the journal itself says what is wrong with its storage.

    Args:
        journal: The log.
        topics: Which topics to check.
        blobs: Where its blobs are.
        event_topic: The topic whose records are JSON.
        reads_blobs: Read every byte of every blob, instead of asking for its length.
    """
    check = JournalCheck(journal, blobs, reads_blobs=reads_blobs)
    for topic in topics:
        for record in check.records(topic):
            check.record(topic, record, is_event=topic == event_topic)
    for text in journal.upkeep.find_damage():
        check.complain(TopicName("*"), None, text)
    return check


class JournalCheck:
    """One verification.

    Attributes:
        problem_count: How much is wrong.
        findings: What is wrong, as much of it as is shown.
        record_count: Records that were checked.
        problems: The problem of each blob that was checked, by its digest; None: it is as it should be.
    """

    def __init__(self, journal: Journal, blobs: BlobStore, *, reads_blobs: bool) -> None:
        """Nothing was checked yet."""
        self._journal = journal
        self.problem_count = 0
        self.findings: list[ProblemView] = []
        self.record_count = 0
        self.problems: dict[bytes, str | None] = {}
        self._blobs = blobs
        self._reads_blobs = reads_blobs

    def complain(self, topic: TopicName, offset: Offset | None, problem: str) -> None:
        """Count a problem. Only those that are shown are kept, as anyone may fill a topic with them."""
        self.problem_count += 1
        if len(self.findings) < MAX_PROBLEMS:
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
            except PositionOutOfRangeError as error:
                earliest = error.where.get("earliest")
                # Retention was faster. A log that lost its end is another matter.
                if not isinstance(earliest, int) or earliest <= previous:
                    raise
                start = Offset(earliest)

    def record(self, topic: TopicName, record: Record, *, is_event: bool) -> None:
        """Check one record."""
        self.record_count += 1
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
        # many packages refer to one blob, and reading it may take minutes
        if blob.digest not in self.problems:
            self.problems[blob.digest] = self._problem_of(blob)
        problem = self.problems[blob.digest]
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
