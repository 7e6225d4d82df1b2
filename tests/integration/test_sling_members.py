"""Agents of Apache Sling Distribution Journal 0.1.6 and ours on the same topics of a real broker, both ways.

The Java side is `tests/sling`: the original's own publisher, subscriber, queues, discovery, messages and Kafka
provider, over an in-memory Oak. Its packages are called `journal`, as its package builder is.
"""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mailboat.agent.subscriber_process import SubscriberProcess, subscription_of
from mailboat.clock import Deadline, SystemClock
from mailboat.composition.home import create_home
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import (
    Config,
    PackageType,
    PublisherAgentConfig,
    PublisherConfig,
    StagingConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
    Transfer,
)
from mailboat.config.storage import JournalConfig, KafkaConfig
from mailboat.content.sources.folder import FolderSource
from mailboat.control.service import ControlService
from mailboat.errors import LimitExceededError
from mailboat.journal.port import NewRecord, records_of
from mailboat.model.filters import filter_for
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import (
    Action,
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    DistributedEvent,
    FailureCause,
    Message,
    Missed,
    MissedReason,
    PackageMessage,
    PackageStatus,
    RedriveMessage,
    StatusMessage,
    SubscriberState,
    TopicRole,
)
from mailboat.model.nodes import Binary, Node, file_node, folder_node
from mailboat.model.paths import NodePath
from mailboat.model.pieces import PieceMessage
from mailboat.model.positions import LogIdentity
from mailboat.model.registrations import RegistryMessage
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.operations.journal_inspection import decode_record
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.port import PackageContents
from mailboat.subscriber.subscriber import Until
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat.wire.event_documents import encode_event
from mailboat.wire.messages import encode_message, readable_message

AUTHOR, EDGE, SLING_AUTHOR, SLING_EDGE = map(AgentName, ("author", "edge", "sling-author", "sling-edge"))
SLING_ID = SlingId("5a1e0000-0000-4000-8000-00000000000a")
BUILDER = "journal"


def await_value(look: Callable[[], Any], is_so: Callable[[Any], bool] = bool) -> Any:
    """What a look gives as soon as it is as wanted."""
    deadline, never = Deadline(SystemClock(), PATIENCE_SECONDS), threading.Event()
    while not is_so(value := look()):
        assert not deadline.is_over(), value
        never.wait(0.02)
    return value


def page_document(title: str) -> str:
    """The `.node.json` of a page."""
    return json.dumps(
        {"primaryType": "nt:unstructured", "properties": [{"name": "title", "type": "STRING", "value": title}]}
    )


def package_of(node: Node) -> bytes:
    """A FileVault package that holds a node."""
    into = io.BytesIO()
    FilevaultCodec().write(PackageContents(filter_for((), [node.path]), [node], is_self_contained=True), into)
    return into.getvalue()


