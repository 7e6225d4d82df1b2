"""The publisher on a journal in memory: what is appended, once, and what is refused before that."""

from __future__ import annotations

import hashlib
import io
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from mailboat.blobs.port import BlobInfo
from mailboat.blobs.references import ReferenceCodec
from mailboat.config.document import LimitsConfig, Transfer
from mailboat.errors import (
    AppendUncertainError,
    JournalUnavailableError,
    LimitExceededError,
    RequestConflictError,
    SourceChangedError,
    SourceMissingError,
    StorageFailedError,
    StorageFullError,
    UntrustedInputError,
    UsageError,
)
from mailboat.failpoints import Failpoint
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId, RequestId, TopicName
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.nodes import Binary, Node, Property, PropertyType, file_node
from mailboat.model.paths import ROOT, NodePath, child_of
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.packages.filevault.archive_writer import SPOOL_BYTES
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.tree import TreeCodec
from mailboat.publisher.published import StagedNode
from mailboat.publisher.publisher import Publisher
from mailboat.publisher.publisher_settings import PublisherPorts
from mailboat.publisher.state import PublisherState
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.memory_content import MemorySource
from mailboat.testing.trees import a_file, a_folder, a_page
from mailboat.wire.headers import PACKAGE_HEADERS
from mailboat.wire.package_messages import decode_package
from support.engines import AUTHOR, PACKAGES, Engine, EngineParts, memory_engine, page_source


class FailOnce:
    """Raises the first time that a step is reached."""

    def __init__(self) -> None:
        self.at: Failpoint | None = None

    def reach(self, failpoint: Failpoint) -> None:
        if failpoint is self.at:
            self.at = None
            raise StorageFullError(f"simulated at {failpoint}")


@pytest.fixture
def fail() -> FailOnce:
    return FailOnce()


@pytest.fixture
def engine(tmp_path: Path, fail: FailOnce) -> Iterator[Engine]:
    with memory_engine(tmp_path, EngineParts(SkippingClock(), fail)) as opened:
        yield opened


def publisher_for(engine: Engine, step: Failpoint) -> Publisher:
    """A publisher that comes past the step."""
    are_cut = step is Failpoint.PUBLISHER_PIECES_APPENDED
    return engine.publisher(
        engine.publishing_with(transfer=Transfer.CHUNKS, inline_package_bytes=0) if are_cut else None
    )


def messages(engine: Engine) -> list[PackageMessage]:
    return [decode_package(record.value) for record in engine.records() if record.headers == PACKAGE_HEADERS]


def contents(engine: Engine, message: PackageMessage) -> dict[str, bytes]:
    payload = message.payload
    if payload is None:
        reference = ReferenceCodec().parse(message.payload_ref or "")
        with engine.blobs.open(reference.digest, reference.length_bytes) as stream:
            payload = stream.read()
    change = TreeCodec().read_bytes(payload, LimitsConfig(), None)
    return {record.path: record.body for record in change.records}


def named(name: str, *paths: str, action: Action = Action.ADD) -> DistributionRequest:
    checked = tuple(map(NodePath, paths))
    return DistributionRequest(action, checked, frozenset(checked if action is Action.ADD else ()), RequestId(name))


def site() -> MemorySource:
    return page_source("/en/index", "/en/news/a", "/en/news/b", "/de/index")


# ---------------------------------------------------------------------------------------------------------- messages


def test_an_add_carries_its_subtree_and_the_nodes_above(engine: Engine) -> None:
    """Without mere folders: what lacks them makes them, of the type that fits there."""
    tree = MemorySource([Node(NodePath("/en"), "sling:Folder"), *site().walk(NodePath("/en/news"))])
    receipt = engine.publisher().publish(add_request([NodePath("/en/news")], user_id="me"), tree)
    (message,) = messages(engine)
    assert set(contents(engine, message)) == {"/en", "/en/news", "/en/news/a", "/en/news/b"}
    assert (message.paths, message.deep_paths, message.user_id) == (("/en/news",), ("/en/news",), "me")
    assert (message.pub_agent_name, message.package_type) == (AUTHOR, "tree")
    assert message.package_digest == hashlib.sha256(message.payload or b"").digest()
    assert message.package_length_bytes == len(message.payload or b"") == receipt.package_bytes
    assert message.package_id == receipt.package_id
    assert message.package_id.startswith("dstrpck-1767225600000-")
    assert (receipt.offset, receipt.nodes, receipt.is_repeat, receipt.is_inline) == (0, 3, False, True)


def test_a_shallow_add_carries_the_node_alone(engine: Engine) -> None:
    engine.publisher().publish(add_request([NodePath("/en/news")], is_deep=False), site())
    (message,) = messages(engine)
    assert set(contents(engine, message)) == {"/en/news"}
    assert message.deep_paths == ()


def test_paths_of_one_request_may_lie_within_each_other_in_any_order(engine: Engine) -> None:
    request = DistributionRequest(
        Action.ADD, tuple(map(NodePath, ["/en/news", "/en", "/de/index"])), frozenset([NodePath("/en/news")])
    )
    engine.publisher().publish(request, site())
    assert set(contents(engine, messages(engine)[0])) == {
        "/en",
        "/en/news",
        "/en/news/a",
        "/en/news/b",
        "/de/index",
    }


