"""What happens to the journal on three brokers when leaders die, replicas lag, and a stale one is made leader."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, PartitionMetadata
from mailboat.clock import Deadline, SystemClock
from mailboat.config.storage import KafkaConfig
from mailboat.errors import AppendUncertainError, JournalUnavailableError, PositionOutOfRangeError, RetryableError
from mailboat.failpoints import NoFailpoints
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_changes import Applied
from mailboat.jobs.job_worker import Call, JobWorker, WorkerSettings
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.topic import JobTopic
from mailboat.journal.kafka import KafkaJournal
from mailboat.journal.kafka_settings import KafkaSettings
from mailboat.journal.port import Edge, ReadLimits, Record
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.jobs import MAX_LEASE_MS, JobId, JobState, NewJob, Token
from mailboat.model.positions import Position
from mailboat.testing.journal_harness import (
    FOREVER,
    in_background,
    new_topic_name,
    read_to_end,
    some_records,
    values_of,
)
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.kafka_broker import BrokerSettings, with_section
from support.kafka_cluster import KafkaCluster


@pytest.fixture(scope="module")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers with small heaps; those that a test killed are started before the next one. See `servers.py`."""
    with KafkaCluster(BrokerSettings(tmp_path_factory.mktemp("cluster"), heap_mib=256), SystemClock()) as cluster:
        yield cluster


@pytest.fixture
def cluster(kafka_broker: KafkaCluster) -> KafkaCluster:
    return kafka_broker


@pytest.fixture
def settings(cluster: KafkaCluster) -> KafkaSettings:
    return KafkaSettings(
        KafkaConfig(
            (cluster.bootstrap_servers,),
            replicas=3,
            min_insync_replicas=2,
            append_seconds=PATIENCE_SECONDS,
            request_seconds=20.0,
        )
    )


@pytest.fixture
def topic(journal: KafkaJournal, admin: AdminClient) -> TopicName:
    name = new_topic_name()
    journal.ensure_topic(name, FOREVER)
    until(lambda: len(in_sync(admin, name)) == 3, "three replicas in sync")
    return name


def leader(admin: AdminClient, topic: TopicName) -> int:
    return int(partition_of(admin, topic).leader)


def in_sync(admin: AdminClient, topic: TopicName) -> set[int]:
    return set(partition_of(admin, topic).isrs)


