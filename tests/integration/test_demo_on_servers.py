"""The demo on a real Kafka broker and a real S3 server, which it starts and ends by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mailboat.testing import kafka_broker


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    for number in range(12):
        (folder / f"part-{number % 3}").mkdir(parents=True, exist_ok=True)
        (folder / f"part-{number % 3}" / f"{number}.html").write_text(f"page {number}")
    (folder / "large.bin").write_bytes(bytes(range(256)) * 400)  # travels through the bucket
    return folder


@pytest.mark.long("trees-and-demos")
@pytest.mark.timeout(180)
def test_the_demo_comes_to_the_same_end_on_real_servers(
    command_line: Any, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[kafka_broker.KafkaBroker] = []
    start = kafka_broker.KafkaBroker.start

    def remembered(broker: kafka_broker.KafkaBroker) -> None:
        started.append(broker)
        start(broker)

    monkeypatch.setattr(kafka_broker.KafkaBroker, "start", remembered)
    home = tmp_path / "demo"
    ran = command_line(home).do(
        "demo", site, "--journal", "kafka", "--subscribers", "3", "--seconds", "2", "-o", "json"
    )
    assert ran.document["is_equal"]
    assert len(ran.document["subscribers"]) == 3
    assert ran.document["next"] == []  # the servers have ended
    assert not (home / "journal.db").exists()
    assert not (home / "blobs").exists() or not any((home / "blobs").iterdir())
    (broker,) = started
    assert broker._process is None
    assert not broker.data_folder.exists()


def test_a_machine_without_java_is_told_what_to_install(
    command_line: Any, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = command_line(tmp_path / "demo").run("demo", site, "--journal", "kafka")
    assert ran.code == 2
    assert "BrokerToolMissing" in ran.err
    assert "openjdk" in ran.err
