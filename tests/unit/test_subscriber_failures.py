"""The subscriber on a journal and a target in memory: what is tried again and given up, and trouble of the house."""

from __future__ import annotations

import io
from typing import Any

import pytest
from mailboat.config.document import Undecodable
from mailboat.content.port import RestoreRecord
from mailboat.errors import (
    BlobMissingError,
    MailboatError,
    MessageUndecodableError,
    PackageCorruptError,
    StorageFullError,
    StorageReadOnlyError,
    UnknownRequiredFeatureError,
)
from mailboat.journal.port import NewRecord
from mailboat.model.messages import Action, FailureCause, PackageMessage, PackageStatus
from mailboat.model.paths import MAX_SHOWN_PATHS, NodePath
from mailboat.model.requests import add_request
from mailboat.packages.tree import TreeCodec
from mailboat.subscriber.failures import ImportDefectError
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.subscriber_settings import Processors
from mailboat.testing.memory_content import MemoryBatch, MemoryStore, MemoryTarget
from mailboat.wire.headers import PACKAGE_HEADERS
from support.engines import PACKAGES, Engine, StopWhen, page_source
from support.memory_imports import (
    FailingTarget,
    Hook,
    Notes,
    absent,
    append,
    message,
    paths_of,
    publish,
    renamed,
    run,
    subscriber,
)


def test_one_poison_package_fails_alone_and_the_others_stay_in_batches(engine: Engine, store: MemoryStore) -> None:
    for number in range(4):
        publish(engine, f"/{number}")
    append(engine, absent())
    for number in range(4, 8):
        publish(engine, f"/{number}")
    notes = Notes()
    statistics = run(engine, store, observer=notes)
    assert paths_of(store) == {f"/{number}" for number in range(8)}
    assert (statistics.imported, statistics.failed) == (8, 1)
    assert store.commits == 3  # those before, the error queue, those after
    assert notes.phases >= {SubscriberPhase.RETRYING}
    (entry,) = store.errors.values()
    assert (entry.offset, entry.attempts, entry.cause.code, entry.paths) == (4, 4, "BlobMissing", ("/bad",))
    failed = engine.statuses()[4]
    assert (failed.offset, failed.status, failed.attempts) == (4, PackageStatus.REMOVED_FAILED, 4)
    assert failed.cause is not None
    assert failed.cause.path == "/bad"
    assert len(notes.given_up) == 1


def test_the_count_of_attempts_is_stored_and_a_restart_goes_on_counting(engine: Engine, store: MemoryStore) -> None:
    append(engine, absent())
    one = subscriber(engine, store, observer=(notes := Notes()))

    def stop_at_second(statistics: SubscriberStatistics) -> None:
        if statistics.attempts == 2:
            one.stop()

    notes.on_progress = stop_at_second  # type: ignore[method-assign]  # to stop in the midst of it
    one.run()
    assert store.attempt is not None
    assert (store.attempt.offset, store.attempt.count, store.attempt.cause.code) == (0, 2, "BlobMissing")
    run(engine, store)
    assert store.errors[engine.records()[0].offset].attempts == 4
    assert store.attempt is None


def test_what_was_skipped_before_a_failing_package_is_done_before_its_attempt_is_counted(
    engine: Engine, store: MemoryStore
) -> None:
    append(engine, *(message(str(number), action=Action.TEST) for number in range(3)), absent())
    observer = StopWhen(lambda statistics: statistics.attempts == 1)
    observer.subscriber = subscriber(engine, store, observer=observer)
    observer.subscriber.run()
    assert store.position == engine.position(3)
    assert store.attempt is not None
    assert (store.attempt.offset, store.attempt.count) == (3, 1)


def test_every_poison_package_gets_all_its_attempts(engine: Engine, store: MemoryStore) -> None:
    append(engine, absent("1"), absent("2"))
    run(engine, store)
    assert [entry.attempts for entry in store.errors.values()] == [4, 4]


