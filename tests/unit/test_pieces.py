"""Packages in pieces: cut and appended by a publisher, collected or read again by a subscriber."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.config.document import PiecesConfig
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import (
    AppendUncertainError,
    ImportTimeoutError,
    JournalUnavailableError,
    LimitExceededError,
    MessageCorruptError,
    PackageCorruptError,
    StorageFullError,
)
from mailboat.failpoints import NoFailpoints
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import Edge, NewRecord, ReadLimits, Record
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.pieces import PieceMessage, PieceRun, is_run, parse_run
from mailboat.publisher.piece_writer import PieceAppender, PieceWriter
from mailboat.subscriber.piece_store import SPOOL_BYTES, PieceFigures, PiecesMissingError, PieceStore
from mailboat.testing.clocks import ManualClock
from mailboat.testing.examples import examples
from mailboat.wire._generated.pieces_pb2 import PieceMessage as PieceWire
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.piece_messages import decode_piece, encode_piece

TOPIC = TopicName("package")
AUTHOR = SlingId("a" * 36), AgentName("author")
MEBIBYTE = 1024 * 1024
PIECE = st.tuples(st.sampled_from("abc"), st.binary(min_size=1, max_size=9))


class Bench:
    """A journal, a publisher of pieces, and a store that sees them go by."""

    def __init__(self, piece_bytes: int = 10, limits: PiecesConfig | None = None) -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal(self.clock)
        self.journal.ensure_topic(TOPIC, TopicSettings())
        self.piece_bytes = piece_bytes
        self.store = PieceStore(self.journal, TOPIC, self.clock, limits)
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def append(self, package: bytes, name: str = "p") -> tuple[PackageMessage, Offset]:
        """Append the pieces, and give the message that stands right after them."""
        with self.writer(name) as writer:
            for at in range(0, len(package), 7):
                writer.write(package[at : at + 7])
            run = writer.finish()
        return message_of(package, run, name), Offset(run.last_offset + 1)

    def writer(self, name: str = "p", max_bytes: int | None = None) -> PieceWriter:
        appender = PieceAppender(self.journal, TOPIC, *AUTHOR, PackageId(name))
        return PieceWriter(appender, self.piece_bytes, 3 * self.piece_bytes, NoFailpoints(), max_bytes)

    def piece(self, index: int, content: bytes, name: str = "p") -> Offset:
        """Append one piece by hand."""
        piece = PieceMessage(*AUTHOR, PackageId(name), index, content)
        return self.journal.append(TOPIC, [NewRecord(encode_piece(piece), PIECE_HEADERS)])[0]

    def see_all(self) -> None:
        """Let the store see what was appended since the last time."""
        for record in self.records(self._next):
            self.store.take(record, None)
            self._next = record.offset + 1

    def records(self, start: int = 0) -> list[Record]:
        reader = self.journal.reader(TOPIC, Offset(start))
        return list(reader.read(ReadLimits(max_records=100_000, max_bytes=1 << 40), 0.0).records)

    def open(self, message: PackageMessage, offset: Offset, max_bytes: int = MEBIBYTE) -> bytes:
        with self.store.open(message, offset, max_bytes, lambda: None) as stream:
            return stream.read()


def message_of(package: bytes, run: PieceRun, name: str = "p") -> PackageMessage:
    return PackageMessage(
        AUTHOR[0],
        PackageId(name),
        Action.ADD,
        "tree",
        AUTHOR[1],
        package_length_bytes=len(package),
        payload_ref=str(run),
        package_digest=hashlib.sha256(package).digest(),
    )


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as one:
        yield one


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(min_size=1, max_size=200), st.integers(1, 40), st.booleans())
def test_a_package_comes_out_of_its_pieces_as_it_went_in(package: bytes, piece_bytes: int, goes_by: bool) -> None:
    with Bench(piece_bytes) as bench:
        message, offset = bench.append(package)
        if goes_by:
            bench.see_all()
        assert bench.open(message, offset) == package
        assert bench.store.figures.read_again == (not goes_by)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.binary(min_size=1, max_size=9)), min_size=1, max_size=30), st.data()
)
def test_interleaved_publishers_and_repeated_pieces_change_nothing(
    pieces: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    with Bench() as bench:
        written: dict[str, list[bytes]] = {}
        offsets: dict[str, list[Offset]] = {}
        for name, content in pieces:
            mine = written.setdefault(name, [])
            mine.append(content)
            offsets.setdefault(name, []).append(bench.piece(len(mine) - 1, content, name))
            if data.draw(st.booleans()):
                offsets[name].append(bench.piece(len(mine) - 1, content, name))
        if data.draw(st.booleans()):
            bench.see_all()
        for name, contents in written.items():
            package = b"".join(contents)
            starts = [0, 1] if offsets[name][1:2] and len(offsets[name]) > len(contents) else [0]
            run = PieceRun(offsets[name][starts[0]], offsets[name][-1], len(contents), len(package))
            end = Offset(bench.journal.bounds(TOPIC).next_offset)
            assert bench.open(message_of(package, run, name), end) == package


def test_pieces_of_a_package_that_no_one_names_cost_nothing_once_they_expired(bench: Bench) -> None:
    for number in range(2000):
        bench.piece(0, b"orphan", f"dead-{number}")
    bench.see_all()
    assert bench.store.figures.dropped == 1990
    bench.clock.advance(61)
    message, offset = bench.append(b"x" * 35)
    bench.see_all()
    assert bench.store.figures.expired == 10
    assert bench.open(message, offset) == b"x" * 35
    assert bench.store.collected_bytes == 0


def test_an_expiry_of_no_time_at_all_costs_a_second_reading_and_no_more() -> None:
    with Bench(limits=PiecesConfig(expire_seconds=0.0)) as bench:
        message, offset = bench.append(b"abc" * 30)
        bench.see_all()
        assert bench.open(message, offset) == b"abc" * 30
        assert bench.store.told() == PieceFigures(pieces=9, read_again=1, expired=1)


def test_piece_collection_expires_by_its_own_last_piece(bench: Bench) -> None:
    bench.piece(0, b"dead", "dead")
    bench.piece(0, b"restarted", "restarted")
    bench.piece(0, b"slow", "slow")
    message, offset = bench.append(b"done")
    bench.see_all()
    assert bench.open(message, offset) == b"done"
    bench.clock.advance(40)
    bench.piece(0, b"restarted", "restarted")
    bench.piece(1, b"slow", "slow")
    bench.see_all()
    bench.clock.advance(30)
    bench.store.expire()
    told = bench.store.told()
    assert (told.expired, told.collecting, told.collecting_bytes) == (1, 2, len(b"restarted" + b"slow" * 2))


def test_what_the_collection_dropped_for_want_of_room_is_read_again() -> None:
    with Bench(limits=PiecesConfig(max_bytes=50)) as bench:
        first, at_first = bench.append(b"1" * 40, "first")
        second, at_second = bench.append(b"2" * 40, "second")
        bench.see_all()
        assert bench.store.figures.dropped == 1
        assert bench.open(first, at_first) == b"1" * 40
        assert bench.open(second, at_second) == b"2" * 40
        assert (bench.store.figures.read_again, bench.store.figures.collected) == (1, 1)


def test_the_oldest_collection_is_the_victim_of_the_cap_and_the_cap_holds_after_many() -> None:
    with Bench(limits=PiecesConfig(max_packages=2)) as bench:
        for number in range(50):
            bench.piece(0, b"x", f"p{number}")
            bench.see_all()
            assert bench.store.collected_bytes == min(2, number + 1)
        bench.piece(1, b"y", "p49")
        bench.see_all()
        assert bench.store.collected_bytes == 3


def test_a_start_in_the_middle_of_the_pieces_loses_nothing(bench: Bench) -> None:
    message, offset = bench.append(b"abc" * 30)
    for record in bench.records(4):
        bench.store.take(record, None)
    assert bench.open(message, offset) == b"abc" * 30
    assert bench.store.figures.read_again == 1


def test_a_package_is_opened_again_after_a_rolled_back_batch(bench: Bench) -> None:
    message, offset = bench.append(b"abc" * 30)
    bench.see_all()
    assert bench.open(message, offset) == bench.open(message, offset) == b"abc" * 30


def test_a_beginning_that_was_appended_twice_counts_from_the_second_time(bench: Bench) -> None:
    bench.piece(0, b"lost answer")
    first = bench.piece(0, b"lost answer")
    last = bench.piece(1, b"rest")
    bench.see_all()
    package = b"lost answerrest"
    assert bench.open(message_of(package, PieceRun(first, last, 2, len(package))), Offset(last + 1)) == package


def test_pieces_of_publishers_that_are_not_followed_are_not_collected(bench: Bench) -> None:
    bench.append(b"x" * 30)
    for record in bench.records():
        bench.store.take(record, frozenset({AgentName("other")}))
    assert bench.store.figures.pieces == 0
    assert bench.store.collected_bytes == 0


def test_what_is_no_piece_is_passed_by(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.store.take(Record(Offset(7), b"\xff", PIECE_HEADERS), None)
    assert "offset 7 is not a piece" in caplog.text


@pytest.mark.parametrize("is_read_again", [False, True])
def test_a_large_package_waits_on_the_disk_of_its_spool_folder(tmp_path: Path, is_read_again: bool) -> None:
    content = b"x" * (SPOOL_BYTES // 2 + 1)
    with Bench() as bench:
        bench.store = PieceStore(bench.journal, TOPIC, bench.clock, spool=str(tmp_path))
        first, last = (bench.piece(index, content) for index in range(2))
        message = message_of(2 * content, PieceRun(first, last, 2, 2 * len(content)))
        if not is_read_again:
            bench.see_all()
        with bench.store.open(message, Offset(last + 1), 2 * SPOOL_BYTES, lambda: None) as stream:
            assert Path(f"/proc/self/fd/{stream.fileno()}").readlink().parent == tmp_path
        assert list(tmp_path.iterdir()) == []  # the file has no name


def test_a_full_disk_while_collecting_costs_the_collection_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    message, offset = bench.append(b"x" * 30)
    with monkeypatch.context() as patch:
        patch.setattr("mailboat.subscriber.piece_store._Collection.add", _no_room)
        bench.see_all()
    assert bench.store.figures.dropped > 0
    assert bench.open(message, offset) == b"x" * 30


def test_a_full_disk_while_reading_again_is_told_and_leaves_nothing_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    message, offset = bench.append(b"x" * 30)
    monkeypatch.setattr("mailboat.subscriber.piece_store.SpooledTemporaryFile", lambda *_, **__: FullFile())
    with pytest.raises(StorageFullError):
        bench.open(message, offset)


def test_pieces_that_retention_removed_are_missed_by_name(bench: Bench) -> None:
    message, offset = bench.append(b"x" * 35)
    bench.journal.truncate(TOPIC, Offset(2))
    with pytest.raises(PiecesMissingError, match="retention removed the first of the 4 pieces, from 0 on") as caught:
        bench.open(message, offset)
    assert caught.value.next_step == "publish its paths again"


def test_a_missing_piece_in_the_middle_is_missed(bench: Bench) -> None:
    first, last = bench.piece(0, b"aa"), bench.piece(2, b"cc")
    bench.see_all()
    with pytest.raises(PiecesMissingError, match="only 1 make up"):
        bench.open(message_of(b"aabbcc", PieceRun(first, last, 2, 6)), Offset(last + 1))


def test_a_claim_to_pieces_that_no_one_appended_reads_next_to_nothing(bench: Bench) -> None:
    for number in range(500):
        bench.piece(0, b"x", f"other-{number}")
    looks = 0

    def count() -> None:
        nonlocal looks
        looks += 1

    claim = message_of(b"x", PieceRun(Offset(0), Offset(499), 1, 1), "forged")
    with pytest.raises(PiecesMissingError):
        bench.store.open(claim, Offset(500), MEBIBYTE, count)
    assert looks == 1


def test_a_run_is_read_no_farther_than_its_last_piece(bench: Bench) -> None:
    message, _ = bench.append(b"x" * 35)
    for number in range(500):
        bench.piece(0, b"x", f"other-{number}")
    far = message._replace(payload_ref=str(PieceRun(Offset(0), Offset(503), 4, 35)))
    looks = 0

    def count() -> None:
        nonlocal looks
        looks += 1

    with bench.store.open(far, Offset(504), MEBIBYTE, count) as stream:
        assert stream.read() == b"x" * 35
    assert looks == 1


def test_pieces_with_another_digest_are_refused_before_they_are_parsed(bench: Bench) -> None:
    message, offset = bench.append(b"x" * 35)
    with pytest.raises(PackageCorruptError, match="do not have the digest"):
        bench.open(message._replace(package_digest=bytes(32)), offset)


@pytest.mark.parametrize("missing", [{"package_digest": None}, {"package_length_bytes": 34}])
def test_a_package_in_pieces_needs_its_length_and_digest(bench: Bench, missing: dict[str, object]) -> None:
    message, offset = bench.append(b"x" * 35)
    with pytest.raises(PackageCorruptError, match="needs its length and digest"):
        bench.open(message._replace(**missing), offset)  # type: ignore[arg-type]  # by parameter


def test_an_advertised_length_beyond_the_limit_is_refused_before_anything_is_read(bench: Bench) -> None:
    message, offset = bench.append(b"x" * 35)
    with pytest.raises(LimitExceededError):
        bench.open(message, offset, max_bytes=34)


def test_the_time_limit_is_asked_for_while_pieces_are_read(bench: Bench) -> None:
    message, offset = bench.append(b"x" * 35)

    def over() -> None:
        raise ImportTimeoutError("over")

    with pytest.raises(ImportTimeoutError):
        bench.store.open(message, offset, MEBIBYTE, over)


@pytest.mark.parametrize(
    "text",
    [
        "pieces:",
        "pieces:0:1:2",
        "pieces:0:1:2:x",
        "pieces:01:1:1:9",
        "pieces:5:4:1:9",  # ends before it begins
        "pieces:0:10:1:9",  # beyond the message
        "pieces:0:1:3:9",  # more pieces than places
        "pieces:0:9:9:8",  # more pieces than bytes
        "pieces:0:1:0:9",
        "pieces:0:99999999999999999999:1:9",
        "sha256:00:1",
    ],
)
def test_a_run_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(PackageCorruptError):
        parse_run(text, 10)


def test_a_run_is_written_as_it_is_read() -> None:
    run = PieceRun(Offset(3), Offset(9), 4, 1000)
    assert is_run(str(run))
    assert parse_run(str(run), 10) == run
    assert not is_run("sha256:" + "0" * 64 + ":1")


@pytest.mark.parametrize(("index", "content"), [(-1, b"x"), (0, b"")])
def test_an_impossible_piece_is_refused(index: int, content: bytes) -> None:
    with pytest.raises(MessageCorruptError):
        decode_piece(encode_piece(PieceMessage(*AUTHOR, PackageId("p"), index, content)))


@given(st.integers(0, 2**40), st.binary(min_size=1, max_size=300) | st.just(bytes(20_000)))
def test_a_piece_has_the_bytes_that_protobuf_would_write(index: int, content: bytes) -> None:
    encoded = encode_piece(PieceMessage(*AUTHOR, PackageId("p"), index, content))
    assert encoded == PieceWire.FromString(encoded).SerializeToString()
    assert decode_piece(encoded) == PieceMessage(*AUTHOR, PackageId("p"), index, content)


@given(st.integers(-1, 2**40), st.text(max_size=9), st.binary(max_size=300), st.data())
def test_a_piece_in_any_form_is_read_as_protobuf_reads_it(
    index: int, name: str, content: bytes, data: st.DataObject
) -> None:
    encoded = encode_piece(PieceMessage(SlingId(name), AgentName(name), PackageId(name), index, content))
    at = data.draw(st.integers(0, len(encoded)))
    inserted = data.draw(
        st.sampled_from([b"", b"\x2a\x00", b"\x2a\x01x", b"\x30\x07", b"\x20\x00"]) | st.binary(max_size=5)
    )
    value = encoded[:at] + inserted + encoded[at + data.draw(st.integers(0, 2)) :]
    try:
        read = PieceWire.FromString(value)
        is_right = read.IsInitialized() and read.index >= 0 and bool(read.content) and bool(read.pkg_id)
    except DecodeError:
        is_right = False
    if is_right:
        sender = SlingId(read.pub_sling_id), AgentName(read.pub_agent_name)
        assert decode_piece(value) == PieceMessage(*sender, PackageId(read.pkg_id), read.index, read.content)
    else:
        with pytest.raises(MessageCorruptError):
            decode_piece(value)


def test_a_piece_without_its_package_is_refused() -> None:
    with pytest.raises(MessageCorruptError, match="lacks the required fields"):
        decode_piece(b"")


def test_what_fits_one_step_is_not_cut_before_its_end(bench: Bench) -> None:
    with bench.writer() as writer:
        writer.write(b"x" * 30)
        assert writer.content == b"x" * 30
        assert bench.records() == []
        writer.write(b"y")
        assert writer.content is None
        assert str(writer.finish()) == "pieces:0:3:4:31"


def test_a_package_beyond_its_limit_is_refused_while_it_is_written(bench: Bench) -> None:
    with bench.writer(max_bytes=40) as writer:
        writer.write(b"x" * 40)
        with pytest.raises(LimitExceededError, match="more than 40 bytes"):
            writer.write(b"x")


def test_a_large_write_is_cut_as_many_small_ones_are(bench: Bench) -> None:
    package = bytes(range(256))
    with bench.writer() as writer:
        writer.write(package)
        run = writer.finish()
    assert bench.open(message_of(package, run), Offset(run.last_offset + 1)) == package


def test_what_was_written_may_change_afterwards(bench: Bench) -> None:
    buffer = bytearray(b"abc")
    with bench.writer() as writer:
        writer.write(buffer)
        buffer[:] = bytes(3)
        assert writer.content == b"abc"


def test_a_step_that_failed_ends_the_writing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(*_: object) -> object:
        raise StorageFullError("no room")

    monkeypatch.setattr(bench.journal, "append", append)
    with bench.writer() as writer:
        writer.write(b"x" * 31)
        with pytest.raises(StorageFullError):
            writer.write(b"x" * 31)
    assert bench.records() == []


def test_an_append_of_unknown_outcome_is_made_again_and_read_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = bench.journal.append, iter([True, False, True, False, False, False])

    def append(topic: TopicName, records: list[NewRecord]) -> object:
        offsets = real(topic, records)
        if next(failures):
            raise AppendUncertainError("no answer")
        return offsets

    monkeypatch.setattr(bench.journal, "append", append)
    message, offset = bench.append(b"0123456789" * 5)
    bench.see_all()
    assert bench.open(message, offset) == b"0123456789" * 5
    assert bench.store.figures.collected == 1


def recreate(journal: MemoryJournal) -> None:
    journal.upkeep.delete_topic(TOPIC)
    journal.ensure_topic(TOPIC, TopicSettings())


@pytest.mark.parametrize("lose", [recreate, lambda journal: journal.truncate(TOPIC, Offset(1))])
def test_pieces_that_the_topic_lost_meanwhile_are_promised_by_no_message(
    bench: Bench, lose: Callable[[MemoryJournal], object]
) -> None:
    with bench.writer() as writer:
        writer.write(b"x" * 70)
        writer._end_step()
        lose(bench.journal)
        writer.write(b"y" * 70)
        with pytest.raises(JournalUnavailableError, match="lost pieces of package p"):
            writer.finish()


def test_an_append_that_never_answers_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(topic: TopicName, records: list[NewRecord]) -> object:
        raise AppendUncertainError("no answer")

    monkeypatch.setattr(bench.journal, "append", append)
    with pytest.raises(AppendUncertainError):
        bench.append(b"x")


def test_no_append_carries_more_than_it_may(bench: Bench) -> None:
    bench.append(b"x" * 95)
    assert max(len(decode_piece(record.value).content) for record in bench.records()) == 10
    assert [decode_piece(record.value).index for record in bench.records()] == list(range(10))
    assert bench.journal.reader(TOPIC, Edge.EARLIEST).next_offset == 0


class FullFile(io.BytesIO):
    """Takes nothing."""

    def write(self, _: object) -> int:
        _no_room()
        return 0


def _no_room(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_pieces_are_found_again_however_much_of_others_stands_between(bench: Bench) -> None:
    first = bench.piece(0, b"one ")
    others = [NewRecord(b"", PIECE_HEADERS)] * 1000
    for _ in range(101):
        bench.journal.append(TOPIC, others)
    last = bench.piece(1, b"two")
    message = message_of(b"one two", PieceRun(first, last, 2, 7), "p")
    assert bench.open(message, Offset(last + 1)) == b"one two"
