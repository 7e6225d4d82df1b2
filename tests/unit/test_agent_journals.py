"""The configuration decides which journal a home has, and how its topics are kept."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mailboat.clock import SystemClock
from mailboat.composition.home import Home
from mailboat.composition.journals import ClientMissingError, open_journal
from mailboat.composition.kafka_login import kafka_settings
from mailboat.config.decoder import decode_config
from mailboat.config.storage import KafkaConfig, RetentionConfig
from mailboat.config.topic_settings import topic_settings
from mailboat.errors import UsageError
from mailboat.model.messages import TopicRole

BROKERS = ["one:9092", "two:9092"]


def kafka(**section: Any) -> KafkaConfig:
    found = decode_config({"journal": {"kafka": {"bootstrap_servers": BROKERS, **section}}}).journal.kafka
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("ca.pem", "me.pem", "me.key"):
        (tmp_path / name).write_text("PEM")
    (tmp_path / "password").write_text("s3cret\n")
    return tmp_path


def test_the_section_reaches_the_adapter(folder: Path) -> None:
    section = kafka(replicas=3, min_insync_replicas=2, append_seconds=7.0, request_seconds=3.0)
    found = kafka_settings(section, folder)
    assert found.bootstrap_servers == "one:9092,two:9092"
    assert found.config == section


def test_files_and_secrets_are_relative_to_the_home(folder: Path) -> None:
    tls = {"ca_file": "ca.pem", "certificate_file": "me.pem", "key_file": str(folder / "me.key")}
    tls |= {"key_password": {"file": "password"}}
    section = kafka(tls=tls)
    found = kafka_settings(section, folder)
    files = {"ca_file": folder / "ca.pem", "certificate_file": folder / "me.pem", "key_file": folder / "me.key"}
    assert section.tls is not None
    assert found.config.tls == replace(section.tls, **{key: str(file) for key, file in files.items()})
    assert found.key_password == "s3cret"


def test_a_user_logs_in_with_a_password_from_a_file_or_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    for secret in ({"file": "password"}, {"env": "KAFKA_PASSWORD"}):
        section = kafka(sasl={"mechanism": "SCRAM-SHA-512", "user": "alice", "password": secret})
        found = kafka_settings(section, folder)
        assert (found.config, found.password) == (section, "s3cret")


def test_the_name_of_a_user_may_be_kept_with_the_password(folder: Path) -> None:
    sasl = {"mechanism": "PLAIN", "user_from": {"file": "username"}, "password": {"file": "password"}}
    (folder / "username").write_text("alice\n")
    found = kafka_settings(kafka(sasl=sasl), folder)
    assert found.config.sasl is not None
    assert (found.config.sasl.user, found.password) == ("alice", "s3cret")


def test_a_login_with_tokens_names_their_server(folder: Path) -> None:
    sasl = {"mechanism": "OAUTHBEARER", "user": "mailboat", "password": {"file": "password"}}
    found = kafka_settings(kafka(sasl={**sasl, "token_url": "https://tokens", "scope": "kafka"}), folder)
    assert found.password == "s3cret"
    with pytest.raises(UsageError, match="token_url"):
        kafka_settings(kafka(sasl=sasl), folder)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"bootstrap_servers": []}, "bootstrap_servers"),
        ({"tls": {"certificate_file": "me.pem"}}, "certificate"),
        ({"tls": {"ca_file": "none.pem"}}, "none.pem"),
        ({"sasl": {"mechanism": "PLAIN", "user": "alice"}}, "password"),
        ({"sasl": {"mechanism": "PLAIN", "password": {"file": "password"}}}, "user"),
    ],
)
def test_half_a_section_is_refused_by_its_key(folder: Path, section: dict[str, Any], key: str) -> None:
    with pytest.raises(UsageError, match=key) as refused:
        kafka_settings(kafka(**section), folder)
    assert "s3cret" not in str(refused.value)


def test_a_missing_client_library_is_named_with_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [module for module in sys.modules if module.startswith(("confluent_kafka", "mailboat.journal.kafka"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    home = Home(folder, decode_config({"journal": {"kafka": {"bootstrap_servers": BROKERS}}}))
    with pytest.raises(ClientMissingError) as missing:
        open_journal(home, SystemClock())
    assert missing.value.next_step == f"{sys.executable} -m pip install 'mailboat[kafka]'"


def test_topics_are_kept_as_fits_what_they_carry() -> None:
    kept = {role: topic_settings(role, RetentionConfig(60.0, 30.0, 5000)) for role in TopicRole}
    package = kept.pop(TopicRole.PACKAGE)
    assert (package.retention_seconds, package.retention_bytes) == (60.0, 5000)
    assert {item.retention_seconds for item in kept.values()} == {30.0}
    assert [role for role, one in kept.items() if one.retention_bytes is not None] == [TopicRole.DISCOVERY]
    assert package.max_message_bytes > kept[TopicRole.STATUS].max_message_bytes


def test_each_topic_is_kept_as_its_own_section_says() -> None:
    own = decode_config({"retention": {"status_seconds": 30, "event": {"seconds": None, "bytes": 7}}}).retention
    kept = {role: topic_settings(role, own) for role in TopicRole}
    assert (kept[TopicRole.EVENT].retention_seconds, kept[TopicRole.EVENT].retention_bytes) == (None, 7)
    assert (kept[TopicRole.STATUS].retention_seconds, kept[TopicRole.STATUS].retention_bytes) == (30.0, None)


def test_brokers_come_after_the_agents_that_keep_the_head_of_packages() -> None:
    own = RetentionConfig(package_seconds=60.0, package_bytes=4000)
    kept = {role: topic_settings(role, own, is_head_kept=True) for role in TopicRole}
    assert kept[TopicRole.PACKAGE].retention_seconds == 3660.0
    assert kept[TopicRole.PACKAGE].retention_bytes == 5000
    assert kept[TopicRole.STATUS] == topic_settings(TopicRole.STATUS, own)
    forever = topic_settings(TopicRole.PACKAGE, RetentionConfig(None, None, None), is_head_kept=True)
    assert (forever.retention_seconds, forever.retention_bytes) == (None, None)
