"""The server that other tests rely on: it starts, survives a death with its data, and says what is wrong."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.blobs.s3 import S3BlobStore
from mailboat.clock import SystemClock
from mailboat.errors import BlobStoreUnavailableError
from support import s3_server as module
from support.certificates import Authority
from support.s3_server import S3Server, S3ServerFailedError, S3ServerSettings, S3ToolMissingError, ServerTls


def test_it_comes_back_after_a_kill_with_what_it_acknowledged(tmp_path: Path) -> None:
    with S3Server(S3ServerSettings(tmp_path, bucket="other"), SystemClock()) as server:
        client = server.client()
        client.put_object(Bucket="other", Key="key", Body=b"content")
        server.kill()
        server.start()
        assert client.get_object(Bucket="other", Key="key")["Body"].read() == b"content"
        client.close()
        server.stop()
        server.stop()


def test_a_store_trusts_a_server_whose_signer_it_was_told_of_and_no_other(tmp_path: Path) -> None:
    authority = Authority(tmp_path, SystemClock())
    stranger = Authority(tmp_path, SystemClock(), name="stranger")
    identity = authority.issue("server")
    tls = ServerTls(identity.certificate, identity.key, authority.file)
    content = os.urandom(6_000_000)
    digest = hashlib.sha256(content).digest()
    with S3Server(S3ServerSettings(tmp_path / "s3", tls=tls), SystemClock()) as server:
        config = replace(server.section(), multipart_bytes=5 * 1024 * 1024)
        store = S3BlobStore(server.connection(config), SystemClock())
        store.put(io.BytesIO(b"small"))
        assert store.put(io.BytesIO(content), digest).length_bytes == len(content)
        with store.open(digest, len(content)) as stream:
            assert stream.read() == content
        store.close()
        config = replace(config, ca_file=str(stranger.file), max_attempts=1)
        store = S3BlobStore(server.connection(config), SystemClock())
        with pytest.raises(BlobStoreUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            store.stat(digest)
        store.close()


def test_a_server_that_ends_at_once_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_program", lambda: shutil.which("false") or "false")
    server = S3Server(S3ServerSettings(tmp_path), SystemClock())
    assert server.log_tail() == ""
    with pytest.raises(S3ServerFailedError, match="did not start"):
        server.start()


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(S3ToolMissingError) as caught:
        S3Server(S3ServerSettings(tmp_path / "s3"), SystemClock()).start()
    assert caught.value.next_step == "make dev"