class Members:
    """A home on the broker, our agents on it, and Sling's on the same topics."""

    def __init__(self, workspace: Workspace, sling: Any) -> None:
        self.workspace = workspace
        self.ask = sling.ask
        self.content = workspace.home.path / "content"
        self.service = ControlService(workspace, [PublisherAgentConfig(AUTHOR), PublisherAgentConfig(SLING_AUTHOR)])
        self.service.start()
        self._running: list[tuple[SubscriberProcess, threading.Thread]] = []

    @property
    def queue_name(self) -> str:
        """What Sling calls the queue of our subscriber."""
        return f"{self.workspace.home.sling_id}-{EDGE}"

    def subscribe(self, max_retries: int | None = None, **changes: Any) -> Path:
        """Start our subscriber; the folder that it imports into."""
        target = self.workspace.home.path / "edge"
        config = SubscriberAgentConfig(EDGE, f"files:{target}", **changes)
        subscription = replace(subscription_of(self.workspace.home, config), max_retries=max_retries)
        process = SubscriberProcess(self.workspace, subscription, lambda _: None)
        process.claim()
        thread = threading.Thread(target=process.run, args=(Until.FOREVER,))
        self._running.append((process, thread))
        thread.start()
        await_value(lambda: self.told(DiscoveryMessage, EDGE))
        return target

    def let_sling_subscribe(self, max_retries: int = -1, golden: str = "") -> None:
        """Start Sling's subscriber of our publisher."""
        self.ask("subscriber", SLING_EDGE, BUILDER, max_retries < 0, max_retries, golden, AUTHOR)

    def their_queues(self) -> Any:
        """The queues of Sling's publisher, with a topology of this moment."""
        return self.ask("queues")

    def publish(self, *paths: str, action: Action = Action.ADD, is_deep: bool = True) -> Offset:
        """Publish files of the content folder, or a request without content."""
        publisher = self.workspace.publisher(AUTHOR)
        named = tuple(map(NodePath, paths))
        if action is Action.ADD and not is_deep:
            return publisher.publish(DistributionRequest(action, named), FolderSource(self.content)).offset
        if action is not Action.ADD:
            return publisher.publish(DistributionRequest(action, named)).offset
        return publisher.publish(add_request(named), FolderSource(self.content)).offset

    def send(self, role: TopicRole, message: Message) -> Offset:
        headers, value = encode_message(message)
        return self.append(role, NewRecord(value, headers))

    def append(self, role: TopicRole, record: NewRecord) -> Offset:
        return self.workspace.journal.append(self.workspace.topic(role), [record])[0]

    def told(self, kind: type[Message], by: AgentName | None = None) -> Sequence[Any]:
        """The messages of one kind on the topics that have any."""
        found = (
            readable_message(item.headers, item.value)
            for role in TopicRole
            for item in records_of(self.workspace.journal, self.topic(role))
        )
        return [
            item for item in found if isinstance(item, kind) and by in (None, getattr(item, "sub_agent_name", None))
        ]

    def topic(self, role: TopicRole) -> Any:
        return self.workspace.topic(role)

    def statuses(self, by: AgentName) -> dict[int, PackageStatus]:
        return {item.offset: item.status for item in self.told(StatusMessage, by)}

    def events(self) -> list[Any]:
        records = records_of(self.workspace.journal, self.topic(TopicRole.EVENT))
        return [decode_record(record, is_event=True) for record in records]

    def last_offset(self) -> int:
        return self.workspace.journal.bounds(self.workspace.package_topic).next_offset - 1

    def close(self) -> None:
        for process, _ in self._running:
            process.stop()
        for process, thread in self._running:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
            process.close()
        self.service.close()
        self.ask("leave")


@pytest.fixture
def members(kafka_broker: Any, sling_process: Any, tmp_path: Path) -> Iterator[Members]:
    prefix = f"{tmp_path.name}-"
    config = Config(
        journal=JournalConfig(kafka=KafkaConfig((kafka_broker.bootstrap_servers,)), topic_prefix=prefix),
        publisher=PublisherConfig(package_type=PackageType.FILEVAULT, filevault_name=BUILDER, transfer=Transfer.INLINE),
        subscriber=SubscriberConfig(first_pause_seconds=0.05, announce_seconds=0.3),
    )
    home = create_home(tmp_path / "home", config)
    with initialise(home):
        pass
    with Workspace(home, SystemClock()) as workspace:
        sling_process.ask("join", SLING_ID, kafka_broker.bootstrap_servers, prefix)
        members = Members(workspace, sling_process)
        try:
            yield members
        finally:
            members.close()


def test_what_their_publisher_distributes_is_imported_by_our_subscriber_and_leaves_their_queue(
    members: Members,
) -> None:
    target = members.subscribe(follow=(SLING_AUTHOR,), editable=True)
    page = target / "content" / "news" / ".node.json"
    members.ask("publisher", SLING_AUTHOR, BUILDER)
    members.ask("put", "/content/news", "title", "first")
    assert members.ask("distribute", "ADD", "true", "/content/news") == "ACCEPTED"
    await_value(lambda: page.is_file() and "first" in page.read_text())
    members.ask("put", "/content/news/later", "title", "below")
    members.ask("put", "/content/news", "title", "second")
    assert members.ask("distribute", "ADD", "false", "/content/news") == "ACCEPTED"
    assert members.ask("distribute", "TEST", "false") == "ACCEPTED"
    await_value(lambda: "second" in page.read_text())
    assert not (page.parent / "later").exists()
    inner = package_of(folder_node(NodePath("/content/inner")))
    outer = file_node(NodePath("/etc/packages/inner.zip"), Binary(inner))
    payload = package_of(outer)
    outside = PackageMessage(SLING_ID, PackageId("outer"), Action.ADD, BUILDER, SLING_AUTHOR, len(payload), payload)
    members.send(TopicRole.PACKAGE, outside._replace(paths=(outer.path,)))
    assert members.ask("distribute", "DELETE", "false", "/content/news") == "ACCEPTED"
    await_value(lambda: not page.exists())
    imported = await_value(lambda: members.statuses(EDGE), lambda told: len(told) == 4)
    assert (target / "etc" / "packages" / "inner.zip").read_bytes() == inner
    assert not (target / "content" / "inner").exists()
    assert set(imported.values()) == {PackageStatus.IMPORTED}
    emptied = await_value(
        members.their_queues, lambda found: found[members.queue_name]["items"] == [] if found else False
    )
    assert emptied[members.queue_name] == {"state": "IDLE", "clearable": True, "items": []}
    sent = members.told(PackageMessage)
    seeds = {(item.pub_sling_id, item.pub_agent_name, item.package_type) for item in sent if item.action is Action.TEST}
    assert ("seeder", None, "seeder") in seeds
    packages = [item for item in sent if item.action is not Action.TEST]
    assert {len(package.pub_sling_id) for package in packages} == {36}
    assert {package.package_type for package in packages} == {BUILDER}


