"""The command line on a home whose journal is on Kafka, and the commands that set up and measure either journal."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from mailboat.composition.home import Home, configured_home, create_home
from mailboat.composition.workspace import Workspace, initialise, prepare
from mailboat.config.document import Config
from mailboat.config.storage import JournalConfig, KafkaConfig
from mailboat.model.messages import TopicRole
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.kafka_broker import KafkaBroker

ROLES = ["package", "status", "discovery", "command", "event"]


@pytest.fixture
def prefix() -> str:
    return f"cli-{uuid.uuid4().hex[:8]}-"


@pytest.fixture
def on_kafka(new_boat: Any, kafka_broker: KafkaBroker, prefix: str) -> Any:
    """A home on Kafka, without topics yet: `init` makes those of the default names, this one has names of its own."""
    new_boat.do("init", "--kafka", kafka_broker.bootstrap_servers)
    file = new_boat.home / "mailboat.yaml"
    file.write_text(file.read_text().replace('topic_prefix: ""', f'topic_prefix: "{prefix}"'))
    return new_boat


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.server("kafka_broker"))])
def either(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("boat" if request.param == "sqlite" else "on_kafka")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.html").write_text(name)
    return folder


def change_configuration(boat: Any, old: str, new: str) -> None:
    file = boat.home / "mailboat.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_two_homes_that_make_the_same_topics_at_once_both_succeed(
    kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """What `init --kafka` does in both processes when neither finds a topic."""
    started = threading.Barrier(2)

    def start(name: str) -> list[str]:
        servers = KafkaConfig(bootstrap_servers=tuple(kafka_broker.bootstrap_servers.split(",")))
        home = create_home(tmp_path / name, Config(journal=JournalConfig(topic_prefix=prefix, kafka=servers)))
        started.wait(PATIENCE_SECONDS)
        with initialise(home) as workspace:
            return [str(workspace.journal.identity(workspace.topic(role)).topic_id) for role in TopicRole]

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(start, ("one", "two"))
    assert one == other
    assert len(set(one)) == len(ROLES)


# ---------------------------------------------------------------------------------------------- everything on Kafka


def test_a_home_on_kafka_does_what_any_home_does(on_kafka: Any, site: Path, tmp_path: Path, prefix: str) -> None:
    on_kafka.do("journal", "ensure")
    on_kafka.do("publish", site, "/a.html", "/b.html", "--each")
    on_kafka.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    on_kafka.do("publish", site, "/c.html", "--request-id", "r-1")
    assert on_kafka.json("publish", site, "/c.html", "--request-id", "r-1")["packages"][0]["offset"] == 2
    topics = {item["role"]: item for item in on_kafka.json("journal", "topics")}
    assert topics["package"]["name"] == f"{prefix}package"
    assert (topics["package"]["earliest_offset"], topics["package"]["next_offset"]) == (0, 3)
    assert [item["offset"] for item in on_kafka.json("journal", "show")] == [0, 1, 2]
    assert on_kafka.json("journal", "verify")["problems"] == []
    assert on_kafka.json("journal", "truncate", "--before", "2", "--yes")["earliest_offset"] == 2
    on_kafka.do("subscribe", "web", "--until", "caught-up")
    assert sorted(file.name for file in (tmp_path / "web").glob("*.html")) == ["a.html", "b.html", "c.html"]
    stopped = on_kafka.run("subscribe", "late", "--into", f"files:{tmp_path / 'late'}", "--until", "caught-up")
    assert stopped.code == 6
    assert "JournalIncomplete" in stopped.err


def test_status_and_errors_of_a_home_on_kafka(on_kafka: Any, site: Path, tmp_path: Path) -> None:
    on_kafka.do("journal", "ensure")
    on_kafka.do("publish", site, "/a.html")
    on_kafka.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    shown = on_kafka.do("status")
    assert "kafka" in shown.out
    assert "web" in shown.out
    assert on_kafka.json("status")["journal"]["next_offset"] == 1
    on_kafka.do("errors", "ls")


def test_publishing_needs_no_right_to_change_topics(on_kafka: Any, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers apply the retention; a publisher that made sure of it would need rights that it must not have."""
    on_kafka.do("journal", "ensure")

    def refuse(*_: object) -> None:
        raise AssertionError("a publisher changes no topics")

    monkeypatch.setattr("mailboat.journal.kafka_topics.KafkaTopics.ensure", refuse)
    on_kafka.do("publish", site, "/a.html")


def test_an_agent_makes_topics_that_are_missing_and_changes_none_that_are_there(on_kafka: Any) -> None:
    with Workspace(Home(on_kafka.home)) as workspace:
        workspace.have_topics()
        assert {str(item["role"]) for item in on_kafka.json("journal", "topics")} == set(ROLES)
        change_configuration(on_kafka, "status_seconds: 604800.0", "status_seconds: 3600.0")
        with Workspace(Home(on_kafka.home)) as other:
            other.have_topics()
    assert on_kafka.run("journal", "ensure", "--check").code == 1


@pytest.mark.parametrize("is_agent", [True, False])
def test_a_new_home_leaves_topics_that_are_there_as_others_keep_them(
    on_kafka: Any, command_line: Any, tmp_path: Path, is_agent: bool
) -> None:
    change_configuration(on_kafka, "package_seconds: 604800.0", "package_seconds: 7776000.0")
    on_kafka.do("journal", "ensure")
    journal = (on_kafka.home / "mailboat.yaml").read_text().replace("7776000.0", "604800.0")
    if is_agent:
        (tmp_path / "agent.yaml").write_text(journal)
        prepare(configured_home(tmp_path / "agent.yaml", tmp_path / "new"))
    else:
        new = command_line(tmp_path / "new")
        new.home.mkdir()
        (new.home / "mailboat.yaml").write_text(journal)
        new.do("init")
    assert (tmp_path / "new" / "instance").exists()
    assert on_kafka.json("journal", "ensure", "--check")["ok"]