@pytest.mark.parametrize("action", [Action.DELETE, Action.INVALIDATE, Action.TEST])
def test_the_other_actions_carry_paths_and_no_package(engine: Engine, action: Action) -> None:
    paths = () if action is Action.TEST else (NodePath("/en"),)
    receipt = engine.publisher().publish(DistributionRequest(action, paths))
    (message,) = messages(engine)
    assert (message.action, message.paths, message.payload, message.payload_ref) == (action, paths, None, None)
    assert receipt.removed == (1 if action is Action.DELETE else 0)


def test_a_path_that_is_not_in_the_source_is_refused_and_told_what_to_do(engine: Engine) -> None:
    with pytest.raises(SourceMissingError, match="nothing at /fr") as info:
        engine.publisher().publish(add_request([NodePath("/fr")]), site())
    assert info.value.next_step == "to publish a removal: mailboat delete /fr"
    assert engine.records() == []


def test_publishing_the_root_of_an_empty_source_does_not_empty_the_subscribers(engine: Engine) -> None:
    with pytest.raises(SourceMissingError):
        engine.publisher().publish(add_request([ROOT]), MemorySource())
    assert engine.records() == []


def test_a_path_that_vanishes_while_it_is_read_publishes_nothing(engine: Engine) -> None:
    class Vanishing(MemorySource):
        def walk(self, *_: object, **__: object) -> Iterator[Node]:
            return iter(())

    with pytest.raises(SourceChangedError, match="vanished"):
        engine.publisher().publish(add_request([NodePath("/en")]), Vanishing(list(site().nodes.values())))
    assert engine.records() == []


# ------------------------------------------------------------------------------------------------------------- sizes


def test_a_large_binary_goes_to_the_blob_store_before_the_message_names_it(engine: Engine) -> None:
    large = bytes(70_000)
    source = MemorySource([file_node(NodePath("/big"), Binary(large)), file_node(NodePath("/copy"), Binary(large))])
    receipt = engine.publisher().publish(add_request([NodePath("/big"), NodePath("/copy")]), source)
    (message,) = messages(engine)
    assert [binary.digest for binary in message.binaries] == [hashlib.sha256(large).digest()]
    assert engine.blobs.stat(message.binaries[0].digest) is not None
    assert (receipt.content_bytes, receipt.is_inline) == (140_000, True)
    assert receipt.package_bytes < 1000


