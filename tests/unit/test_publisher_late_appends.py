"""One message for a request also where the log took it without an answer, and shows it only later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.errors import AppendUncertainError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import Edge, NewRecord, ReadLimits
from mailboat.model.identifiers import Offset, RequestId, TopicName
from mailboat.model.messages import Action, PackageMessage
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.wire.package_messages import decode_package
from support.engines import PACKAGES, Engine, page_source

PAGE = NodePath("/page.html")


class LateJournal(MemoryJournal):
    """As a topic of Kafka whose replicas are away: its leader takes records, answers nothing, and shows none."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.is_short_of_replicas = False
        self.taken: list[NewRecord] = []

    @property
    def are_appends_seen_at_once(self) -> bool:
        return False

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        self.taken += records
        if self.is_short_of_replicas:
            raise AppendUncertainError("no answer", topic=topic)
        taken, self.taken = self.taken, []
        return super().append(topic, taken)[-len(records) :]


@pytest.fixture
def journal() -> LateJournal:
    return LateJournal()


@pytest.fixture
def engine(tmp_path: Path, journal: LateJournal) -> Iterator[Engine]:
    with Engine(tmp_path, journal=journal) as engine:
        yield engine


def request() -> DistributionRequest:
    return add_request([PAGE], request_id=RequestId("r1"))


def messages(journal: LateJournal) -> list[PackageMessage]:
    records = journal.reader(PACKAGES, Edge.EARLIEST).read(ReadLimits(), 0.0).records
    return [decode_package(record.value) for record in records]


def publish_unanswered(engine: Engine, journal: LateJournal) -> None:
    journal.is_short_of_replicas = True
    with pytest.raises(AppendUncertainError):
        engine.publisher().publish(request(), page_source(PAGE))
    journal.is_short_of_replicas = False


def test_a_message_that_comes_to_be_seen_with_the_second_attempt_stays_the_only_one(
    engine: Engine, journal: LateJournal
) -> None:
    publish_unanswered(engine, journal)
    assert messages(journal) == []
    receipt = engine.publisher().publish(request(), page_source(PAGE))
    assert (receipt.is_repeat, receipt.offset) == (True, 0)
    assert [message.action for message in messages(journal)] == [Action.ADD, Action.TEST]


def test_a_message_that_was_lost_with_its_leader_is_published_again(engine: Engine, journal: LateJournal) -> None:
    publish_unanswered(engine, journal)
    journal.taken.clear()
    receipt = engine.publisher().publish(request(), page_source(PAGE))
    assert (receipt.is_repeat, receipt.offset) == (False, 1)
    assert [message.action for message in messages(journal)] == [Action.TEST, Action.ADD]


def test_as_long_as_nothing_is_answered_nothing_is_published_again(engine: Engine, journal: LateJournal) -> None:
    for _ in range(3):
        publish_unanswered(engine, journal)
    receipt = engine.publisher().publish(request(), page_source(PAGE))
    assert (receipt.is_repeat, receipt.offset) == (True, 0)
    assert [message.request_id for message in messages(journal) if message.action is Action.ADD] == ["r1"]


def test_the_second_attempt_of_the_same_publisher_draws_the_line_too(engine: Engine, journal: LateJournal) -> None:
    publisher = engine.publisher()
    journal.is_short_of_replicas = True
    with pytest.raises(AppendUncertainError):
        publisher.publish(request(), page_source(PAGE))
    journal.is_short_of_replicas = False
    assert publisher.publish(request(), page_source(PAGE)).is_repeat
    assert publisher.publish(request(), page_source(PAGE)).is_repeat
    assert [message.action for message in messages(journal)] == [Action.ADD, Action.TEST]
