"""The demo on a real Kafka broker and a real S3 server: a user's own, and those of `make demo JOURNAL=kafka`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import demo_servers
from support.kafka_broker import KafkaBroker
from support.kafka_files import BrokerToolMissingError


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    for number in range(12):
        (folder / f"part-{number % 3}").mkdir(parents=True, exist_ok=True)
        (folder / f"part-{number % 3}" / f"{number}.html").write_text(f"page {number}")
    (folder / "large.bin").write_bytes(bytes(range(256)) * 400)  # travels through the bucket
    return folder


@pytest.mark.long("trees-and-demos")
def test_demo_on_kafka_and_s3_makes_targets_equal(command_line: Any, site: Path, tmp_path: Path) -> None:
    home = tmp_path / "demo"
    with demo_servers.running_servers(tmp_path) as config:
        boat = command_line(home)
        ran = boat.do("demo", site, "--config", config, "--subscribers", "3", "--seconds", "2", "-o", "json")
        assert ran.document["equal"]
        assert len(ran.document["subscribers"]) == 3
        assert ran.document["next"]
        assert not (home / "journal.db").exists()
        assert not (home / "blobs").exists() or not any((home / "blobs").iterdir())
        again = command_line(tmp_path / "second").run("demo", site, "--config", config)
    assert again.code == 2
    assert "already has packages" in again.err
    assert "journal.topic_prefix" in again.err


def test_demo_refuses_a_configuration_with_sections_that_it_sets(command_line: Any, site: Path, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("journal: {topic_prefix: mine}\nhttp: {port: 9000}\n")
    ran = command_line(tmp_path / "demo").run("demo", site, "--config", config)
    assert ran.code == 2
    assert "the demo sets http itself" in ran.err


def test_demo_servers_name_the_missing_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: KafkaBroker) -> None:
        raise BrokerToolMissingError("java is not installed")

    monkeypatch.setattr(KafkaBroker, "start", refuse)
    assert demo_servers.main([str(tmp_path)]) == 2
    assert "BrokerToolMissing" in (told := capsys.readouterr().err)
    assert "openjdk" in told or "Java 17" in told
