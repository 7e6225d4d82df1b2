"""Durable jobs pass their suite over every journal, and over HTTP."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from mailboat.api.client import HttpControl
from mailboat.clock import Clock, SystemClock
from mailboat.config.document import HttpConfig
from mailboat.config.storage import KafkaConfig
from mailboat.control.job_service import JobService
from mailboat.jobs.http_source import HttpSource
from mailboat.jobs.source import JobSource
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.messages import JOB_TOPIC
from mailboat.testing.job_contract import JobContract, Jobs
from mailboat.testing.journal_harness import JournalHarness
from support.fake_control import FakeControl
from support.kafka_broker import KafkaBroker
from support.tcp_proxy import TcpProxy


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
        settings = KafkaSettings(KafkaConfig((kafka_broker.bootstrap_servers,)))
        return JournalHarness(lambda: KafkaJournal(settings, SystemClock()), lambda _: None, reads_ahead=True)


class RemoteJobs(Jobs):
    """Jobs whose workers have no access to the journal: they ask an agent."""

    def __init__(self, harness: JournalHarness, serve: Any) -> None:
        super().__init__(harness, JOB_TOPIC)
        service = JobService(harness.open, SystemClock(), random.Random(1))
        config = HttpConfig(requests_per_second=10_000, burst_requests=10_000)
        self._port = int(serve(FakeControl(), config, jobs=service).url.rpartition(":")[2])
        self._lines: dict[JobSource, TcpProxy] = {}
        self._opened = ExitStack()

    def new_source(self, clock: Clock, _chance: random.Random) -> JobSource:
        line = self._opened.enter_context(TcpProxy(self._port))
        client = self._opened.enter_context(HttpControl(f"http://127.0.0.1:{line.port}"))
        source = HttpSource(client.jobs, clock)
        self._lines[source] = line
        return source

    def cut_off(self, source: JobSource) -> None:
        self._lines[source].close()

    def close(self) -> None:
        super().close()
        self._opened.close()


class TestJobsOverHttp(JobContract):
    @pytest.fixture
    def harness(self) -> JournalHarness:
        log = MemoryJournal(SystemClock())
        return JournalHarness(log.another_handle, log.delete_topic)

    @pytest.fixture
    def jobs(self, harness: JournalHarness, serve: Any) -> Iterator[Jobs]:
        made = RemoteJobs(harness, serve)
        yield made
        made.close()