def test_a_large_package_is_built_on_the_disk_of_the_spool_folder(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, places = engine.blobs.put, list[Path]()

    def note_place(content: BinaryIO, expected: bytes | None = None) -> BlobInfo:
        places.append(Path(f"/proc/self/fd/{content.fileno()}").readlink().parent)
        return put(content, expected)

    monkeypatch.setattr(engine.blobs, "put", note_place)
    source = page_source(*(f"/p{number}" for number in range(30)), text="x" * 50_000)
    settings = engine.publishing_with(spool=str(tmp_path))
    engine.publisher(settings).publish(add_request(list(source.nodes)), source)
    assert places == [tmp_path]


def test_content_that_a_format_packs_first_waits_on_the_disk_of_the_spool_folder(tmp_path: Path) -> None:
    large = b"text" + random.Random(1).randbytes(SPOOL_BYTES + SPOOL_BYTES // 4)
    source = MemorySource([file_node(NodePath("/big"), Binary(large))])
    with memory_engine(tmp_path, EngineParts(codecs={"filevault": FilevaultCodec()})) as engine:
        settings = engine.publishing_with(
            package_type="filevault", transfer=Transfer.CHUNKS, spool=str(tmp_path / "missing")
        )
        with pytest.raises(StorageFailedError, match="missing"):
            engine.publisher(settings).publish(add_request([NodePath("/big")]), source)


def test_a_large_package_goes_to_the_blob_store(engine: Engine) -> None:
    source = page_source(*(f"/p{number}" for number in range(20)), text="x" * 50_000)
    receipt = engine.publisher().publish(add_request(list(source.nodes)), source)
    (message,) = messages(engine)
    assert message.payload is None
    assert not receipt.is_inline
    assert set(contents(engine, message)) == set(source.nodes)
    reference = ReferenceCodec().parse(message.payload_ref or "")
    assert (reference.digest, reference.length_bytes) == (message.package_digest, message.package_length_bytes)


@pytest.mark.parametrize("size", [819_000, 819_100, 819_200, 819_300])
def test_what_is_inline_always_fits_the_journal(engine: Engine, size: int) -> None:
    many = engine.publishing_with(inline_binary_bytes=1 << 20, max_message_bytes=820_000)
    source = MemorySource([file_node(NodePath("/big"), Binary(bytes(size)))])
    engine.publisher(many).publish(add_request([NodePath("/big")]), source)
    assert len(engine.records()[0].value) <= 820_000


def test_more_paths_than_fit_a_message_are_refused_before_anything_is_appended(engine: Engine) -> None:
    small = engine.publishing_with(max_message_bytes=2000)
    paths = [f"/{'n' * 50}-{number}" for number in range(50)]
    with pytest.raises(LimitExceededError, match="the journal takes 2000"):
        engine.publisher(small).publish(add_request(map(NodePath, paths)), page_source(*paths))
    with pytest.raises(LimitExceededError):
        engine.publisher(small).publish(DistributionRequest(Action.DELETE, tuple(map(NodePath, paths))))
    assert engine.records() == []


def test_a_package_is_refused_that_is_larger_packed_than_its_content(tmp_path: Path) -> None:
    source = MemorySource([file_node(NodePath("/en"), Binary(random.Random(1).randbytes(500)))])
    with memory_engine(tmp_path, EngineParts(codecs={"filevault": FilevaultCodec()})) as engine:
        tight = engine.publishing_with(package_type="filevault", limits=LimitsConfig(max_total_bytes=1_000))
        with pytest.raises(LimitExceededError, match="the limit is 1000"):
            engine.publisher(tight).publish(add_request([NodePath("/en")]), source)
        assert engine.records() == []


def test_where_packages_travel_in_messages_alone_a_larger_one_is_refused_and_leaves_nothing(engine: Engine) -> None:
    settings = engine.publishing_with(transfer=Transfer.INLINE, inline_package_bytes=2_000)
    small, large = page_source("/a"), page_source("/b", text=random.Random(1).randbytes(50_000).hex())
    publisher = engine.publisher(settings)
    assert publisher.publish(add_request([NodePath("/a")]), small).is_inline
    with pytest.raises(LimitExceededError, match="may not travel otherwise") as caught:
        publisher.publish(add_request([NodePath("/b")]), large)
    assert "publisher.transfer" in (caught.value.next_step or "")
    assert len(messages(engine)) == 1
    assert list(engine.blobs.list()) == []


def test_names_that_differ_in_case_are_published_unless_refused(engine: Engine) -> None:
    source = page_source("/en/News", "/en/news")
    with pytest.raises(LimitExceededError, match="'News' and 'news' in one folder") as caught:
        engine.publisher(engine.publishing_with(limits=LimitsConfig(refuse_collisions=True))).publish(
            add_request([NodePath("/en")]), source
        )
    assert "limits.refuse_collisions" in (caught.value.next_step or "")
    assert engine.records() == []
    engine.publisher().publish(add_request([NodePath("/en")]), source)
    assert len(engine.records()) == 1


def test_a_package_format_that_no_one_knows_is_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="no package format 'zip'; known here: tree"):
        engine.publisher(engine.publishing_with(package_type="zip")).publish(add_request([ROOT]), site())


def test_a_self_contained_package_needs_no_blob_store(engine: Engine) -> None:
    source = MemorySource([file_node(NodePath("/big"), Binary(bytes(70_000)))])
    engine.publisher(engine.publishing_with(transfer=Transfer.INLINE)).publish(add_request([NodePath("/big")]), source)
    assert messages(engine)[0].binaries == ()
    assert list(engine.blobs.list()) == []


# ------------------------------------------------------------------------------------------------------- idempotence


def test_the_same_request_id_gives_the_same_place_and_one_message(engine: Engine) -> None:
    first = engine.publisher().publish(named("r", "/en"), site())
    again = engine.publisher().publish(named("r", "/en"), site())
    assert (again.offset, again.package_id, again.is_repeat) == (first.offset, first.package_id, True)
    assert len(engine.records()) == 1


def test_a_repeated_request_needs_nothing_of_the_source_any_more(engine: Engine) -> None:
    engine.publisher().publish(named("r", "/en"), site())
    assert engine.publisher().publish(named("r", "/en"), MemorySource()).is_repeat


@pytest.mark.parametrize(
    "other",
    [
        named("r", "/de"),
        named("r", "/en", "/de"),
        DistributionRequest(Action.ADD, (NodePath("/en"),), frozenset(), RequestId("r")),
    ],
)
def test_one_request_id_can_not_stand_for_two_requests(engine: Engine, other: DistributionRequest) -> None:
    engine.publisher().publish(named("r", "/en"), site())
    with pytest.raises(RequestConflictError, match="request id r was used for another request, published at offset 0"):
        engine.publisher().publish(other, site())
    assert len(engine.records()) == 1


def test_requests_without_an_id_are_each_their_own(engine: Engine) -> None:
    publisher = engine.publisher()
    receipts = [publisher.publish(add_request([NodePath("/en")]), site()) for _ in range(2)]
    assert len({receipt.request_id for receipt in receipts}) == 2
    assert [receipt.offset for receipt in receipts] == [0, 1]


@pytest.mark.parametrize("step", [failpoint for failpoint in Failpoint if failpoint.startswith("publisher-")])
def test_a_retry_after_a_failure_at_any_step_leaves_one_message(
    engine: Engine, fail: FailOnce, step: Failpoint
) -> None:
    publisher = publisher_for(engine, step)
    fail.at = step
    with pytest.raises(StorageFullError):
        publisher.publish(named("r", "/en"), site())
    receipt = publisher.publish(named("r", "/en"), site())
    assert [message.package_id for message in messages(engine)] == [receipt.package_id]
    assert publisher.publish(named("r", "/en"), site()).offset == receipt.offset


def test_two_publishers_may_use_the_same_request_id(engine: Engine, tmp_path: Path) -> None:
    engine.publisher().publish(named("r", "/en"), site())
    state = PublisherState(tmp_path / "other.db")
    ports = PublisherPorts(engine.journal, engine.blobs, engine.parts.codecs, state)
    Publisher(engine.publishing_with(name=AgentName("other")), ports).publish(named("r", "/de"), site())
    state.close()
    assert [message.pub_agent_name for message in messages(engine)] == ["author", "other"]


def test_an_interrupted_request_is_not_answered_by_that_of_another_home(
    engine: Engine, fail: FailOnce, tmp_path: Path
) -> None:
    fail.at = Failpoint.PUBLISHER_INTENT_STORED
    with pytest.raises(StorageFullError):
        engine.publisher().publish(named("r", "/en"), site())
    with closing(PublisherState(tmp_path / "other.db")) as state:
        ports = PublisherPorts(engine.journal, engine.blobs, engine.parts.codecs, state)
        Publisher(engine.publishing, ports).publish(named("r", "/de"), site())
    receipt = engine.publisher().publish(named("r", "/en"), site())
    assert (receipt.offset, receipt.is_repeat) == (1, False)
    assert [message.paths for message in messages(engine)] == [("/de",), ("/en",)]


@pytest.mark.parametrize(
    "asked", [add_request([NodePath("/en")]), named("r", "/en"), named("r", "/en", action=Action.DELETE)]
)
def test_changes_of_a_publication_that_the_journal_refuses_are_forgotten(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, asked: DistributionRequest
) -> None:
    publisher = engine.publisher()
    list(publisher.publish_changed(site()))

    def unreachable(*_: object) -> None:
        raise JournalUnavailableError("no broker")

    monkeypatch.setattr(engine.journal, "bounds", unreachable)
    with pytest.raises(JournalUnavailableError):
        publisher.publish(asked, site() if asked.action is Action.ADD else None)
    assert staged_rows(engine) == 0


def test_changes_of_a_killed_publication_are_forgotten_after_a_week(engine: Engine) -> None:
    publisher = engine.publisher()
    list(publisher.publish_changed(site()))
    (source_id,) = engine.state.published.followed(Action.ADD, site().uri, engine.journal.identity(PACKAGES))
    engine.state.published.stage([(PackageId("killed"), [StagedNode(NodePath("/en"), None)])], (source_id,))
    for days, left in ((6, 1), (2, 0)):
        engine.parts.clock.wait(threading.Event(), days * 86_400.0)
        engine.publisher().publish(named(f"after-{days}", "/en"), site())
        assert staged_rows(engine) == left


def staged_rows(engine: Engine) -> int:
    """How many changes wait for the receipts of their packages."""
    return int(engine.state._file.rows("SELECT count(*) FROM staged")[0][0])


def test_receipts_live_as_long_as_the_messages(engine: Engine) -> None:
    engine.publisher().publish(named("old", "/en"), site())
    engine.publisher().publish(named("new", "/en"), site())
    engine.journal.truncate(PACKAGES, engine.records()[1].offset)
    publisher = engine.publisher()
    assert publisher.publish(named("new", "/en"), site()).is_repeat
    assert not publisher.publish(named("old", "/en"), site()).is_repeat


def test_receipts_of_removed_messages_are_forgotten_while_the_publisher_runs(engine: Engine) -> None:
    publisher, log = engine.publisher(), engine.journal.identity(PACKAGES)
    publisher.publish(named("old", "/en"), site())
    engine.journal.truncate(PACKAGES, Offset(1))
    for seconds, is_known in ((3599.0, True), (1.0, False)):
        engine.parts.clock.wait(threading.Event(), seconds)
        publisher.publish(named(f"after-{seconds}", "/en"), site())
        assert (engine.state.receipt(RequestId("old"), log) is not None) is is_known


def test_a_journal_that_does_not_give_back_what_it_took_is_not_believed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.publisher().publish(named("other", "/de"), site())
    append = engine.journal.append
    monkeypatch.setattr(engine.journal, "append", lambda topic, records: [item - 1 for item in append(topic, records)])
    with pytest.raises(JournalUnavailableError, match="returned a different record"):
        engine.publisher().publish(named("r", "/en"), site())
    monkeypatch.undo()
    assert engine.publisher().publish(named("r", "/en"), site()).offset == 1
    assert len(engine.records()) == 2


def unanswered(engine: Engine, monkeypatch: pytest.MonkeyPatch, keeps: Callable[[int], int]) -> None:
    """Let the journal keep the first `keeps(count)` records of an append, and give no answer."""
    append = engine.journal.append

    def without_answer(topic: TopicName, records: Sequence[NewRecord]) -> None:
        kept = records[: keeps(len(records))]
        if kept:
            append(topic, kept)
        raise AppendUncertainError("no answer")

    monkeypatch.setattr(engine.journal, "append", without_answer)


@pytest.mark.parametrize("request_id", ["r", None])
def test_an_append_without_an_answer_that_stands_in_the_log_is_done(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, request_id: str | None
) -> None:
    engine.publisher().publish(named("other", "/de"), site())
    publisher = engine.publisher()
    unanswered(engine, monkeypatch, lambda count: count)
    ids = {path: None if request_id is None else RequestId(request_id + path) for path in ("/en", "/de")}
    wanted = [replace(named("", path), request_id=one) for path, one in ids.items()]
    assert [item.offset for item in publisher.publish_all(wanted, site())] == [1, 2]
    monkeypatch.undo()
    assert publisher.publish(wanted[0], site()).is_repeat is (request_id is not None)


@pytest.mark.parametrize("kept", [0, 1])
def test_partial_append_is_uncertain_and_completed_by_a_retry(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    publisher, wanted = engine.publisher(), [named("a", "/en"), named("b", "/de")]
    unanswered(engine, monkeypatch, lambda _: kept)
    with pytest.raises(AppendUncertainError):
        list(publisher.publish_all(wanted, site()))
    monkeypatch.undo()
    again = list(publisher.publish_all(wanted, site()))
    assert [item.is_repeat for item in again] == [place < kept for place in range(2)]
    assert sorted(item.offset for item in again) == [0, 1]
    assert len(engine.records()) == 2


def test_an_append_without_an_answer_is_uncertain_while_the_log_can_not_be_asked(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = engine.publisher()
    publisher.publish(named("first", "/en"), site())

    def unreachable(*_: object) -> None:
        raise JournalUnavailableError("no broker")

    unanswered(engine, monkeypatch, lambda count: count)
    monkeypatch.setattr(engine.journal, "reader", unreachable)
    with pytest.raises(AppendUncertainError, match="no answer"):
        publisher.publish(named("r", "/en"), site())
    monkeypatch.undo()
    assert publisher.publish(named("r", "/en"), site()).is_repeat


def test_a_package_is_located_by_its_id_and_by_its_request_id(engine: Engine) -> None:
    publisher = engine.publisher()
    publisher.publish(named("first", "/en"), site())
    receipt = publisher.publish(named("r", "/en"), site())
    assert publisher.locate("r") == publisher.locate(receipt.package_id) == receipt.offset == 1
    assert publisher.locate("nobody") is None


def test_what_others_append_between_a_crash_and_the_retry_disturbs_no_one(engine: Engine, fail: FailOnce) -> None:
    fail.at = Failpoint.PUBLISHER_INTENT_STORED
    with pytest.raises(StorageFullError):
        engine.publisher().publish(named("r", "/en"), site())
    engine.journal.append(PACKAGES, [NewRecord(b"\xff", ()), *(NewRecord(b"", ()) for _ in range(500))])
    assert engine.publisher().publish(named("r", "/en"), site()).offset == 501


# -------------------------------------------------------------------------------------------------------------- many


def test_many_requests_are_appended_in_few_steps_and_in_order(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    appends: list[int] = []
    append = engine.journal.append
    monkeypatch.setattr(
        engine.journal, "append", lambda topic, records: appends.append(len(records)) or append(topic, records)
    )
    source = page_source(*(f"/p{number}" for number in range(25)))
    publisher = engine.publisher(engine.publishing_with(append_records=10))
    receipts = list(publisher.publish_all((add_request([path]) for path in source.nodes), source))
    assert [receipt.offset for receipt in receipts] == list(range(25))
    assert [message.paths for message in messages(engine)] == [(path,) for path in source.nodes]
    assert appends == [10, 10, 5]


def test_requests_of_all_kinds_share_an_append_and_keep_their_order(engine: Engine) -> None:
    requests = [
        named("1", "/en"),
        named("2", "/old", action=Action.DELETE),
        named("3", "/en", action=Action.INVALIDATE),
        named("4", "/de"),
    ]
    receipts = list(engine.publisher().publish_all(requests, site()))
    assert [receipt.offset for receipt in receipts] == [0, 1, 2, 3]
    assert [(message.action, message.payload is None) for message in messages(engine)] == [
        (Action.ADD, False),
        (Action.DELETE, True),
        (Action.INVALIDATE, True),
        (Action.ADD, False),
    ]
    with pytest.raises(UsageError, match="takes no source"):
        engine.publisher().publish(named("5", "/old", action=Action.DELETE), site())


def test_where_one_of_many_fails_those_before_it_are_published_and_reported(engine: Engine) -> None:
    requests = [named("1", "/en"), named("2", "/de"), named("3", "/nowhere"), named("4", "/en")]
    receipts = engine.publisher().publish_all(requests, site())
    assert [next(receipts).request_id, next(receipts).request_id] == ["1", "2"]
    with pytest.raises(SourceMissingError):
        next(receipts)
    assert len(engine.records()) == 2


def test_many_requests_may_repeat_each_other_and_earlier_ones(engine: Engine) -> None:
    engine.publisher().publish(named("0", "/en"), site())
    requests = [named("1", "/en"), named("1", "/en"), named("0", "/en"), named("2", "/de")]
    receipts = list(engine.publisher().publish_all(requests, site()))
    assert [(receipt.request_id, receipt.offset, receipt.is_repeat) for receipt in receipts] == [
        ("1", 1, False),
        ("1", 1, True),
        ("0", 0, True),
        ("2", 2, False),
    ]


# ----------------------------------------------------------------------------------------------------------- changes


def changed(engine: Engine, source: MemorySource, *roots: str) -> list[tuple[tuple[str, ...], int, int]]:
    receipts = engine.publisher().publish_changed(source, list(map(NodePath, roots)) or [ROOT])
    return [(receipt.paths, receipt.nodes, receipt.removed) for receipt in receipts]


def test_another_namespace_of_a_prefix_publishes_the_nodes_that_use_it(engine: Engine) -> None:
    def source(uri: str) -> MemorySource:
        named = Node(NodePath("/en/x"), "acme:Page")
        typed = Node(NodePath("/en/y"), "nt:unstructured", (), (Property("kind", ("acme:Kind",), PropertyType.NAME),))
        return MemorySource(
            [a_folder("/en"), named, typed, a_folder("/en/z")], namespaces={"acme": (uri,), "b": ("urn:b",)}
        )

    engine.publisher().publish(add_request([ROOT]), source("urn:one"))
    assert changed(engine, source("urn:one")) == []
    assert changed(engine, source("urn:two")) == [(("/en/x", "/en/y"), 2, 0)]
    assert changed(engine, source("urn:two")) == []


def test_the_first_time_everything_is_new_and_the_second_time_nothing(engine: Engine) -> None:
    source = site()
    assert changed(engine, source) == [(("/de", "/en"), 7, 0)]
    assert changed(engine, source) == []


def acl(*entries: str, privilege: str = "jcr:read") -> MemorySource:
    """A page with a list of access rights."""
    policy, rights = NodePath("/page/rep:policy"), Property("rep:privileges", (privilege,), PropertyType.NAME)
    allowed = [Node(NodePath(f"{policy}/{name}"), "rep:GrantACE", properties=(rights,)) for name in entries]
    nodes = [Node(NodePath("/page"), "nt:unstructured"), Node(policy, "rep:ACL"), *allowed]
    return MemorySource([*nodes, Node(NodePath("/page/text"), "nt:unstructured")], uri="memory:acl")


@pytest.mark.parametrize(
    ("before", "after", "carried"),
    [
        (acl("allow", "deny"), acl("allow", "deny", privilege="jcr:write"), 3),
        (acl("allow", "deny"), acl("allow", "deny", "more"), 4),
        (acl("allow", "deny"), acl("allow"), 2),
        (acl("allow"), acl(), 1),
    ],
    ids=["changed", "added", "removed", "emptied"],
)
def test_a_changed_access_control_list_is_shipped_whole_for_repositories(
    tmp_path: Path, before: MemorySource, after: MemorySource, carried: int
) -> None:
    with memory_engine(tmp_path, EngineParts(codecs={"tree": TreeCodec(), "filevault": FilevaultCodec()})) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type="filevault"))
        assert len(list(publisher.publish_changed(before, [ROOT]))) == 1
        (receipt,) = publisher.publish_changed(after, [ROOT])
        message = messages(engine)[-1]
        assert (message.paths, message.deep_paths) == (("/page/rep:policy",), ("/page/rep:policy",))
        assert (receipt.nodes, receipt.removed) == (carried, 0)
        assert list(publisher.publish_changed(after, [ROOT])) == []


def test_an_empty_source_is_refused_and_not_taken_for_removals(engine: Engine) -> None:
    publisher = engine.publisher()
    assert list(publisher.publish_changed(MemorySource())) == []
    list(publisher.publish_changed(site()))
    before = len(messages(engine))
    for publish in (publisher.plan_changed, lambda source: list(publisher.publish_changed(source))):
        with pytest.raises(SourceMissingError, match="is empty, and content of it was published"):
            publish(MemorySource(uri=site().uri))
    with pytest.raises(SourceMissingError, match="is empty, and content of it was published"):
        list(publisher.publish_changed(MemorySource(uri=site().uri), [NodePath("/en")]))
    assert len(messages(engine)) == before


def test_only_what_changed_is_shipped_and_removals_with_it(engine: Engine) -> None:
    source = site()
    changed(engine, source)
    source.nodes[NodePath("/en/index")] = file_node(NodePath("/en/index"), Binary(b"new"))
    source.nodes[NodePath("/en/late")] = file_node(NodePath("/en/late"), Binary(b"late"))
    for path in ("/de", "/de/index", "/en/news/b"):
        del source.nodes[NodePath(path)]
    assert changed(engine, source) == [(("/en/index", "/en/late", "/de", "/en/news/b"), 2, 2)]
    assert changed(engine, source) == []


def test_there_and_back_again_is_published_each_time(engine: Engine) -> None:
    source, path = site(), NodePath("/de/index")
    changed(engine, source)
    for text in (b"1", b"2", b"1", b"2"):
        source.nodes[path] = file_node(path, Binary(text))
        assert changed(engine, source) == [((path,), 1, 0)]


@pytest.mark.parametrize("top", ["/", "/f"])
def test_children_of_a_removed_node_stay_known(engine: Engine, top: str) -> None:
    first, second = (child_of(NodePath(top), name) for name in "xy")
    source = MemorySource([Node(NodePath(top), "sling:Folder"), a_file(first), a_file(second), a_file("/z")])
    changed(engine, source)
    for path in (NodePath(top), first):
        del source.nodes[path]
    assert changed(engine, source) == [((top, first), 0, 2)]
    assert changed(engine, source) == []
    del source.nodes[second]
    assert changed(engine, source) == [((second,), 0, 1)]


def test_many_long_paths_take_several_packages(engine: Engine) -> None:
    folder = "".join(f"/{'n' * 250}" for _ in range(14))
    source = page_source(*(f"{folder}/{number}" for number in range(300)))
    changed(engine, source)
    for number in range(300):
        path = NodePath(f"{folder}/{number}")
        source.nodes[path] = file_node(path, Binary(b"new"))
    found = changed(engine, source)
    assert sum(nodes for _, nodes, _ in found) == 300
    assert len(found) > 1


def test_roots_limit_what_is_looked_at_and_may_lie_within_each_other(engine: Engine) -> None:
    source = site()
    assert changed(engine, source, "/en/news", "/en", "/en") == [(("/en",), 5, 0)]
    del source.nodes[NodePath("/en/index")]
    del source.nodes[NodePath("/de/index")]
    assert changed(engine, source, "/en") == [(("/en/index",), 0, 1)]
    assert changed(engine, source) == [(("/de",), 1, 0)]


def test_packages_are_bounded_and_a_large_change_takes_several(engine: Engine) -> None:
    source = page_source(*(f"/s/{number:02}" for number in range(25)))
    publisher = engine.publisher(engine.publishing_with(max_change_nodes=10))
    receipts = list(publisher.publish_changed(source))
    assert [receipt.nodes for receipt in receipts] == [10, 10, 6]
    assert len({receipt.request_id for receipt in receipts}) == 3


def test_what_is_published_by_name_is_known_to_the_comparison(engine: Engine) -> None:
    source, path = site(), NodePath("/de/index")
    changed(engine, source)
    source.nodes[path] = file_node(path, Binary(b"new"))
    engine.publisher().publish(add_request([path]), source)
    assert changed(engine, source) == []
    engine.publisher().publish(DistributionRequest(Action.DELETE, (NodePath("/en"),)))
    assert changed(engine, source) == [(("/en",), 5, 0)]


def test_a_deep_publication_forgets_what_it_removed(engine: Engine) -> None:
    source = site()
    changed(engine, source)
    del source.nodes[NodePath("/en/news/a")]
    engine.publisher().publish(add_request([NodePath("/en")]), source)
    assert changed(engine, source) == []


@pytest.mark.parametrize("step", [failpoint for failpoint in Failpoint if failpoint.startswith("publisher-")])
def test_changes_are_not_doubled_by_a_failure_at_any_step(engine: Engine, fail: FailOnce, step: Failpoint) -> None:
    source = site()
    fail.at = step
    with pytest.raises(StorageFullError):
        list(publisher_for(engine, step).publish_changed(source))
    list(publisher_for(engine, step).publish_changed(source))
    assert len(messages(engine)) == 1
    assert changed(engine, source) == []


def test_a_new_journal_gets_everything_again(engine: Engine, tmp_path: Path) -> None:
    source = site()
    changed(engine, source)
    engine.close()
    with memory_engine(tmp_path) as other:
        assert changed(other, source) == [(("/de", "/en"), 7, 0)]


def test_a_node_that_vanishes_between_comparison_and_packaging_is_told(engine: Engine) -> None:
    class Forgetful(MemorySource):
        def node(self, *_: object) -> None:
            return None

    with pytest.raises(SourceChangedError, match="vanished"):
        changed(engine, Forgetful(list(site().nodes.values())))
    assert engine.records() == []


def test_a_binary_that_changes_while_it_is_stored_is_told(engine: Engine) -> None:
    torn = Binary(
        digest=hashlib.sha256(b"before").digest(), length_bytes=70_000, opener=lambda: io.BytesIO(bytes(70_000))
    )
    with pytest.raises(SourceChangedError):
        engine.publisher().publish(add_request([NodePath("/f")]), MemorySource([file_node(NodePath("/f"), torn)]))
    assert engine.records() == []


# -------------------------------------------------------------------------------------------------------------- plan


@pytest.mark.parametrize(("name", "reason"), [("a*b", "can't hold /en/a"), ("acme:a", "'acme' has no namespace")])
def test_plan_refuses_what_a_filevault_publisher_would_refuse(tmp_path: Path, name: str, reason: str) -> None:
    parts = EngineParts(codecs={"tree": TreeCodec(), "filevault": FilevaultCodec()})
    source = site()
    path = NodePath(f"/en/{name}")
    source.nodes[path] = Node(path, "nt:unstructured")
    request = add_request([NodePath("/en")])
    with memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type="filevault"))
        with pytest.raises(UntrustedInputError, match=reason) as caught:
            publisher.publish(request, source)
        with pytest.raises(UntrustedInputError, match=reason) as caught:
            publisher.plan(request, source)
        with pytest.raises(UntrustedInputError, match=reason) as caught:
            publisher.plan_changed(source)
        assert caught.value.exit_code == 4
        assert engine.publisher().plan_changed(source).packages == 1
        assert not engine.records()


