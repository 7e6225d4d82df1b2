"""Packages by reference: fetched whole, checked, a few ahead, in bounded memory; and binaries named by digest."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest
from mailboat.blobs.memory import MemoryBlobStore
from mailboat.blobs.references import BlobReference, ReferenceCodec, ReferenceRefusedError
from mailboat.clock import SystemClock
from mailboat.errors import BlobCorruptError, BlobMissingError, LimitExceededError, PackageCorruptError, RetryableError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.nodes import Binary, file_node
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.failures import is_infrastructure
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.subscriber.payloads import Payloads
from mailboat.subscriber.piece_store import SPOOL_BYTES, PieceStore
from mailboat.subscriber.subscriber import Until
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.memory_content import MemorySource, MemoryStore, MemoryTarget
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS
from mailboat.wire.headers import PACKAGE_HEADERS
from mailboat.wire.messages import encode_message
from mailboat.wire.package_messages import decode_package
from support.engines import AUTHOR, PACKAGES, SLING_ID, Engine, page_source


class NotingStore(MemoryBlobStore):
    """Notes who opens what."""

    def __init__(self) -> None:
        super().__init__(SkippingClock())
        self.opened: list[tuple[str, str]] = []

    def open(self, digest: bytes, length_bytes: int) -> BinaryIO:
        self.opened.append((threading.current_thread().name, digest.hex()))
        return super().open(digest, length_bytes)


@pytest.fixture
def store() -> NotingStore:
    return NotingStore()


@pytest.fixture
def payloads(store: NotingStore) -> Iterator[Payloads]:
    made = Payloads(store, ReferenceCodec(), no_pieces(), max_bytes=1 << 30)
    yield made
    made.close()


def no_pieces() -> PieceStore:
    return PieceStore(MemoryJournal(SystemClock()), TopicName("package"), SystemClock())


def test_a_large_package_is_fetched_to_the_disk_of_the_spool_folder(store: NotingStore, tmp_path: Path) -> None:
    pieces = PieceStore(MemoryJournal(SystemClock()), TopicName("package"), SystemClock(), spool=str(tmp_path))
    payloads = Payloads(store, ReferenceCodec(), pieces, max_bytes=1 << 30)
    with fetch(payloads, stored(store, b"x" * (SPOOL_BYTES + 1))) as stream:
        assert Path(f"/proc/self/fd/{stream.fileno()}").readlink().parent == tmp_path
    payloads.close()


def test_a_machine_without_threads_uses_up_no_attempt_of_a_package(
    payloads: Payloads, store: NotingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    one = stored(store, b"package")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RetryableError, match="can't start new thread") as caught:
            fetch(payloads, one)
    assert is_infrastructure(caught.value)


def fetch(payloads: Payloads, one: PackageMessage) -> BinaryIO:
    return payloads.open(one, Offset(7), lambda: None)


def message(content: bytes, **values: object) -> PackageMessage:
    digest = hashlib.sha256(content).digest()
    plain = PackageMessage(
        SLING_ID,
        PackageId("p"),
        Action.ADD,
        "tree",
        AUTHOR,
        payload_ref=str(BlobReference(digest, len(content))),
        package_digest=digest,
    )
    return plain._replace(**values)


def stored(store: NotingStore, content: bytes) -> PackageMessage:
    store.put(io.BytesIO(content))
    return message(content)


def test_what_is_expected_is_fetched_by_other_threads_and_given_once(payloads: Payloads, store: NotingStore) -> None:
    coming = [stored(store, bytes([number]) * 100) for number in range(6)]
    payloads.expect(coming)
    payloads.expect(coming)
    for number, one in enumerate(coming):
        with fetch(payloads, one) as stream:
            assert stream.read() == bytes([number]) * 100
    assert len(store.opened) == 6
    ahead = [thread for thread, _ in store.opened if thread.startswith("prefetch")]
    assert len(ahead) == 4


def test_what_goes_wrong_ahead_is_told_when_its_turn_comes_and_not_twice(
    payloads: Payloads, store: NotingStore
) -> None:
    absent = message(b"absent")
    payloads.expect([absent])
    with pytest.raises(BlobMissingError):
        fetch(payloads, absent)
    store.put(io.BytesIO(b"absent"))
    with fetch(payloads, absent) as stream:
        assert stream.read() == b"absent"


def test_what_was_fetched_ahead_can_be_dropped_at_any_time(payloads: Payloads, store: NotingStore) -> None:
    payloads.expect([stored(store, b"1"), message(b"absent"), stored(store, b"2")])
    payloads.forget()
    with fetch(payloads, message(b"1")) as stream:
        assert stream.read() == b"1"


def test_nothing_is_fetched_ahead_that_is_refused_later_or_is_inline_or_huge(
    payloads: Payloads, store: NotingStore
) -> None:
    refused = message(b"x", payload_ref="s3://elsewhere")
    other = message(b"x", package_digest=b"\1" * 32)
    huge = message(b"x", payload_ref=str(BlobReference(b"\2" * 32, 1 << 29)), package_digest=None)
    payloads.expect([refused, other, message(b"x", payload_ref=None), huge])
    assert store.opened == []
    with pytest.raises(ReferenceRefusedError):
        fetch(payloads, refused)
    with pytest.raises(PackageCorruptError, match="another blob"):
        fetch(payloads, other)
    with pytest.raises(PackageCorruptError, match="no package"):
        fetch(payloads, message(b"x", payload_ref=None))


def test_a_package_beyond_the_limit_is_refused_before_a_byte_is_fetched(store: NotingStore) -> None:
    payloads = Payloads(store, ReferenceCodec(), no_pieces(), max_bytes=10)
    with pytest.raises(LimitExceededError, match="limit of 10"):
        fetch(payloads, stored(store, b"x" * 11))
    assert store.opened == []


def test_a_blob_whose_bytes_are_others_is_never_given(payloads: Payloads, store: NotingStore) -> None:
    good = stored(store, b"good")
    info, _ = store._blobs[hashlib.sha256(b"good").digest()]
    store._blobs[info.digest] = (info, b"evil")
    with pytest.raises(BlobCorruptError):
        fetch(payloads, good)


def test_binaries_are_opened_by_digest_whether_the_message_names_them_or_not(
    payloads: Payloads, store: NotingStore
) -> None:
    store.put(io.BytesIO(b"picture"))
    digest = hashlib.sha256(b"picture").digest()
    for known in ((), (Binary(digest=digest, length_bytes=7),)):
        with payloads.opener(known)(digest) as stream:
            assert stream.read() == b"picture"
    with pytest.raises(BlobMissingError, match="is not in"):
        payloads.opener(())(b"\3" * 32)


def with_binaries(store: NotingStore, *contents: bytes) -> PackageMessage:
    infos = [store.put(io.BytesIO(content)) for content in contents]
    binaries = tuple(Binary(digest=info.digest, length_bytes=info.length_bytes) for info in infos)
    return message(b"inline", payload_ref=None, payload=b"inline", binaries=binaries)


def test_binaries_are_fetched_ahead_while_the_target_asks_for_them(payloads: Payloads, store: NotingStore) -> None:
    coming = [with_binaries(store, b"one", b"two"), with_binaries(store, b"three")]
    payloads.expect(coming)
    assert store.opened == [], "nobody asked for a binary yet"
    for number, one in enumerate(coming):
        for binary in one.binaries:
            with payloads.opener(one.binaries)(binary.digest) as stream:
                assert hashlib.sha256(stream.read()).digest() == binary.digest
        payloads.expect(coming[number + 1 :])
    assert [thread for thread, _ in store.opened] == ["MainThread", "MainThread", "prefetch"]


def test_the_limit_of_packages_is_not_one_of_binaries_also_if_fetched_ahead(store: NotingStore) -> None:
    payloads = Payloads(store, ReferenceCodec(), no_pieces(), max_bytes=10)
    first, large = with_binaries(store, b"first"), with_binaries(store, b"x" * 11)
    with closing(payloads):
        for one in (first, large):
            payloads.expect([one])
            with payloads.opener(one.binaries)(one.binaries[0].digest) as stream:
                assert len(stream.read()) == one.binaries[0].length_bytes


def test_binaries_that_the_target_holds_are_fetched_ahead_no_more(payloads: Payloads, store: NotingStore) -> None:
    first, held, last = (with_binaries(store, bytes([number])) for number in range(3))
    with payloads.opener(first.binaries)(first.binaries[0].digest) as stream:
        stream.read()
    payloads.expect([held])
    payloads.expect([last])  # no one opened it
    payloads.expect([last])
    opened = {digest for _, digest in store.opened}
    assert last.binaries[0].digest.hex() not in opened


def test_a_binary_fetched_ahead_whose_bytes_are_others_is_never_given(payloads: Payloads, store: NotingStore) -> None:
    first, evil = with_binaries(store, b"first"), with_binaries(store, b"good")
    digest = evil.binaries[0].digest
    store._blobs[digest] = (store._blobs[digest][0], b"evil")
    payloads.opener(first.binaries)(first.binaries[0].digest).close()
    payloads.expect([evil])
    with pytest.raises(BlobCorruptError):
        payloads.opener(evil.binaries)(digest)


def test_no_more_binaries_are_fetched_ahead_than_may_be_in_memory_or_on_disk(
    payloads: Payloads, store: NotingStore
) -> None:
    first = with_binaries(store, b"first")
    payloads.opener(first.binaries)(first.binaries[0].digest).close()
    huge = message(b"x", payload_ref=None, binaries=(Binary(digest=b"\2" * 32, length_bytes=1 << 29),))
    payloads.expect([huge, with_binaries(store, *(bytes([number]) * 9 for number in range(9)))])
    payloads.close()
    assert len([thread for thread, _ in store.opened if thread == "prefetch"]) <= 4


def test_signed_references_are_demanded_where_there_is_a_key(store: NotingStore) -> None:
    payloads = Payloads(store, ReferenceCodec(b"k" * 16), no_pieces(), max_bytes=1 << 30)
    with pytest.raises(ReferenceRefusedError, match="not signed"):
        fetch(payloads, stored(store, b"x"))


# ------------------------------------------------------------------------------------------ through the whole engine


@pytest.mark.parametrize("is_editable", [False, True])
def test_a_row_of_large_packages_is_imported_in_order(engine: Engine, is_editable: bool) -> None:
    for number in range(7):
        source = page_source("/page", text=f"{number}" * 900_000)
        source.nodes[NodePath("/picture")] = file_node(NodePath("/picture"), Binary(bytes([number]) * 70_000))
        engine.publisher().publish(add_request([NodePath("/page"), NodePath("/picture")]), source)
    engine.publisher().publish(add_request([NodePath("/last")]), page_source("/last"))
    target = MemoryTarget(MemoryStore())
    statistics = engine.subscriber(target, engine.with_settings(is_editable=is_editable)).run(Until.CAUGHT_UP)
    assert (statistics.imported, statistics.failed) == (8, 0)
    page = target.source().node(NodePath("/page"))
    assert page is not None
    assert page.data is not None
    assert page.data.length_bytes == 900_000 + len(" of /page")
    picture = target.source().node(NodePath("/picture"))
    assert picture is not None
    assert picture.data is not None
    assert picture.data.digest == hashlib.sha256(b"\6" * 70_000).digest()


def test_a_row_of_large_packages_with_a_broken_message_between_them(engine: Engine) -> None:
    for number in range(3):
        engine.publisher().publish(add_request([NodePath("/p")]), page_source("/p", text=f"{number}" * 900_000))
        engine.journal.append(PACKAGES, [NewRecord(b"\xff", PACKAGE_HEADERS)])
    target = MemoryTarget(MemoryStore())
    statistics = engine.subscriber(target).run(Until.CAUGHT_UP)
    assert (statistics.imported, statistics.failed) == (3, 3)


def test_a_batch_that_grows_heavy_is_committed_before_it_is_full(engine: Engine) -> None:
    for number in range(6):
        path = NodePath(f"/{number}")
        engine.publisher().publish(add_request([path]), MemorySource([file_node(path, Binary(bytes(60_000)))]))
    store, settings = MemoryStore(), replace(engine.subscribing, heavy_bytes=150_000)
    statistics = engine.subscriber(MemoryTarget(store), settings).run(Until.CAUGHT_UP)
    assert statistics.phase is SubscriberPhase.STOPPED
    assert (statistics.imported, store.commits) == (6, 2)


def test_a_message_without_a_digest_is_checked_by_its_format(engine: Engine) -> None:
    engine.publisher().publish(add_request([NodePath("/a")]), page_source("/a"))
    plain = decode_package(engine.records()[0].value)
    damaged = bytearray(plain.payload or b"")
    damaged[len(damaged) // 2] ^= 1
    for payload in (plain.payload, bytes(damaged)):
        changed = plain._replace(package_digest=None, payload=payload, request_id=None)
        headers, value = encode_message(changed)
        engine.journal.append(PACKAGES, [NewRecord(value, headers)])
    store = MemoryStore()
    for is_editable in (False, True):
        settings = replace(engine.subscribing, is_editable=is_editable)
        store.position = None
        statistics = engine.subscriber(MemoryTarget(store), settings).run(Until.CAUGHT_UP)
        assert (statistics.imported, statistics.failed) == (2, 1)


# -------------------------------------------------------------------------------------------- a store that is too slow


class ImpatientError(Exception):
    """The time is over."""


class HangingStore(NotingStore):
    """Opens nothing before it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.release = threading.Event(), threading.Event()

    def open(self, digest: bytes, length_bytes: int) -> BinaryIO:
        self.asked.set()
        assert self.release.wait(LONG_WAIT_SECONDS)
        return super().open(digest, length_bytes)


