"""The server that other tests rely on: it starts, survives a death with its data, and says what is wrong."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.testing import s3_server as module
from mailboat.testing.s3_server import S3Server, S3ServerFailedError, S3ServerSettings, S3ToolMissingError


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
