"""The publisher's memory: one file, several processes, never replaced in silence."""

from __future__ import annotations

import errno
import fcntl
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.errors import MailboatError, StorageFailedError, StorageFullError, StorageReadOnlyError
from mailboat.model.identifiers import AgentName, Offset, PackageId, RequestId, SlingId
from mailboat.model.messages import Action
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.positions import LogIdentity
from mailboat.publisher.distributed import StoredSubscriber
from mailboat.publisher.distributed_memory import (
    TOPIC_READER,
    EventCursor,
    EventMemory,
    StoredSubscribers,
)
from mailboat.publisher.published import SourceNode, StagedNode
from mailboat.publisher.state import Intent, PublisherState, StoredReceipt
from mailboat.publisher.state_file import (
    PublisherBusyError,
    PublisherStateCorruptError,
    StateFile,
    translated_failures,
)
from mailboat.queues.queue_names import QueueName
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS, wait_until

VERSION_1 = """
CREATE TABLE intents (
    request_id TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, package_id TEXT NOT NULL,
    cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL, scan_from INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE receipts (
    request_id TEXT NOT NULL, cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL, fingerprint BLOB NOT NULL,
    package_id TEXT NOT NULL, at_offset INTEGER NOT NULL, PRIMARY KEY (request_id, cluster_id, topic_id)
) WITHOUT ROWID;
CREATE TABLE sources (
    id INTEGER PRIMARY KEY, uri TEXT NOT NULL, cluster_id TEXT NOT NULL, topic_id TEXT NOT NULL,
    packages INTEGER NOT NULL DEFAULT 0, UNIQUE (uri, cluster_id, topic_id)
);
CREATE TABLE published (
    source_id INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (source_id, key)
) WITHOUT ROWID;
CREATE TABLE staged (
    rank INTEGER PRIMARY KEY, request_id TEXT NOT NULL, source_id INTEGER NOT NULL, key TEXT NOT NULL, digest BLOB,
    staged_ms INTEGER NOT NULL
);
CREATE INDEX staged_by_request ON staged (request_id, rank);
INSERT INTO receipts VALUES ('r', 'cluster', 'topic', x'7072696e74', 'p', 4);
INSERT INTO sources VALUES (1, 'site', 'cluster', 'topic', 3);
INSERT INTO published VALUES (1, char(1) || 'a', x'31');
INSERT INTO staged VALUES (1, 'r', 1, char(1) || 'c', x'31', 0);
PRAGMA application_id = 0x4D425042;
PRAGMA user_version = 1;
"""
LOG = LogIdentity("cluster", "topic")
OTHER = LogIdentity("cluster", "other")
P = PackageId("p")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[PublisherState]:
    opened = PublisherState(tmp_path / "author.db", SkippingClock())
    yield opened
    opened.close()


def intent(request_id: str, scan_from: int = 3) -> Intent:
    return Intent(RequestId(request_id), b"print", PackageId("p"), LOG, Offset(scan_from))


def receipt(request_id: str, offset: int, identity: LogIdentity = LOG) -> StoredReceipt:
    return StoredReceipt(RequestId(request_id), b"print", PackageId("p"), identity, Offset(offset))


def test_an_intent_lasts_until_its_receipt(state: PublisherState, tmp_path: Path) -> None:
    state.store_intents([intent("b", 9), intent("a", 3)])
    other = PublisherState(tmp_path / "author.db")
    assert [intent.request_id for intent in other.intents(LOG)] == ["a", "b"]
    assert other.intents(OTHER) == []
    other.store_receipts([receipt("a", 5)])
    assert [intent.request_id for intent in state.intents(LOG)] == ["b"]
    assert state.receipt(RequestId("a"), LOG) == receipt("a", 5)
    assert state.receipt(RequestId("a"), OTHER) is None
    state.drop_intents([intent("b")])
    assert other.intents(LOG) == []
    other.close()


