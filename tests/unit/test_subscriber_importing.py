"""The subscriber on a journal and a target in memory: what is imported, skipped, tried again and given up."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mailboat.clock import Deadline
from mailboat.content.port import PendingStatus
from mailboat.errors import (
    BlobMissingError,
    MailboatError,
    ProcessorFailedError,
    StorageFullError,
    StorageReadOnlyError,
    UnknownRequiredFeatureError,
)
from mailboat.journal.port import NewRecord, ReadLimits
from mailboat.model.changes import TreeChange
from mailboat.model.identifiers import AgentName, PackageId
from mailboat.model.messages import Action, PackageMessage, PackageStatus
from mailboat.model.paths import NodePath
from mailboat.packages.tree import TreeCodec
from mailboat.publisher.requests import DistributionRequest, add_request
from mailboat.subscriber.failing import ImportDefectError
from mailboat.subscriber.importing import MessageUndecodableError
from mailboat.subscriber.processors import ProcessedPackage, Processors
from mailboat.subscriber.progress import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.retries import RetryPolicy
from mailboat.subscriber.settings import SkipCommits, SubscriberPorts, SubscriberSettings, UndecodablePolicy
from mailboat.subscriber.subscription import Subscriber, Until
from mailboat.testing.engines import AUTHOR, PACKAGES, SLING_ID, Engine, StopWhen, memory_engine, page_source
from mailboat.testing.memory_content import MemoryBatch, MemoryStore, MemoryTarget
from mailboat.wire.headers import PACKAGE_HEADERS
from mailboat.wire.messages import decode_package, encode_message


class Notes:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.progress: list[SubscriberStatistics] = []
        self.given_up: list[SubscriberStatistics] = []

    def on_progress(self, statistics: SubscriberStatistics) -> None:
        self.progress.append(statistics)

    def on_given_up(self, statistics: SubscriberStatistics) -> None:
        self.given_up.append(statistics)

    @property
    def phases(self) -> set[SubscriberPhase]:
        return {one.phase for one in self.progress}


class Hook:
    """A processor that notes what it sees, and fails as it is told."""

    def __init__(self, failures: int = 0, error: Callable[[], Exception] = lambda: ValueError("no")) -> None:
        self.seen: list[ProcessedPackage] = []
        self._failures = failures
        self._error = error

    def process(self, package: ProcessedPackage) -> None:
        self.seen.append(package)
        if len(self.seen) <= self._failures:
            raise self._error()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with memory_engine(tmp_path) as opened:
        yield opened


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def subscriber(
    engine: Engine, store: MemoryStore, settings: SubscriberSettings | None = None, **ports: object
) -> Subscriber:
    def change(given: SubscriberPorts) -> SubscriberPorts:
        return replace(given, **ports)  # type: ignore[arg-type]  # checked by the record

    return engine.subscriber(MemoryTarget(store), settings, change)


def run(engine: Engine, store: MemoryStore, settings: SubscriberSettings | None = None, **ports: object) -> Any:
    return subscriber(engine, store, settings, **ports).run(Until.CAUGHT_UP)


def publish(engine: Engine, *paths: str, text: str = "text") -> int:
    source = page_source(*paths, text=text)
    return engine.publisher().publish(add_request(map(NodePath, paths)), source).offset


def append(engine: Engine, *messages: PackageMessage) -> Sequence[int]:
    return engine.journal.append(PACKAGES, [NewRecord(*reversed(encode_message(one))) for one in messages])


def message(name: str = "p", **values: object) -> PackageMessage:
    plain = PackageMessage(SLING_ID, PackageId(name), Action.ADD, "tree", AUTHOR, paths=(NodePath("/bad"),))
    return plain._replace(**values)


def absent(name: str = "absent") -> PackageMessage:
    return message(name, payload_ref=f"sha256:{'22' * 32}:9", package_length_bytes=9)


def paths_of(store: MemoryStore) -> set[str]:
    return set(store.bodies)


# ------------------------------------------------------------------------------------------------------ the good day


def test_a_backlog_is_imported_in_one_transaction_with_position_and_confirmations(
    engine: Engine, store: MemoryStore
) -> None:
    for number in range(5):
        publish(engine, f"/site/page-{number}")
    statistics = run(engine, store)
    assert paths_of(store) == {"/site", *(f"/site/page-{number}" for number in range(5))}
    assert store.commits == 1
    assert (statistics.imported, statistics.commits, statistics.lag) == (5, 1, 0)
    assert store.position == engine.position(5)
    assert [(one.offset, one.status) for one in engine.statuses()] == [(n, PackageStatus.IMPORTED) for n in range(5)]
    assert store.pending == []


def test_one_that_is_not_editable_confirms_only_what_it_gives_up(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    append(engine, message(payload=b"nonsense", package_digest=b"\1" * 32))
    run(engine, store, engine.with_settings(is_editable=False))
    assert [(one.offset, one.status) for one in engine.statuses()] == [(1, PackageStatus.REMOVED_FAILED)]


def test_one_that_has_caught_up_and_starts_again_commits_nothing(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    run(engine, store)
    assert run(engine, store).commits == 0
    assert store.commits == 1
    assert len(engine.statuses()) == 1


def test_the_same_package_at_two_offsets_is_harmless(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    twin = engine.records()[0]
    engine.journal.append(PACKAGES, [NewRecord(twin.value, twin.headers)])
    run(engine, store)
    assert paths_of(store) == {"/a"}
    assert [one.offset for one in engine.statuses()] == [0, 1]


def test_reads_are_bounded_by_the_settings(engine: Engine, store: MemoryStore) -> None:
    for number in range(5):
        publish(engine, f"/{number}")
    run(engine, store, engine.with_settings(read=ReadLimits(max_records=2)))
    assert store.commits == 3


# ---------------------------------------------------------------------------------------------------- what is skipped


def test_publishers_that_are_not_followed_are_skipped_and_never_looked_into(engine: Engine, store: MemoryStore) -> None:
    append(engine, message(pub_agent_name=AgentName("other"), required_features=("no-such",), payload=b"?"))
    publish(engine, "/a")
    statistics = run(engine, store, engine.with_settings(follow=frozenset({AUTHOR})))
    assert (statistics.imported, statistics.skipped) == (1, 1)
    assert paths_of(store) == {"/a"}


def test_skipped_messages_move_the_position_in_few_commits(engine: Engine, store: MemoryStore) -> None:
    append(engine, *(message(str(number), action=Action.TEST) for number in range(25)))
    settings = engine.with_settings(read=ReadLimits(max_records=1), skip_commits=SkipCommits(max_records=10))
    statistics = run(engine, store, settings)
    assert (statistics.skipped, store.commits) == (25, 3)  # at 10, at 20, and when it ended
    assert store.position == engine.position(25)
    assert engine.statuses() == []


def test_the_position_belongs_to_the_log_and_not_to_a_publisher(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    run(engine, store, engine.with_settings(follow=frozenset({AgentName("other")})))
    assert store.position == engine.position(1)
    run(engine, store)
    assert paths_of(store) == set()


# ----------------------------------------------------------------------------------------------------------- poison


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
    assert [(one.status, one.attempts) for one in engine.statuses()] == [(PackageStatus.IMPORTED, 3)]
    assert store.attempt is None


def test_without_an_end_of_retries_nothing_is_given_up(engine: Engine, store: MemoryStore) -> None:
    append(engine, absent())
    one = subscriber(engine, store, engine.with_settings(retry=RetryPolicy(max_retries=None)), observer=(n := Notes()))
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


def renamed(engine: Engine, *paths: str) -> PackageMessage:
    """The first package in the log, in a message that names other paths."""
    named = tuple(map(NodePath, paths))
    return decode_package(engine.records()[0].value)._replace(paths=named, deep_paths=named)


@pytest.mark.parametrize("named", [("/z",), ("/z", "/site/ab"), ("/site/a/child",)])
@pytest.mark.parametrize("road", ["quick", "careful", "referred to"])
def test_a_package_that_owns_what_its_message_does_not_name_is_given_up_before_anything_is_written(
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
    assert [one.offset for one in engine.statuses()] == [1]


def test_it_stops_before_such_a_record_when_told_to(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/before")
    engine.journal.append(PACKAGES, [NewRecord(b"\xff", PACKAGE_HEADERS)])
    publish(engine, "/after")
    notes = Notes()
    with pytest.raises(MessageUndecodableError):
        run(engine, store, engine.with_settings(undecodable=UndecodablePolicy.STOP), observer=notes)
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
    assert [one.offset for one in engine.statuses()] == [0]


# ------------------------------------------------------------------------------------------------ trouble of the house


class FailingTarget(MemoryTarget):
    """Fails in a batch's step as often as it is told."""

    def __init__(self, store: MemoryStore, step: str, errors: Sequence[Exception]) -> None:
        super().__init__(store)
        self._step = step
        self._errors = list(errors)

    def batch(self) -> MemoryBatch:
        batch = super().batch()
        works = getattr(batch, self._step)

        def fails(*arguments: object) -> object:
            if self._errors:
                raise self._errors.pop(0)
            return works(*arguments)

        setattr(batch, self._step, fails)
        return batch


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
    assert [one.offset for one in engine.statuses()] == [0, 1, 2]