@pytest.mark.parametrize("package_type", ["tree", "filevault"])
def test_plan_and_publication_count_the_same(tmp_path: Path, package_type: str) -> None:
    """Bytes of values and binaries; a file is an nt:file, also with a jcr:content of its own."""
    file, content = NodePath("/en/x.png"), NodePath("/en/x.png/jcr:content")
    data = Property("jcr:data", (Binary(b"png"),), PropertyType.BINARY)
    nodes = [
        Node(NodePath("/en"), "sling:Folder"),
        Node(file, "nt:file"),
        Node(content, "nt:unstructured", (), (data,)),
        a_file("/en/y"),
    ]
    source, request = MemorySource([*nodes, a_page("/en/z", title="five!")]), add_request([NodePath("/en")])
    parts = EngineParts(codecs={"tree": TreeCodec(), "filevault": FilevaultCodec()})
    with memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type=package_type))
        plans = publisher.plan(request, source), publisher.plan_changed(source)
        receipt = publisher.publish(request, source)
    assert [plan.files for plan in plans] == [2, 2]
    assert [(plan.nodes, plan.content_bytes) for plan in plans] == [(receipt.nodes, receipt.content_bytes)] * 2
    assert receipt.content_bytes > len("five!")


def test_a_plan_says_what_would_go_and_changes_nothing(engine: Engine) -> None:
    publisher, source = engine.publisher(), site()
    plan = publisher.plan(add_request([NodePath("/en")]), source)
    assert (plan.packages, plan.nodes, plan.files, plan.deletes) == (1, 5, 3, 0)
    assert plan.first_paths == ("/en",)
    assert publisher.plan(DistributionRequest(Action.DELETE, (NodePath("/en"),))).deletes == 1
    assert publisher.plan_changed(source).nodes == 7
    list(publisher.publish_changed(source))
    assert publisher.plan_changed(source).packages == 0
    del source.nodes[NodePath("/de/index")]
    plan = publisher.plan_changed(source)
    assert (plan.packages, plan.nodes, plan.deletes, plan.first_paths) == (1, 0, 1, ("/de/index",))
    assert len(engine.records()) == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda publisher: publisher.plan(add_request([NodePath("/nowhere")]), site()),
        lambda publisher: publisher.plan(add_request([ROOT])),
        lambda publisher: publisher.plan(DistributionRequest(Action.ADD), site()),
    ],
)
def test_a_plan_refuses_what_a_publication_would_refuse(engine: Engine, ask: Callable[[Publisher], object]) -> None:
    with pytest.raises(UsageError):
        ask(engine.publisher())