@pytest.mark.long("java")
def test_their_publisher_clears_a_package_that_ours_can_not_import(members: Members) -> None:
    members.subscribe(follow=(SLING_AUTHOR,), editable=True)
    members.ask("publisher", SLING_AUTHOR, "durbo")
    members.ask("put", "/content/bad", "title", "bad")
    members.ask("distribute", "ADD", "true", "/content/bad")
    stuck = members.last_offset()
    found = await_value(
        lambda: members.their_queues().get(members.queue_name),
        lambda queue: queue and [item["state"] for item in queue["items"]] == ["ERROR"],
    )
    assert found["state"] == "BLOCKED"
    assert found["items"][0]["attempts"] > 0
    assert found["items"][0]["id"] == f"{members.topic(TopicRole.PACKAGE)}-0@{stuck}"
    assert members.ask("clear", members.queue_name, -1) == 1
    await_value(lambda: members.statuses(EDGE), lambda told: told == {stuck: PackageStatus.REMOVED})
    await_value(lambda: members.their_queues()[members.queue_name]["items"], lambda items: items == [])
    assert members.told(CommandResult) == []  # a command without an id has no answer


@pytest.mark.long("java")
def test_what_ours_gives_up_is_in_their_error_queue(members: Members) -> None:
    members.subscribe(max_retries=0, follow=(SLING_AUTHOR,))
    members.ask("publisher", SLING_AUTHOR, "durbo")
    members.ask("put", "/content/bad", "title", "bad")
    members.ask("distribute", "ADD", "true", "/content/bad")
    given_up = members.last_offset()
    await_value(lambda: members.statuses(EDGE), lambda told: told == {given_up: PackageStatus.REMOVED_FAILED})
    errors = await_value(
        lambda: members.their_queues().get(f"{members.queue_name}-error", {}).get("items"), lambda items: items
    )
    assert [error["id"] for error in errors] == [f"{members.topic(TopicRole.PACKAGE)}-0@{given_up}"]


def test_what_our_publisher_distributes_is_imported_by_their_subscriber_and_leaves_our_queue(members: Members) -> None:
    (members.content / "site").mkdir(parents=True)
    (members.content / "site" / "index.html").write_text("hello")
    page = members.content / "site" / ".node.json"
    page.write_text(page_document("first"))
    members.let_sling_subscribe()
    (seen,) = await_value(lambda: members.service.status().subscribers)
    assert (seen.name, seen.sling_id, seen.editable, seen.max_retries) == (SLING_EDGE, SLING_ID, True, None)
    added = members.publish("/site")
    text = "/site/index.html/jcr:content/jcr:data"
    await_value(lambda: members.ask("read", text), lambda value: value == "hello")
    page.write_text(page_document("shallow"))
    (members.content / "site" / "index.html").write_text("not published")
    shallow = members.publish("/site", is_deep=False)
    await_value(lambda: members.ask("read", "/site/title"), lambda value: value == "shallow")
    assert members.ask("read", text) == "hello"
    invalidated = members.publish("/site", action=Action.INVALIDATE)
    await_value(lambda: members.statuses(SLING_EDGE), lambda told: set(told) == {added, shallow, invalidated})
    assert members.ask("read", text) == "hello"
    deleted = members.publish("/site", action=Action.DELETE)
    await_value(lambda: members.ask("read", text), lambda value: value is None)
    told = await_value(lambda: members.statuses(SLING_EDGE), lambda told: deleted in told)
    assert set(told.values()) == {PackageStatus.IMPORTED}
    package = next(item for item in members.told(PackageMessage) if item.action is Action.ADD)
    view = await_value(
        lambda: members.service.distribution(AUTHOR, package.package_id), lambda view: view.state == "distributed"
    )
    assert view.imported == (SLING_EDGE,)
    (queue,) = await_value(
        lambda: members.service.queues(AUTHOR), lambda queues: [queue.state for queue in queues] == ["idle"]
    )
    assert (queue.name, queue.count) == (f"{SLING_ID}-{SLING_EDGE}", 0)


