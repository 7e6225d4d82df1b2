"""Durable jobs pass their suite over every journal."""

from __future__ import annotations

from pathlib import Path

import pytest
from mailboat.clock import SystemClock
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.sqlite import SqliteJournal
from mailboat.testing.job_contract import JobContract
from mailboat.testing.journal_harness import JournalHarness
from support.kafka_broker import KafkaBroker


class TestJobsInMemory(JobContract):
    @pytest.fixture
    def harness(self) -> JournalHarness:
        log = MemoryJournal(SystemClock())
        return JournalHarness(log.another_handle, log.delete_topic)


class TestJobsOnSqlite(JobContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> JournalHarness:
        path = tmp_path / "journal.db"
        return JournalHarness(lambda: SqliteJournal.create(path, SystemClock()), lambda _: None)


class TestJobsOnKafka(JobContract):
    @pytest.fixture
    def harness(self, kafka_broker: KafkaBroker) -> JournalHarness:
        settings = KafkaSettings(kafka_broker.bootstrap_servers)
        return JournalHarness(lambda: KafkaJournal(settings, SystemClock()), lambda _: None, reads_ahead=True)
