"""Every blob store of this distribution passes the suite of the port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.blobs.memory import MemoryBlobStore
from mailboat.blobs.port import Digest
from mailboat.blobs.s3 import S3BlobStore
from mailboat.clock import SystemClock
from mailboat.testing.blob_contract import BlobHarness, BlobStoreContract
from support.s3_server import S3Server


class TestMemoryBlobStore(BlobStoreContract):
    @pytest.fixture
    def harness(self) -> BlobHarness:
        store = MemoryBlobStore(SystemClock())

        def damage(digest: Digest, content: bytes) -> None:
            store._blobs[digest] = store._blobs[digest][0], content

        return BlobHarness(store.another_handle, damage)


class TestDirectoryBlobStore(BlobStoreContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> BlobHarness:
        def damage(digest: Digest, content: bytes) -> None:
            name = digest.hex()
            (tmp_path / "blobs" / "sha256" / name[:2] / name).write_bytes(content)

        return BlobHarness(lambda: DirectoryBlobStore(tmp_path / "blobs", SystemClock()), damage)


class TestS3BlobStore(BlobStoreContract):
    @pytest.fixture
    def harness(self, s3_server: S3Server) -> Iterator[BlobHarness]:
        config = s3_server.section("contract/")
        client = s3_server.client()

        def damage(digest: Digest, content: bytes) -> None:
            name = digest.hex()
            client.put_object(Bucket=s3_server.bucket, Key=f"contract/sha256/{name[:2]}/{name}", Body=content)

        yield BlobHarness(lambda: S3BlobStore(s3_server.connection(config), SystemClock()), damage)
        client.close()
