"""What every blob store must do, as tests. Needs pytest and hypothesis.

An adapter's test module derives a class from `BlobStoreContract` and gives it a fixture `harness`. A store may be
shared with other tests: each uses content of its own, and nothing is said about how many blobs there are.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mailboat.blobs.port import BlobStore, Digest
from mailboat.clock import SystemClock
from mailboat.errors import BlobCorruptError, BlobMissingError, UsageError
from mailboat.testing.examples import examples


@dataclass(frozen=True)
class BlobHarness:
    """What the suite needs to know of an adapter.

    Attributes:
        open: Another handle on the same store.
        damage: Replaces the stored bytes of a blob behind the store's back.
    """

    open: Callable[[], BlobStore]
    damage: Callable[[Digest, bytes], None]


class SlowStream(io.RawIOBase):
    """A stream that gives few bytes at a time, as sockets do, and counts them."""

    def __init__(self, content: bytes, at_once: int) -> None:
        """Give `content`, `at_once` bytes a read."""
        super().__init__()
        self._content = io.BytesIO(content)
        self._at_once = at_once
        self.largest_request = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        self.largest_request = max(self.largest_request, size)
        return self._content.read(self._at_once if size < 0 else min(size, self._at_once))


class BreakingStream(io.RawIOBase):
    """A stream that fails in the middle."""

    def __init__(self) -> None:
        """Fail at the second read."""
        super().__init__()
        self.first_part = new_content()
        self._has_begun = False

    def read(self, size: int = -1, /) -> bytes:  # noqa: ARG002 - the signature of a stream
        if self._has_begun:
            raise ConnectionResetError("the connection was reset")
        self._has_begun = True
        return self.first_part


def digest_of(content: bytes) -> Digest:
    """The name of some content."""
    return hashlib.sha256(content).digest()


def new_content(length_bytes: int = 1000) -> bytes:
    """Content that no other test has."""
    unique = uuid.uuid4().bytes
    return (unique * (length_bytes // len(unique) + 1))[:length_bytes]


class BlobStoreContract:
    """The suite. See the module."""

    @pytest.fixture
    def harness(self) -> BlobHarness:
        """The adapter under test; each adapter's class gives its own."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, harness: BlobHarness) -> Iterator[BlobStore]:
        """A handle on the store."""
        store = harness.open()
        yield store
        store.close()

    def test_what_was_stored_is_read_back(self, store: BlobStore) -> None:
        content = new_content()
        info = store.put(io.BytesIO(content))
        assert (info.digest, info.length_bytes) == (digest_of(content), len(content))
        with store.open(info.digest, info.length_bytes) as stream:
            assert stream.read() == content

    @settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
    @given(content=st.binary(max_size=200_000), at_once=st.integers(1, 70_000))
    def test_any_content_comes_back_however_it_is_read(
        self, harness: BlobHarness, content: bytes, at_once: int
    ) -> None:
        store = harness.open()
        info = store.put(io.BytesIO(content), digest_of(content))
        with store.open(info.digest, info.length_bytes) as stream:
            assert b"".join(iter(lambda: stream.read(at_once), b"")) == content
        store.close()

    def test_an_empty_blob_is_a_blob(self, store: BlobStore) -> None:
        info = store.put(io.BytesIO(b""))
        assert info.length_bytes == 0
        with store.open(info.digest, 0) as stream:
            assert stream.read() == b""

    def test_a_large_blob_is_taken_in_pieces(self, store: BlobStore) -> None:
        content = new_content(5_000_000)
        stream = SlowStream(content, 700_001)
        info = store.put(stream)  # type: ignore[arg-type]  # only `read` is used
        assert info == store.stat(digest_of(content))
        assert 0 < stream.largest_request < len(content)

    def test_another_handle_sees_the_blob(self, harness: BlobHarness, store: BlobStore) -> None:
        content = new_content()
        info = store.put(io.BytesIO(content))
        other = harness.open()
        assert other.stat(info.digest) == info
        with other.open(info.digest, info.length_bytes) as stream:
            assert stream.read() == content
        other.close()

    def test_content_that_was_not_expected_is_not_stored(self, store: BlobStore) -> None:
        content, other = new_content(), new_content()
        with pytest.raises(BlobCorruptError, match=digest_of(other).hex()):
            store.put(io.BytesIO(content), digest_of(other))
        assert store.stat(digest_of(content)) is None
        assert store.stat(digest_of(other)) is None

    def test_a_source_that_breaks_leaves_nothing(self, store: BlobStore) -> None:
        stream = BreakingStream()
        with pytest.raises(ConnectionResetError):
            store.put(stream)  # type: ignore[arg-type]  # only `read` is used
        assert store.stat(digest_of(stream.first_part)) is None

    def test_storing_again_renews_the_blob(self, store: BlobStore) -> None:
        content = new_content()
        first = store.put(io.BytesIO(content))
        again = store.put(io.BytesIO(content))
        assert (again.digest, again.length_bytes) == (first.digest, first.length_bytes)
        assert again.stored_at >= first.stored_at
        assert store.stat(first.digest) == again

    def test_many_may_store_the_same_at_once(self, harness: BlobHarness, store: BlobStore) -> None:
        content = new_content(300_000)
        other = harness.open()
        with ThreadPoolExecutor(8) as pool:
            infos = list(pool.map(lambda one: one.put(io.BytesIO(content)), [store, other] * 8))
        other.close()
        assert {(info.digest, info.length_bytes) for info in infos} == {(digest_of(content), len(content))}
        with store.open(digest_of(content), len(content)) as stream:
            assert stream.read() == content

    def test_a_blob_that_is_not_there_is_missing(self, store: BlobStore) -> None:
        digest = digest_of(new_content())
        assert store.stat(digest) is None
        assert store.delete(digest) is False
        with pytest.raises(BlobMissingError, match=digest.hex()):
            store.open(digest, 10)

    def test_deleting_removes_and_says_so(self, store: BlobStore) -> None:
        info = store.put(io.BytesIO(new_content()))
        assert store.delete(info.digest) is True
        assert store.stat(info.digest) is None
        with pytest.raises(BlobMissingError):
            store.open(info.digest, info.length_bytes)

    def test_the_list_has_what_is_there(self, store: BlobStore) -> None:
        kept = {store.put(io.BytesIO(new_content())) for _ in range(5)}
        gone = store.put(io.BytesIO(new_content()))
        store.delete(gone.digest)
        listed = set(store.list())
        assert kept <= listed
        assert gone not in listed

    @pytest.mark.parametrize("difference", [-1, 1, 10**15])
    def test_another_length_than_promised_is_refused(self, store: BlobStore, difference: int) -> None:
        content = new_content(5000)
        info = store.put(io.BytesIO(content))
        with pytest.raises(BlobCorruptError, match=info.digest.hex()):
            store.open(info.digest, len(content) + difference).read()

    @pytest.mark.parametrize("position", [0, 99_999, 199_999])
    def test_a_flipped_bit_is_noticed_by_who_reads_to_the_end(
        self, harness: BlobHarness, store: BlobStore, position: int
    ) -> None:
        content = new_content(200_000)
        info = store.put(io.BytesIO(content))
        damaged = bytearray(content)
        damaged[position] ^= 1
        harness.damage(info.digest, bytes(damaged))
        with store.open(info.digest, len(content)) as stream, pytest.raises(BlobCorruptError, match="content"):
            stream.read(len(content))  # exactly what was promised, without asking for the end

    @pytest.mark.parametrize("length_bytes", [0, 1, 65_536, 199_999, 200_001, 300_000])
    def test_a_blob_of_another_length_is_noticed(
        self, harness: BlobHarness, store: BlobStore, length_bytes: int
    ) -> None:
        content = new_content(200_000)
        info = store.put(io.BytesIO(content))
        harness.damage(info.digest, (content * 2)[:length_bytes])
        with pytest.raises(BlobCorruptError):
            store.open(info.digest, len(content)).read()

    def test_storing_again_repairs_a_damaged_blob(self, harness: BlobHarness, store: BlobStore) -> None:
        content = new_content()
        info = store.put(io.BytesIO(content))
        harness.damage(info.digest, bytes(len(content)))
        store.put(io.BytesIO(content))
        with store.open(info.digest, len(content)) as stream:
            assert stream.read() == content

    def test_a_sweep_removes_what_was_not_renewed_since(self, store: BlobStore) -> None:
        infos = [store.put(io.BytesIO(new_content())) for _ in range(3)]
        after = max(info.stored_at for info in infos) + timedelta(seconds=2)
        missing = digest_of(new_content())
        assert store.remove_unrenewed([infos[0].digest, infos[2].digest, missing], after) == 2
        assert [store.stat(info.digest) for info in infos] == [None, infos[1], None]

    def test_a_sweep_keeps_what_is_young(self, store: BlobStore) -> None:
        info = store.put(io.BytesIO(new_content()))
        assert store.remove_unrenewed([info.digest], info.stored_at) == 0
        assert store.stat(info.digest) == info

    def test_a_swept_blob_can_be_stored_again(self, store: BlobStore) -> None:
        content = new_content()
        info = store.put(io.BytesIO(content))
        store.remove_unrenewed([info.digest], info.stored_at + timedelta(seconds=2))
        assert store.put(io.BytesIO(content)).digest == info.digest
        with store.open(info.digest, len(content)) as stream:
            assert stream.read() == content

    def test_writers_that_are_at_it_lose_nothing_to_the_sweep_of_unfinished_uploads(self, store: BlobStore) -> None:
        content = new_content()

        class Sweeping(SlowStream):
            def read(self, size: int = -1, /) -> bytes:
                store.abandon_uploads(SystemClock().now() - timedelta(hours=1))
                return super().read(size)

        info = store.put(Sweeping(content, 300))  # type: ignore[arg-type]  # only `read` is used
        assert info.digest == digest_of(content)

    def test_what_is_no_digest_is_refused(self, store: BlobStore) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.stat(b""),
            lambda: store.open(b"../../etc", 3),
            lambda: store.delete(b"x" * 33),
            lambda: store.put(io.BytesIO(b"content"), b"short"),
        ]
        for call in calls:
            with pytest.raises(UsageError, match="32 bytes"):
                call()

    def test_a_document_is_found_by_its_name_until_it_is_removed(self, harness: BlobHarness, store: BlobStore) -> None:
        name = f"edge-{uuid.uuid4().hex}"
        assert store.documents.read(name) is None
        store.documents.write(name, b"one")
        store.documents.write(name, b"two and more")
        with closing(harness.open()) as other:
            assert other.documents.read(name) == b"two and more"
            assert name in other.documents.names()
        assert store.documents.remove(name)
        assert not store.documents.remove(name)
        assert store.documents.read(name) is None
        assert name not in store.documents.names()

    def test_of_two_who_create_a_document_one_does(self, harness: BlobHarness, store: BlobStore) -> None:
        name = f"claim-{uuid.uuid4().hex}"
        with closing(harness.open()) as other:
            assert store.builds.create(name, b"first")
            assert not other.builds.create(name, b"second")
            assert other.builds.read(name) == b"first"
            other.builds.write(name, b"third")
        assert not store.builds.create(name, b"fourth")
        assert store.builds.read(name) == b"third"
        assert store.builds.remove(name)
        assert store.builds.create(name, b"fifth")
        assert store.builds.remove(name)

    def test_manifests_of_builds_are_found_by_their_prefix_and_apart_from_other_documents(
        self, store: BlobStore
    ) -> None:
        of_build, of_other = f"a{uuid.uuid4().hex}.rows", f"b{uuid.uuid4().hex}.rows"
        store.builds.write(of_build, b"")
        store.builds.write(of_other, b"")
        assert store.builds.names(of_build[:20]) == [of_build]
        assert {of_build, of_other} <= set(store.builds.names())
        assert not store.documents.names(of_build)
        assert not store.documents.names(of_other)
        assert [store.builds.remove(of_build), store.builds.remove(of_other)] == [True, True]

    def test_documents_are_no_blobs(self, store: BlobStore) -> None:
        before = len(list(store.list()))
        store.documents.write("beside", b"no blob")
        assert len(list(store.list())) == before
        assert store.documents.remove("beside")

    @pytest.mark.parametrize("name", ["", "..", "a/b", "../x", "a\0b", "-a", "x" * 64])
    def test_a_document_is_not_named_out_of_its_place(self, store: BlobStore, name: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.documents.write(name, b""),
            lambda: store.documents.read(name),
            lambda: store.documents.remove(name),
        ]
        for call in calls:
            with pytest.raises(UsageError, match="is not an agent name"):
                call()

    def test_the_description_names_the_kind(self, store: BlobStore) -> None:
        assert store.description