def test_receipts_below_the_head_of_their_log_are_forgotten(state: PublisherState) -> None:
    state.store_receipts([receipt("1", 1), receipt("2", 2), receipt("other", 1, OTHER)])
    assert state.prune(LOG, Offset(2)) == 1
    assert state.receipt(RequestId("1"), LOG) is None
    assert state.receipt(RequestId("2"), LOG) is not None
    assert state.receipt(RequestId("other"), OTHER) is not None


def test_a_receipt_is_located_while_another_thread_publishes(state: PublisherState) -> None:
    state.store_receipts([StoredReceipt(RequestId("r"), b"f", PackageId("p"), LOG, Offset(4))])
    publishing, over = threading.Event(), threading.Event()

    def publish() -> None:
        with state.locks.exclusive("changes"):
            publishing.set()
            over.wait(LONG_WAIT_SECONDS)

    publisher = threading.Thread(target=publish)
    publisher.start()
    assert publishing.wait(PATIENCE_SECONDS)
    found: list[Offset | None] = []
    reader = threading.Thread(target=lambda: found.extend(state.locate(item, LOG) for item in ("r", "p", "other")))
    reader.start()
    reader.join(PATIENCE_SECONDS)
    seen = list(found)
    over.set()
    publisher.join()
    reader.join()
    assert seen == [4, 4, None]


def test_only_one_holds_the_same_purpose_and_the_other_is_told_after_a_time(
    state: PublisherState, tmp_path: Path
) -> None:
    other = PublisherState(tmp_path / "author.db", SkippingClock())
    with (
        state.locks.exclusive("append"),
        pytest.raises(PublisherBusyError, match="another process"),
        other.locks.exclusive("append"),
    ):
        pass
    with state.locks.exclusive("append"), other.locks.exclusive("changes"):
        pass
    with other.locks.exclusive("append"):
        pass
    other.close()


def test_a_failure_inside_a_transaction_leaves_nothing(state: PublisherState) -> None:
    state.store_receipts([receipt("1", 1)])

    def fails() -> None:
        with state._file.transaction() as connection:
            connection.execute("DELETE FROM receipts")
            connection.execute("SELECT * FROM no_such_table")

    with pytest.raises(StorageFailedError, match="no such table"):
        fails()
    assert state.receipt(RequestId("1"), LOG) is not None


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to look like one" * 40, b"\0" * 5000])
def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "author.db"
    file.write_bytes(content)
    with pytest.raises(PublisherStateCorruptError):
        PublisherState(file)
    assert file.read_bytes() == content


def test_an_empty_file_as_a_crash_of_the_first_start_leaves_it_counts_as_new(tmp_path: Path) -> None:
    (tmp_path / "author.db").touch()
    state = PublisherState(tmp_path / "author.db")
    state.store_receipts([receipt("1", 1)])
    state.close()
    again = PublisherState(tmp_path / "author.db")
    assert again.receipt(RequestId("1"), LOG) == receipt("1", 1)
    again.close()


def test_a_state_of_version_1_keeps_all_but_what_was_staged(tmp_path: Path) -> None:
    file = tmp_path / "author.db"
    old = sqlite3.connect(file)
    old.executescript(VERSION_1)
    old.close()
    state = PublisherState(file)
    source_id = state.published.source_id("site", LOG)
    assert source_id is not None
    assert state.receipt(RequestId("r"), LOG) == receipt("r", 4)
    assert state.published.ends(LOG) == []
    with state.published.stager(P, (source_id,)) as staged:
        staged.add(StagedNode(NodePath("/b"), b"1"))
    state.store_receipts([receipt("s", 5)])
    state.published.compare(source_id, [ROOT], [node("/a"), node("/b")])
    assert list(state.published.changes()) == []
    assert [(end.uri, end.offset, end.package_id) for end in state.published.ends(LOG)] == [("site", 5, "p")]
    state.close()
    PublisherState(file).close()


