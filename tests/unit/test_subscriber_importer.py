"""The subscriber on a journal and a target in memory: what is imported and skipped, hooks, time and stopping."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mailboat.clock import Deadline
from mailboat.errors import FollowWidenedError, ProcessorFailedError
from mailboat.failpoints import Failpoint
from mailboat.journal.port import NewRecord
from mailboat.model.changes import Subtrees
from mailboat.model.identifiers import AgentName
from mailboat.model.messages import Action, PackageStatus
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.packages.codec_registry import FILEVAULT, TREE
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.port import PackageCodec
from mailboat.packages.tree import TreeCodec
from mailboat.subscriber.continuity import MAX_PASSED_OVER
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.subscriber.subscriber import Subscriber
from mailboat.subscriber.subscriber_settings import Processors
from mailboat.testing.memory_content import MemoryStore
from support.crashes import CrashError
from support.engines import AUTHOR, PACKAGES, Engine, EngineParts, memory_engine, page_source
from support.memory_imports import (
    Hook,
    Notes,
    SlowTarget,
    append,
    message,
    paths_of,
    publish,
    run,
    subscriber,
)


def test_a_backlog_is_imported_in_one_transaction_with_position_and_confirmations(
    engine: Engine, store: MemoryStore
) -> None:
    for number in range(5):
        publish(engine, f"/site/page-{number}")
    statistics = run(engine, store)
    assert paths_of(store) == {"/site", *(f"/site/page-{number}" for number in range(5))}
    assert store.commits == 1
    assert (statistics.imported, statistics.commits, statistics.lag_offsets) == (5, 1, 0)
    assert store.position == engine.position(5)
    assert [(status.offset, status.status) for status in engine.statuses()] == [
        (n, PackageStatus.IMPORTED) for n in range(5)
    ]
    assert store.pending == []


@pytest.mark.parametrize("before", [1, 5])
def test_packages_are_read_together_behind_any_number_of_a_format_that_is_read_alone(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    codecs: dict[str, PackageCodec] = {FILEVAULT: FilevaultCodec(), TREE: TreeCodec()}
    together = list[int]()
    read_together = TreeCodec.read_together

    def noted(codec: TreeCodec, payloads: Sequence[bytes], *others: Any) -> Subtrees | None:
        together.append(len(payloads))
        return read_together(codec, payloads, *others)

    monkeypatch.setattr(TreeCodec, "read_together", noted)
    with memory_engine(tmp_path, EngineParts(codecs=codecs)) as engine:
        for package_type, count in ((FILEVAULT, before), (TREE, 6)):
            publisher = engine.publisher(engine.publishing_with(package_type=package_type))
            for number in range(count):
                path = f"/{package_type}-{number}"
                publisher.publish(add_request([NodePath(path)]), page_source(path))
        assert run(engine, store, engine.with_settings(is_editable=False)).imported == before + 6
    assert together == [6]


def test_one_that_is_not_editable_confirms_only_what_it_gives_up(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    append(engine, message(payload=b"nonsense", package_digest=b"\1" * 32))
    run(engine, store, engine.with_settings(is_editable=False))
    assert [(status.offset, status.status) for status in engine.statuses()] == [(1, PackageStatus.REMOVED_FAILED)]


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
    assert [status.offset for status in engine.statuses()] == [0, 1]


def test_reads_are_bounded_by_the_settings(engine: Engine, store: MemoryStore) -> None:
    for number in range(5):
        publish(engine, f"/{number}")
    run(engine, store, engine.with_settings(max_batch_records=2))
    assert store.commits == 3


def test_publishers_that_are_not_followed_are_skipped_and_never_looked_into(engine: Engine, store: MemoryStore) -> None:
    append(engine, message(pub_agent_name=AgentName("other"), required_features=("no-such",), payload=b"?"))
    publish(engine, "/a")
    statistics = run(engine, store, engine.with_settings(follow=frozenset({AUTHOR})))
    assert (statistics.imported, statistics.skipped) == (1, 1)
    assert paths_of(store) == {"/a"}


def test_skipped_messages_move_the_position_in_few_commits(engine: Engine, store: MemoryStore) -> None:
    append(engine, *(message(str(number), action=Action.TEST) for number in range(25)))
    settings = engine.with_settings(max_batch_records=1, skipped_records=10)
    statistics = run(engine, store, settings)
    assert (statistics.skipped, store.commits) == (25, 3)  # at 10, at 20, and when it ended
    assert store.position == engine.position(25)
    assert engine.statuses() == []


@pytest.mark.parametrize("follow", [None, frozenset({AUTHOR}), frozenset({AUTHOR, AgentName("other")})])
def test_following_a_publisher_whose_packages_were_skipped_stops(
    engine: Engine, store: MemoryStore, follow: frozenset[AgentName] | None
) -> None:
    publish(engine, "/a")
    run(engine, store, engine.with_settings(follow=frozenset({AgentName("other")})))
    assert store.position == engine.position(1)
    publish(engine, "/b")
    with pytest.raises(FollowWidenedError, match="follows author now"):
        run(engine, store, engine.with_settings(follow=follow))
    assert (store.position, paths_of(store)) == (engine.position(1), set())
    run(engine, store, engine.with_settings(follow=follow, is_gap_accepted=True))
    assert paths_of(store) == {"/b"}
    run(engine, store, engine.with_settings(follow=follow))


def test_following_a_publisher_of_which_nothing_was_skipped_goes_on(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    append(engine, message(pub_agent_name=AgentName("other"), action=Action.TEST))
    run(engine, store, engine.with_settings(follow=frozenset({AUTHOR})))
    engine.publisher(engine.publishing_with(name=AgentName("other"))).publish(
        add_request([NodePath("/b")]), page_source("/b")
    )
    run(engine, store)
    assert paths_of(store) == {"/a", "/b"}


class CrashBeforeCommit:
    """Crashes once."""

    def reach(self, failpoint: Failpoint) -> None:
        if failpoint is Failpoint.SUBSCRIBER_BEFORE_COMMIT:
            raise CrashError(failpoint)


def test_publishers_that_were_skipped_are_stored_with_the_position(engine: Engine, store: MemoryStore) -> None:
    bob = engine.publisher(engine.publishing_with(name=AgentName("bob")))
    bob.publish(add_request([NodePath("/b")]), page_source("/b"))
    publish(engine, "/a")
    with pytest.raises(CrashError):
        run(engine, store, engine.with_settings(follow=frozenset({AUTHOR})), failpoints=CrashBeforeCommit())
    assert (store.position, store.unfollowed) == (engine.position(0), set())
    run(engine, store, engine.with_settings(follow=frozenset({AUTHOR})))
    assert (store.position, store.unfollowed) == (engine.position(2), {"bob"})


def test_the_names_of_skipped_publishers_are_bounded(engine: Engine, store: MemoryStore) -> None:
    strangers = [AgentName(f"p{number}") for number in range(MAX_PASSED_OVER + 10)]
    append(engine, *(message(str(stranger), pub_agent_name=stranger) for stranger in strangers))
    run(engine, store, engine.with_settings(follow=frozenset({AUTHOR})))
    assert len(store.unfollowed) == MAX_PASSED_OVER + 1
    with pytest.raises(FollowWidenedError, match="more publishers"):
        run(engine, store, engine.with_settings(follow=frozenset({AUTHOR, strangers[-1]})))


def test_hooks_see_each_package_before_and_after_its_import(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    engine.publisher().publish(DistributionRequest(Action.DELETE, (NodePath("/b"),)))
    engine.publisher().publish(DistributionRequest(Action.TEST))
    engine.publisher().publish(DistributionRequest(Action.INVALIDATE, (NodePath("/a"),)))
    before, after, invalidate = Hook(), Hook(), Hook()
    run(engine, store, processors=Processors(before, after, invalidate))
    assert [item.offset for item in before.seen] == [item.offset for item in after.seen] == [0, 1]
    assert [(item.offset, item.action) for item in invalidate.seen] == [(3, Action.INVALIDATE)]
    assert (before.seen[0].paths, before.seen[0].deep_paths, before.seen[0].pub_agent_name) == (
        ("/a",),
        ("/a",),
        AUTHOR,
    )
    assert [status.offset for status in engine.statuses()] == [0, 1, 3]


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
    assert [item.offset for item in after.seen] == [0]
    assert (statistics.imported, store.commits) == (2, 1)
    assert statistics.after is not None
    assert statistics.after.waiting == 2
    assert statistics.after.cause is not None
    assert "the hook after an import failed" in caplog.text
    assert [status.status for status in engine.statuses()] == [PackageStatus.IMPORTED] * 2


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
    told = [(item.phase, item.next_offset) for item in notes.progress]
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
    assert [status.offset for status in engine.statuses()] == [0]


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
