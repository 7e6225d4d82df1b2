"""The feed of a shared pool: packages get into its queue once, and end by the result of a member only."""

from __future__ import annotations

import pytest
from mailboat.errors import MessageCorruptError
from mailboat.jobs.feeds import MAX_POOLS, Feeds
from mailboat.jobs.fold import JobFold
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.jobs import (
    AttemptOutcome,
    Feed,
    JobAction,
    JobId,
    JobRecord,
    JobResult,
    JobsAdded,
    JobsClaimed,
    JobsCommanded,
    JobsFinished,
    JobState,
    NewJob,
    QueueAction,
    QueueCommanded,
    QueueDefined,
    QueueRemoved,
    QueueSettings,
    Token,
    WorkerSeen,
    any_matches,
    patterns_overlap,
    pool_queue,
    pool_topic,
)
from mailboat.model.positions import LogIdentity
from mailboat.wire.job_records import decode_checkpoint, decode_job_record, encode_checkpoint, encode_job_record

POOL = AgentName("web")
TOPIC = pool_topic(POOL)


def feed(sequence: int, next_offset: int, pool: AgentName = POOL) -> Feed:
    return Feed(pool, sequence, Offset(next_offset), LogIdentity("c", "t"), "marker")


def added(sequence: int, *offsets: int) -> JobsAdded:
    jobs = [NewJob(TOPIC, str(offset).encode(), str(offset)) for offset in offsets]
    return JobsAdded(jobs, feed=feed(sequence, max(offsets) + 1))


class Log:
    """A fold, and the records that it has applied."""

    def __init__(self) -> None:
        self.fold = JobFold()
        self._end = 0
        self.put(QueueDefined(QueueSettings("a-first", ("**",))))
        self.put(WorkerSeen("m1", 4, (TOPIC,)))

    def put(self, record: JobRecord) -> int:
        headers, value = encode_job_record(record)
        self.fold.apply(Offset(self._end), self._end * 10, decode_job_record(headers, value))
        self._end += 1
        return self._end - 1

    def queue_length(self) -> int:
        return self.fold.queues[pool_queue(POOL)].queued


def test_of_two_members_that_put_in_the_same_packages_one_counts() -> None:
    log = Log()
    log.put(added(1, 0, 1))
    log.put(added(1, 0, 1))
    assert log.queue_length() == 2
    log.put(added(3, 5))
    assert log.queue_length() == 2, "a sequence is not skipped"
    log.put(added(2, 2))
    assert log.queue_length() == 3
    found = log.fold.feeds.find(POOL)
    assert found is not None
    assert (found.sequence, found.next_offset) == (2, 3)


def test_a_late_feed_of_a_former_begin_of_the_pool_does_not_count() -> None:
    log = Log()
    log.put(added(1, 0))
    late = added(2, 7)
    log.put(QueueRemoved(pool_queue(POOL)))
    begun = feed(1, 0)._replace(target="marker.2")
    log.put(JobsAdded((), feed=begun))
    log.put(late)
    assert log.fold.feeds.find(POOL) == begun
    assert log.queue_length() == 0


def test_no_command_and_no_queue_of_a_user_touches_the_packages_of_a_pool() -> None:
    log = Log()
    offset = log.put(added(1, 0, 1))
    job = JobId(offset * 256)
    queue = pool_queue(POOL)
    log.put(JobsCommanded(JobAction.REMOVE, [job]))
    log.put(JobsCommanded(JobAction.STOP, [job]))
    log.put(QueueCommanded(QueueAction.CLEAR, queue))
    log.put(QueueDefined(QueueSettings(queue)))
    assert log.queue_length() == 2
    assert log.fold.queue(job).settings.name == queue
    assert log.fold.queues[queue].settings.retries == -1