@pytest.fixture
def hanging() -> Iterator[HangingStore]:
    made = HangingStore()
    yield made
    made.release.set()


def test_packages_that_are_passed_by_unopened_do_not_end_the_fetching_ahead(
    payloads: Payloads, store: NotingStore
) -> None:
    payloads.expect([stored(store, bytes([number])) for number in range(4)])
    wanted = stored(store, b"wanted")
    payloads.expect([wanted])
    with fetch(payloads, wanted) as stream:
        assert stream.read() == b"wanted"
    assert [name for name, digest in store.opened if digest == hashlib.sha256(b"wanted").hexdigest()] == ["prefetch"]


@pytest.mark.parametrize("is_ahead", [False, True])
def test_who_waits_for_a_store_that_hangs_can_lose_patience(hanging: HangingStore, is_ahead: bool) -> None:
    payloads, one = Payloads(hanging, ReferenceCodec(), no_pieces(), max_bytes=1 << 30), stored(hanging, b"slow")
    if is_ahead:
        payloads.expect([one])

    def check() -> None:
        if hanging.asked.is_set():
            raise ImpatientError

    with pytest.raises(ImpatientError):
        payloads.open(one, Offset(7), check)
    payloads.close()
    assert hanging.opened == []


def test_neither_closing_nor_the_end_of_the_process_waits_for_a_fetch_that_hangs(hanging: HangingStore) -> None:
    payloads = Payloads(hanging, ReferenceCodec(), no_pieces(), max_bytes=1 << 30)
    before = set(threading.enumerate())
    for _ in range(5):
        payloads.expect([stored(hanging, bytes([number])) for number in range(4)])
        assert hanging.asked.wait(PATIENCE_SECONDS)
        payloads.forget()
    left = [item for item in set(threading.enumerate()) - before if item.name == "prefetch"]
    payloads.close()
    assert len(left) == 8, "a store that hangs gets ever more threads"
    assert all(item.daemon for item in left)


