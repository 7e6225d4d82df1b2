"""Credentials that no one wrote down: AWS's chain asks the services that a cluster or a machine has for its role."""

from __future__ import annotations

import io
import json
import os
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mailboat.blobs.s3 import S3BlobStore
from mailboat.blobs.s3_connection import S3Connection, S3Keys
from mailboat.clock import SystemClock
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.storage import S3Config
from mailboat.errors import BlobAccessDeniedError, BlobStoreUnavailableError
from mailboat.testing.wait import PATIENCE_SECONDS
from support.s3_server import ADMIN, S3Server

ROLE = "mailboat"
IDENTITY = "a token of the cluster"
IN_JSON = {
    "Code": "Success",
    "AccessKeyId": ADMIN.access_key_id,
    "SecretAccessKey": ADMIN.secret_access_key,
    "Token": "",  # the server of the tests knows lasting keys only
    "Expiration": "2999-01-01T00:00:00Z",
}
IN_XML = f"""
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<Credentials><AccessKeyId>{ADMIN.access_key_id}</AccessKeyId><SecretAccessKey>{ADMIN.secret_access_key}</SecretAccessKey>
<SessionToken></SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>
"""


class RoleService(BaseHTTPRequestHandler):
    """What AWS offers on a cluster, in a container and on a machine, in one."""

    asked: list[str]

    def do_PUT(self) -> None:
        self.answer("a session of the machine")

    def do_GET(self) -> None:
        self.answer(ROLE if self.path.endswith("/security-credentials/") else json.dumps(IN_JSON))

    def do_POST(self) -> None:
        words = self.rfile.read(int(self.headers["Content-Length"])).decode()
        is_known = f"WebIdentityToken={IDENTITY.replace(' ', '+')}" in words
        self.answer(IN_XML, 200 if is_known else 403)

    def answer(self, text: str, code: int = 200) -> None:
        self.asked.append(f"{self.command} {self.path}")
        self.send_response(code)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Tests say what they need to."""


@contextmanager
def role_service() -> Iterator[tuple[str, list[str]]]:
    """Its address, and what it was asked for."""
    asked: list[str] = []
    handler = type("Handler", (RoleService,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def environment_of(place: str, url: str, folder: Path) -> Mapping[str, str]:
    """What a process finds in its environment at a place that has roles."""
    if place == "web identity":
        (folder / "token").write_text(IDENTITY)
        return {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(folder / "token"),
            "AWS_ROLE_ARN": f"arn:aws:iam::123456789012:role/{ROLE}",
            "AWS_ENDPOINT_URL_STS": url,
        }
    if place == "container":
        return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/credentials"}
    # by itself botocore asks a machine's service once, for a second: then it takes the place for one without
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": url, "AWS_METADATA_SERVICE_TIMEOUT": f"{PATIENCE_SECONDS:g}"}


@pytest.fixture
def config(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Config:
    """Without keys, in an environment that knows none."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    return s3_server.section("credentials/")


@pytest.mark.parametrize("place", ["web identity", "container", "instance"])
def test_a_role_is_enough_where_there_are_no_keys(
    config: S3Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with role_service() as (url, asked):
        for name, value in environment_of(place, url, tmp_path).items():
            monkeypatch.setenv(name, value)
        with closing(S3Connection(config, SystemClock(), random.Random(1))) as connection:
            store = S3BlobStore(connection, SystemClock())
            info = store.put(io.BytesIO(b"content"))
            with store.open(info.digest, 7) as stream:
                assert stream.read() == b"content"
    assert asked


def test_a_role_that_is_refused_is_access_denied(
    config: S3Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with role_service() as (url, _):
        for name, value in environment_of("web identity", url, tmp_path).items():
            monkeypatch.setenv(name, value)
        (tmp_path / "token").write_text("a token of somebody else")
        with (
            closing(S3Connection(config, SystemClock(), random.Random(1))) as connection,
            pytest.raises(BlobAccessDeniedError),
        ):
            S3BlobStore(connection, SystemClock()).put(io.BytesIO(b"content"))


@pytest.mark.parametrize(
    ("file", "variables", "words"),
    [
        ("", {"AWS_PROFILE": "nope"}, "The config profile (nope) could not be found"),
        ("[profile x\nfoo", {}, "Unable to parse config file"),
        ("[default]\ncredential_process = false\n", {}, "custom-process"),
        ("[default]\ncredential_process = /nowhere/program\n", {}, "No such file or directory: '/nowhere/program'"),
        ("[default]\ncredential_process = echo no-json\n", {}, "JSONDecodeError"),
        ("[default]\ncredential_process = echo []\n", {}, "AttributeError"),
        ("", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9/x"}, "container-role"),
        ("", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://10.0.0.1/x"}, "Unsupported host '10.0.0.1'"),
        (
            "",
            {"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere/token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/x"},
            "/nowhere/token",
        ),
    ],
)
def test_a_chain_that_is_broken_is_an_error_of_the_store_with_its_cause_and_the_next_step(
    config: S3Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    variables: Mapping[str, str],
    words: str,
) -> None:
    (tmp_path / "config").write_text(file)
    for name, value in {"AWS_CONFIG_FILE": str(tmp_path / "config"), **variables}.items():
        monkeypatch.setenv(name, value)
    with (
        closing(S3Connection(config, SystemClock(), random.Random(1))) as connection,
        pytest.raises(BlobStoreUnavailableError) as raised,
    ):
        S3BlobStore(connection, SystemClock()).put(io.BytesIO(b"content"))
    assert words in raised.value.message
    assert config.description in raised.value.message
    assert raised.value.next_step is not None


def test_an_endpoint_of_the_environment_that_is_no_address_is_an_error_of_the_store(
    config: S3Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:18806")
    with (
        closing(S3Connection(replace(config, endpoint_url=None), SystemClock(), random.Random(1))) as connection,
        pytest.raises(BlobStoreUnavailableError, match="Invalid endpoint: localhost:18806"),
    ):
        S3BlobStore(connection, SystemClock()).put(io.BytesIO(b"content"))


def test_keys_that_can_not_be_read_for_a_while_are_access_denied_and_read_again(s3_server: S3Server) -> None:
    refusals = [ConfigInvalidError("blobs.s3.access_key_id refers to the file k, which can't be read")]

    def read_keys() -> S3Keys:
        if refusals:
            raise refusals.pop()
        return ADMIN

    config = s3_server.section("credentials/")
    with closing(S3Connection(config, SystemClock(), random.Random(1), read_keys)) as connection:
        store = S3BlobStore(connection, SystemClock())
        with pytest.raises(BlobAccessDeniedError, match="the file k, which can't be read") as raised:
            store.put(io.BytesIO(b"content"))
        assert raised.value.next_step is not None
        assert store.put(io.BytesIO(b"content")).length_bytes == 7
