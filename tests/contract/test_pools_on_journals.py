"""A shared pool keeps its promises over every journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.blobs.memory import MemoryBlobStore
from mailboat.clock import SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.failpoints import Failpoint
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import Journal, ReadLimits
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import Offset
from mailboat.model.messages import PackageStatus, StatusMessage
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.publisher.publisher import Publisher
from mailboat.publisher.publisher_settings import PublisherPorts, PublisherSettings
from mailboat.publisher.state import PublisherState
from mailboat.testing.journal_harness import FOREVER, new_topic_name, read_to_end
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.messages import decode_message
from support.engines import AUTHOR, SLING_ID, digest_of, page_source
from support.kafka_broker import KafkaBroker
from support.pool_scenario import LEASE_MS, Freeze, Members, Stores, paths, pool_settings

PACKAGES = 24


class PoolContract:
    """Subclasses provide the fixture `journal`."""

    @pytest.fixture
    def stores(self, journal: Journal, tmp_path: Path) -> Stores:
        made = Stores(journal, MemoryBlobStore(SystemClock()), tmp_path / "shared", "sqlite")
        packages, statuses, commands, made.job_topic = (new_topic_name() for _ in range(4))
        for topic in (packages, statuses, commands):
            journal.ensure_topic(topic, FOREVER)
        made.settings = pool_settings(package_topic=packages, status_topic=statuses, command_topic=commands)
        return made

    def publish(self, stores: Stores, folder: Path, *named: str) -> None:
        settings = PublisherSettings(AUTHOR, SLING_ID, package_topic=stores.settings.package_topic)
        clock = SystemClock()
        with closing(PublisherState(folder / "author.db", clock, "OFF")) as state:
            publisher = Publisher(settings, PublisherPorts(stores.journal, stores.blobs, stores.codecs, state, clock))
            source = page_source(*named)
            for path in named:
                publisher.publish(add_request([NodePath(path)], is_deep=False), source)

    def statuses(self, stores: Stores) -> list[StatusMessage]:
        with closing(stores.journal.reader(stores.settings.status_topic, Offset(0))) as reader:
            messages = [decode_message(item.headers, item.value) for item in read_to_end(reader, ReadLimits())]
        return [message for message in messages if isinstance(message, StatusMessage)]

    def test_each_package_is_imported_and_confirmed_once_though_a_member_stands_still(
        self, stores: Stores, tmp_path: Path
    ) -> None:
        named = paths(PACKAGES)
        self.publish(stores, tmp_path, *named)
        freeze, members = Freeze(Failpoint.JOBS_BEFORE_HANDLER), Members()
        stores.lease_ms = LEASE_MS
        members.start(stores.member("m1", failpoints=freeze))
        assert freeze.frozen.wait(PATIENCE_SECONDS)
        members.start(stores.member("m2"), stores.member("m3"))  # they join late
        wait_until(lambda: len(self.statuses(stores)) == PACKAGES)
        freeze.go_on()
        ended = members.stop()
        assert not members.errors
        assert sum(item.imported for item in ended) == PACKAGES
        assert Counter(status.package_id for status in self.statuses(stores)).most_common(1)[0][1] == 1
        assert {status.status for status in self.statuses(stores)} == {PackageStatus.IMPORTED}
        with closing(stores.open_target()) as target:
            assert digest_of(target.source()) == digest_of(page_source(*named))
        last = stores.member("m4").run(is_endless=False)
        assert (last.imported, last.lag_offsets) == (0, 0)


class TestPoolInMemory(PoolContract):
    @pytest.fixture
    def journal(self) -> Journal:
        return MemoryJournal(SystemClock())


class TestPoolOnSqlite(PoolContract):
    @pytest.fixture
    def journal(self, tmp_path: Path) -> Iterator[Journal]:
        with SqliteJournal.create(tmp_path / "journal.db", SystemClock()) as made:
            yield made


class TestPoolOnKafka(PoolContract):
    @pytest.fixture
    def journal(self, kafka_broker: KafkaBroker) -> Iterator[Journal]:
        with KafkaJournal(KafkaSettings(KafkaConfig((kafka_broker.bootstrap_servers,))), SystemClock()) as made:
            yield made