@pytest.mark.parametrize("kind", ["tree", "filevault"])
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"limits": LimitsConfig(max_entries=4)}, "than limits.max_entries"),
        ({"limits": LimitsConfig(max_entry_bytes=2_000)}, "than limits.max_entry_bytes"),
        ({"limits": LimitsConfig(max_total_bytes=4_000)}, "than limits.max_total_bytes"),
        ({"transfer": Transfer.INLINE, "inline_package_bytes": 5_000}, "fit a message"),
        ({"max_message_bytes": 100}, "need a message"),
    ],
)
def test_a_plan_refuses_what_limits_refuse(tmp_path: Path, kind: str, settings: dict[str, Any], reason: str) -> None:
    parts = EngineParts(codecs={"tree": TreeCodec(), "filevault": FilevaultCodec()})
    source, request = site(), add_request([NodePath("/en")])
    opened = 0

    def stream() -> BinaryIO:
        nonlocal opened
        opened += 1
        return io.BytesIO(random.Random(1).randbytes(10_000))

    source.nodes[NodePath("/en/b")] = file_node(NodePath("/en/b"), Binary(length_bytes=10_000, opener=stream))
    with memory_engine(tmp_path, parts) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type=kind, **settings))
        for ask in (lambda: publisher.plan(request, source), lambda: publisher.publish(request, source)):
            with pytest.raises(LimitExceededError, match=reason):
                ask()
        assert not engine.records()
        opened = 0
        assert engine.publisher(engine.publishing_with(package_type=kind)).plan(request, source).nodes == 6
        assert opened == 0


