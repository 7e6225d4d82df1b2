"""Events of jobs, as a webhook posts them: one for each change, the same ones after a restart."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mailboat.api.job_control import JobFilter
from mailboat.clock import SystemClock
from mailboat.config.receivers import EventKind, EventSeverity, WebhookFormat
from mailboat.control.job_service import JobService
from mailboat.errors import JobLogIncompleteError
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.jobs.source import CallId, Offer
from mailboat.jobs.topic import JobTopic
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import records_of
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.jobs import AttemptOutcome, JobAction, JobResult, NewJob, parse_job_id
from mailboat.model.messages import EVENT_TOPIC, JOB_TOPIC
from mailboat.operations.journal_inspection import decode_record, summary_of
from mailboat.publisher.distributed_memory import EventCursor, EventMemory
from mailboat.telemetry.event_delivery import DeliveryPorts, EventDelivery, EventReceiver
from mailboat.telemetry.job_events import JobEvents
from mailboat.telemetry.notice_formats import encode_notice
from mailboat.telemetry.notices import EventFilter, Notice
from mailboat.telemetry.topic_sender import TopicSender
from mailboat.testing.clocks import ManualClock
from mailboat.testing.journal_harness import FOREVER
from mailboat.testing.wait import wait_until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> MemoryJournal:
    return MemoryJournal(clock)


@pytest.fixture
def jobs(log: MemoryJournal, clock: ManualClock) -> Iterator[JobService]:
    service = JobService(log.another_handle, clock, random.Random(1))
    yield service
    service.close()


def noticed(log: MemoryJournal, start: int, chosen: EventFilter) -> list[Notice]:
    with closing(JobEvents(log, chosen, JOB_TOPIC).open(Offset(start))) as reader:
        found = []
        while records := reader.read(0.0) or reader.read(0.0):
            found += [notice for record in records for notice in record.notices]
        return found


def posted(
    log: MemoryJournal, start: int, *patterns: str, body: WebhookFormat = WebhookFormat.CLOUDEVENTS
) -> list[Any]:
    chosen = EventFilter(jobs=patterns or ("**",))
    return [json.loads(encode_notice(notice, body)) for notice in noticed(log, start, chosen)]


def run(jobs: JobService, outcome: AttemptOutcome, clock: ManualClock) -> None:
    offer = Offer("w-1", 1, ("**",))
    (call,) = {each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed}
    clock.advance(2.0)
    jobs.report(offer, [JobResult(call.job, call.token, outcome, 0)], [])


def history(jobs: JobService, clock: ManualClock, request: str = "once") -> list[str]:
    """A job that fails, is snoozed, and is given up; one that succeeds, one that is removed. Returns: their ids."""
    first = jobs.add([NewJob("mail", key="a", retries=1, request_id=request)])[0].job
    jobs.add([NewJob("mail", request_id=request)])
    clock.advance(5.0)
    for outcome in (AttemptOutcome.FAIL, AttemptOutcome.SNOOZE, AttemptOutcome.FAIL):
        run(jobs, outcome, clock)
    second = jobs.add([NewJob("purge.cdn")])[0].job
    run(jobs, AttemptOutcome.OK, clock)
    third = jobs.add([NewJob("mail", delay_ms=60_000)])[0].job
    jobs.command(JobAction.REMOVE, [parse_job_id(third)])
    return [first, second, third]


def test_each_change_of_a_job_is_one_event_with_its_duration(
    jobs: JobService, log: MemoryJournal, clock: ManualClock
) -> None:
    first, second, third = history(jobs, clock)
    events = posted(log, 0)
    assert [(e["subject"], e["type"].split(".")[-2], e["data"]["state"], e["data"]["durationMs"]) for e in events] == [
        (first, "added", "queued", 0),
        (first, "started", "active", 5_000),
        (first, "failed", "queued", 2_000),
        (first, "started", "active", 0),
        (first, "started", "active", 0),
        (first, "cancelled", "given-up", 2_000),
        (second, "added", "queued", 0),
        (second, "started", "active", 0),
        (second, "finished", "succeeded", 2_000),
        (third, "added", "queued", 0),
        (third, "removed", "dropped", 0),
    ]
    assert (events[0]["data"]["topic"], events[0]["data"]["key"], events[2]["data"]["reason"]) == ("mail", "a", "fail")
    assert len({(event["source"], event["id"]) for event in events}) == len(events)
    assert {event["subject"] for event in posted(log, 0, "purge.*")} == {second}
    chat = [str(body["text"]) for body in posted(log, 0, body=WebhookFormat.SLACK)]
    assert chat[2] == f"\u26a0\ufe0f job {first} `mail` failed (`fail`)"


def test_j1_a_job_that_always_fails_has_an_event_for_each_attempt(
    jobs: JobService, log: MemoryJournal, clock: ManualClock
) -> None:
    job = jobs.add([NewJob("mail", retries=2)])[0].job
    for _ in range(3):
        run(jobs, AttemptOutcome.FAIL, clock)
    assert [event["type"].split(".")[-2] for event in posted(log, 0)] == [
        *("added", "started", "failed", "started", "failed", "started", "cancelled")
    ]
    assert [each.job for each in jobs.list_jobs(JobFilter("given-up")).items] == [job]


def test_filter_selects_events_of_jobs_by_severity_and_kind(
    jobs: JobService, log: MemoryJournal, clock: ManualClock
) -> None:
    history(jobs, clock)

    def kinds(**wanted: Any) -> list[str]:
        return [str(notice.document["type"]).split(".")[3] for notice in noticed(log, 0, EventFilter(**wanted))]

    assert kinds(jobs=("**",), severity=EventSeverity.WARNING) == ["failed", "cancelled"]
    assert kinds(jobs=("**",), severity=EventSeverity.ERROR) == ["cancelled"]
    assert kinds(jobs=("purge.*",), kinds=frozenset({EventKind.ADDED, EventKind.FINISHED})) == ["added", "finished"]


def test_an_expired_lease_is_a_failure(jobs: JobService, log: MemoryJournal, clock: ManualClock) -> None:
    jobs.add([NewJob("mail", lease_ms=1_000)])
    offer = Offer("w-1", 1, ("**",))
    held: list[CallId] = [each.call for _ in range(2) for each in jobs.poll(offer, 1, ()).claimed][:1]
    clock.advance(1.5)
    assert held in [jobs.poll(offer, 0, held).lost for _ in range(2)]
    last = posted(log, 0)[-1]
    assert (last["type"], last["data"]["reason"], last["data"]["durationMs"]) == (
        "dev.mailboat.job.failed.v1",
        "lease-expired",
        1_500,
    )


def test_a_start_behind_a_checkpoint_gives_the_rest_of_the_same_events(
    jobs: JobService, log: MemoryJournal, clock: ManualClock
) -> None:
    history(jobs, clock)
    with closing(JobTopic(log, JOB_TOPIC)) as topic:
        while not topic.follow():
            pass
        first = topic.next_offset
        topic.write_checkpoint()
        history(jobs, clock, "again")
        while not topic.follow():
            pass
        everything = posted(log, 0)
        topic.write_checkpoint()
        last = topic.next_offset
    assert log.bounds(JOB_TOPIC).earliest_offset == parse_job_id(everything[0]["subject"]) // 256
    for start in (first, first + 3, last):
        assert posted(log, start) == [event for event in everything if int(event["id"].split("-")[0]) >= start]


def test_a_place_that_no_checkpoint_covers_is_named(jobs: JobService, log: MemoryJournal, clock: ManualClock) -> None:
    removed = jobs.add([NewJob("mail")])[0].job
    jobs.command(JobAction.REMOVE, [parse_job_id(removed)])
    with closing(JobTopic(log, JOB_TOPIC)) as topic:
        while not topic.follow():
            pass
        for _ in range(2):
            topic.write_checkpoint()
    source = JobEvents(log, EventFilter(jobs=("**",)), JOB_TOPIC)
    with pytest.raises(JobLogIncompleteError):
        source.open(Offset(1))
    assert posted(log, source.first()) == []


class FailOnce:
    """Fails the first time that events were appended, as a process does that ends before it stores its place."""

    def __init__(self) -> None:
        self.reached = 0

    def reach(self, _: Failpoint) -> None:
        self.reached += 1
        if self.reached == 1:
            raise OSError("the process ends")


@contextmanager
def appending(log: MemoryJournal, memory: EventMemory, failpoints: Failpoints, *patterns: str) -> Iterator[None]:
    journal = log.another_handle()
    source, sender = JobEvents(log, EventFilter(jobs=patterns), JOB_TOPIC), TopicSender(journal, EVENT_TOPIC)
    ports = DeliveryPorts(journal, memory, SystemClock(), source, sender, failpoints)
    delivery = EventDelivery(EventReceiver(AgentName("author"), EVENT_TOPIC, "topic"), ports)
    delivery.start()
    yield
    delivery.stop()


@pytest.mark.parametrize("failpoints", [NoFailpoints(), FailOnce()])
def test_the_event_topic_holds_each_event_of_a_job_once(
    jobs: JobService, log: MemoryJournal, clock: ManualClock, tmp_path: Path, failpoints: Failpoints
) -> None:
    log.ensure_topic(EVENT_TOPIC, FOREVER)

    def on_topic() -> list[Any]:
        return [json.loads(record.value) for record in records_of(log, EVENT_TOPIC)]

    with closing(EventMemory(tmp_path / "author.db")) as memory:
        with appending(log, memory, failpoints, "mail"):
            history(jobs, clock)
            expected = posted(log, 0, "mail")
            wait_until(lambda: len(on_topic()) >= len(expected))
        history(jobs, clock, "while no agent runs")
        expected = posted(log, 0, "mail")
        with appending(log, memory, failpoints, "mail"):
            wait_until(lambda: len(on_topic()) >= len(expected))
    assert on_topic() == expected
    first = next(records_of(log, EVENT_TOPIC))
    shown = summary_of(decode_record(first, is_event=True))
    assert shown == f"dev.mailboat.job.added.v1 job {expected[0]['subject']}"


def test_an_upgrade_goes_on_where_the_version_before_was(
    jobs: JobService, log: MemoryJournal, clock: ManualClock, tmp_path: Path
) -> None:
    log.ensure_topic(EVENT_TOPIC, FOREVER)
    history(jobs, clock)
    with closing(EventMemory(tmp_path / "author.db")) as memory:
        memory.advance("jobs-topic", log.identity(JOB_TOPIC), EventCursor(Offset(0), Offset(0)))
        expected = posted(log, 0, "mail")
        with appending(log, memory, NoFailpoints(), "mail"):
            wait_until(lambda: len(list(records_of(log, EVENT_TOPIC))) == len(expected))


def test_an_event_topic_that_was_created_again_has_each_event_once(
    jobs: JobService, log: MemoryJournal, clock: ManualClock, tmp_path: Path
) -> None:
    log.ensure_topic(EVENT_TOPIC, FOREVER)
    history(jobs, clock)
    expected = posted(log, 0, "mail")
    with closing(EventMemory(tmp_path / "author.db")) as memory:
        memory.advance("jobs-topic", log.identity(JOB_TOPIC), EventCursor(Offset(0), Offset(1_000)))
        failing = FailOnce()
        with appending(log, memory, failing, "mail"):
            wait_until(lambda: failing.reached >= 2)
    assert [json.loads(record.value) for record in records_of(log, EVENT_TOPIC)] == expected