def test_topics_that_are_missing_are_named_with_the_command_that_makes_them(on_kafka: Any, site: Path) -> None:
    ran = on_kafka.run("publish", site, "/a.html")
    assert ran.code == 1
    assert "TopicMissing" in ran.err
    assert "mailboat journal ensure" in ran.err


def test_a_home_on_kafka_has_no_file_to_lose(on_kafka: Any) -> None:
    again = on_kafka.run("init")
    assert "--new-journal" not in again.err
    anew = on_kafka.run("init", "--new-journal")
    assert anew.code == 2
    assert "journal ensure" in anew.err
    assert not (on_kafka.home / "journal.db").exists()


def test_expired_messages_are_left_to_the_brokers_which_are_told_how_long_to_keep_them(on_kafka: Any) -> None:
    on_kafka.do("journal", "ensure")
    change_configuration(on_kafka, "status_seconds: 604800.0", "status_seconds: 3600.0")
    ran = on_kafka.do("journal", "truncate", "--expired")
    assert "applies retention itself" in ran.err
    wait_until(lambda: on_kafka.run("journal", "ensure", "--check").code == 0, "the new retention is known")


# ------------------------------------------------------------------------------------------------- journal ensure


def test_a_check_of_topics_that_are_missing_says_so_and_makes_none(on_kafka: Any) -> None:
    checked = on_kafka.run("journal", "ensure", "--check", "-o", "json")
    assert checked.code == 1
    assert [topic["state"] for topic in checked.document["topics"]] == ["missing"] * 5
    assert on_kafka.run("journal", "topics").code == 1


def test_topics_are_made_once_and_are_right_afterwards(on_kafka: Any, prefix: str) -> None:
    assert [topic["state"] for topic in on_kafka.json("journal", "ensure")["topics"]] == ["made"] * 5
    for words in (("journal", "ensure"), ("journal", "ensure", "--check")):
        found = on_kafka.json(*words)
        assert found["ok"]
        assert [topic["topic"] for topic in found["topics"]] == [f"{prefix}{role}" for role in ROLES]
        assert {topic["state"] for topic in found["topics"]} == {"right"}


def test_a_new_retention_is_told_and_then_applied(either: Any) -> None:
    either.do("journal", "ensure")
    change_configuration(either, "package_bytes: null", "package_bytes: 200000000")
    checked = either.run("journal", "ensure", "--check", "-o", "json")
    assert checked.code == 1
    package, *others = checked.document["topics"]
    assert package["state"] == "different"
    assert "200000000" in {difference["wanted"] for difference in package["differences"]}
    assert {other["state"] for other in others} == {"right"}
    assert either.run("journal", "ensure", "--check").err.count("journal ensure") == 1
    assert either.json("journal", "ensure")["topics"][0]["state"] == "changed"
    assert either.json("journal", "ensure", "--check")["ok"]


def test_what_drifted_on_the_brokers_is_shown_and_put_right(
    on_kafka: Any, kafka_broker: KafkaBroker, prefix: str
) -> None:
    on_kafka.do("journal", "ensure")
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})
    change = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, f"{prefix}status", incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)
    wait_until(lambda: on_kafka.run("journal", "ensure", "--check").code == 1, "the brokers know of the change")
    (line,) = [line for line in on_kafka.run("journal", "ensure", "--check").lines if "retention.ms" in line]
    assert line.split() == [f"{prefix}status", "different", "retention.ms", "1000", "604800000"]
    assert on_kafka.do("journal", "ensure", "-o", "name").out == ""


def test_replicas_that_can_not_be_mended_are_told_with_the_way_out(on_kafka: Any) -> None:
    on_kafka.do("journal", "ensure")
    change_configuration(on_kafka, "    replicas: null", "    replicas: 3")
    ran = on_kafka.run("journal", "ensure")
    assert ran.code == 1
    assert "kafka-reassign-partitions" in ran.err


# -------------------------------------------------------------------------------------------------- journal bench


def test_measuring_says_what_the_journal_gives_and_leaves_nothing_behind(either: Any) -> None:
    either.do("journal", "ensure")
    before = either.json("journal", "topics")
    words = ("journal", "bench", "--bytes", "300", "--rounds", "10", "--seconds", "0.05")
    found = either.json(*words)
    assert [rate["batch"] for rate in found["rates"]] == [1, 10, 100, 1000]
    assert all(rate["messages_per_second"] > 0 for rate in found["rates"])
    assert 0 < found["append"]["p50_ms"] <= found["append"]["p99_ms"]
    assert 0 < found["wakeup"]["p50_ms"] <= found["wakeup"]["p99_ms"]
    assert found["read_per_second"] > 0
    is_embedded = found["journal"].startswith("sqlite")
    assert found["rates"][2]["syncs_per_message"] == (pytest.approx(0.01) if is_embedded else None)
    assert either.json("journal", "topics") == before
    assert "P99" in either.do(*words).out


def test_an_interrupted_measurement_removes_its_topic(either: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    either.do("journal", "ensure")
    made: list[str] = []

    def interrupt(bench: Any) -> None:
        made.extend(bench._journal.topics())
        raise KeyboardInterrupt

    monkeypatch.setattr("mailboat.operations.journal_bench._Bench.run", interrupt)
    assert either.run("journal", "bench").code == 130
    assert any("mailboat-bench-" in item for item in made)
    with Workspace(Home(either.home)) as workspace:
        own = [item for item in made if "mailboat-bench-" in item]
        assert not set(own) & set(workspace.journal.topics())
