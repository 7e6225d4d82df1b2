"""What the library says is logged at a bearable rate, and remembered as a reason."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError
from mailboat.journal.kafka_client_log import ClientLog
from mailboat.testing.clocks import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def lines(log: ClientLog, count: int, kind: str = "FAIL") -> None:
    for _ in range(count):
        log.log(logging.ERROR, "%s [%s] %s", kind, "mailboat#producer-1", "Connection refused")


def test_one_line_of_a_kind_passes_in_an_interval(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog(clock, interval_seconds=30.0)
    lines(log, 500)
    assert [record.getMessage() for record in caplog.records] == ["Kafka client: Connection refused"]
    clock.advance(31.0)
    lines(log, 3)
    assert len(caplog.records) == 2
    assert "499 more" in caplog.records[1].getMessage()
    assert caplog.records[1].levelno == logging.WARNING
    assert caplog.records[1].__dict__["error"] == "FAIL"


def test_what_only_the_librarys_authors_want_to_know_is_left_out(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    text = "[thrd:127.0.0.1:1/bootstrap]: 127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"
    ClientLog(clock).log(logging.ERROR, "%s [%s] %s", "FAIL", "mailboat#producer-1", text)
    assert caplog.messages == ["Kafka client: Connect to ipv4#127.0.0.1:1 failed: Connection refused"]


def test_kinds_do_not_hide_each_other(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    log = ClientLog(clock)
    lines(log, 5, "FAIL")
    lines(log, 5, "REQTMOUT")
    assert len(caplog.records) == 2


def test_what_every_producer_meets_on_new_brokers_alarms_no_one(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        lines(ClientLog(clock), 1, "GETPID")
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


def test_the_last_error_explains_a_time_out_until_something_succeeds(clock: ManualClock) -> None:
    log = ClientLog(clock)
    assert log.reason() is None
    refused = KafkaError(KafkaError._TRANSPORT, "Connection refused")
    log.note(refused)
    log.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert log.reason() is refused
    log.succeeded()
    assert log.reason() is None


def test_only_a_refused_login_is_hopeless(clock: ManualClock) -> None:
    log = ClientLog(clock)
    for code in (KafkaError._TRANSPORT, KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN):
        log.note(KafkaError(code))
        assert log.refusal() is None
    log.note(KafkaError(KafkaError._AUTHENTICATION))
    assert log.refusal() is not None


def test_refusal_is_not_hidden_by_the_next_error_of_another_client(clock: ManualClock) -> None:
    log = ClientLog(clock)
    distrust = KafkaError(KafkaError._SSL, "certificate verify failed")
    log.note(distrust)
    log.note(KafkaError(KafkaError._TRANSPORT, "Disconnected"))
    assert log.recent_refusal() is distrust
    clock.advance(11)
    assert log.recent_refusal() is None
    log.note(distrust)
    log.succeeded()
    assert log.recent_refusal() is None
