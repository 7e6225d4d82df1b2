"""A captive portal in place of an S3 endpoint: every operation fails by name, and nothing counts as stored."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from mailboat.blobs.s3 import S3BlobStore
from mailboat.blobs.s3_connection import S3Connection, S3Keys
from mailboat.clock import SystemClock
from mailboat.config.storage import S3Config
from mailboat.errors import BlobStoreUnavailableError, RetryableError

PAGE = b"<html><body>Please log in</body></html>"


class _Portal(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(PAGE)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815  # the names that the library calls

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def portal() -> Iterator[S3BlobStore]:
    """A store at a server that answers everything with a page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Portal)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    config = S3Config(
        "bucket",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        region="us-east-1",
        path_style=True,
        max_attempts=1,
    )
    clock = SystemClock()
    with closing(
        S3BlobStore(S3Connection(config, clock, random.Random(0), lambda: S3Keys("key", "secret")), clock)
    ) as store:
        yield store
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    "operation",
    [
        lambda store: store.put(io.BytesIO(b"content")),
        lambda store: store.put(io.BytesIO(b"c" * (9 << 20))),
        lambda store: store.open(bytes(32), 5).read(),
        lambda store: store.open(bytes(32), 20 << 20).read(),
        lambda store: store.stat(bytes(32)),
        lambda store: list(store.list()),
        lambda store: store.users(),
        lambda store: store.abandon_uploads(datetime.now(UTC)),
        lambda store: store.remove_unrenewed([bytes(32)], datetime.now(UTC)),
        lambda store: store.documents.write("name", b"document"),
        lambda store: store.documents.read("name"),
        lambda store: store.documents.names(),
    ],
)
def test_portal_in_place_of_an_endpoint_is_named(
    portal: S3BlobStore, operation: Callable[[S3BlobStore], object]
) -> None:
    with pytest.raises(RetryableError) as raised:
        operation(portal)
    assert isinstance(raised.value, BlobStoreUnavailableError)
    assert "127.0.0.1" in str(raised.value)