def test_a_package_that_succeeds_at_last_is_confirmed_with_its_attempts(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    hook = Hook(failures=2)
    run(engine, store, processors=Processors(before=hook))
    assert len(hook.seen) == 3
    assert [(status.status, status.attempts) for status in engine.statuses()] == [(PackageStatus.IMPORTED, 3)]
    assert store.attempt is None


def test_without_an_end_of_retries_nothing_is_given_up(engine: Engine, store: MemoryStore) -> None:
    append(engine, absent())
    one = subscriber(engine, store, engine.with_settings(max_retries=None), observer=(n := Notes()))
    n.on_progress = lambda statistics: one.stop() if statistics.attempts >= 30 else None  # type: ignore[method-assign]
    statistics = one.run()
    assert statistics.failed == 0
    assert store.attempt is not None
    assert store.attempt.count == 30


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (message(payload=b"nonsense", package_digest=b"\1" * 32), "PackageCorrupt"),
        (message(payload=b"nonsense"), "PackageCorrupt"),
        (message(), "PackageCorrupt"),
        (message(package_type="journal", payload=b"x"), "UnknownPackageType"),
        (message(payload_ref="s3://elsewhere/x"), "ReferenceRefused"),
        (message(payload_ref=f"sha256:{'22' * 32}:{1 << 50}"), "LimitExceeded"),
        (message(payload_ref=f"sha256:{'22' * 32}:9", package_digest=b"\1" * 32), "PackageCorrupt"),
    ],
)
def test_what_can_never_be_imported_goes_to_the_error_queue_at_once(
    engine: Engine, store: MemoryStore, broken: PackageMessage, code: str
) -> None:
    append(engine, broken)
    publish(engine, "/good")
    run(engine, store)
    assert paths_of(store) == {"/good"}
    assert [(entry.cause.code, entry.attempts) for entry in store.errors.values()] == [(code, 1)]


def test_the_error_queue_keeps_the_first_paths_of_a_package(engine: Engine, store: MemoryStore) -> None:
    """A message may have megabytes of them, and a snapshot carries the error queue in its head."""
    append(engine, message(paths=tuple(NodePath(f"/{number}") for number in range(MAX_SHOWN_PATHS + 7))))
    run(engine, store)
    (entry,) = store.errors.values()
    assert (len(entry.paths), entry.more_paths, entry.paths[0]) == (MAX_SHOWN_PATHS, 7, "/0")


@pytest.mark.parametrize("error", [TypeError("no"), AttributeError("no"), KeyError("no")])
@pytest.mark.parametrize("count", [1, 6])
def test_a_defect_in_a_codec_stops_it_and_is_no_fault_of_the_package(
    engine: Engine, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, error: Exception, count: int
) -> None:
    for number in range(count):
        publish(engine, f"/{number}")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(TreeCodec, "read_bytes", fail)
    monkeypatch.setattr(TreeCodec, "read_together", fail)
    if isinstance(error, KeyError):  # which content may be the reason for
        run(engine, store)
        assert len(store.errors) == count
        return
    with pytest.raises(ImportDefectError, match=r"package at 0 ended in .*no") as caught:
        run(engine, store)
    assert caught.value.__cause__ is error
    assert not store.errors
    monkeypatch.undo()
    run(engine, store)
    assert len(paths_of(store)) == count


