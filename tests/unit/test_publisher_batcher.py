"""`PublishBatcher`: which requests share an append, and the answer to each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest
from mailboat.content.port import Source
from mailboat.errors import (
    JournalUnavailableError,
    RetryableError,
    SourceChangedError,
    SourceMissingError,
    UsageError,
)
from mailboat.model.identifiers import AgentName, Offset, PackageId, RequestId
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.appender import Receipt
from mailboat.publisher.batcher import PublishBatcher
from mailboat.publisher.publisher import Publisher
from mailboat.publisher.state_file import PublisherBusyError
from mailboat.testing.memory_content import MemorySource
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until


class PlayedPublisher:
    """Publishes when the test opens the gate, and fails for the paths that the test names."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.sources: list[object] = []
        self.failures: dict[str, BaseException] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.users = 0

    def publish_all(self, requests: Sequence[DistributionRequest], source: Source | None) -> Iterator[Receipt]:
        self.users += 1
        assert self.users == 1, "two at once"
        try:
            self.batches.append([request.paths[0] for request in requests])
            self.sources.append(source)
            self.entered.set()
            assert self.gate.wait(PATIENCE_SECONDS)
            for item in requests:
                if item.paths[0] in self.failures:
                    raise self.failures[item.paths[0]]
                name = item.paths[0]
                yield Receipt(
                    item.action, item.paths, PackageId(f"package{name}"), Offset(7), RequestId(f"request{name}")
                )
        finally:
            self.users -= 1

    def locate(self, identifier: str) -> Offset | None:
        return Offset(99) if identifier == "old" else None


@pytest.fixture
def publisher() -> PlayedPublisher:
    return PlayedPublisher()


@pytest.fixture
def counter(publisher: PlayedPublisher) -> PublishBatcher:
    return counter_of(publisher)


def counter_of(
    publisher: PlayedPublisher, open_source: Callable[[], Source] | None = lambda: cast("Source", ClosableSource())
) -> PublishBatcher:
    return PublishBatcher(AgentName("author"), cast("Publisher", publisher), open_source)


class ClosableSource(MemorySource):
    """A source that knows whether it was closed."""

    def __init__(self) -> None:
        super().__init__([])
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def request(name: str, action: Action = Action.DELETE) -> DistributionRequest:
    return DistributionRequest(action, (NodePath(f"/{name}"),))


def in_line(counter: PublishBatcher, publisher: PlayedPublisher, pool: ThreadPoolExecutor) -> list[Future[Any]]:
    """A batch is under way; until the gate opens, others wait."""
    publisher.gate.clear()
    publisher.entered.clear()
    first = pool.submit(counter.publish, request("first"))
    assert publisher.entered.wait(PATIENCE_SECONDS)
    return [first]


def await_line(counter: PublishBatcher, length: int) -> None:
    wait_until(lambda: len(counter._waiting) == length, f"{length} in line")


def test_those_who_come_while_one_is_at_work_are_published_together(
    counter: PublishBatcher, publisher: PlayedPublisher
) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = in_line(counter, publisher, pool)
        done += [pool.submit(counter.publish, request(str(n))) for n in range(6)]
        await_line(counter, 6)
        publisher.gate.set()
        assert {item.result(PATIENCE_SECONDS).paths[0] for item in done} == {"/first", *(f"/{n}" for n in range(6))}
    first, second = publisher.batches
    assert (first, sorted(second)) == (["/first"], [f"/{n}" for n in range(6)])


def test_waiting_requests_are_published_together_from_one_open_source(
    counter: PublishBatcher, publisher: PlayedPublisher
) -> None:
    with ThreadPoolExecutor(8) as pool:
        in_line(counter, publisher, pool)
        for number in range(4):
            pool.submit(counter.publish, request(str(number), Action.ADD if number < 2 else Action.DELETE))
            await_line(counter, number + 1)
        publisher.gate.set()
    assert publisher.batches[1:] == [["/0", "/1", "/2", "/3"]]
    source = publisher.sources[1]
    assert isinstance(source, ClosableSource)
    assert source.is_closed
    assert publisher.sources[0] is None