@pytest.mark.parametrize("version", [1, 2])
def test_a_state_of_an_older_version_takes_events(tmp_path: Path, version: int) -> None:
    file = tmp_path / "author.db"
    if version == 1:
        old = sqlite3.connect(file)
        old.executescript(VERSION_1)
    else:
        PublisherState(file).close()
        old = sqlite3.connect(file)
        old.executescript("DROP TABLE event_cursors; DROP TABLE event_audience; PRAGMA user_version = 2")
        old.execute("INSERT INTO receipts VALUES ('r', 'cluster', 'topic', x'7072696e74', 'p', 4)")
        old.commit()
    old.close()
    memory = EventMemory(file)
    memory.advance(TOPIC_READER, LOG, EventCursor(Offset(3), Offset(1)))
    assert memory.cursor(TOPIC_READER, LOG) == (3, 1)
    assert memory.cursor(TOPIC_READER, OTHER) is None
    memory.close()
    state = PublisherState(file)
    assert state.receipt(RequestId("r"), LOG) == receipt("r", 4)
    state.close()


def test_a_step_that_fails_leaves_cursor_and_audience_as_they_were(tmp_path: Path) -> None:
    memory = EventMemory(tmp_path / "author.db")
    member = StoredSubscriber(QueueName(SlingId("5a1e0000-0000-4000-8000-000000000001"), AgentName("edge")), 5)
    discovery = LogIdentity("cluster", "discovery")
    memory.advance(
        TOPIC_READER, LOG, EventCursor(Offset(3), Offset(1)), StoredSubscribers([member], discovery, Offset(7))
    )
    memory._file.connection.execute(
        "CREATE TRIGGER failing BEFORE INSERT ON event_audience WHEN NEW.since_ms = 6"
        " BEGIN SELECT RAISE(ABORT, 'x'); END"
    )
    failing = StoredSubscribers([member, replace(member, since_ms=6)], discovery, Offset(9))
    with pytest.raises(StorageFailedError):
        memory.advance(TOPIC_READER, LOG, EventCursor(Offset(9), Offset(9)), failing)
    assert memory.heard_to(discovery) == 7
    assert memory.cursor(TOPIC_READER, LOG) == (3, 1)
    assert memory.awaited() == [member]
    memory.close()


def test_a_foreign_database_and_one_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.commit()
    foreign.close()
    with pytest.raises(PublisherStateCorruptError):
        PublisherState(tmp_path / "foreign.db")
    PublisherState(tmp_path / "newer.db").close()
    newer = sqlite3.connect(tmp_path / "newer.db")
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(PublisherStateCorruptError, match="of a supported version"):
        PublisherState(tmp_path / "newer.db")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OSError(28, "no space"), "StorageFull"),
        (OSError(30, "read-only"), "StorageReadOnly"),
        (OSError(5, "input/output"), "StorageFailed"),
    ],
)
def test_failures_of_the_system_have_names_of_ours(tmp_path: Path, error: OSError, name: str) -> None:
    with pytest.raises(Exception, match=name) as info, translated_failures(tmp_path):
        raise error
    assert info.value.__cause__ is error


def test_a_full_database_and_a_read_only_one_are_told_apart(state: PublisherState) -> None:
    pages = state._file.connection.execute("PRAGMA page_count").fetchone()[0]
    state._file.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFullError):
        state.store_receipts([receipt(f"{number:0200}", number) for number in range(5000)])
    state._file.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageReadOnlyError):
        state.store_receipts([receipt("1", 1)])
    state._file.connection.execute("PRAGMA query_only = OFF")


