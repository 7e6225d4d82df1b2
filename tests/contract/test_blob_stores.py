"""Every blob store of this distribution passes the suite of the port."""

from __future__ import annotations

from pathlib import Path

import pytest
from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.blobs.memory import MemoryBlobStore
from mailboat.blobs.port import Digest
from mailboat.clock import SystemClock
from mailboat.testing.blob_contract import BlobHarness, BlobStoreContract


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