@pytest.mark.long("java")
def test_our_publisher_clears_a_package_that_theirs_can_not_import(members: Members) -> None:
    members.let_sling_subscribe()
    bad = PackageMessage(SLING_ID, PackageId("bad"), Action.ADD, BUILDER, AUTHOR, 3, b"bad", paths=(NodePath("/bad"),))
    stuck = members.send(TopicRole.PACKAGE, bad)
    (item,) = await_value(
        lambda: members.service.queue(AUTHOR, SLING_EDGE).items if members.service.queues(AUTHOR) else (),
        lambda items: [item.state for item in items] == ["error"],
    )
    assert (item.offset, item.attempts > 0) == (stuck, True)
    command = members.service.clear(AUTHOR, SLING_EDGE)
    assert (command.offset, command.state) == (stuck, "sent")
    await_value(lambda: members.statuses(SLING_EDGE), lambda told: told == {stuck: PackageStatus.REMOVED})
    await_value(lambda: members.service.queue(AUTHOR, SLING_EDGE).items, lambda items: items == ())
    assert members.service.command(AUTHOR, command.id).state == "sent"
    view = await_value(lambda: members.service.distribution(AUTHOR, bad.package_id), lambda view: view.removed)
    assert (view.removed, view.imported, view.failed) == ((SLING_EDGE,), (), ())


@pytest.mark.long("java")
def test_lag_of_their_subscriber_counts_packages_of_its_publishers_only(members: Members) -> None:
    (members.content).mkdir()
    (members.content / "page.html").write_text("hello")
    members.let_sling_subscribe()
    imported = members.publish("/page.html")
    await_value(lambda: members.statuses(SLING_EDGE), lambda told: imported in told)
    other = PackageMessage(SLING_ID, PackageId("other"), Action.ADD, BUILDER, SLING_AUTHOR, 3, b"bad")
    for _ in range(6):
        members.send(TopicRole.PACKAGE, other._replace(paths=(NodePath("/bad"),)))
    (seen,) = await_value(
        lambda: members.service.status().subscribers,
        lambda found: found and found[0].next_offset == imported + 1 and found[0].lag == 0,
    )
    assert members.last_offset() >= imported + 6
    assert seen.follow == (AUTHOR,)


@pytest.mark.long("java")
def test_their_subscriber_leaves_out_formats_that_it_does_not_know_and_ours_stops(members: Members) -> None:
    members.content.mkdir()
    (members.content / "page.html").write_text("hello")
    members.let_sling_subscribe()
    unknown = PackageMessage(SLING_ID, PackageId("unknown"), Action.ADD, "durbo", AUTHOR, 3, b"bad")
    left_out = members.send(TopicRole.PACKAGE, unknown._replace(paths=(NodePath("/bad"),)))
    imported = members.publish("/page.html")
    told = await_value(lambda: members.statuses(SLING_EDGE), lambda told: imported in told)
    assert left_out not in told
    members.subscribe()
    failed = await_value(lambda: members.told(DiscoveryMessage, EDGE)[-1], lambda told: told.cause is not None)
    assert failed.cause.code == "UnknownPackageType"


@pytest.mark.long("java")
def test_what_theirs_gives_up_is_among_our_errors(members: Members) -> None:
    members.let_sling_subscribe(max_retries=0)
    bad = PackageMessage(SLING_ID, PackageId("bad"), Action.ADD, BUILDER, AUTHOR, 3, b"bad", paths=(NodePath("/bad"),))
    given_up = members.send(TopicRole.PACKAGE, bad)
    (error,) = await_value(lambda: members.service.errors().items)
    assert (error.subscriber, error.publisher, error.offset, error.paths) == (SLING_EDGE, AUTHOR, given_up, ("/bad",))
    assert (error.attempts, error.error, error.given_up_at) == (None, None, None)
    (command,) = members.service.redrive(SLING_EDGE, [given_up])
    later = members.send(TopicRole.PACKAGE, bad._replace(package_id=PackageId("later")))
    await_value(lambda: members.statuses(SLING_EDGE), lambda told: later in told)
    assert [item.state for item in members.service.redrive(SLING_EDGE, [given_up])] == [command.state] == ["sent"]