@pytest.mark.parametrize("step", ["apply", "commit"])
def test_trouble_of_the_house_uses_up_none_of_a_packages_retries(engine: Engine, store: MemoryStore, step: str) -> None:
    publish(engine, "/a")
    house, own = [StorageFullError("no way")] * 12, [BlobMissingError("not yet")] * 2
    target = FailingTarget(store, step, [own[0], *house, own[1]])
    settings = engine.with_settings(retry=RetryPolicy(max_retries=2))
    statistics = run(engine, store, settings, target=target)
    assert (statistics.imported, statistics.failed, paths_of(store)) == (1, 0, {"/a"})
    assert [one.attempts for one in engine.statuses()] == [3]


def test_retries_are_used_up_by_a_packages_own_failures_however_many_others_come_between(
    engine: Engine, store: MemoryStore
) -> None:
    publish(engine, "/a")
    house, own = [StorageFullError("no way")] * 12, BlobMissingError("not there")
    target = FailingTarget(store, "apply", [*house, own, *house, own, *house, own])
    run(engine, store, engine.with_settings(retry=RetryPolicy(max_retries=2)), target=target)
    assert [(entry.attempts, entry.cause.code) for entry in store.errors.values()] == [(3, "BlobMissing")]


def test_a_commit_that_happened_and_reports_a_failure_is_not_repeated(engine: Engine, store: MemoryStore) -> None:
    class Lying(MemoryTarget):
        """The commit is durable, what follows it fails."""

        left = 1

        def batch(self) -> MemoryBatch:
            batch = super().batch()
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

        def batch(self) -> MemoryBatch:
            batch = super().batch()
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