def test_a_pool_that_is_forgotten_drops_its_packages_and_may_begin_again() -> None:
    log = Log()
    offset = log.put(added(1, 0, 1))
    active, waiting = JobId(offset * 256), JobId(offset * 256 + 1)
    token = Token(log.put(JobsClaimed.of("m1", [[active]])))
    log.put(QueueRemoved(pool_queue(POOL)))
    assert log.fold.feeds.find(POOL) is None
    assert pool_queue(POOL) not in log.fold.queues
    assert log.fold.table.state(waiting) is None
    log.put(added(2, 2))
    assert log.fold.feeds.find(POOL) is None, "a member that stood still does not bring the pool back"
    log.put(added(1, 0))
    assert log.queue_length() == 1
    log.put(JobsFinished.of([JobResult(active, token, AttemptOutcome.FAIL, 0)]))
    assert log.fold.table.state(active) is JobState.STOPPED, "its package is not queued again"
    restored = JobFold(decode_checkpoint(encode_checkpoint(log.fold.capture(Offset(99)))))
    assert restored.feeds.all() == [feed(1, 1)]


def test_a_package_is_tried_without_end_until_a_member_says_that_it_is_done() -> None:
    log = Log()
    job = JobId(log.put(added(1, 0)) * 256)
    for _ in range(30):
        token = Token(log.put(JobsClaimed.of("m1", [[job]])))
        log.put(JobsFinished.of([JobResult(job, token, AttemptOutcome.FAIL, 0)]))
        assert log.fold.table.state(job) is JobState.QUEUED
    token = Token(log.put(JobsClaimed.of("m1", [[job]])))
    log.put(JobsFinished.of([JobResult(job, token, AttemptOutcome.OK)]))
    assert log.fold.table.state(job) is None
    assert not log.fold.queues[pool_queue(POOL)].chained()


def test_a_checkpoint_keeps_feed_queue_and_order() -> None:
    log = Log()
    log.put(added(1, 0, 1))
    token = log.put(JobsClaimed.of("m1", [[JobId(2 * 256)]]))
    restored = JobFold(decode_checkpoint(encode_checkpoint(log.fold.capture(Offset(token + 1)))))
    assert restored.feeds.all() == [feed(1, 2)]
    assert sorted(restored.queues[pool_queue(POOL)].chained()) == [JobId(2 * 256), JobId(2 * 256 + 1)]


def test_patterns_of_users_match_no_topic_of_a_pool() -> None:
    assert not any_matches(["**", "*.*.*", "*"], TOPIC)
    assert any_matches([TOPIC], TOPIC)
    assert not patterns_overlap("**", TOPIC)
    assert pool_topic(AgentName("a.b")) != pool_topic(AgentName("a-b"))


@pytest.mark.parametrize(
    ("one", "other", "overlaps"),
    [
        ("purge.*", "purge.cdn", True),
        ("purge.*", "purge.cdn.eu", False),
        ("purge.**", "purge.cdn.eu", True),
        ("purge.**", "purge", False),
        ("*.eu", "purge.*", True),
        ("**", "anything", True),
        ("a.b", "a.c", False),
        ("a.*.c", "a.**", True),
    ],
)
def test_patterns_overlap_if_one_topic_matches_both(one: str, other: str, overlaps: bool) -> None:
    assert (patterns_overlap(one, other), patterns_overlap(other, one)) == (overlaps, overlaps)


def test_jobs_with_a_topic_of_a_pool_count_only_with_its_feed() -> None:
    other = feed(1, 1, AgentName("other"))
    for record in (JobsAdded([NewJob(TOPIC)]), JobsAdded([NewJob(TOPIC)], feed=other)):
        with pytest.raises(MessageCorruptError):
            decode_job_record(*encode_job_record(record))


def test_pools_are_bounded() -> None:
    feeds = Feeds(feed(1, 0, AgentName(f"p{number}")) for number in range(MAX_POOLS))
    assert not feeds.take(feed(1, 0))
    assert feeds.take(feed(2, 0, AgentName("p1")))
