"""What a record of the discovery topic says, and how far it is trusted."""

from __future__ import annotations

from dataclasses import fields

import pytest
from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord, Record
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import PACKAGE_TOPIC, DiscoveryMessage, SubscriberState
from mailboat.model.positions import LogIdentity
from mailboat.queues.announced import MAX_ANNOUNCEMENT_BYTES, Announced, KnownLog, read_announcement
from mailboat.queues.queue_names import QueueName
from mailboat.testing.clocks import ManualClock
from mailboat.wire.messages import encode_message

SLING_ID, AUTHOR = SlingId("5" * 36), AgentName("author")
EDGE = QueueName(SLING_ID, AgentName("edge"))
ANNOUNCEMENT = DiscoveryMessage(SLING_ID, EDGE.agent_name, (SubscriberState(AUTHOR, 4),), next_offset=Offset(7))


def record(message: DiscoveryMessage) -> Record:
    headers, value = encode_message(message)
    return Record(Offset(3), value, headers, None, 1000)


def announced(**changes: object) -> Announced:
    found = read_announcement(record(DiscoveryMessage(**{**_fields(), **changes})))  # type: ignore[arg-type]  # fields by name
    assert found is not None
    return found


def _fields() -> dict[str, object]:
    return {field.name: getattr(ANNOUNCEMENT, field.name) for field in fields(ANNOUNCEMENT)}


def test_an_announcement_says_who_where_and_when() -> None:
    assert read_announcement(record(ANNOUNCEMENT)) == Announced(EDGE, Offset(3), 1000, ANNOUNCEMENT)


@pytest.mark.parametrize(
    "changes",
    [{"sub_agent_name": "-"}, {"sub_sling_id": "short"}, {"sub_sling_id": "\n" * 36}, {"state": "x" * 70_000}],
)
def test_what_no_one_can_be_is_not_heard(changes: dict[str, str]) -> None:
    assert read_announcement(record(DiscoveryMessage(**{**_fields(), **changes}))) is None  # type: ignore[arg-type]  # by name


def test_a_record_that_is_no_announcement_is_not_heard() -> None:
    assert read_announcement(Record(Offset(0), b"\xff", ())) is None
    assert read_announcement(Record(Offset(0), b"x" * (MAX_ANNOUNCEMENT_BYTES + 1), ())) is None


def test_no_states_and_no_wish_to_follow_all_is_a_leave() -> None:
    assert announced(states=()).message is None
    everybody = announced(states=(), follows_all=True)
    assert everybody.message is not None
    assert everybody.follows(AgentName("anybody"))


@pytest.mark.parametrize("key", [b"", b"nobody", b"\xff" * 40, f"{SLING_ID}edge".encode(), f"{'5' * 36}-".encode()])
def test_a_tombstone_of_no_one_says_nothing(key: bytes) -> None:
    assert read_announcement(Record(Offset(0), b"", (), key)) is None


def test_a_tombstone_is_the_leave_of_whom_its_key_names() -> None:
    assert read_announcement(Record(Offset(9), b"", (), f"{SLING_ID}-edge".encode(), 5)) == Announced(
        EDGE, Offset(9), 5, None
    )


def test_who_follows_all_stands_where_it_reads_next_with_publishers_it_has_not_seen() -> None:
    one = announced(follows_all=True)
    assert (one.claimed_for(AUTHOR), one.claimed_for(AgentName("new"))) == (5, 7)
    assert not announced().follows(AgentName("new"))


def test_a_position_is_believed_where_it_can_be() -> None:
    journal = MemoryJournal(ManualClock())
    journal.ensure_topic(PACKAGE_TOPIC, TopicSettings(retention_seconds=None))
    journal.append(PACKAGE_TOPIC, [NewRecord(b"x")] * 5)
    log = KnownLog(journal, PACKAGE_TOPIC)
    assert log.believed(announced(), 5) == 5
    assert log.believed(announced(), 6) is None
    journal.append(PACKAGE_TOPIC, [NewRecord(b"x")])
    assert log.believed(announced(), 6) == 6
    assert log.believed(announced(log_identity=log.identity), 6) == 6
    assert log.believed(announced(log_identity=LogIdentity("another", "log")), 6) is None
    assert log.believed(announced(), None) is None