def test_requests_are_published_in_the_order_in_which_they_came(
    counter: PublishBatcher, publisher: PlayedPublisher
) -> None:
    with ThreadPoolExecutor(8) as pool:
        in_line(counter, publisher, pool)
        for number, action in enumerate((Action.DELETE, Action.ADD, Action.INVALIDATE, Action.DELETE, Action.ADD)):
            pool.submit(counter.publish, request(str(number), action))
            await_line(counter, number + 1)
        publisher.gate.set()
    assert publisher.batches[1:] == [["/0", "/1", "/2", "/3", "/4"]]


def test_a_request_that_can_not_be_published_fails_alone(counter: PublishBatcher, publisher: PlayedPublisher) -> None:
    publisher.failures["/2"] = SourceMissingError("/2 is not there")
    with ThreadPoolExecutor(8) as pool:
        in_line(counter, publisher, pool)
        done = [pool.submit(counter.publish, request(str(number))) for number in range(5)]
        await_line(counter, 5)
        publisher.gate.set()
        for number, one in enumerate(done):
            if number == 2:
                with pytest.raises(SourceMissingError):
                    one.result(PATIENCE_SECONDS)
            else:
                assert one.result(PATIENCE_SECONDS).paths == (f"/{number}",)


def test_a_source_that_changes_under_one_request_fails_that_request_alone(
    counter: PublishBatcher, publisher: PlayedPublisher
) -> None:
    publisher.failures["/1"] = SourceChangedError("/1 was written while it was read")
    with ThreadPoolExecutor(8) as pool:
        in_line(counter, publisher, pool)
        done = [pool.submit(counter.publish, request(str(n), Action.ADD)) for n in range(4)]
        await_line(counter, 4)
        publisher.gate.set()
        failed = [number for number, one in enumerate(done) if one.exception(PATIENCE_SECONDS) is not None]
    assert failed == [1]


@pytest.mark.parametrize("failure", [JournalUnavailableError("no broker"), PublisherBusyError("locked")])
def test_a_journal_that_fails_fails_all_who_wait_instead_of_each_after_the_other(
    counter: PublishBatcher, publisher: PlayedPublisher, failure: RetryableError
) -> None:
    with ThreadPoolExecutor(8) as pool:
        in_line(counter, publisher, pool)
        done = [pool.submit(counter.publish, request("0"))]
        await_line(counter, 1)
        done += [pool.submit(counter.publish, request(str(number))) for number in range(1, 5)]
        await_line(counter, 5)
        publisher.failures["/0"] = failure
        publisher.gate.set()
        for item in done:
            with pytest.raises(type(failure)):
                item.result(PATIENCE_SECONDS)
    assert len(publisher.batches) == 2


def test_a_defect_is_answered_and_the_next_request_is_served(
    counter: PublishBatcher, publisher: PlayedPublisher
) -> None:
    publisher.failures["/bad"] = RuntimeError("a defect")
    with pytest.raises(RuntimeError):
        counter.publish(request("bad"))
    assert counter.publish(request("good")).offset == 7


def test_an_interrupt_of_who_is_at_work_leaves_no_one_waiting(
    counter: PublishBatcher, publisher: PlayedPublisher
) -> None:
    publisher.failures["/bad"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        counter.publish(request("bad"))
    assert counter.publish(request("good")).offset == 7


def test_a_source_that_can_not_be_opened_fails_what_reads_it_only(publisher: PlayedPublisher) -> None:
    def open_source() -> Source:
        raise SourceMissingError("the folder is gone")

    counter = counter_of(publisher, open_source)
    with pytest.raises(SourceMissingError):
        counter.publish(request("page", Action.ADD))
    assert counter.publish(request("page")).offset == 7


def test_without_a_source_there_is_nothing_to_read(publisher: PlayedPublisher) -> None:
    with pytest.raises(UsageError, match="no source"):
        counter_of(publisher, None).publish(request("page", Action.ADD))


def test_what_was_published_is_located_without_asking_and_the_rest_by_the_publisher(counter: PublishBatcher) -> None:
    counter.publish(request("a"))
    assert [counter.locate(item) for item in ("package/a", "request/a", "old", "nobody")] == [7, 7, 99, None]
