"""The subscriber on a journal and a target in memory: confirmations, and packages that are imported after all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mailboat.clock import Deadline
from mailboat.content.port import PendingStatus
from mailboat.errors import (
    BlobMissingError,
    FollowWidenedError,
    MailboatError,
    StorageFullError,
)
from mailboat.journal.port import NewRecord, Record
from mailboat.model.identifiers import AgentName, Offset, PackageId, TopicName
from mailboat.model.messages import Action, PackageStatus
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.subscriber import Subscriber
from mailboat.subscriber.subscriber_settings import ProcessedPackage, Processors
from mailboat.testing.memory_content import MemoryStore, MemoryTarget
from mailboat.wire.headers import PACKAGE_HEADERS
from mailboat.wire.messages import encode_message
from mailboat.wire.package_messages import decode_package
from support.engines import AUTHOR, PACKAGES, Engine, StopWhen, page_source
from support.memory_imports import (
    Hook,
    SlowTarget,
    absent,
    append,
    paths_of,
    publish,
    renamed,
    run,
    subscriber,
)

BOB = AgentName("bob")


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


def test_foreign_records_on_the_status_topic_disturb_no_one(engine: Engine, store: MemoryStore) -> None:
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
    assert [status for status in engine.statuses() if status.sub_agent_name == "edge"] == sent


def test_an_entry_of_the_error_queue_is_imported_on_request(engine: Engine, store: MemoryStore) -> None:
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
    assert [(status.offset, status.status) for status in engine.statuses()] == [
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


def test_a_package_of_a_publisher_that_is_not_followed_any_more_stays_given_up(
    engine: Engine, store: MemoryStore
) -> None:
    publish(engine, "/a")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    statistics = run(engine, store, engine.with_settings(follow=frozenset({BOB})))
    assert (statistics.redriven, statistics.still_given_up) == (0, 1)
    cause = store.errors[engine.records()[0].offset].cause
    assert (cause.code, cause.message) == (
        "PackageNotFollowed",
        "edge does not follow author, whose package this is",
    )
    assert [status.status for status in engine.statuses()] == [PackageStatus.REMOVED_FAILED]
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    assert run(engine, store).redriven == 1
    assert paths_of(store) == {"/a"}


def test_redrive_keeps_newer_content_of_a_publisher_no_longer_followed(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a", text="old")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    request = add_request([NodePath("/a")])
    engine.publisher(engine.publishing_with(name=BOB)).publish(request, page_source("/a", text="new"))
    run(engine, store)
    content = dict(store.bodies)
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    run(engine, store, engine.with_settings(follow=frozenset({AUTHOR})))
    assert store.bodies == content
    assert [entry.cause.code for entry in store.errors.values()] == ["PackageSuperseded"]


def test_a_newer_message_without_content_supersedes_nothing(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    append(engine, renamed(engine, "/a")._replace(action=Action.TEST))
    run(engine, store)
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    assert run(engine, store).redriven == 1


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


def test_a_redrive_that_a_stop_interrupts_is_rolled_back_and_tried_at_the_next_start(
    engine: Engine, store: MemoryStore
) -> None:
    publish(engine, *(f"/large/{number}" for number in range(20)), text="x" * 5000)
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    before = dict(store.errors)
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    box: list[Subscriber] = []
    target = SlowTarget(store, lambda: box[0].stop(Deadline(engine.parts.clock, 0.0)))
    box.append(subscriber(engine, store, target=target))
    statistics = box[0].run()
    assert (statistics.redriven, statistics.still_given_up) == (0, 0)
    assert (store.bodies, store.errors, store.wanted) == ({}, before, set(before))
    assert run(engine, store).redriven == 1
    assert len(store.bodies) == 21


def test_a_redrive_waits_while_the_blob_store_is_out_of_order(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    MemoryTarget(store).ledger.request_redrive(engine.records()[0].offset)
    observer = StopWhen(lambda statistics: statistics.redriven == 1)
    hooks = Processors(before=Hook(2, lambda: StorageFullError("x")))
    observer.subscriber = subscriber(engine, store, observer=observer, processors=hooks)
    observer.subscriber.run()
    assert SubscriberPhase.WAITING in {item.phase for item in observer.seen}
    assert store.errors == {}


def test_a_redriven_package_is_looked_at_among_strange_records(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    engine.journal.append(PACKAGES, [NewRecord(b"\xff", PACKAGE_HEADERS)])
    run(engine, store, engine.with_settings(max_batch_records=1), processors=Processors(before=Hook(4)))
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
    assert [status.status for status in engine.statuses()] == [PackageStatus.REMOVED_FAILED, PackageStatus.IMPORTED]


def test_a_package_of_no_one_is_imported_and_confirmed_to_no_one(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    anonymous = decode_package(engine.records()[0].value)._replace(pub_agent_name=None)
    append(engine, anonymous)
    assert run(engine, store).imported == 2
    assert [status.offset for status in engine.statuses()] == [0]


def test_errors_outside_of_packages_end_the_run_with_their_name(engine: Engine, store: MemoryStore) -> None:
    with pytest.raises(MailboatError, match="TopicMissing"):
        run(engine, store, engine.with_settings(package_topic="nowhere"))


def test_a_redrive_stores_the_publishers_that_were_skipped_with_the_position(
    engine: Engine, store: MemoryStore
) -> None:
    settings = engine.with_settings(follow=frozenset({AUTHOR}), skipped_seconds=1e6)
    publish(engine, "/a")
    run(engine, store, settings, processors=Processors(before=Hook(failures=4)))
    engine.publisher(engine.publishing_with(name=BOB)).publish(add_request([NodePath("/b")]), page_source("/b"))

    def redrive_behind_bob(statistics: SubscriberStatistics) -> bool:
        if statistics.skipped == 1 and not statistics.redriven:
            store.wanted.add(engine.records()[0].offset)
        return statistics.redriven == 1

    observer = StopWhen(redrive_behind_bob)
    observer.subscriber = subscriber(engine, store, settings, observer=observer)
    observer.subscriber.run()
    assert (store.position, store.unfollowed) == (engine.position(2), {"bob"})
    with pytest.raises(FollowWidenedError, match="follows bob now"):
        run(engine, store)


def test_redrive_of_an_offset_that_the_log_gave_to_another_package_is_refused(
    engine: Engine, store: MemoryStore
) -> None:
    publish(engine, "/a")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    # as after a log that lost its end: the entry is of a package that is gone
    (entry,) = store.errors.values()
    store.errors = {entry.offset: replace(entry, package_id=PackageId("lost"))}
    MemoryTarget(store).ledger.request_redrive(entry.offset)
    assert run(engine, store).still_given_up == 1
    assert [(left.package_id, left.cause.code) for left in store.errors.values()] == [("lost", "PackageGone")]
    assert paths_of(store) == set()


def test_a_failing_package_that_is_not_followed_any_more_holds_nothing_up(engine: Engine, store: MemoryStore) -> None:
    publish(engine, "/a")
    failing = Processors(before=Hook(failures=100))
    observer = StopWhen(lambda statistics: statistics.attempts == 2)
    observer.subscriber = subscriber(engine, store, observer=observer, processors=failing)
    observer.subscriber.run()
    assert store.attempt is not None
    run(engine, store, engine.with_settings(follow=frozenset({BOB})))
    assert (store.position, store.attempt) == (engine.position(1), None)


def test_a_redrive_whose_newer_packages_retention_removes_meanwhile_is_refused(
    engine: Engine, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(engine, "/a")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    publish(engine, "/b")
    run(engine, store)
    record_at = engine.journal.record_at

    def truncated_after(topic: TopicName, offset: Offset) -> Record | None:
        found = record_at(topic, offset)
        engine.journal.truncate(PACKAGES, Offset(2))
        return found

    monkeypatch.setattr(engine.journal, "record_at", truncated_after)
    MemoryTarget(store).ledger.request_redrive(Offset(0))
    assert run(engine, store).still_given_up == 1
    assert [entry.cause.code for entry in store.errors.values()] == ["PackageGone"]


def test_a_package_that_comes_again_after_a_lost_tail_leaves_the_error_queue(
    engine: Engine, store: MemoryStore
) -> None:
    publish(engine, "/a")
    run(engine, store, processors=Processors(before=Hook(failures=4)))
    assert list(store.errors) == [0]
    store.position = engine.position(9)
    run(engine, store, engine.with_settings(is_gap_accepted=True))
    assert (paths_of(store), store.errors) == ({"/a"}, {})