def test_a_plan_measures_a_message_with_all_that_publishing_adds(engine: Engine) -> None:
    publisher = engine.publisher(engine.publishing_with(transfer=Transfer.INLINE, max_message_bytes=4_000))
    refused = 0
    for size in range(3_000, 3_900, 5):
        source = MemorySource([file_node(NodePath("/en"), Binary(bytes(size)))])
        try:
            publisher.publish(add_request([NodePath("/en")]), source)
        except LimitExceededError:
            refused += 1
            with pytest.raises(LimitExceededError):
                publisher.plan(add_request([NodePath("/en")]), source)
    assert 0 < refused < 180


@pytest.mark.parametrize("names", [("News", "news"), ("caf\u00e9", "cafe\u0301")])
def test_a_plan_tells_of_names_that_a_publication_refuses(engine: Engine, names: tuple[str, str]) -> None:
    source = page_source(*(f"/en/{name}" for name in names))
    publisher = engine.publisher(engine.publishing_with(limits=LimitsConfig(refuse_collisions=True)))

    def refusal(act: Callable[[], object]) -> LimitExceededError:
        with pytest.raises(LimitExceededError, match="in one folder") as caught:
            act()
        return caught.value

    planned = refusal(lambda: publisher.plan(add_request([NodePath("/en")]), source))
    published = refusal(lambda: publisher.publish(add_request([NodePath("/en")]), source))
    assert (planned.message, planned.next_step) == (published.message, published.next_step)
    planned = refusal(lambda: publisher.plan_changed(source))
    published = refusal(lambda: list(publisher.publish_changed(source)))
    assert (planned.message, planned.next_step) == (published.message, published.next_step)
    assert engine.records() == []
    allowing = engine.publisher()
    assert allowing.plan(add_request([NodePath("/en")]), source).packages == 1
    assert allowing.plan_changed(source).packages == 1
