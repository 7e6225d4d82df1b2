"""Every fault that an S3 server can have, injected on a real one: what is tried again, and what it is called then.

The table of these faults is in docs/faults.md.
"""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mailboat.blobs.s3 import S3BlobStore
from mailboat.blobs.s3_connection import S3Connection, S3Keys
from mailboat.composition.bucket import key_reader
from mailboat.config.storage import S3Config, Secret
from mailboat.errors import (
    BlobAccessDeniedError,
    BlobCorruptError,
    BlobStoreUnavailableError,
)
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.subscriber.subscriber import Until
from mailboat.testing.clocks import SkippingClock
from support.engines import Engine, EngineParts, StopWhen, digest_of, watched_subscriber, write_site
from support.fault_proxy import Fault, FaultProxy
from support.s3_server import ADMIN, READER, S3Server

CONTENT = random.Random(3).randbytes(3_000_000)
DIGEST = hashlib.sha256(CONTENT).digest()


@dataclass
class Bench:
    """A store behind the proxy, on a clock whose pauses pass at once."""

    proxy: FaultProxy
    config: S3Config
    clock: SkippingClock

    def store(self, read_keys: Callable[[], S3Keys] = lambda: ADMIN, **changes: Any) -> S3BlobStore:
        connection = S3Connection(replace(self.config, **changes), self.clock, random.Random(1), read_keys)
        return S3BlobStore(connection, self.clock)


@pytest.fixture
def bench(s3_server: S3Server, request: pytest.FixtureRequest) -> Iterator[Bench]:
    prefix = f"{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}/"
    with FaultProxy(s3_server.port) as proxy:
        yield Bench(proxy, s3_server.section(prefix, url=proxy.url), SkippingClock())


@pytest.fixture
def store(bench: Bench) -> Iterator[S3BlobStore]:
    store = bench.store()
    yield store
    store.close()


def read(store: S3BlobStore) -> bytes:
    with store.open(DIGEST, len(CONTENT)) as stream:
        return stream.read()


@pytest.mark.parametrize(
    ("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests"), (400, "RequestTimeout")]
)
def test_a_storm_of_passing_errors_is_waited_out(bench: Bench, store: S3BlobStore, status: int, code: str) -> None:
    for method in ("PUT", "GET") if status == 400 else ("PUT", "HEAD", "GET"):  # an answer to HEAD has no code
        bench.proxy.inject(Fault(method=method, times=3, status=status, code=code))
    store.put(io.BytesIO(CONTENT), DIGEST)
    assert read(store) == CONTENT


def test_a_storm_without_end_is_named_after_the_last_attempt(bench: Bench, store: S3BlobStore) -> None:
    bench.proxy.inject(Fault(times=None, status=503, code="SlowDown", headers={"Retry-After": "7"}))
    before = bench.clock.monotonic()
    with pytest.raises(BlobStoreUnavailableError, match="SlowDown") as caught:
        store.put(io.BytesIO(CONTENT), DIGEST)
    assert caught.value.retry_after_seconds == 7
    assert sum(bench.proxy.requests.values()) == bench.config.max_attempts
    assert bench.clock.monotonic() - before >= 7 * (bench.config.max_attempts - 1)


def test_a_connection_that_is_reset_in_mid_body_goes_on_with_the_rest(bench: Bench, store: S3BlobStore) -> None:
    store.put(io.BytesIO(CONTENT), DIGEST)
    bench.proxy.requests.clear()
    for _ in range(3):
        bench.proxy.inject(Fault(method="GET", containing="sha256/", cut_after_bytes=700_000))
    assert read(store) == CONTENT
    assert bench.proxy.requests["GET"] == 4


def test_a_connection_that_is_reset_again_and_again_is_named(bench: Bench, store: S3BlobStore) -> None:
    store.put(io.BytesIO(CONTENT), DIGEST)
    bench.proxy.inject(Fault(method="GET", containing="sha256/", times=None, cut_after_bytes=0))
    with pytest.raises(BlobStoreUnavailableError, match="reading"):
        read(store)


def test_an_answer_that_is_lost_leads_to_one_blob(bench: Bench, store: S3BlobStore) -> None:
    bench.proxy.inject(Fault(method="PUT", is_answer_lost=True))
    assert store.put(io.BytesIO(CONTENT), DIGEST).length_bytes == len(CONTENT)
    assert [info.digest for info in store.list()] == [DIGEST]
    assert read(store) == CONTENT


