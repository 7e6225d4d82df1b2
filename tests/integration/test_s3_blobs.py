"""What a blob store on a real S3 server does beyond the port: parts, conditions, renewal, sweeps by announcement."""

from __future__ import annotations

import hashlib
import io
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mailboat.blobs.s3 import S3BlobStore
from mailboat.blobs.s3_connection import S3Connection
from mailboat.blobs.s3_download import RANGE_BYTES, RANGES_AT_ONCE
from mailboat.blobs.s3_sweep import ANNOUNCEMENT, LEASE_SECONDS, read_announcement
from mailboat.blobs.sweep import SweepBusyError
from mailboat.clock import SystemClock
from mailboat.config.storage import S3Config
from mailboat.errors import BlobAccessDeniedError, BlobCorruptError, BlobStoreUnavailableError
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.wait import wait_until
from support.fault_proxy import Fault, FaultProxy
from support.s3_server import ADMIN, S3Server

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

PART = 5 * 1024 * 1024
LARGE = random.Random(7).randbytes(2 * PART + 12_345)
LARGE_DIGEST = hashlib.sha256(LARGE).digest()

HUGE = random.Random(8).randbytes(21_000_000)
HUGE_DIGEST = hashlib.sha256(HUGE).digest()


class Hooked(SystemClock):
    """A clock whose waits call a function instead."""

    def __init__(self, hook: Callable[[], None]) -> None:
        self.hook = hook

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:  # noqa: ARG002  # the port's
        self.hook()
        return event.is_set()


class Unseekable(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: object) -> int:
        raise AssertionError("this stream can be read once")


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture
def config(s3_server: S3Server, proxy: FaultProxy, request: pytest.FixtureRequest) -> S3Config:
    prefix = f"{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}/"
    return replace(s3_server.section(prefix, url=proxy.url), multipart_bytes=PART)


@pytest.fixture
def connection(s3_server: S3Server, config: S3Config) -> Iterator[S3Connection]:
    connection = s3_server.connection(config)
    yield connection
    connection.close()


@pytest.fixture
def store(connection: S3Connection) -> S3BlobStore:
    return S3BlobStore(connection, SystemClock())


@pytest.fixture
def client(s3_server: S3Server) -> Iterator[S3Client]:
    client = s3_server.client()
    yield client
    client.close()


def unfinished(client: S3Client, config: S3Config) -> int:
    return len(client.list_multipart_uploads(Bucket=config.bucket, Prefix=config.prefix).get("Uploads", []))


def keys_below(client: S3Client, config: S3Config) -> list[str]:
    found = client.list_objects_v2(Bucket=config.bucket, Prefix=config.prefix).get("Contents", [])
    return [item["Key"].removeprefix(config.prefix) for item in found]


def await_downloads() -> None:
    wait_until(lambda: not any(thread.name == "download" for thread in threading.enumerate()), "the downloads to end")


def test_a_blob_lies_under_its_digest(store: S3BlobStore, client: S3Client, config: S3Config) -> None:
    info = store.put(io.BytesIO(b"content"))
    name = info.digest.hex()
    assert keys_below(client, config) == [f"sha256/{name[:2]}/{name}"]


@pytest.mark.parametrize("stream", [io.BytesIO, Unseekable])
def test_a_large_blob_travels_in_parts_and_comes_back(
    store: S3BlobStore, proxy: FaultProxy, stream: type[io.BytesIO]
) -> None:
    info = store.put(stream(LARGE), LARGE_DIGEST)
    assert info == store.stat(LARGE_DIGEST)
    assert proxy.requests["PUT"] == 3
    with store.open(LARGE_DIGEST, len(LARGE)) as content:
        assert content.read() == LARGE