def partition_of(admin: AdminClient, topic: TopicName) -> PartitionMetadata:
    patience = Deadline(SystemClock(), PATIENCE_SECONDS)
    while True:
        try:
            # Not with all the patience: a request that waits for the connection to the broker that dies takes it whole.
            return admin.list_topics(topic, timeout=5.0).topics[topic].partitions[0]
        except KafkaException:
            if patience.is_over():
                raise


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for what brokers agree on, which takes them seconds."""
    look, patience = threading.Event(), Deadline(SystemClock(), PATIENCE_SECONDS)
    while True:
        if condition():
            return
        assert not patience.is_over(), f"waited in vain for {what}"
        look.wait(0.05)


def revive(cluster: KafkaCluster, *numbers: int) -> None:
    for number in numbers:
        cluster.brokers[number].start()


def test_a_leader_that_dies_in_mid_append_loses_and_doubles_nothing(
    cluster: KafkaCluster, journal: KafkaJournal, topic: TopicName, admin: AdminClient
) -> None:
    batches = [some_records(200, f"batch-{number}") for number in range(60)]
    expected = [record.value for batch in batches for record in batch]
    reader = journal.reader(topic, Edge.EARLIEST)
    seen: list[Record] = []

    def append_all() -> list[Offset]:
        return [offset for batch in batches for offset in journal.append(topic, batch)]

    def read_all() -> None:
        patience = Deadline(SystemClock(), PATIENCE_SECONDS)
        while len(seen) < len(expected) and not patience.is_over():
            with suppress(JournalUnavailableError):
                seen.extend(reader.read(ReadLimits(), 1.0).records)

    killed = leader(admin, topic)
    with in_background(read_all) as reading, in_background(append_all) as appending:
        wait_until(lambda: len(seen) > 1000, "the first records")
        cluster.brokers[killed].kill()
        offsets = appending.result(PATIENCE_SECONDS)
        reading.result(PATIENCE_SECONDS)
    until(lambda: leader(admin, topic) not in {killed, -1}, "all brokers know of the new leader")
    for found in (seen, read_to_end(journal.reader(topic, Edge.EARLIEST))):
        assert values_of(found) == expected
        assert [record.offset for record in found] == offsets


def test_jobs_end_once_each_when_the_leader_of_their_topic_dies(
    cluster: KafkaCluster, settings: KafkaSettings, journal: KafkaJournal, topic: TopicName, admin: AdminClient
) -> None:
    """Leases outlive the election: each call runs once, and ends with the token of its only claim."""
    ended: Counter[JobId] = Counter()
    claimed, ran = list[tuple[JobId, Token]](), list[tuple[JobId, Token]]()
    has_died, is_over = threading.Event(), threading.Event()

    def note(fold: JobFold, applied: Applied) -> None:
        for job, state, *_ in applied.transitions:
            if state is JobState.ACTIVE:
                claimed.append((job, fold.leases[job].token))
            ended.update([job] if state.final else ())

    def run(call: Call) -> None:
        ran.extend((job, call.token) for job in call.jobs)
        if len(ran) > len(jobs) // 2:  # the others are left for after the death, however late it comes
            has_died.wait(PATIENCE_SECONDS)
        call.wait(0.02)

    def work(name: str) -> None:
        clock, chance = SystemClock(), random.Random(name)
        with KafkaJournal(settings, clock) as own:
            source = LogSource(JobTopic(own, topic), clock, chance, NoFailpoints())
            worker = JobWorker(source, WorkerSettings(name, 4, {"**": run}), clock, chance, NoFailpoints())
            while not is_over.is_set():
                try:
                    worker.turn(0.5)
                except RetryableError:
                    is_over.wait(0.1)
            worker.stop(5.0)

    with closing(JobTopic(journal, topic, note)) as observer:
        jobs = observer.add([NewJob("work", keep=True, retries=0, lease_ms=MAX_LEASE_MS)] * 250)
        killed = leader(admin, topic)

        def has_ended() -> bool:
            with suppress(RetryableError):
                observer.follow(0.5)
            return len(ended) >= len(jobs)

        with in_background(lambda: work("one")) as one, in_background(lambda: work("two")) as two:
            try:
                wait_until(lambda: len(ran) > 20, "the first calls")
                cluster.brokers[killed].kill()
                assert len(ran) < len(jobs)
                has_died.set()
                wait_until(has_ended, "the last results")
                until(lambda: leader(admin, topic) not in {killed, -1}, "another leader")
            finally:
                is_over.set()
            one.result(PATIENCE_SECONDS)
            two.result(PATIENCE_SECONDS)
        states = Counter(map(observer.fold.table.state, jobs))
    assert states == {JobState.SUCCEEDED: len(jobs)}
    assert ended == dict.fromkeys(jobs, 1)
    assert sorted(ran) == sorted(claimed)
    assert [job for job, _ in sorted(ran)] == jobs


def test_with_too_few_replicas_an_append_waits_and_succeeds_once_they_are_back(
    cluster: KafkaCluster, settings: KafkaSettings, journal: KafkaJournal, topic: TopicName, admin: AdminClient
) -> None:
    killed = [number for number in cluster.brokers if number != leader(admin, topic)][:1]
    configure(admin, topic, "min.insync.replicas", "3")
    with KafkaJournal(with_section(settings, append_seconds=3.0), SystemClock()) as impatient:
        journal.append(topic, some_records(1, "before"))
        cluster.brokers[killed[0]].kill()
        until(lambda: len(in_sync(admin, topic)) == 2, "a replica is out of sync")
        with pytest.raises(AppendUncertainError) as refused:
            impatient.append(topic, some_records(1, "refused"))
        assert refused.value.next_step is not None
    with (
        KafkaJournal(with_section(settings, append_seconds=PATIENCE_SECONDS), SystemClock()) as patient,
        in_background(lambda: patient.append(topic, some_records(2, "patient"))) as appending,
    ):
        revive(cluster, *killed)
        assert len(appending.result(PATIENCE_SECONDS)) == 2
        found = values_of(read_to_end(patient.reader(topic, Edge.EARLIEST)))
    assert found == [b"before-0", b"patient-0", b"patient-1"]


def configure(admin: AdminClient, topic: TopicName, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)


def test_a_stale_replica_that_becomes_leader_is_noticed_as_a_lost_tail(
    cluster: KafkaCluster, settings: KafkaSettings, admin: AdminClient
) -> None:
    """An unclean election: acknowledged records are gone, and others come in their place."""
    careless = with_section(settings, replicas=2, min_insync_replicas=1)  # what docs/kafka.md advises against
    topic = new_topic_name()
    with KafkaJournal(careless, SystemClock()) as journal:
        journal.ensure_topic(topic, FOREVER)
        configure(admin, topic, "unclean.leader.election.enable", "true")
        until(lambda: len(in_sync(admin, topic)) == 2, "two replicas in sync")
        journal.append(topic, some_records(3, "kept"))
        ahead = leader(admin, topic)
        (stale,) = in_sync(admin, topic) - {ahead}
        cluster.brokers[stale].kill()
        until(lambda: in_sync(admin, topic) == {ahead}, "a replica is out of sync")
        journal.append(topic, some_records(4, "lost"))
        last = read_to_end(journal.reader(topic, Edge.EARLIEST))[-1]
        position = Position(journal.identity(topic), Offset(last.offset + 1), last.leader_epoch)
    cluster.brokers[ahead].kill()
    revive(cluster, stale)
    elect(admin, topic)
    until(lambda: leader(admin, topic) == stale, "the stale replica leads")

    with KafkaJournal(careless, SystemClock()) as journal:
        with pytest.raises(PositionOutOfRangeError) as beyond:
            journal.reader(topic, position).read(ReadLimits(), PATIENCE_SECONDS)
        assert (beyond.value.where["offset"], beyond.value.where["next"]) == (7, 3)
        journal.append(topic, some_records(10, "other"))
        reader = journal.reader(topic, position)
        with pytest.raises(PositionOutOfRangeError, match="lost records"):
            reader.read(ReadLimits(), PATIENCE_SECONDS)
        assert reader.next_offset == 7


def elect(admin: AdminClient, topic: TopicName) -> None:
    """Ask for the unclean election; the controller may have made it already."""
    place = TopicPartition(topic, 0)
    admin.elect_leaders(ElectionType.UNCLEAN, [place]).result(PATIENCE_SECONDS)