def test_a_large_upload_whose_last_answer_is_lost_is_there(bench: Bench) -> None:
    store = bench.store(multipart_bytes=5 * 1024 * 1024)
    large = CONTENT * 4
    digest = hashlib.sha256(large).digest()
    bench.proxy.inject(Fault(method="POST", containing="uploadId", is_answer_lost=True))
    assert store.put(io.BytesIO(large), digest).length_bytes == len(large)
    with store.open(digest, len(large)) as stream:
        assert stream.read() == large


def test_a_server_that_is_down_is_named(bench: Bench) -> None:
    bench.proxy.close()
    store = bench.store(max_attempts=2)
    with pytest.raises(BlobStoreUnavailableError, match="connect"):
        store.stat(DIGEST)
    bench.proxy.__init__(bench.proxy.upstream_port)  # type: ignore[misc]  # for the fixture's end


def test_a_truncated_object_is_corrupt(bench: Bench, store: S3BlobStore, s3_server: S3Server) -> None:
    store.put(io.BytesIO(CONTENT), DIGEST)
    client = s3_server.client()
    key = f"{bench.config.prefix}sha256/{DIGEST.hex()[:2]}/{DIGEST.hex()}"
    client.put_object(Bucket=s3_server.bucket, Key=key, Body=CONTENT[:-1])
    client.close()
    with pytest.raises(BlobCorruptError, match="2999999"):
        read(store)


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId"])
def test_expired_credentials_are_read_again(bench: Bench, code: str) -> None:
    keys = iter([S3Keys("old", "gone"), ADMIN])
    store = bench.store(read_keys=lambda: next(keys))
    bench.proxy.inject(Fault(status=403, code=code, method="PUT"))
    assert store.put(io.BytesIO(CONTENT), DIGEST).digest == DIGEST


def test_credentials_that_stay_expired_are_named_and_not_tried_again(bench: Bench, store: S3BlobStore) -> None:
    bench.proxy.inject(Fault(times=None, status=400, code="ExpiredToken"))
    with pytest.raises(BlobAccessDeniedError, match="ExpiredToken"):
        store.put(io.BytesIO(CONTENT), DIGEST)
    assert sum(bench.proxy.requests.values()) == 2


def test_a_right_that_is_missing_is_named_at_once(bench: Bench) -> None:
    store = bench.store(read_keys=lambda: READER)
    with pytest.raises(BlobAccessDeniedError, match="AccessDenied"):
        store.put(io.BytesIO(CONTENT), DIGEST)
    assert bench.proxy.requests["PUT"] == 1


def test_a_wrong_secret_is_named(bench: Bench) -> None:
    store = bench.store(read_keys=lambda: S3Keys("admin", "wrong"))
    with pytest.raises(BlobAccessDeniedError, match="SignatureDoesNotMatch"):
        read(store)


def test_a_bucket_that_does_not_exist_is_named(bench: Bench) -> None:
    store = bench.store(bucket="nobody-made-it")
    with pytest.raises(BlobStoreUnavailableError, match="NoSuchBucket"):
        read(store)


# --------------------------------------------------------------------------------------------------- with subscribers


@pytest.fixture
def engine(bench: Bench, store: S3BlobStore, tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "home", EngineParts(clock=bench.clock, synchronous="OFF"), blobs=store) as engine:
        site = write_site(tmp_path / "site", {"large.bin": CONTENT, "index.html": "<h1>Home</h1>"})
        engine.publisher().publish(add_request([NodePath("/large.bin"), NodePath("/index.html")]), site)
        yield engine


def key_of(engine: Engine, s3_server: S3Server, prefix: str) -> tuple[dict[str, str], bytes]:
    place = {"Bucket": s3_server.bucket, "Key": f"{prefix}sha256/{DIGEST.hex()[:2]}/{DIGEST.hex()}"}
    return place, CONTENT


def test_a_storm_while_a_subscriber_imports_costs_no_package(bench: Bench, engine: Engine) -> None:
    bench.proxy.inject(Fault(method="GET", times=12, status=503, code="SlowDown"))
    target = engine.target("sqlite")
    statistics = engine.subscriber(target).run(Until.CAUGHT_UP)
    assert (statistics.imported, statistics.failed) == (1, 0)
    target.close()