def test_steps_that_never_move_the_position_stop_in_a_named_state(
    engine: Engine, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Liveness cannot notice them: each step returns."""
    publish(engine, "/a")
    monkeypatch.setattr("mailboat.subscriber.subscriber.Subscriber._import_next", lambda _: None)
    monkeypatch.setattr("mailboat.subscriber.subscriber._MOST_STEPS_IN_VAIN", 500)
    with pytest.raises(ImportDefectError, match="500 steps in a row did not move the position from 0"):
        run(engine, store)


@pytest.mark.parametrize("named", [("/z",), ("/z", "/site/ab"), ("/site/a/child",)])
@pytest.mark.parametrize("road", ["quick", "careful", "referred to"])
def test_package_that_owns_unnamed_paths_is_given_up_before_any_write(
    engine: Engine, store: MemoryStore, road: str, named: tuple[str, ...]
) -> None:
    publish(engine, "/site/a", text="old")
    publish(engine, "/site/a", text="new")
    lying = renamed(engine, *named)
    if road == "referred to":
        put = engine.blobs.put(io.BytesIO(lying.payload or b""))
        lying = lying._replace(payload=None, payload_ref=f"sha256:{put.digest.hex()}:{put.length_bytes}")
    append(engine, lying)
    run(engine, store, engine.with_settings(is_editable=road != "quick"))
    assert b"new" in store.bodies[NodePath("/site/a")]
    (entry,) = store.errors.values()
    assert (entry.offset, entry.cause.code, entry.cause.path) == (2, "PackageCorrupt", "/site/a")
    assert entry.cause.message == f"the package owns /site/a, its message names only {', '.join(named)}"


@pytest.mark.parametrize("named", [("/site/a",), ("/site",), ("/",), ("/z", "/site"), ()])
@pytest.mark.parametrize("is_editable", [False, True])
def test_a_package_may_own_less_than_its_message_names_and_anything_where_that_names_nothing(
    engine: Engine, store: MemoryStore, named: tuple[str, ...], *, is_editable: bool
) -> None:
    publish(engine, "/site/a")
    append(engine, renamed(engine, *named))
    assert run(engine, store, engine.with_settings(is_editable=is_editable)).imported == 2


@pytest.mark.parametrize(
    "record",
    [NewRecord(b"\xff", PACKAGE_HEADERS), NewRecord(b"", ()), NewRecord(b"", (("type", b"5"), ("version", b"1")))],
)
def test_a_record_that_is_no_package_message_is_never_skipped_in_silence(
    engine: Engine, store: MemoryStore, record: NewRecord
) -> None:
    engine.journal.append(PACKAGES, [record])
    publish(engine, "/good")
    run(engine, store)
    (entry,) = store.errors.values()
    assert (entry.offset, entry.package_id, entry.pub_agent_name) == (0, "unknown", None)
    assert paths_of(store) == {"/good"}
    assert [status.offset for status in engine.statuses()] == [1]


def test_it_stops_before_such_a_record_when_told_to(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/before")
    engine.journal.append(PACKAGES, [NewRecord(b"\xff", PACKAGE_HEADERS)])
    publish(engine, "/after")
    notes = Notes()
    with pytest.raises(MessageUndecodableError):
        run(engine, store, engine.with_settings(undecodable=Undecodable.STOP), observer=notes)
    assert paths_of(store) == {"/before"}
    assert store.position == engine.position(1)
    assert (notes.progress[-1].phase, notes.progress[-1].cause.code) == (SubscriberPhase.STOPPED, "MessageUndecodable")  # type: ignore[union-attr]


def test_it_stops_before_a_package_that_needs_a_feature_it_does_not_have(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/before")
    append(engine, message(required_features=("chunks-v9",)))
    publish(engine, "/after")
    with pytest.raises(UnknownRequiredFeatureError, match="chunks-v9"):
        run(engine, store)
    assert paths_of(store) == {"/before"}
    assert store.position == engine.position(1)
    assert [status.offset for status in engine.statuses()] == [0]


@pytest.mark.parametrize("step", ["apply", "commit"])
@pytest.mark.parametrize("error", [StorageFullError, StorageReadOnlyError])
def test_a_full_or_read_only_disk_waits_without_counting_and_goes_on_when_it_can_be_written(
    engine: Engine, store: MemoryStore, step: str, error: type[MailboatError]
) -> None:
    for number in range(3):
        publish(engine, f"/{number}")
    notes = Notes()
    target = FailingTarget(store, step, [error("no way")] * 20)
    statistics = run(engine, store, target=target, observer=notes)
    assert (statistics.imported, statistics.failed) == (3, 0)
    assert SubscriberPhase.WAITING in notes.phases
    assert store.errors == {}
    assert [status.offset for status in engine.statuses()] == [0, 1, 2]


@pytest.mark.parametrize("step", ["apply", "commit"])
def test_trouble_of_the_house_uses_up_none_of_a_packages_retries(engine: Engine, store: MemoryStore, step: str) -> None:
    publish(engine, "/a")
    house, own = [StorageFullError("no way")] * 12, [BlobMissingError("not yet")] * 2
    target = FailingTarget(store, step, [own[0], *house, own[1]])
    settings = engine.with_settings(max_retries=2)
    statistics = run(engine, store, settings, target=target)
    assert (statistics.imported, statistics.failed, paths_of(store)) == (1, 0, {"/a"})
    assert [status.attempts for status in engine.statuses()] == [3]


def test_retries_are_used_up_by_a_packages_own_failures_however_many_others_come_between(
    engine: Engine, store: MemoryStore
) -> None:
    publish(engine, "/a")
    house, own = [StorageFullError("no way")] * 12, BlobMissingError("not there")
    target = FailingTarget(store, "apply", [*house, own, *house, own, *house, own])
    run(engine, store, engine.with_settings(max_retries=2), target=target)
    assert [(entry.attempts, entry.cause.code) for entry in store.errors.values()] == [(3, "BlobMissing")]


def test_a_commit_that_happened_and_reports_a_failure_is_not_repeated(engine: Engine, store: MemoryStore) -> None:
    class Lying(MemoryTarget):
        """The commit is durable, what follows it fails."""

        left = 1

        def batch(self, *, restored: RestoreRecord | None = None) -> MemoryBatch:
            batch = super().batch(restored=restored)
            commit = batch.commit

            def fails(position: Any) -> None:
                commit(position)
                if self.left:
                    self.left -= 1
                    raise StorageFullError("full while showing")

            batch.commit = fails  # type: ignore[method-assign]  # a fault
            return batch

    publish(engine, "/a")
    run(engine, store, target=Lying(store))
    assert store.commits == 1
    assert len(engine.statuses()) == 1


def test_a_failure_that_comes_with_the_commit_is_looked_for_one_by_one(engine: Engine, store: MemoryStore) -> None:
    class Picky(MemoryTarget):
        """Refuses any commit that holds the path /3."""

        def batch(self, *, restored: RestoreRecord | None = None) -> MemoryBatch:
            batch = super().batch(restored=restored)
            commit = batch.commit

            def refuses(position: Any) -> None:
                if "/3" in batch._bodies:
                    raise BlobMissingError("found out late")
                commit(position)

            batch.commit = refuses  # type: ignore[method-assign]  # a fault
            return batch

    for number in range(6):
        publish(engine, f"/{number}")
    run(engine, store, target=Picky(store))
    assert paths_of(store) == {"/0", "/1", "/2", "/4", "/5"}
    assert [(entry.offset, entry.package_id != "unknown") for entry in store.errors.values()] == [(3, True)]


def test_a_blob_that_appears_late_is_waited_for_in_order(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/first")
    source = page_source("/late", text="x" * 900_000)
    engine.publisher().publish(add_request([NodePath("/late")]), source)
    digest = next(engine.blobs.list()).digest
    with engine.blobs.open(digest, engine.blobs.stat(digest).length_bytes) as stream:  # type: ignore[union-attr]
        content = stream.read()
    engine.blobs.delete(digest)
    publish(engine, "/second")
    notes = Notes()

    def bring_it_back(statistics: SubscriberStatistics) -> None:
        if statistics.attempts == 2:
            engine.blobs.put(io.BytesIO(content))

    notes.on_progress = bring_it_back  # type: ignore[method-assign]
    run(engine, store, observer=notes)
    assert paths_of(store) == {"/first", "/late", "/second"}
    assert store.errors == {}


@pytest.mark.parametrize(
    ("where", "path"),
    [({"entry": "jcr_root/a"}, "jcr_root/a"), ({"entry": "jcr_root/a", "path": "/a"}, "/a"), ({}, None)],
)
def test_a_cause_has_the_path_or_the_archive_entry_of_its_error(where: dict[str, str], path: str | None) -> None:
    assert FailureCause.of_error(PackageCorruptError("broken", **where)).path == path