def test_the_time_of_a_package_counts_while_it_is_fetched(engine: Engine, hanging: HangingStore) -> None:
    engine.publisher().publish(add_request([NodePath("/p")]), page_source("/p", text="x" * 900_000))
    engine.blobs.open = hanging.open  # type: ignore[method-assign]  # it hangs from now on
    target = MemoryTarget(MemoryStore())
    settings = engine.with_settings(
        package_timeout_seconds=0.0, max_retries=0, first_pause_seconds=0.0, longest_pause_seconds=0.0
    )
    statistics = engine.subscriber(target, settings).run(Until.CAUGHT_UP)
    assert (statistics.imported, statistics.failed) == (0, 1)
    (entry,) = target.ledger.given_up()
    assert entry.cause.code == "ImportTimeout"


def test_nothing_is_fetched_ahead_for_a_publisher_that_is_not_followed(engine: Engine) -> None:
    opened, real = [], engine.blobs.open
    engine.blobs.open = lambda *asked: (opened.append(asked), real(*asked))[1]  # type: ignore[method-assign]  # a spy
    for name in (AUTHOR, AgentName("stranger"), AUTHOR):
        publisher = engine.publisher(engine.publishing_with(name=name))
        publisher.publish(add_request([NodePath("/p")]), page_source("/p", text=name * 200_000))
    settings = engine.with_settings(follow=frozenset({AUTHOR}))
    statistics = engine.subscriber(MemoryTarget(MemoryStore()), settings).run(Until.CAUGHT_UP)
    assert statistics.imported == 2
    assert len(opened) == 2