@pytest.mark.long("java")
def test_a_package_that_theirs_could_not_get_is_refused_by_our_publisher(members: Members) -> None:
    members.content.mkdir()
    (members.content / "large.bin").write_bytes(random.Random(1).randbytes(100_000))
    (members.content / "huge.bin").write_bytes(random.Random(2).randbytes(1_000_000))
    members.let_sling_subscribe()
    members.publish("/large.bin")
    (message,) = (item for item in members.told(PackageMessage) if item.action is Action.ADD)
    assert (message.binaries, message.payload_ref) == ((), None)
    await_value(lambda: members.statuses(SLING_EDGE))
    with pytest.raises(LimitExceededError, match="may not travel otherwise"):
        members.publish("/huge.bin")


@pytest.mark.long("java")
def test_their_subscriber_waits_for_our_golden_one(members: Members) -> None:
    members.content.mkdir()
    (members.content / "page.html").write_text("hello")
    members.let_sling_subscribe(golden=EDGE)
    offset = members.publish("/page.html")
    await_value(lambda: members.told(DiscoveryMessage, SLING_EDGE), lambda told: len(told) > 5)
    assert members.ask("read", "/page.html/jcr:content/jcr:data") is None
    target = members.subscribe(follow=(AUTHOR,), editable=True)
    await_value(lambda: members.statuses(SLING_EDGE), lambda told: told == {offset: PackageStatus.IMPORTED})
    assert (target / "page.html").read_text() == members.ask("read", "/page.html/jcr:content/jcr:data") == "hello"


@pytest.mark.long("java")
def test_our_subscriber_waits_for_their_golden_one(members: Members) -> None:
    members.content.mkdir()
    (members.content / "page.html").write_text("hello")
    target = members.subscribe(follow=(AUTHOR,), staging=StagingConfig(SLING_EDGE))
    members.publish("/page.html")
    await_value(lambda: members.told(DiscoveryMessage, EDGE)[-1].state, lambda state: state.startswith("waiting-for"))
    assert not (target / "page.html").exists()
    members.let_sling_subscribe()
    await_value((target / "page.html").exists)
    assert members.ask("read", "/page.html/jcr:content/jcr:data") == "hello"


@pytest.mark.long("java")
def test_a_package_in_their_binary_store_can_not_be_read_by_ours_and_is_named(members: Members) -> None:
    members.subscribe(follow=(SLING_AUTHOR,))
    large = PackageMessage(SLING_ID, PackageId("large"), Action.ADD, BUILDER, SLING_AUTHOR, 900_000)
    members.send(TopicRole.PACKAGE, large._replace(payload_ref="3a0f:1bb4", paths=(NodePath("/a"),)))
    told = await_value(lambda: members.told(DiscoveryMessage, EDGE)[-1], lambda told: told.cause is not None)
    assert told.cause.code == "ReferenceRefused"
    assert "'3a0f:1bb4' is not a blob reference" in told.cause.message


