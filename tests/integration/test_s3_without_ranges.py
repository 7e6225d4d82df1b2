"""A server that answers every request for a range with the whole object, as HTTP lets it."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from mailboat.blobs.s3 import S3BlobStore
from mailboat.blobs.s3_connection import S3Connection, S3Keys
from mailboat.blobs.s3_download import PARALLEL_FROM_BYTES, RANGE_BYTES
from mailboat.clock import SystemClock
from mailboat.config.storage import S3Config

LARGE = random.Random(1).randbytes(2_500_001)
HUGE = random.Random(2).randbytes(PARALLEL_FROM_BYTES + 1_000_003)


class OneObjectServer(ThreadingHTTPServer):
    """Has one object, whatever it is asked for.

    Attributes:
        content: The object.
        answers: What the next requests get: after how many bytes they are cut, and whether the range is heeded. None
            left: everything, and no range is.
        sent_bytes: What went out.
    """

    daemon_threads = True
    content = b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int | None, bool]] = []
        self.sent_bytes: list[int] = []
        self.lock = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is none of our business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OneObjectServer

    def do_GET(self) -> None:
        server = self.server
        with server.lock:
            cut_after, is_heeded = server.answers.pop(0) if server.answers else (None, False)
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        data = server.content
        if is_heeded:
            data = data[int(first) : int(last) + 1 if last else None]
        self.send_response(206 if is_heeded else 200)
        if is_heeded:
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(data) - 1}/{len(server.content)}")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"etag"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        sent = data[:cut_after]
        with server.lock:
            server.sent_bytes.append(len(sent))
        self.wfile.write(sent)
        self.close_connection = len(sent) < len(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the parent's name for it
        pass


@pytest.fixture
def server() -> Iterator[OneObjectServer]:
    with OneObjectServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def store(server: OneObjectServer) -> Iterator[S3BlobStore]:
    config = S3Config(
        "bucket",
        endpoint_url=f"http://127.0.0.1:{server.server_address[1]}",
        region="us-east-1",
        path_style=True,
    )
    connection = S3Connection(config, SystemClock(), random.Random(3), lambda: S3Keys("key", "secret"))
    store = S3BlobStore(connection, SystemClock())
    yield store
    store.close()


def read_all(store: S3BlobStore, content: bytes) -> bytes:
    with store.open(hashlib.sha256(content).digest(), len(content)) as stream:
        return stream.read()


def test_a_large_blob_comes_once_and_in_one_stream(server: OneObjectServer, store: S3BlobStore) -> None:
    server.content = HUGE
    assert read_all(store, HUGE) == HUGE
    assert server.sent_bytes == [len(HUGE)]


@pytest.mark.parametrize("content", [LARGE, HUGE], ids=["asked for as a whole", "asked for in ranges"])
def test_what_comes_a_second_time_after_a_cut_is_dropped(
    server: OneObjectServer, store: S3BlobStore, content: bytes
) -> None:
    server.content = content
    server.answers = [(1_500_000, False), (700_000, False)]
    assert read_all(store, content) == content
    assert server.sent_bytes == [1_500_000, 700_000, len(content)]


def test_of_a_range_that_is_ignored_in_the_midst_only_the_range_is_taken(
    server: OneObjectServer, store: S3BlobStore
) -> None:
    server.content = HUGE
    server.answers = [(None, True)]
    assert read_all(store, HUGE) == HUGE
    assert server.sent_bytes[0] == RANGE_BYTES