@pytest.mark.parametrize(
    ("status", "code", "name"), [(403, "ExpiredToken", "BlobAccessDenied"), (503, "SlowDown", "BlobStoreUnavailable")]
)
def test_a_subscriber_waits_for_a_store_that_refuses_everything_and_gives_nothing_up(
    bench: Bench, engine: Engine, status: int, code: str, name: str
) -> None:
    bench.proxy.inject(Fault(times=None, status=status, code=code))
    target = engine.target("sqlite")
    failures = 0

    def has_waited(statistics: object) -> bool:
        nonlocal failures
        if getattr(statistics, "phase", None) is SubscriberPhase.WAITING:
            failures += 1
        if failures == 30:
            bench.proxy.heal()
        return getattr(statistics, "phase", None) is SubscriberPhase.CURRENT

    observer = StopWhen(has_waited)
    statistics = watched_subscriber(engine, target, observer).run()
    assert (statistics.imported, statistics.failed) == (1, 0)
    assert name in {item.cause.code for item in observer.seen if item.cause is not None}
    target.close()


def test_a_subscriber_waits_for_keys_that_are_away_while_they_are_renewed(
    bench: Bench, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "k").write_text("the key")
    config = S3Config("x", access_key_id=Secret(file="k"), secret_access_key=Secret(file="k"))
    from_files = key_reader(config, tmp_path)
    assert from_files is not None
    engine.blobs = bench.store(read_keys=lambda: from_files() and ADMIN)
    (tmp_path / "k").unlink()
    waits = 0

    def has_waited(statistics: object) -> bool:
        nonlocal waits
        if getattr(statistics, "phase", None) is SubscriberPhase.WAITING:
            waits += 1
            if waits == 5:
                (tmp_path / "k").write_text("the new key")
        return getattr(statistics, "phase", None) is SubscriberPhase.CURRENT

    target, observer = engine.target("sqlite"), StopWhen(has_waited)
    statistics = watched_subscriber(engine, target, observer).run()
    assert (statistics.imported, statistics.failed) == (1, 0)
    (cause,) = {item.cause.code: item.cause for item in observer.seen if item.cause is not None}.values()
    assert cause.code == "BlobAccessDenied"
    assert "blobs.s3.access_key_id refers to the file" in cause.message
    target.close()


def test_a_blob_that_appears_later_is_imported_and_order_is_kept(
    bench: Bench, engine: Engine, s3_server: S3Server, tmp_path: Path
) -> None:
    site = write_site(tmp_path / "site", {"index.html": "<h1>Later</h1>"})
    engine.publisher().publish(add_request([NodePath("/index.html")]), site)
    place, content = key_of(engine, s3_server, bench.config.prefix)
    client = s3_server.client()
    client.delete_object(**place)  # type: ignore[arg-type]
    target = engine.target("sqlite")

    def has_waited(statistics: object) -> bool:
        if getattr(statistics, "attempts", 0) == 2:
            client.put_object(**place, Body=content)  # type: ignore[arg-type]
        return getattr(statistics, "phase", None) is SubscriberPhase.CURRENT

    observer = StopWhen(has_waited)
    statistics = watched_subscriber(engine, target, observer).run()
    client.close()
    assert (statistics.imported, statistics.failed) == (2, 0)
    assert "BlobMissing" in {item.cause.code for item in observer.seen if item.cause is not None}
    assert digest_of(target.source()) == digest_of(site)
    target.close()


def test_a_blob_that_is_missing_for_ever_is_given_up_in_its_turn(
    bench: Bench, engine: Engine, s3_server: S3Server
) -> None:
    client = s3_server.client()
    client.delete_object(**key_of(engine, s3_server, bench.config.prefix)[0])  # type: ignore[arg-type]
    client.close()
    target = engine.target("sqlite")
    statistics = engine.subscriber(target).run(Until.CAUGHT_UP)
    assert statistics.failed == 1
    (given_up,) = target.ledger.given_up()
    assert given_up.cause.code == "BlobMissing"
    target.close()


def test_a_server_that_is_killed_while_a_subscriber_imports_is_waited_for(engine: Engine, s3_server: S3Server) -> None:
    s3_server.kill()
    target = engine.target("sqlite")
    waits = 0

    def has_waited(statistics: object) -> bool:
        nonlocal waits
        if getattr(statistics, "phase", None) is SubscriberPhase.WAITING:
            waits += 1
            if waits == 2:
                s3_server.start()
        return getattr(statistics, "phase", None) is SubscriberPhase.CURRENT

    statistics = watched_subscriber(engine, target, StopWhen(has_waited)).run()
    assert (statistics.imported, statistics.failed) == (1, 0)
    target.close()
