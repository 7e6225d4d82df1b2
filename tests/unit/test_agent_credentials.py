"""Secrets are read where the configuration says they are, and are never in a message."""

from __future__ import annotations

from pathlib import Path

import pytest
from mailboat.composition.credentials import read_secret
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.storage import Secret

KEY = "journal.kafka.sasl.password"


@pytest.mark.parametrize("text", ["s3cret", "s3cret\n", "s3cret\r\n"])
def test_a_file_relative_to_the_home_holds_it_with_or_without_a_line_end(tmp_path: Path, text: str) -> None:
    (tmp_path / "password").write_bytes(text.encode())
    assert read_secret(Secret(file="password"), KEY, tmp_path) == "s3cret"


def test_white_space_within_a_secret_belongs_to_it(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(" a b \n\n")
    assert read_secret(Secret(file=str(tmp_path / "password")), KEY, Path("elsewhere")) == " a b \n"


def test_a_variable_of_the_environment_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    assert read_secret(Secret(env="KAFKA_PASSWORD"), KEY, tmp_path) == "s3cret"


@pytest.mark.parametrize("secret", [Secret(), Secret(file="a", env="b"), Secret(file="none"), Secret(env="NO_SUCH")])
def test_a_secret_that_is_not_there_is_named_by_its_key(tmp_path: Path, secret: Secret) -> None:
    with pytest.raises(ConfigInvalidError, match=KEY):
        read_secret(secret, KEY, tmp_path)


@pytest.mark.parametrize("data", [b"", b"\n", b"x" * 70_000, b"\xff\xfe"])
def test_a_file_that_is_no_secret_is_refused_without_its_content(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "password").write_bytes(data)
    with pytest.raises(ConfigInvalidError, match="password") as refused:
        read_secret(Secret(file="password"), KEY, tmp_path)
    assert "xxx" not in str(refused.value)
