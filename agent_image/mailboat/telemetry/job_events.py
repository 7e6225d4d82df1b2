"""Notices of jobs, read from the job topic: the source of receivers whose filter names topics of jobs.

The fold gives the same changes at the same offset to each reader, so an event needs no record of its own: its id is the
offset of the record and its place among the record's events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from mailboat.clock import moment_of
from mailboat.config.receivers import EventKind, EventSeverity
from mailboat.jobs.feeds import is_of_pool
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_changes import Applied, Transition
from mailboat.jobs.topic import JobTopic, open_job_topic
from mailboat.journal.added_jobs import ensure_job_topic
from mailboat.journal.port import Journal
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.jobs import AttemptOutcome, JobId, JobState, any_matches, offset_of, show_job_id
from mailboat.model.positions import LogIdentity
from mailboat.telemetry.notices import EventFilter, Notice, NoticeReader, RecordNotices, UntrustedText

EVENT_TYPE: Final = "dev.mailboat.job.{}.v1"
_ENDED_BADLY: Final = frozenset({JobState.GIVEN_UP, JobState.ERROR, JobState.STOPPED})


class JobEvent(NamedTuple):
    """What happened to a job.

    Attributes:
        kind: One of `JOB_KINDS`.
        state: The state of the job after it.
        reason: A word for programs, such as `lease-expired`.
        duration_ms: How long a started job had been due, and how long an attempt ran.
    """

    kind: EventKind
    job: JobId
    state: JobState
    queue: str
    reason: str = ""
    duration_ms: int = 0


def job_events(fold: JobFold, offset: Offset, applied: Applied) -> Iterator[JobEvent]:
    """The events of the record at this offset, in order; none of shared pools. Pure."""
    for transition in applied.transitions:
        kind = _kind(transition)
        if kind is not None and not is_of_pool(transition.queue):
            yield JobEvent(kind, *transition)
    for job in applied.added:
        # A repetition has the id of an earlier job.
        if offset_of(job) == offset and not is_of_pool(queue := fold.queue(job).settings.name):
            yield JobEvent(EventKind.ADDED, job, JobState.QUEUED, queue)


def _kind(transition: Transition) -> EventKind | None:
    match transition.state:
        case JobState.ACTIVE:
            return EventKind.STARTED
        case JobState.SUCCEEDED:
            return EventKind.FINISHED
        case JobState.DROPPED:
            return EventKind.REMOVED
        case JobState.QUEUED:
            # A snoozed attempt neither failed nor ended the job.
            return None if transition.reason == AttemptOutcome.SNOOZE.name.lower() else EventKind.FAILED
        case state if state in _ENDED_BADLY:
            return EventKind.CANCELLED
    raise ValueError(f"the state {transition.state} has no event")


class JobEvents:
    """`NoticeSource` of the jobs that a filter accepts."""

    def __init__(self, journal: Journal, chosen: EventFilter, topic: TopicName) -> None:
        """Read nothing yet."""
        self.topic = topic
        self._journal = journal
        self._filter = chosen

    def identity(self) -> LogIdentity:
        # The topic is created with the first job; a receiver may be configured before there is one.
        ensure_job_topic(self._journal, self.topic)
        return self._journal.identity(self.topic)

    def first(self) -> Offset:
        with closing(open_job_topic(self._journal, topic=self.topic)) as topic:
            return topic.next_offset

    def open(self, start: Offset) -> NoticeReader:
        return _JobEventReader(JobTopic(self._journal, self.topic, start=start), start, self._filter)


class _JobEventReader:
    def __init__(self, topic: JobTopic, start: Offset, chosen: EventFilter) -> None:
        self._topic = topic
        self._start = start
        self._filter = chosen

    def read(self, wait_seconds: float) -> Sequence[RecordNotices]:
        found: list[RecordNotices] = []

        def seen(offset: Offset, applied: Applied) -> None:
            # The fold starts at a checkpoint before the cursor: records up to the cursor only bring it there.
            if offset >= self._start:
                found.append(RecordNotices(offset, list(self._notices(offset, applied))))

        self._topic.follow(wait_seconds, seen)
        return found

    def _notices(self, offset: Offset, applied: Applied) -> Iterator[Notice]:
        for place, event in enumerate(job_events(self._topic.fold, offset, applied)):
            # Asked while the fold is at this record: later the job may have left the history.
            new = self._topic.job(event.job)
            topic, key = ("", "") if new is None else (new.topic, new.key)
            # Also a job whose record is gone: an event too many is better than none.
            if topic and not any_matches(self._filter.jobs, topic):
                continue
            severity = job_severity(event)
            if self._filter.accepts_kind(event.kind, severity):
                # The id is the same in every reader, as all folds give the same changes at the same offset.
                document = _cloud_event(event, topic, key, f"{offset}-{place}", self._topic)
                where = {"job": show_job_id(event.job), "offset": offset}
                yield Notice(severity, _sentence(event, topic), document, where)

    def interrupt(self) -> None:
        self._topic.interrupt()

    def close(self) -> None:
        self._topic.close()


def job_severity(event: JobEvent) -> EventSeverity:
    """How much an event matters: a failed attempt is retried, and a stopped job was stopped on purpose."""
    if event.state in (JobState.GIVEN_UP, JobState.ERROR):
        return EventSeverity.ERROR
    is_warning = event.kind in (EventKind.FAILED, EventKind.CANCELLED)
    return EventSeverity.WARNING if is_warning else EventSeverity.INFO


def _cloud_event(event: JobEvent, topic: str, key: str, event_id: str, log: JobTopic) -> dict[str, object]:
    """A CloudEvent 1.0 in the structured JSON mode of the HTTP binding, as for packages."""
    data: dict[str, object] = {
        "job": show_job_id(event.job),
        "topic": topic,
        "key": key,
        "queue": event.queue,
        "state": event.state.label,
        "reason": event.reason,
        "durationMs": event.duration_ms,
    }
    return {
        "specversion": "1.0",
        "id": event_id,
        "source": f"/mailboat/jobs/{log.log}",
        "type": EVENT_TYPE.format(event.kind),
        "subject": data["job"],
        "time": moment_of(log.fold.now_ms).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
        "data": data,
    }


def _sentence(event: JobEvent, topic: str) -> list[str]:
    state = f": {event.state.label}" if event.kind is EventKind.CANCELLED else ""
    parts: list[str] = [f"job {show_job_id(event.job)} ", UntrustedText(topic), f" {event.kind}{state}"]
    return [*parts, " (", UntrustedText(event.reason), ")"] if event.reason else parts