def test_a_locked_database_is_busy(state: PublisherState, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "author.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    state._file.connection.execute("PRAGMA busy_timeout = 1")
    with pytest.raises(PublisherBusyError):
        state.store_receipts([receipt("1", 1)])
    other.rollback()
    other.close()


# --------------------------------------------------------------------------------------------- what was published


def node(path: str, digest: bytes = b"1") -> SourceNode:
    return SourceNode(NodePath(path), digest, 1, is_file=True)


def test_what_is_staged_counts_with_the_receipt_and_not_before(state: PublisherState) -> None:
    published = state.published
    source_id = published.follow("site", LOG)
    assert published.follow("site", LOG) == source_id
    with published.stager(P, (source_id,)) as staged:
        staged.add(StagedNode(NodePath("/a"), b"1"))
    published.compare(source_id, [ROOT], [node("/a")])
    assert len(list(published.changes())) == 1
    state.store_receipts([receipt("r", 1)])
    published.compare(source_id, [ROOT], [node("/a")])
    assert list(published.changes()) == []
    assert published.packages(source_id) == 1
    assert published.followed(Action.DELETE, None, LOG) == [source_id]
    assert published.followed(Action.DELETE, None, OTHER) == []


def test_a_failure_while_staging_and_a_dropped_intent_leave_nothing_that_counts(state: PublisherState) -> None:
    published = state.published
    source_id = published.follow("site", LOG)

    def fails() -> None:
        with published.stager(P, (source_id,)) as staged:
            for number in range(2500):
                staged.add(StagedNode(NodePath(f"/{number}"), b"1"))
            raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        fails()
    assert state._file.connection.execute("SELECT count(*) FROM staged").fetchone()[0] == 0
    with published.stager(PackageId("died"), (source_id,)) as staged:
        staged.add(StagedNode(NodePath("/a"), b"1"))
    published.discard_strays(before_ms=2**60)
    assert state._file.connection.execute("SELECT count(*) FROM staged").fetchone()[0] == 0
    with published.stager(P, (source_id,)) as staged:
        staged.add(StagedNode(NodePath("/a"), b"1"))
    state.store_intents([intent("r")])
    published.discard_strays(before_ms=2**60)
    state.drop_intents([intent("r")])
    state.store_receipts([receipt("r", 1)])
    published.compare(source_id, [ROOT], [])
    assert list(published.changes()) == []


def test_removals_whose_parent_changes_come_first_and_the_others_last(state: PublisherState) -> None:
    published = state.published
    source_id = published.follow("site", LOG)
    with published.stager(P, (source_id,)) as staged:
        for path in ("/f", "/f/x", "/f/x/y", "/g", "/g/z", "/k"):
            staged.add(StagedNode(NodePath(path), b"1"))
    state.store_receipts([receipt("r", 1)])
    published.compare(source_id, [ROOT], [node("/f", b"2"), node("/g"), node("/new")])
    assert [(change.path, change.is_removal, change.is_alone) for change in published.changes()] == [
        ("/f/x", True, False),
        ("/f", False, True),
        ("/new", False, False),
        ("/g/z", True, False),
        ("/k", True, False),
    ]


def test_a_removed_node_with_living_descendants_is_removed_alone(state: PublisherState) -> None:
    published = state.published
    source_id = published.follow("site", LOG)
    with published.stager(P, (source_id,)) as staged:
        for path in ("/f", "/f/x", "/f/y"):
            staged.add(StagedNode(NodePath(path), b"1"))
    state.store_receipts([receipt("r", 1)])
    published.compare(source_id, [ROOT], [node("/f/y")])
    assert [(change.path, change.is_alone) for change in published.changes()] == [("/f", True), ("/f/x", False)]


def test_a_comparison_that_fails_can_be_made_again(state: PublisherState) -> None:
    def torn() -> Iterator[SourceNode]:
        yield node("/a")
        raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        state.published.compare(None, [ROOT], torn())
    state.published.compare(None, [ROOT], [node("/a")])
    assert [change.path for change in state.published.changes()] == ["/a"]


def test_a_new_folder_with_a_known_node_below_is_not_published_as_a_whole_subtree(state: PublisherState) -> None:
    published = state.published
    source_id = published.follow("site", LOG)
    with published.stager(P, (source_id,)) as staged:
        staged.add(StagedNode(NodePath("/x/y"), b"1"))
    state.store_receipts([receipt("r", 1)])
    published.compare(source_id, [ROOT], [node("/x"), node("/x/y"), node("/x/z")])
    assert [(change.path, change.is_alone) for change in published.changes()] == [("/x", True), ("/x/z", False)]


def test_what_is_in_doubt_is_published_again_as_whole_subtrees_and_removals_are_still_found(
    state: PublisherState,
) -> None:
    published = state.published
    source_id = published.follow("site", LOG)
    with published.stager(P, (source_id,)) as staged:
        for path in ("/a", "/a/b", "/gone"):
            staged.add(StagedNode(NodePath(path), b"1"))
    state.store_receipts([receipt("r", 1)])
    state.doubt({source_id: (NodePath("/other"),)})
    assert published.ends(LOG) == []
    published.compare(source_id, [ROOT], [node("/a"), node("/a/b")])
    assert [(change.path, change.is_removal, change.is_alone) for change in published.changes()] == [
        ("/a", False, False),
        ("/a/b", False, False),
        ("/gone", True, False),
        ("/other", True, False),
    ]


def test_who_gives_way_lets_in_who_waits_and_does_not_wait_without_end(tmp_path: Path) -> None:
    with closing(PublisherState(tmp_path / "author.db", synchronous="OFF")) as state:
        state.locks.yield_to_waiters()  # no one waits
        began, is_through = threading.Event(), threading.Event()

        def yield_to_waiters() -> None:
            began.set()
            state.locks.yield_to_waiters(timeout_seconds=LONG_WAIT_SECONDS)
            is_through.set()

        with (tmp_path / "author.db.append-waiting").open("r+") as waiting:
            fcntl.flock(waiting, fcntl.LOCK_SH)
            worker = threading.Thread(target=yield_to_waiters)
            worker.start()
            assert began.wait(PATIENCE_SECONDS)
            assert not is_through.wait(0.1)
            fcntl.flock(waiting, fcntl.LOCK_UN)
            assert is_through.wait(PATIENCE_SECONDS)
            worker.join()
            fcntl.flock(waiting, fcntl.LOCK_SH)
            state.locks.yield_to_waiters(timeout_seconds=0.0)


def test_who_waits_to_append_is_seen_by_who_gives_way(tmp_path: Path) -> None:
    file = tmp_path / "author.db"
    with closing(PublisherState(file, synchronous="OFF")) as one, closing(PublisherState(file)) as other:
        taken = threading.Event()

        def append() -> None:
            with other.locks.exclusive():
                taken.set()

        with one.locks.exclusive():
            worker = threading.Thread(target=append)
            worker.start()
            waiting = file.with_name("author.db.append-waiting")
            wait_until(lambda: waiting.exists() and is_held(waiting))
        one.locks.yield_to_waiters()
        assert taken.wait(PATIENCE_SECONDS)
        worker.join()
        assert not is_held(waiting)


def is_held(file: Path) -> bool:
    """Whether a process has a lock on a file."""
    with file.open("r+") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_a_transaction_whose_commit_fails_is_rolled_back(tmp_path: Path) -> None:
    with closing(StateFile(tmp_path / "state.db")) as file:
        file.connection.execute("PRAGMA foreign_keys = ON")
        file.connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        file.connection.execute("CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
        with pytest.raises(MailboatError), file.transaction() as connection:
            connection.execute("INSERT INTO child VALUES (1)")
        with file.transaction() as connection:
            connection.execute("INSERT INTO parent VALUES (1)")
        assert file.rows("SELECT count(*) FROM child") == [(0,)]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "the source's disk"), sqlite3.DatabaseError("the source")])
def test_failure_of_the_source_is_not_one_of_the_state(state: PublisherState, error: Exception) -> None:
    def failing() -> Iterator[SourceNode]:
        yield node("/a")
        raise error

    with pytest.raises(type(error)) as raised:
        state.published.compare(None, [ROOT], failing())
    assert raised.value is error
