"""Records of the job topic as bytes: both ways, and bounded for every writer."""

from __future__ import annotations

import pytest
from mailboat.errors import MessageCorruptError, UnknownRequiredFeatureError
from mailboat.jobs.fold import JobFold
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import (
    MAX_BATCH,
    AttemptOutcome,
    JobAction,
    JobId,
    JobRecord,
    JobResult,
    JobsAdded,
    JobsClaimed,
    JobsCommanded,
    JobsFinished,
    LeasesRenewed,
    NewJob,
    Priority,
    QueueAction,
    QueueCommanded,
    QueueDefined,
    QueueKind,
    QueueRemoved,
    QueueSettings,
    Renewal,
    ResultDetail,
    Token,
    WorkerSeen,
)
from mailboat.wire.headers import JOBS_ADDED, LAST_IGNORED, JobLogOutdatedError, headers_for
from mailboat.wire.job_records import (
    MAX_PART_BYTES,
    decode_checkpoint,
    decode_job_record,
    encode_checkpoint,
    encode_job_record,
)

RECORDS: list[JobRecord] = [
    JobsAdded([NewJob("a"), NewJob("b.c", b"\0", "k", Priority.LOW, 5, 6, -1, 0, 1_000, "u", "r", True, JobId(7))]),
    JobsClaimed.of("w", [[JobId(1)], [JobId(2), JobId(3)]]),
    LeasesRenewed.of([Renewal(JobId(1), Token(2), b"half")]),
    JobsFinished.of(
        [
            JobResult(JobId(1), Token(2), AttemptOutcome.FAIL, 0, "no route"),
            JobResult(JobId(2), Token(3), AttemptOutcome.OK),
        ]
    ),
    JobsCommanded(JobAction.REMOVE, [JobId(1)]),
    QueueCommanded(QueueAction.SUSPEND, "q", 17),
    QueueCommanded(QueueAction.SUSPEND, "q"),
    QueueDefined(QueueSettings("q", ("a.*",), QueueKind.FAIR, 3, 10, 500, 1, 0, 2, 1, 2, 3)),
    QueueRemoved("q"),
    WorkerSeen("w", 4, ("**",), 3),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_survives_encoding(record: JobRecord) -> None:
    headers, value = encode_job_record(record)
    assert decode_job_record(headers, value) == record


@pytest.mark.parametrize(
    "record",
    [
        JobsAdded([]),
        JobsAdded([NewJob("a")] * 257),
        JobsAdded([NewJob("a", bytes(256 * 1024 + 1))]),
        JobsAdded([NewJob("a", b"{%s}" % b",".join(b'"%d":0' % key for key in range(100_000)))]),
        JobsAdded([NewJob("not a topic")]),
        JobsAdded([NewJob("a", key="k" * 300)]),
        JobsAdded([NewJob("a", lease_ms=10)]),
        JobsAdded([NewJob("a", due_ms=1 << 60)]),
        JobsAdded([NewJob("a", retries=40_000)]),
        JobsClaimed.of("w", [[JobId(1)] * 200, [JobId(1)] * 200]),
        JobsClaimed("w", [JobId(1)], [1, 0]),
        JobsClaimed("w", [JobId(1)], [2]),
        JobsClaimed("w", []),
        JobsFinished([JobId(1)], []),
        JobsFinished([JobId(1)], [Token(1)], b"\x04"),
        JobsFinished([JobId(1)], [Token(1)], b"\0\0"),
        JobsFinished([JobId(1)], [Token(1)], b"", [ResultDetail(1, None, "x")]),
        JobsFinished([JobId(1)], [Token(1)], b"", [ResultDetail(0, 1, ""), ResultDetail(0, 2, "")]),
        JobsFinished([JobId(1)], [Token(1)], b"", [ResultDetail(0, 1 << 40, "")]),
        LeasesRenewed([JobId(1)], [Token(1), Token(2)]),
        LeasesRenewed.of([Renewal(JobId(1), Token(1), bytes(5_000))]),
        QueueDefined(QueueSettings("q", ("a..b",))),
        QueueDefined(QueueSettings("q", ("a",), QueueKind.ORDERED, merge=2)),
        QueueDefined(QueueSettings("q", max_parallel=0)),
        WorkerSeen("w", 1, ("a",) * 65),
    ],
)
def test_a_record_out_of_bounds_is_refused(record: JobRecord) -> None:
    with pytest.raises(MessageCorruptError):
        decode_job_record(*encode_job_record(record))


@pytest.mark.parametrize("value", [b"\xff", b"\x0a\x02\x08", b""])
def test_bytes_that_are_no_record_are_refused(value: bytes) -> None:
    with pytest.raises(MessageCorruptError):
        decode_job_record(headers_for(JOBS_ADDED), value)


@pytest.mark.parametrize("kind", [25, 26, 27])
def test_records_of_the_earlier_form_stop_their_reader(kind: int) -> None:
    with pytest.raises(JobLogOutdatedError, match=f"type {kind}"):
        decode_job_record(headers_for(kind), b"")


def test_readers_stop_at_a_type_that_was_added_after_their_version() -> None:
    later = headers_for(LAST_IGNORED + 1)
    assert ("version", b"2") in later
    with pytest.raises(UnknownRequiredFeatureError, match="record of a later version"):
        decode_job_record(later, b"")
    with pytest.raises(MessageCorruptError):  # no writer of ours: ignored
        decode_job_record((("type", b"%d" % (LAST_IGNORED + 1)), ("version", b"1")), b"")


def test_a_checkpoint_survives_encoding_in_parts() -> None:
    fold = JobFold()
    for offset, record in enumerate(RECORDS):
        fold.apply(Offset(offset), 1_000 + offset, record)
    captured = fold.capture(Offset(len(RECORDS)))
    parts = [decode_job_record(*encode_job_record(part)) for part in encode_checkpoint(captured)]
    assert decode_checkpoint([*parts]) == captured
    assert JobFold(decode_checkpoint(parts)).capture(Offset(len(RECORDS))) == captured  # type: ignore[arg-type]


def test_a_checkpoint_has_the_same_bytes_whoever_writes_it() -> None:
    results = {JobId(MAX_BATCH * offset): Offset(offset) for offset in range(1_000)}
    checkpoint = JobFold().capture(Offset(0))
    orders = results, dict(reversed(results.items()))
    one, other = (encode_checkpoint(checkpoint._replace(results=each)) for each in orders)
    assert one == other


def test_columns_that_are_larger_than_a_part_survive_encoding() -> None:
    captured = JobFold().capture(Offset(1))
    columns = {"ids": bytes(range(250)) * 10_000, "states": b"", "keys": b"k" * 127, "due_ms": b"d" * 200}
    parts = encode_checkpoint(captured, columns.items())
    assert [len(part.content) for part in parts[:-1]] == [MAX_PART_BYTES] * 2
    assert 0 < len(parts[-1].content) <= MAX_PART_BYTES
    assert dict(decode_checkpoint(parts).columns) == columns
