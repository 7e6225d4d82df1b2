"""Which blob store a configuration comes to, and what is said when it can't be put together."""

from __future__ import annotations

import builtins
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mailboat.blobs.directory import DirectoryBlobStore
from mailboat.blobs.s3_connection import new_client
from mailboat.clock import SystemClock
from mailboat.composition.bucket import key_reader, open_connection
from mailboat.composition.home import Home, create_home
from mailboat.composition.journals import ClientMissingError
from mailboat.composition.stores import open_blobs
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import Config
from mailboat.config.storage import BlobsConfig, S3Config, Secret

KEYS = {"access_key_id": Secret(file="key"), "secret_access_key": Secret(env="S3_SECRET")}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = create_home(tmp_path / "boat", Config())
    (home.path / "key").write_text("the-key\n")
    monkeypatch.setenv("S3_SECRET", "the-secret")
    return home


def with_bucket(home: Home, **values: Any) -> Home:
    home.config = replace(home.config, blobs=BlobsConfig(s3=S3Config("mailboat", **values)))
    return home


def test_without_a_bucket_it_is_the_folder(home: Home) -> None:
    store = open_blobs(home, SystemClock())
    assert isinstance(store, DirectoryBlobStore)
    assert store.description == f"directory {home.path / 'blobs'}"


def test_a_bucket_is_described_without_its_secrets(home: Home) -> None:
    store = open_blobs(with_bucket(home, prefix="a/", endpoint_url="https://s3.example.org", **KEYS), SystemClock())
    assert store.description == "s3://mailboat/a on https://s3.example.org"
    store.close()


def test_a_connection_has_the_section_with_an_absolute_certificate(home: Home) -> None:
    (home.path / "ca.pem").write_text("x")
    config = S3Config("b", "p/", "http://x", "r", ca_file="ca.pem", **KEYS)
    connection = open_connection(config, home.path, SystemClock())
    assert connection.config == replace(config, ca_file=str(home.path / "ca.pem"))
    connection.close()


def test_keys_are_read_each_time(home: Home) -> None:
    read_keys = key_reader(S3Config("b", **KEYS), home.path)
    assert read_keys is not None
    assert read_keys() == ("the-key", "the-secret")
    (home.path / "key").write_text("another")
    assert read_keys().access_key_id == "another"


def test_without_keys_the_chain_is_asked(home: Home) -> None:
    assert key_reader(S3Config("b"), home.path) is None


def test_half_of_the_credentials_are_refused(home: Home) -> None:
    with pytest.raises(ConfigInvalidError, match="both or neither"):
        open_blobs(with_bucket(home, access_key_id=Secret(file="key")), SystemClock())


def test_a_secret_that_is_not_there_is_told_at_once(home: Home) -> None:
    keys = {**KEYS, "access_key_id": Secret(file="missing")}
    with pytest.raises(ConfigInvalidError, match=r"blobs\.s3\.access_key_id"):
        open_blobs(with_bucket(home, **keys), SystemClock())


def test_a_certificate_that_is_not_there_is_told_at_once(home: Home) -> None:
    with pytest.raises(ConfigInvalidError, match="ca_file"):
        open_blobs(with_bucket(home, ca_file="missing.pem"), SystemClock())


@pytest.mark.parametrize(
    "url",
    [
        "localhost:18806",
        "s3.example.org",
        "",
        "http://",
        "ftp://s3.example.org",
        "https://s3 example.org",
        "http://s3.example.org\n",
        "http://a_b:80",
        "http://h:port",
        "http://h:99999",
        "http://[::1",
        "http://[1:2]:80",
        "http://h/?x=1",
        "http://me:a password@h",
    ],
)
def test_an_endpoint_that_is_no_address_is_refused_when_the_store_is_opened(home: Home, url: str) -> None:
    with pytest.raises(ConfigInvalidError, match=r"blobs\.s3\.endpoint_url is .* https://HOST") as raised:
        open_blobs(with_bucket(home, endpoint_url=url), SystemClock())
    assert "password" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    ["http://localhost:9000", "HTTPS://S3.Example.org/", "http://127.0.0.1:80/path", "http://[::1]:9000", "http://h."],
)
def test_an_endpoint_that_is_an_address_is_taken(home: Home, url: str) -> None:
    config = S3Config("b", endpoint_url=url, region="eu-central-1", **KEYS)
    with closing(new_client(config, key_reader(config, home.path))) as client:
        assert client.meta.endpoint_url == url


def test_a_missing_client_library_says_what_to_install(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_boto(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "mailboat.composition.bucket":
            raise ImportError("No module named 'boto3'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_boto)
    with pytest.raises(ClientMissingError) as caught:
        open_blobs(with_bucket(home), SystemClock())
    assert caught.value.next_step == f"{sys.executable} -m pip install 'mailboat[s3]'"
