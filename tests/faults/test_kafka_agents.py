"""What agents make of a real broker that dies, and of topics that others cut, replace or write to."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from mailboat.agent.subscriber_process import SubscriberProcess, Subscription
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import AppendUncertainError, JournalReplacedError
from mailboat.journal.port import Edge, NewRecord
from mailboat.model.identifiers import AgentName, RequestId, TopicName
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.subscriber import Until
from mailboat.testing.journal_harness import in_background, once_available, read_to_end
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.kafka_broker import KafkaBroker

STOPPED = 6
TRY_AGAIN = 75


@pytest.fixture
def boat(new_boat: Any, kafka_broker: KafkaBroker) -> Any:
    """A home on the broker, with topics of its own."""
    new_boat.do("init", "--kafka", kafka_broker.bootstrap_servers)
    change(new_boat, 'topic_prefix: ""', f'topic_prefix: "faults-{uuid.uuid4().hex[:8]}-"')
    new_boat.do("journal", "ensure")
    return new_boat


def change(boat: Any, old: str, new: str) -> None:
    file = boat.home / "mailboat.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.html").write_text(name)
    return folder


@pytest.fixture
def web(tmp_path: Path) -> Path:
    return tmp_path / "web"


@pytest.fixture
def workspace(boat: Any) -> Iterator[Workspace]:
    with Workspace(Home(boat.home)) as workspace:
        yield workspace


def catch_up(boat: Any, web: Path, *more: str) -> Any:
    return boat.run("subscribe", "web", "--into", f"files:{web}", "--until", "caught-up", *more)


def pages(web: Path) -> list[str]:
    return sorted(file.name for file in web.glob("*.html"))


@contextmanager
def running(boat: Any, web: Path) -> Iterator[Any]:
    """A subscriber that runs beside the test; leaving the block stops it, and gives on what ended it."""
    with Workspace(Home(boat.home)) as workspace:
        process = SubscriberProcess(workspace, Subscription(AgentName("web"), f"files:{web}"), lambda _: None)
        try:
            with in_background(lambda: process.run(Until.FOREVER)) as outcome:
                try:
                    yield outcome
                finally:
                    process.stop()
                outcome.result(PATIENCE_SECONDS)
        finally:
            process.close()


def remake_topic(workspace: Workspace) -> None:
    workspace.journal.upkeep.delete_topic(workspace.package_topic)
    workspace.ensure_topics()


# ------------------------------------------------------------------------------------------------- broker gone


def test_a_subscriber_outlives_a_broker_that_was_down_and_misses_nothing(
    boat: Any, site: Path, web: Path, kafka_broker: KafkaBroker
) -> None:
    boat.do("publish", site, "/a.html")
    change(boat, "request_seconds: 10.0", "request_seconds: 1.0")  # notices, and tries again, within seconds
    with running(boat, web) as outcome:
        wait_until(lambda: pages(web) == ["a.html"], "the first page")
        kafka_broker.kill()
        assert boat.run("publish", site, "/b.html").code == TRY_AGAIN
        assert not outcome.done()
        kafka_broker.start()
        again = ("publish", site, "/c.html", "--request-id", "after")
        wait_until(lambda: boat.run(*again).code == 0, "publishing succeeds again")
        wait_until(lambda: "c.html" in pages(web), "the page published afterwards")
    change(boat, "request_seconds: 1.0", "request_seconds: 10.0")
    assert boat.json("journal", "verify")["problems"] == []


def test_a_request_whose_answer_was_lost_is_published_once(
    boat: Any, site: Path, web: Path, kafka_broker: KafkaBroker, workspace: Workspace
) -> None:
    boat.do("publish", site, "/a.html")
    change(boat, "append_seconds: 30.0", "append_seconds: 2.0")
    with Workspace(Home(boat.home)) as impatient:
        append = impatient.journal.append

        def stop_and_append(topic: TopicName, records: list[NewRecord]) -> Any:
            kafka_broker.pause()
            return append(topic, records)

        publisher = impatient.publisher()
        request = add_request([NodePath("/b.html")], request_id=RequestId("r-1"))
        source = FolderSource(site)
        once_available(lambda: publisher.publish(add_request([NodePath("/a.html")]), source))
        impatient.journal.append = stop_and_append  # type: ignore[method-assign]  # the broker stands still just now
        try:
            with pytest.raises(AppendUncertainError):
                publisher.publish(request, source)
        finally:
            kafka_broker.signal(signal.SIGCONT)
            source.close()
    change(boat, "append_seconds: 2.0", "append_seconds: 30.0")
    for _ in range(2):
        boat.do("publish", site, "/b.html", "--request-id", "r-1")
    assert catch_up(boat, web).code == 0
    values = [record.value for record in read_to_end(workspace.journal.reader(workspace.package_topic, Edge.EARLIEST))]
    assert len([value for value in values if b"/b.html" in value]) == 1


# ---------------------------------------------------------------------------------------- topics cut and replaced


def test_a_topic_made_again_stops_a_subscriber_by_name_until_it_gets_a_new_target(
    boat: Any, site: Path, web: Path, workspace: Workspace
) -> None:
    boat.do("publish", site, "/a.html")
    assert catch_up(boat, web).code == 0
    remake_topic(workspace)
    for name in ("/b.html", "/c.html"):  # grown beyond the position: offsets alone would not tell
        boat.do("publish", site, name)
    for _ in range(2):
        stopped = catch_up(boat, web)
        assert stopped.code == STOPPED
        assert "JournalReplaced" in stopped.err
    assert pages(web) == ["a.html"]


def test_a_topic_made_again_stops_a_subscriber_that_runs(
    boat: Any, site: Path, web: Path, workspace: Workspace
) -> None:
    boat.do("publish", site, "/a.html")
    with suppress(JournalReplacedError), running(boat, web) as outcome:
        wait_until(lambda: pages(web) == ["a.html"], "the first page")
        remake_topic(workspace)
        for name in ("/b.html", "/c.html"):
            boat.do("publish", site, name)
        with pytest.raises(JournalReplacedError, match=workspace.package_topic):
            outcome.result(PATIENCE_SECONDS)
    assert pages(web) == ["a.html"]


def test_a_head_that_was_moved_past_a_subscriber_stops_it_by_name(boat: Any, site: Path, web: Path) -> None:
    boat.do("publish", site, "/a.html")
    assert catch_up(boat, web).code == 0
    boat.do("publish", site, "/b.html")
    boat.do("publish", site, "/c.html")
    boat.do("journal", "truncate", "--before", "2", "--yes")
    stopped = catch_up(boat, web)
    assert stopped.code == STOPPED
    assert "JournalTrimmed" in stopped.err
    assert pages(web) == ["a.html"]
    assert catch_up(boat, web, "--accept-gap").code == 0
    assert pages(web) == ["a.html", "c.html"]


def test_a_lost_tail_stops_a_subscriber_by_name_also_when_the_log_has_grown_again(
    boat: Any, site: Path, web: Path, kafka_broker: KafkaBroker, workspace: Workspace
) -> None:
    boat.do("publish", site, "/a.html")
    log = kafka_broker.data_folder / f"{workspace.package_topic}-0" / f"{0:020}.log"
    kept_bytes = log.stat().st_size
    boat.do("publish", site, "/b.html")
    assert catch_up(boat, web).code == 0
    kafka_broker.kill()
    os.truncate(log, kept_bytes)
    kafka_broker.start()
    stopped = catch_up(boat, web)
    assert stopped.code == STOPPED
    assert "JournalShorter" in stopped.err
    for name in ("/c.html", "/a.html", "/c.html"):
        boat.do("publish", site, name)
    stopped = catch_up(boat, web)
    assert stopped.code == STOPPED
    assert "JournalShorter" in stopped.err
    assert pages(web) == ["a.html", "b.html"]


# ------------------------------------------------------------------------------------------------- what others write


def test_what_a_stranger_writes_is_passed_over_and_named_by_verify(
    boat: Any, site: Path, web: Path, kafka_broker: KafkaBroker, workspace: Workspace
) -> None:
    stranger = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})
    boat.do("publish", site, "/a.html")
    for value in (b"\xff\xfe not a message", b"", os.urandom(2000)):
        stranger.produce(workspace.package_topic, value)
    assert stranger.flush(PATIENCE_SECONDS) == 0
    boat.do("publish", site, "/b.html")
    ran = catch_up(boat, web)
    assert pages(web) == ["a.html", "b.html"], ran.err
    verified = boat.run("journal", "verify", "-o", "json")
    assert verified.code == 1
    assert [problem["offset"] for problem in verified.document["problems"]] == [1, 3]


def test_a_message_that_is_there_twice_has_its_effect_once(
    boat: Any, site: Path, web: Path, workspace: Workspace
) -> None:
    boat.do("publish", site, "/a.html")
    topic = workspace.package_topic
    (first,) = read_to_end(workspace.journal.reader(topic, Edge.EARLIEST))
    boat.do("publish", site, "/b.html")
    workspace.journal.append(topic, [NewRecord(first.value, first.headers)])
    assert catch_up(boat, web).code == 0
    assert pages(web) == ["a.html", "b.html"]
    assert (web / "a.html").read_text() == "a"
    again = catch_up(boat, web)
    assert again.code == 0


def test_a_message_beyond_the_topics_limit_is_refused_before_it_is_sent(
    boat: Any, site: Path, kafka_broker: KafkaBroker, workspace: Workspace
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})
    smaller = ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, workspace.package_topic, incremental_configs=[smaller])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)
    wait_until(lambda: boat.run("journal", "ensure", "--check").code == 1, "the brokers know of the limit")
    (site / "large.html").write_bytes(os.urandom(20_000))
    refused = boat.run("publish", site, "/large.html")
    assert refused.code == 1
    assert "MessageTooLarge" in refused.err
    assert boat.json("journal", "topics")[0]["next_offset"] == 0
    boat.do("publish", site, "/a.html")