@pytest.mark.long("java")
def test_their_classes_read_all_our_messages_and_pass_by_those_that_they_do_not_know(members: Members) -> None:
    sling_id, digest = members.workspace.home.sling_id, b"\x01" * 32
    cause, identity = FailureCause("StorageFull", "no room", "/a", "trace"), LogIdentity("c", "t")
    package = PackageMessage(sling_id, PackageId("p"), Action.INVALIDATE, BUILDER, AUTHOR, paths=(NodePath("/a"),))
    full = package._replace(
        package_id=PackageId("q"),
        action=Action.ADD,
        payload=b"x",
        package_length_bytes=1,
        deep_paths=(NodePath("/a"),),
        user_id="ann",
        package_digest=digest,
        tree_digest=digest,
        created_ms=1,
        binaries=(Binary(digest=digest, length_bytes=1),),
        required_features=("later",),
        trace_parent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    members.ask("listen")
    members.send(TopicRole.PACKAGE, PieceMessage(sling_id, AUTHOR, PackageId("q"), 0, b"piece"))
    members.send(TopicRole.PACKAGE, package)
    members.send(TopicRole.PACKAGE, full)
    members.send(TopicRole.COMMAND, RedriveMessage(sling_id, EDGE, Offset(3), AUTHOR, "r", 1))
    members.send(TopicRole.COMMAND, CommandMessage(sling_id, EDGE, Offset(4), AUTHOR, "c", 1))
    done = CommandResult("c", sling_id, EDGE, CommandVerb.CLEAR, Offset(4), CommandState.DONE, AUTHOR, 1, "ok", 1)
    members.send(TopicRole.STATUS, done)
    for status in PackageStatus:
        members.send(TopicRole.STATUS, StatusMessage(sling_id, EDGE, AUTHOR, Offset(5), status, PackageId("p"), cause))
    members.send(TopicRole.DISCOVERY, RegistryMessage(identity, Offset(1)))
    members.append(TopicRole.DISCOVERY, NewRecord(b"", (), b"gone"))
    states = (SubscriberState(AUTHOR, 2**40, 2),)
    announcement = DiscoveryMessage(
        sling_id, EDGE, states, True, 3, "retrying", cause, 1, "files:x", False, "lags", True, 1, Offset(7), identity
    )
    members.send(TopicRole.DISCOVERY, announcement)
    heard = await_value(lambda: members.ask("heard"), lambda heard: len(heard) == 7)
    found = {(item["topic"], item["name"], item["offset"], item["kind"]) for item in heard}
    assert found == {
        ("package", "p", 1, "TEST"),
        ("package", "q", 2, "ADD"),
        ("command", EDGE, 4, ""),
        ("status", EDGE, 5, "IMPORTED"),
        ("status", EDGE, 5, "REMOVED"),
        ("status", EDGE, 5, "REMOVED_FAILED"),
        ("discovery", EDGE, 2**40, ""),
    }
    text = next(item["text"] for item in heard if item["name"] == "q")
    assert all(line in text for line in ('pkgBinary: "x"', 'paths: "/a"', 'deepPaths: "/a"', 'userId: "ann"'))


@pytest.mark.long("java")
def test_events_are_read_both_ways(members: Members) -> None:
    target = members.subscribe(follow=(SLING_AUTHOR,))
    members.ask("publisher", SLING_AUTHOR, BUILDER)
    members.ask("listen")
    await_value(members.their_queues)
    members.ask("put", "/content/news", "title", "first")
    members.ask("distribute", "ADD", "true", "/content/news")
    offset = members.last_offset()
    await_value((target / "content" / "news" / ".node.json").is_file)
    event = await_value(lambda: members.their_queues() and members.events())[0]
    assert (event.pub_agent_name, event.offset) == (SLING_AUTHOR, offset)
    assert (event.paths, event.deep_paths) == (("/content/news",), ("/content/news",))
    (record,) = records_of(members.workspace.journal, members.topic(TopicRole.EVENT))
    keys = ["pubAgentName", "packageId", "deepPaths", "paths", "offset"]
    assert (record.headers, list(json.loads(record.value))) == ((), keys)
    missed = (Missed("x-edge", MissedReason.ABSENT),)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    ours = DistributedEvent(AUTHOR, PackageId("p"), Offset(2**40), (NodePath("/a"), NodePath("/b")), (), missed, trace)
    headers, value = encode_event(ours)
    assert list(json.loads(value)) == keys
    foreign = json.dumps({**json.loads(value), "traceParent": trace}).encode()
    members.append(TopicRole.EVENT, NewRecord(foreign))  # a key that it does not know: theirs drops the event
    members.append(TopicRole.EVENT, NewRecord(value, headers))
    heard = await_value(
        lambda: [item for item in members.ask("heard") if item["topic"] == "event"], lambda heard: len(heard) > 1
    )
    assert len(heard) == 2
    assert (heard[1]["name"], heard[1]["kind"], heard[1]["offset"], heard[1]["text"]) == ("p", AUTHOR, 2**40, "/a,/b")


@pytest.mark.long("java")
def test_an_instance_id_has_36_characters_on_both_sides(members: Members) -> None:
    short = SlingId(SLING_ID[:-1])
    with pytest.raises(Exception, match=f"Illegal slingId {short}"):
        members.ask("agent-id", short, EDGE)
    assert members.ask("agent-id", SLING_ID, "a-b") == f"{SLING_ID}-a-b"
    members.send(TopicRole.DISCOVERY, DiscoveryMessage(short, EDGE, (SubscriberState(AUTHOR, 0),)))
    await_value(lambda: members.service.status().unreadable_announcements == 1)
    assert members.service.status().subscribers == ()
    assert len(members.workspace.home.sling_id) == 36