# ------------------------------------------------------------------------------------------------------------- hooks


def test_hooks_see_each_package_before_and_after_its_import(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    engine.publisher().publish(DistributionRequest(Action.DELETE, (NodePath("/b"),)))
    engine.publisher().publish(DistributionRequest(Action.TEST))
    engine.publisher().publish(DistributionRequest(Action.INVALIDATE, (NodePath("/a"),)))
    before, after, invalidate = Hook(), Hook(), Hook()
    run(engine, store, processors=Processors(before, after, invalidate))
    assert [one.offset for one in before.seen] == [one.offset for one in after.seen] == [0, 1]
    assert [(one.offset, one.action) for one in invalidate.seen] == [(3, Action.INVALIDATE)]
    assert (before.seen[0].paths, before.seen[0].deep_paths, before.seen[0].pub_agent_name) == (
        ("/a",),
        ("/a",),
        AUTHOR,
    )
    assert [one.offset for one in engine.statuses()] == [0, 1, 3]


def test_a_hook_that_refuses_keeps_the_package_out(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    hook = Hook(failures=100)
    run(engine, store, processors=Processors(before=hook))
    assert len(hook.seen) == 4
    assert store.bodies == {}
    assert [entry.cause.code for entry in store.errors.values()] == ["ProcessorFailed"]


def test_a_hook_may_fail_with_an_error_of_ours(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    hook = Hook(failures=1, error=lambda: ProcessorFailedError("the cache says no"))
    assert run(engine, store, processors=Processors(before=hook)).imported == 1


def test_a_hook_that_fails_after_the_import_is_counted_and_nothing_is_imported_again(
    engine: Engine, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    publish(engine, "/a")
    publish(engine, "/b")
    after = Hook(failures=1)
    statistics = run(engine, store, processors=Processors(after=after))
    assert [one.offset for one in after.seen] == [0, 1]
    assert (statistics.hook_failures, statistics.imported, store.commits) == (1, 2, 1)
    assert "the hook after an import failed" in caplog.text
    assert [one.status for one in engine.statuses()] == [PackageStatus.IMPORTED] * 2


# -------------------------------------------------------------------------------------------------- time and stopping


class SlowTarget(MemoryTarget):
    """Each record that it takes lets time pass."""

    def __init__(self, store: MemoryStore, each: Callable[[], None]) -> None:
        super().__init__(store)
        self._each = each

    def batch(self) -> MemoryBatch:
        batch = super().batch()
        apply = batch.apply

        def slowly(change: Any, stamp: Any) -> Any:
            def records() -> Iterator[Any]:
                for record in change.records:
                    self._each()
                    yield record

            return apply(TreeChange(change.filter, records()), stamp)

        batch.apply = slowly  # type: ignore[method-assign]  # a fault
        return batch


def test_a_package_that_takes_too_long_is_tried_again_and_given_up(engine: Engine, store: MemoryStore) -> None:
    publish(engine, *(f"/slow/{number}" for number in range(20)), text="x" * 5000)
    publish(engine, "/quick")
    clock: Any = engine.parts.clock
    settings = engine.with_settings(package_timeout_seconds=10.0)
    run(engine, store, settings, target=SlowTarget(store, lambda: clock.advance(1.0)))
    assert paths_of(store) == {"/quick"}
    (entry,) = store.errors.values()
    assert entry.cause.code == "ImportTimeout"
    assert entry.cause.path is not None
    assert entry.cause.path.startswith("/slow/")


def test_during_one_long_import_it_is_importing_and_not_current(engine: Engine, store: MemoryStore) -> None:
    publish(engine, *(f"/slow/{number}" for number in range(20)), text="x" * 5000)
    clock: Any = engine.parts.clock
    notes = Notes()
    run(engine, store, target=SlowTarget(store, lambda: clock.advance(0.1)), observer=notes)
    told = [(one.phase, one.next_offset) for one in notes.progress]
    assert told.count((SubscriberPhase.IMPORTING, 0)) == 1
    assert told[-2:] == [(SubscriberPhase.CURRENT, 1), (SubscriberPhase.STOPPED, 1)]


def test_asked_to_stop_it_finishes_the_package_at_hand(engine: Engine, store: MemoryStore) -> None:
    for number in range(5):
        publish(engine, f"/{number}")
    box: list[Subscriber] = []
    target = SlowTarget(store, lambda: box[0].stop() if "/1" in store.bodies or store.commits == 0 else None)
    box.append(subscriber(engine, store, target=target))
    statistics = box[0].run()
    assert statistics.phase is SubscriberPhase.STOPPED
    assert paths_of(store) == {"/0"}
    assert store.position == engine.position(1)
    assert [one.offset for one in engine.statuses()] == [0]


def test_when_the_deadline_is_over_the_package_at_hand_is_rolled_back(engine: Engine, store: MemoryStore) -> None:
    publish(engine, *(f"/large/{number}" for number in range(20)), text="x" * 5000)
    box: list[Subscriber] = []
    target = SlowTarget(store, lambda: box[0].stop(Deadline(engine.parts.clock, 0.0)))
    box.append(subscriber(engine, store, target=target))
    box[0].run()
    assert store.bodies == {}
    assert store.commits == 0
    run(engine, store)
    assert len(store.bodies) == 21


def test_asked_to_stop_before_it_runs_it_reads_nothing(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    one = subscriber(engine, store)
    one.stop()
    assert one.run().imported == 0


# --------------------------------------------------------------------------------------------------- confirmations


def test_confirmations_left_by_a_crash_are_sent_at_the_start_without_a_new_package(
    engine: Engine, store: MemoryStore
) -> None:
    publish(engine, "/a")
    run(engine, store)
    sent = engine.statuses()
    engine.journal.truncate(
        engine.subscribing.status_topic, engine.journal.bounds(engine.subscribing.status_topic).next_offset
    )
    store.pending = [PendingStatus(9, sent[0])]
    run(engine, store)
    assert engine.statuses() == sent
    assert store.pending == []


def test_a_confirmation_that_was_sent_but_not_marked_is_not_sent_again(engine: Engine, store: MemoryStore) -> None:
    for number in range(3):
        publish(engine, f"/{number}")
    run(engine, store)
    sent = engine.statuses()
    store.pending = [
        PendingStatus(7, sent[1]),
        PendingStatus(8, sent[2]),
        PendingStatus(9, replace(sent[2], attempts=9)),
    ]
    run(engine, store)
    assert engine.statuses() == [*sent, replace(sent[2], attempts=9)]


def test_foreign_records_on_the_status_topic_disturb_nobody(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    run(engine, store)
    sent = engine.statuses()
    other = replace(sent[0], sub_agent_name=AgentName("other"))
    engine.journal.append(
        engine.subscribing.status_topic,
        [*(NewRecord(*reversed(encode_message(other))) for _ in range(1500))],
    )
    store.pending = [PendingStatus(9, sent[0])]
    engine.journal.append(engine.subscribing.status_topic, [NewRecord(b"", (("type", b"5"), ("version", b"1")))])
    run(engine, store)
    assert [one for one in engine.statuses() if one.sub_agent_name == "edge"] == sent


# ------------------------------------------------------------------------------------------------------------ redrive


def test_an_entry_of_the_error_queue_is_imported_when_somebody_asks(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    publish(engine, "/b")
    run(engine, store, processors=Processors(before=Hook(failures=5)))
    assert paths_of(store) == {"/b"}
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    publish(engine, "/c")
    statistics = run(engine, store)
    assert statistics.redriven == 1
    assert paths_of(store) == {"/a", "/b", "/c"}
    assert store.errors == {}
    assert store.position == engine.position(3)
    assert [(one.offset, one.status) for one in engine.statuses()] == [
        (0, PackageStatus.REMOVED_FAILED),
        (1, PackageStatus.IMPORTED),
        (0, PackageStatus.IMPORTED),
        (2, PackageStatus.IMPORTED),
    ]


@pytest.mark.parametrize("newer", [("/a",), ("/a/child",)])
def test_an_old_package_does_not_come_back_over_newer_content(
    engine: Engine, store: MemoryStore, newer: tuple[str, ...]
) -> None:
    publish(engine, "/a", text="old")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    publish(engine, *newer, text="new")
    run(engine, store)
    content = dict(store.bodies)
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    publish(engine, "/z")
    run(engine, store)
    content |= {NodePath("/z"): store.bodies[NodePath("/z")]}
    assert store.bodies == content
    assert [entry.cause.code for entry in store.errors.values()] == ["PackageSuperseded"]
    assert store.wanted == set()


@pytest.mark.parametrize(("old", "newer"), [((), ("/a",)), (("/a",), ())])
def test_a_message_that_names_no_paths_may_concern_any_content(
    engine: Engine, store: MemoryStore, old: tuple[str, ...], newer: tuple[str, ...]
) -> None:
    publish(engine, "/a")
    append(engine, renamed(engine, *old))
    run(engine, store, processors=Processors(before=Hook(failures=100)))
    append(engine, renamed(engine, *newer))
    run(engine, store)
    MemoryTarget(store).ledger.request_redrive(engine.records()[1].offset)
    run(engine, store)
    assert store.errors[engine.records()[1].offset].cause.code == "PackageSuperseded"


def test_a_package_that_the_journal_has_dropped_can_not_be_tried_again(engine: Engine, store: MemoryStore) -> None:
    append(engine, absent())
    run(engine, store)
    publish(engine, "/z")
    engine.journal.truncate(PACKAGES, engine.records()[1].offset)
    MemoryTarget(store).ledger.request_redrive(next(iter(store.errors)))
    run(engine, store)
    assert [entry.cause.code for entry in store.errors.values()] == ["PackageGone"]


def test_an_entry_that_fails_again_stays_with_its_new_cause(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    assert [entry.cause.code for entry in store.errors.values()] == ["ProcessorFailed"]
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    publish(engine, "/z")

    class RefusesA(Hook):
        def process(self, package: ProcessedPackage) -> None:
            if package.paths == ("/a",):
                raise BlobMissingError("now this")

    run(engine, store, processors=Processors(before=RefusesA()))
    assert [entry.cause.code for entry in store.errors.values()] == ["BlobMissing"]
    assert store.wanted == set()
    assert paths_of(store) == {"/z"}


def test_a_redrive_waits_while_the_blob_store_is_out_of_order(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    observer = StopWhen(lambda statistics: statistics.redriven == 1)
    hooks = Processors(before=Hook(2, lambda: StorageFullError("x")))
    observer.subscriber = subscriber(engine, store, observer=observer, processors=hooks)
    observer.subscriber.run()
    assert SubscriberPhase.WAITING in {one.phase for one in observer.seen}
    assert store.errors == {}


def test_a_redriven_package_is_looked_at_among_strange_records(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    engine.journal.append(PACKAGES, [NewRecord(b"\xff", PACKAGE_HEADERS)])
    run(engine, store, engine.with_settings(read=ReadLimits(max_records=1)), processors=Processors(before=Hook(4)))
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    publish(engine, "/z")
    assert run(engine, store).redriven == 1


def test_one_that_is_not_editable_confirms_what_it_redrives_as_it_confirmed_its_failure(
    engine: Engine, store: MemoryStore
) -> None:
    quiet = engine.with_settings(is_editable=False)
    publish(engine, "/a")
    run(engine, store, quiet, processors=Processors(before=Hook(failures=4)))
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    publish(engine, "/z")
    run(engine, store, quiet)
    assert [one.status for one in engine.statuses()] == [PackageStatus.REMOVED_FAILED, PackageStatus.IMPORTED]


def test_a_package_of_nobody_is_imported_and_confirmed_to_nobody(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    anonymous = decode_package(engine.records()[0].value)._replace(pub_agent_name=None)
    append(engine, anonymous)
    assert run(engine, store).imported == 2
    assert [one.offset for one in engine.statuses()] == [0]


def test_errors_outside_of_packages_end_the_run_with_their_name(engine: Engine, store: MemoryStore) -> None:
    with pytest.raises(MailboatError, match="TopicMissing"):
        run(engine, store, engine.with_settings(package_topic="nowhere"))
