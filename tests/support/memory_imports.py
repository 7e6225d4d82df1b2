"""Imports in memory: a subscriber on a journal and a target that never leave it, and what tests put in their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mailboat.content.port import RestoreRecord
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import PackageId
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.figures import Observer, SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.subscriber import Subscriber, Until
from mailboat.subscriber.subscriber_settings import ProcessedPackage, SubscriberPorts, SubscriberSettings
from mailboat.testing.memory_content import MemoryBatch, MemoryStore, MemoryTarget
from mailboat.wire.messages import encode_message
from mailboat.wire.package_messages import decode_package
from support.engines import AUTHOR, PACKAGES, SLING_ID, Engine, page_source


class Notes(Observer):
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
        return {item.phase for item in self.progress}


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


def subscriber(
    engine: Engine, store: MemoryStore, settings: SubscriberSettings | None = None, **ports: object
) -> Subscriber:
    """A subscriber of the engine that imports into the store; `ports` are those to exchange."""

    def change(given: SubscriberPorts) -> SubscriberPorts:
        return replace(given, **ports)  # type: ignore[arg-type]  # checked by the record

    return engine.subscriber(MemoryTarget(store), settings, change)


def run(engine: Engine, store: MemoryStore, settings: SubscriberSettings | None = None, **ports: object) -> Any:
    """Run such a subscriber until it has caught up; what the run says."""
    return subscriber(engine, store, settings, **ports).run(Until.CAUGHT_UP)


def publish(engine: Engine, *paths: str, text: str = "text") -> int:
    """Publish pages; the offset."""
    source = page_source(*paths, text=text)
    return engine.publisher().publish(add_request(map(NodePath, paths)), source).offset


def append(engine: Engine, *messages: PackageMessage) -> Sequence[int]:
    """Put messages into the log as they are; their offsets."""
    encoded = map(encode_message, messages)
    return engine.journal.append(PACKAGES, [NewRecord(value, headers) for headers, value in encoded])


def message(name: str = "p", **values: Any) -> PackageMessage:
    """A package message without a package, unless `values` say otherwise."""
    plain = PackageMessage(SLING_ID, PackageId(name), Action.ADD, "tree", AUTHOR, paths=(NodePath("/bad"),))
    return plain._replace(**values)


def renamed(engine: Engine, *paths: str) -> PackageMessage:
    """The first package in the log, in a message that names other paths."""
    named = tuple(map(NodePath, paths))
    return decode_package(engine.records()[0].value)._replace(paths=named, deep_paths=named)


def absent(name: str = "absent") -> PackageMessage:
    """A package whose blob is nowhere."""
    return message(name, payload_ref=f"sha256:{'22' * 32}:9", package_length_bytes=9)


def paths_of(store: MemoryStore) -> set[str]:
    """What the store holds."""
    return set(store.bodies)


class FailingTarget(MemoryTarget):
    """Fails in a batch's step as often as it is told."""

    def __init__(self, store: MemoryStore, step: str, errors: Sequence[Exception]) -> None:
        super().__init__(store)
        self._step = step
        self._errors = list(errors)

    def batch(self, *, restored: RestoreRecord | None = None) -> MemoryBatch:
        batch = super().batch(restored=restored)
        works = getattr(batch, self._step)

        def fails(*arguments: object) -> object:
            if self._errors:
                raise self._errors.pop(0)
            return works(*arguments)

        setattr(batch, self._step, fails)
        return batch


class SlowTarget(MemoryTarget):
    """Each record that it takes lets time pass."""

    def __init__(self, store: MemoryStore, each: Callable[[], None]) -> None:
        super().__init__(store)
        self._each = each

    def batch(self, *, restored: RestoreRecord | None = None) -> MemoryBatch:
        batch = super().batch(restored=restored)
        apply = batch.apply

        def slowly(change: Any, stamp: Any) -> Any:
            def records() -> Iterator[Any]:
                for record in change.records:
                    self._each()
                    yield record

            return apply(change._replace(records=records()), stamp)

        batch.apply = slowly  # type: ignore[method-assign]  # a fault
        return batch
