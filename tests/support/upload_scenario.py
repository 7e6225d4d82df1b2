"""What the publisher of the upload tests does, in a process of its own, until it dies: one large package by reference.

The package is larger than a message and its binary larger than a part of an upload, so every step between upload,
append and reply is there. The blob store is a folder, or a bucket of a real server.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from mailboat.blobs.port import BlobStore
from mailboat.blobs.s3 import S3BlobStore
from mailboat.blobs.s3_connection import S3Connection, S3Keys
from mailboat.clock import SystemClock
from mailboat.config.storage import S3Config
from mailboat.content.sources.folder import FolderSource
from mailboat.failpoints import Failpoint, NoFailpoints
from mailboat.model.identifiers import RequestId
from mailboat.model.paths import ROOT
from mailboat.model.requests import add_request
from support.crashes import KillingFailpoints
from support.engines import Engine, EngineParts, write_site

PART_BYTES: Final = 5 * 1024 * 1024
LARGE: Final = random.Random(1).randbytes(12_800_000)
PAGES: Final = 20


class BucketPlace(NamedTuple):
    """Where the bucket is, in words that travel to another process."""

    url: str
    bucket: str
    prefix: str
    keys: S3Keys

    def open(self) -> S3BlobStore:
        """The store."""
        keys = self.keys
        config = S3Config(
            self.bucket,
            self.prefix,
            endpoint_url=self.url,
            region="us-east-1",
            path_style=True,
            multipart_bytes=PART_BYTES,
        )
        jitter = random.Random(1)  # tests foresee it
        return S3BlobStore(S3Connection(config, SystemClock(), jitter, lambda: keys), SystemClock())


def prepare(folder: Path) -> FolderSource:
    """Write the source: a binary of several parts, and pages that make the package larger than a message."""
    pages: dict[str, str | bytes] = {f"page{number}.html": bytes([number]) * 60_000 for number in range(PAGES)}
    return write_site(folder / "site", {**pages, "large.bin": LARGE})


def open_engine(folder: Path, place: BucketPlace | None, failpoint: Failpoint | None = None) -> Engine:
    """The engine of a folder; its blobs are in the bucket when there is one."""
    parts = EngineParts(failpoints=NoFailpoints() if failpoint is None else KillingFailpoints(failpoint))
    return Engine(folder / "home", parts, blobs=None if place is None else place.open())


def publish(folder: str, place: BucketPlace | None, failpoint: Failpoint | None = None) -> None:
    """Publish the request; die at the failpoint."""
    with open_engine(Path(folder), place, failpoint) as engine:
        source = FolderSource(Path(folder) / "site")
        engine.publisher().publish(add_request([ROOT], request_id=RequestId("large")), source)


def die_in_the_upload(folder: str, place: BucketPlace | None) -> None:
    """Die when three parts of the binary were read, of which at least one is sent."""
    with open_engine(Path(folder), place) as engine, (Path(folder) / "site/large.bin").open("rb") as file:
        store: BlobStore = engine.blobs
        store.put(_Deadly(file), hashlib.sha256(LARGE).digest())  # type: ignore[arg-type]  # only `read` is used


class _Deadly:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        if self._file.tell() > 2 * PART_BYTES:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._file.read(size)
