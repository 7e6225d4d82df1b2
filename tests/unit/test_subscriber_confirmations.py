"""Confirmations stand in the log exactly once, whatever write of the target or the journal fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from mailboat.content.port import PendingStatus
from mailboat.errors import BlobMissingError, JournalUnavailableError, MailboatError, StorageFullError
from mailboat.model.identifiers import Offset, PackageId, TopicName
from mailboat.model.messages import PackageStatus, StatusMessage
from mailboat.model.paths import NodePath
from mailboat.model.positions import Bounds
from mailboat.model.requests import add_request
from mailboat.subscriber.confirmations import Confirmations
from mailboat.subscriber.subscriber import Until
from mailboat.subscriber.subscriber_settings import (
    ImportPorts,
    ProcessedPackage,
    Processors,
    SubscriberPorts,
    SubscriberSettings,
)
from mailboat.testing.memory_content import MemoryLedger, MemoryStore, MemoryTarget
from support.engines import AUTHOR, EDGE, SLING_ID, STATUSES, Engine, page_source


class Faulty:
    """Makes one call of a method fail: before it does anything, or after it has done everything."""

    def __init__(self, works: Callable[..., Any], error: MailboatError, at_call: int, *, is_done: bool) -> None:
        self._works = works
        self._error = error
        self._left = at_call
        self._is_done = is_done
        self.has_failed = False

    def __call__(self, *arguments: object) -> object:
        self._left -= 1
        if self._left != 0:
            return self._works(*arguments)
        self.has_failed = True
        if self._is_done:
            self._works(*arguments)
        raise self._error


class HardToPlease:
    """A hook that refuses /b at first, in its batch and alone, and /c always."""

    def __init__(self) -> None:
        self._seen: list[NodePath] = []

    def process(self, package: ProcessedPackage) -> None:
        (path,) = package.paths
        self._seen.append(path)
        if path == "/c" or (path == "/b" and self._seen.count(path) <= 2):
            raise BlobMissingError("not now")


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at_call", [1, 2])
@pytest.mark.parametrize("write", ["forget_statuses", "store_attempt"])
def test_each_package_is_confirmed_once_whatever_write_of_the_ledger_fails(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, write: str, at_call: int, *, is_done: bool
) -> None:
    for name in "abcd":
        engine.publisher().publish(add_request([NodePath(f"/{name}")]), page_source(f"/{name}"))
    target = MemoryTarget(MemoryStore())
    fault = Faulty(getattr(target.ledger, write), StorageFullError("full"), at_call, is_done=is_done)
    monkeypatch.setattr(target.ledger, write, fault)
    settings = engine.with_settings(max_retries=1)

    def with_hook(ports: SubscriberPorts) -> SubscriberPorts:
        return replace(ports, processors=Processors(before=HardToPlease()))

    engine.subscriber(target, settings, with_hook).run(Until.CAUGHT_UP)
    assert fault.has_failed
    failed = PackageStatus.REMOVED_FAILED
    imported = PackageStatus.IMPORTED
    assert [(status.offset, status.status) for status in engine.statuses()] == [
        (0, imported),
        (1, imported),
        (2, failed),
        (3, imported),
    ]
    assert target.store.pending == []


def pending(count: int) -> list[PendingStatus]:
    return [
        PendingStatus(
            number + 1,
            StatusMessage(SLING_ID, EDGE, AUTHOR, Offset(number), PackageStatus.IMPORTED, PackageId(f"p-{number}")),
        )
        for number in range(count)
    ]


def confirmations(engine: Engine, ledger: MemoryLedger) -> Confirmations:
    return Confirmations(
        SubscriberSettings(EDGE, SLING_ID, status_topic=STATUSES),
        ImportPorts(engine.journal, engine.blobs, engine.parts.codecs),
        ledger,
    )


def send_until_it_works(one: Confirmations) -> None:
    for _ in range(3):
        try:
            one.send()
        except MailboatError:
            continue
        return
    pytest.fail("it never worked")


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("at_call", [1, 2, 3])
@pytest.mark.parametrize("what", ["append", "forget_statuses"])
def test_many_confirmations_are_sent_once_whatever_portion_fails(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, what: str, at_call: int, *, is_done: bool
) -> None:
    store = MemoryStore(pending=pending(1200))
    ledger = MemoryTarget(store).ledger
    owner: Any = engine.journal if what == "append" else ledger
    error = JournalUnavailableError("away") if what == "append" else StorageFullError("full")
    fault = Faulty(getattr(owner, what), error, at_call, is_done=is_done)
    monkeypatch.setattr(owner, what, fault)
    send_until_it_works(confirmations(engine, ledger))
    assert fault.has_failed
    assert [status.offset for status in engine.statuses()] == list(range(1200))
    assert store.pending == []


def test_what_comes_after_a_portion_that_could_not_be_forgotten_is_sent_as_well(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    every: Sequence[PendingStatus] = pending(5)
    store = MemoryStore(pending=list(every[:3]))
    ledger = MemoryTarget(store).ledger
    one = confirmations(engine, ledger)
    fault = Faulty(ledger.forget_statuses, StorageFullError("full"), 1, is_done=False)
    monkeypatch.setattr(ledger, "forget_statuses", fault)
    with pytest.raises(StorageFullError):
        one.send()
    store.pending = list(every)
    one.send()
    assert [status.offset for status in engine.statuses()] == [0, 1, 2, 3, 4]


def test_the_log_is_searched_only_while_it_is_uncertain_what_it_holds(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(pending=pending(3))
    one = confirmations(engine, MemoryTarget(store).ledger)
    one.send()
    store.pending = pending(4)[3:]
    with monkeypatch.context() as patch:
        patch.setattr(engine.journal, "reader", lambda *_: pytest.fail("it searched"))
        one.send()
    assert [status.offset for status in engine.statuses()] == [0, 1, 2, 3]


def test_statuses_that_retention_removes_while_they_are_searched_end_no_run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        engine.publisher().publish(add_request([NodePath(f"/{name}")]), page_source(f"/{name}"))
    target, bounds = MemoryTarget(MemoryStore()), engine.journal.bounds
    engine.subscriber(target).run(Until.CAUGHT_UP)
    target.store.pending = [PendingStatus(9, engine.statuses()[1])]

    def truncated_after(topic: TopicName) -> Bounds:
        found = bounds(topic)
        if topic == STATUSES and not found.earliest_offset:
            engine.journal.truncate(STATUSES, Offset(1))
        return found

    monkeypatch.setattr(engine.journal, "bounds", truncated_after)
    engine.subscriber(target).run(Until.CAUGHT_UP)
    assert [status.offset for status in engine.statuses()] == [1]
    assert target.store.pending == []