def test_a_large_blob_comes_by_several_requests_at_a_time_and_in_order(store: S3BlobStore, proxy: FaultProxy) -> None:
    store.put(io.BytesIO(HUGE), HUGE_DIGEST)
    proxy.requests.clear()
    with store.open(HUGE_DIGEST, len(HUGE)) as stream:
        assert stream.read(10) == HUGE[:10]
        wait_until(lambda: proxy.requests["GET"] == RANGES_AT_ONCE, "ranges to be asked for ahead")
        assert HUGE[:10] + stream.read() == HUGE
    assert proxy.requests["GET"] == -(-len(HUGE) // RANGE_BYTES)


def test_a_range_whose_connection_is_cut_goes_on_with_its_rest(store: S3BlobStore, proxy: FaultProxy) -> None:
    store.put(io.BytesIO(HUGE), HUGE_DIGEST)
    for skip in (0, 2):
        proxy.inject(Fault(method="GET", containing="sha256/", skip=skip, cut_after_bytes=1_500_000))
    with store.open(HUGE_DIGEST, len(HUGE)) as stream:
        assert stream.read() == HUGE


def test_a_range_that_never_comes_is_told_behind_those_before_it(store: S3BlobStore, proxy: FaultProxy) -> None:
    store.put(io.BytesIO(HUGE), HUGE_DIGEST)
    proxy.inject(Fault(method="GET", containing="sha256/", skip=2, times=None, status=403, code="AccessDenied"))
    with store.open(HUGE_DIGEST, len(HUGE)) as stream:
        assert stream.read(RANGE_BYTES) == HUGE[:RANGE_BYTES]
        with pytest.raises(BlobAccessDeniedError):
            stream.read()


def test_a_large_blob_that_vanishes_while_it_is_read_is_to_be_tried_again(
    store: S3BlobStore, proxy: FaultProxy
) -> None:
    store.put(io.BytesIO(HUGE), HUGE_DIGEST)
    with store.open(HUGE_DIGEST, len(HUGE)) as stream:
        store.delete(HUGE_DIGEST)
        with pytest.raises(BlobStoreUnavailableError, match="meanwhile"):
            stream.read()
    await_downloads()  # one that is late would meet the fault in the other's place
    store.put(io.BytesIO(LARGE), LARGE_DIGEST)
    proxy.inject(Fault(method="GET", containing="sha256/", cut_after_bytes=700_000))
    with store.open(LARGE_DIGEST, len(LARGE)) as stream:
        stream.read(1)
        store.delete(LARGE_DIGEST)
        with pytest.raises(BlobStoreUnavailableError, match="meanwhile"):
            stream.read()


def test_who_closes_a_large_blob_in_the_midst_ends_its_downloads(store: S3BlobStore, proxy: FaultProxy) -> None:
    store.put(io.BytesIO(HUGE), HUGE_DIGEST)
    with store.open(HUGE_DIGEST, len(HUGE)) as stream:
        stream.read(1)
    await_downloads()
    assert proxy.requests["GET"] <= RANGES_AT_ONCE + 1  # the second read of the buffer may ask for one more


@pytest.mark.parametrize("kept_bytes", [0, 1_000_000, 21_000_001])
def test_a_large_blob_of_another_length_is_corrupt_before_anything_is_given(
    store: S3BlobStore, client: S3Client, config: S3Config, kept_bytes: int
) -> None:
    store.put(io.BytesIO(HUGE), HUGE_DIGEST)
    name = HUGE_DIGEST.hex()
    key = f"{config.prefix}sha256/{name[:2]}/{name}"
    client.put_object(Bucket=config.bucket, Key=key, Body=(HUGE + HUGE)[:kept_bytes])
    with pytest.raises(BlobCorruptError, match="promised"):
        store.open(HUGE_DIGEST, len(HUGE))


def test_a_large_blob_of_unknown_digest_is_stored_too(store: S3BlobStore) -> None:
    assert store.put(Unseekable(LARGE)).digest == LARGE_DIGEST


def test_a_large_blob_that_is_there_is_renewed_and_not_sent_again(store: S3BlobStore, proxy: FaultProxy) -> None:
    first = store.put(io.BytesIO(LARGE), LARGE_DIGEST)
    proxy.requests.clear()
    again = store.put(io.BytesIO(LARGE), LARGE_DIGEST)
    assert again.stored_at >= first.stored_at
    assert proxy.requests["PUT"] == 1  # the copy onto itself


def test_a_damaged_large_blob_is_replaced(store: S3BlobStore, client: S3Client, config: S3Config) -> None:
    store.put(io.BytesIO(LARGE), LARGE_DIGEST)
    (key,) = keys_below(client, config)
    client.put_object(Bucket=config.bucket, Key=config.prefix + key, Body=bytes(len(LARGE)))
    store.put(io.BytesIO(LARGE), LARGE_DIGEST)
    with store.open(LARGE_DIGEST, len(LARGE)) as content:
        assert content.read() == LARGE


def test_a_large_blob_of_other_content_leaves_no_part(store: S3BlobStore, client: S3Client, config: S3Config) -> None:
    with pytest.raises(BlobCorruptError):
        store.put(io.BytesIO(LARGE), hashlib.sha256(b"other").digest())
    assert unfinished(client, config) == 0
    assert keys_below(client, config) == []


def test_a_source_that_breaks_in_the_third_part_leaves_no_part(
    store: S3BlobStore, client: S3Client, config: S3Config
) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 2 * PART:
                raise ConnectionResetError("the source broke")
            return super().read(size)

    with pytest.raises(ConnectionResetError):
        store.put(Breaking(LARGE), LARGE_DIGEST)
    assert unfinished(client, config) == 0


def test_a_part_that_is_refused_for_good_fails_the_upload_and_leaves_no_part(
    store: S3BlobStore, proxy: FaultProxy, client: S3Client, config: S3Config
) -> None:
    proxy.inject(Fault(method="PUT", containing="partNumber=2", times=None, status=400, code="EntityTooLarge"))
    with pytest.raises(BlobStoreUnavailableError, match="EntityTooLarge"):
        store.put(io.BytesIO(LARGE), LARGE_DIGEST)
    assert unfinished(client, config) == 0


def test_uploads_of_killed_writers_are_abandoned_once_they_are_old(
    store: S3BlobStore, client: S3Client, config: S3Config
) -> None:
    client.create_multipart_upload(Bucket=config.bucket, Key=f"{config.prefix}sha256/ab/{'ab' * 32}")
    now = SystemClock().now()
    assert store.abandon_uploads(now - timedelta(hours=1)) == 0
    assert unfinished(client, config) == 1
    assert store.abandon_uploads(now + timedelta(hours=1)) == 1
    assert unfinished(client, config) == 0


def test_of_two_that_store_the_same_large_blob_both_succeed(store: S3BlobStore, connection: S3Connection) -> None:
    other = S3BlobStore(connection, SystemClock())

    class Racing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 2 * PART and other.stat(LARGE_DIGEST) is None:
                other.put(io.BytesIO(LARGE), LARGE_DIGEST)
            return super().read(size)

    assert store.put(Racing(LARGE), LARGE_DIGEST).length_bytes == len(LARGE)
    with store.open(LARGE_DIGEST, len(LARGE)) as content:
        assert content.read() == LARGE


def test_the_list_asks_once_for_a_thousand_and_passes_over_strange_keys(
    store: S3BlobStore, client: S3Client, config: S3Config, proxy: FaultProxy
) -> None:
    stored = {store.put(io.BytesIO(bytes([number]))).digest for number in range(30)}
    client.put_object(Bucket=config.bucket, Key=f"{config.prefix}sha256/readme", Body=b"")
    client.put_object(Bucket=config.bucket, Key=f"{config.prefix}sha256/00/{'ab' * 32}", Body=b"")
    assert {info.digest for info in store.list()} == stored
    assert proxy.requests["LIST"] == 1


# ------------------------------------------------------------------------------------------------------------ sweeps


def announce(client: S3Client, config: S3Config, digest: bytes) -> None:
    body = f"another\n{digest.hex()}"
    client.put_object(Bucket=config.bucket, Key=f"{config.prefix}{ANNOUNCEMENT}", Body=body)


def test_who_stores_what_a_sweeper_has_announced_waits_and_stores_it_again(
    store: S3BlobStore, connection: S3Connection, client: S3Client, config: S3Config
) -> None:
    info = store.put(io.BytesIO(b"content"))
    announce(client, config, info.digest)

    def sweep() -> None:
        """The other sweeper looked at the age before the renewal, and deletes only now."""
        store.delete(info.digest)
        client.delete_object(Bucket=config.bucket, Key=f"{config.prefix}{ANNOUNCEMENT}")

    late = S3BlobStore(connection, Hooked(sweep))
    assert late.put(io.BytesIO(b"content")).digest == info.digest
    with store.open(info.digest, 7) as content:
        assert content.read() == b"content"


def test_a_stream_that_was_swept_and_can_not_be_read_again_is_to_be_tried_again(
    store: S3BlobStore, connection: S3Connection, client: S3Client, config: S3Config
) -> None:
    announce(client, config, hashlib.sha256(b"content").digest())

    def sweep() -> None:
        store.delete(hashlib.sha256(b"content").digest())
        client.delete_object(Bucket=config.bucket, Key=f"{config.prefix}{ANNOUNCEMENT}")

    late = S3BlobStore(connection, Hooked(sweep))
    with pytest.raises(BlobStoreUnavailableError, match="try again"):
        late.put(Unseekable(b"content"), hashlib.sha256(b"content").digest())


def test_what_others_announced_holds_no_one_up(store: S3BlobStore, client: S3Client, config: S3Config) -> None:
    announce(client, config, hashlib.sha256(b"another").digest())
    assert store.put(io.BytesIO(b"content")).length_bytes == 7


def test_a_second_sweeper_is_turned_away_until_the_lease_of_the_first_is_over(
    store: S3BlobStore, client: S3Client, config: S3Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = store.put(io.BytesIO(b"content"))
    announce(client, config, info.digest)
    with pytest.raises(SweepBusyError):
        store.remove_unrenewed([info.digest], info.stored_at + timedelta(seconds=2))
    assert store.stat(info.digest) is not None
    monkeypatch.setattr("mailboat.blobs.s3_sweep.LEASE_SECONDS", -1.0)
    renewed = store.put(io.BytesIO(b"content"))
    assert renewed.digest == info.digest
    monkeypatch.setattr("mailboat.blobs.s3_sweep.Announcement.is_expired", property(lambda _: True))
    monkeypatch.setattr("mailboat.blobs.s3_sweep.LEASE_SECONDS", LEASE_SECONDS)
    assert store.remove_unrenewed([info.digest], renewed.stored_at + timedelta(seconds=2)) == 1
    assert store.stat(info.digest) is None


def test_a_sweep_takes_its_announcement_back(store: S3BlobStore, connection: S3Connection) -> None:
    info = store.put(io.BytesIO(b"content"))
    store.remove_unrenewed([info.digest], info.stored_at + timedelta(seconds=2))
    assert read_announcement(connection) is None


def test_a_delete_without_an_answer_is_not_repeated_and_leaves_the_announcement(
    store: S3BlobStore, connection: S3Connection, proxy: FaultProxy
) -> None:
    info = store.put(io.BytesIO(b"content"))
    proxy.inject(Fault(method="POST", containing="delete", is_answer_lost=True))
    with pytest.raises(BlobStoreUnavailableError):
        store.remove_unrenewed([info.digest], info.stored_at + timedelta(seconds=2))
    assert proxy.requests["POST"] == 1
    found = read_announcement(connection)
    assert found is not None
    assert found.digests == {info.digest.hex()}


def test_a_thousand_blobs_are_deleted_by_one_request(store: S3BlobStore, proxy: FaultProxy) -> None:
    infos = [store.put(io.BytesIO(bytes([number]))) for number in range(20)]
    later = max(info.stored_at for info in infos) + timedelta(seconds=2)
    assert store.remove_unrenewed([info.digest for info in infos], later) == 20
    assert proxy.requests["POST"] == 1
    assert list(store.list()) == []


def test_who_stores_what_is_announced_without_end_is_told_to_try_again(
    store: S3BlobStore,
    connection: S3Connection,
    client: S3Client,
    config: S3Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mailboat.blobs.s3_sweep.Announcement.is_expired", property(lambda _: False))
    monkeypatch.setattr("mailboat.blobs.s3_sweep.LEASE_SECONDS", 2.0)
    announce(client, config, hashlib.sha256(b"content").digest())
    patient = S3BlobStore(connection, SkippingClock())
    with pytest.raises(BlobStoreUnavailableError, match="again and again"):
        patient.put(io.BytesIO(b"content"), hashlib.sha256(b"content").digest())


def test_a_sweeper_that_is_too_slow_deletes_nothing_and_takes_its_announcement_back(
    store: S3BlobStore, connection: S3Connection
) -> None:
    info = store.put(io.BytesIO(b"content"))

    class Slow(SystemClock):
        """Ninety seconds pass between the announcement and the look at the ages."""

        def __init__(self) -> None:
            self.asked = 0

        def monotonic(self) -> float:
            self.asked += 1
            return 0.0 if self.asked <= 2 else LEASE_SECONDS / 2

    slow = S3BlobStore(connection, Slow())
    with pytest.raises(BlobStoreUnavailableError, match="too slow"):
        slow.remove_unrenewed([info.digest], info.stored_at + timedelta(seconds=2))
    assert store.stat(info.digest) == info
    assert read_announcement(connection) is None


@pytest.mark.parametrize("place", ["environment", "shared file"])
def test_without_keys_the_usual_chain_finds_credentials(
    config: S3Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    if place == "environment":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ADMIN.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ADMIN.secret_access_key)
    else:
        keys = f"aws_access_key_id = {ADMIN.access_key_id}\naws_secret_access_key = {ADMIN.secret_access_key}\n"
        (tmp_path / "credentials").write_text(f"[default]\n{keys}")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with closing(S3Connection(config, SystemClock(), random.Random(1))) as connection:
        store = S3BlobStore(connection, SystemClock())
        info = store.put(io.BytesIO(b"content"))
        with store.open(info.digest, 7) as stream:
            assert stream.read() == b"content"
