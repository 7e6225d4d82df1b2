"""Events of jobs, read from the job topic: the source of webhooks that name topics of jobs.

The fold gives the same changes at the same offset to each reader, so an event needs no record of its own: its id is the
offset of the record and its place among the record's events. A start continues from a checkpoint before the cursor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from mailboat.clock import moment_of
from mailboat.config.document import WebhookFormat
from mailboat.jobs.feeds import is_of_pool
from mailboat.jobs.fold import Applied, JobFold, Transition
from mailboat.jobs.topic import JobTopic, open_job_topic
from mailboat.journal.added_jobs import ensure_job_topic
from mailboat.journal.port import Journal
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.jobs import JobId, JobState, Outcome, any_matches, offset_of, show_job_id
from mailboat.model.positions import LogIdentity
from mailboat.telemetry.webhook import Post, PostReader, RecordPosts, chat_body, plain

EVENT_TYPE: Final = "dev.mailboat.job.{}.v1"
_ENDED_BADLY: Final = frozenset({JobState.GIVEN_UP, JobState.ERROR, JobState.STOPPED})


class JobEvent(NamedTuple):
    """What happened to a job.

    Attributes:
        kind: `added`, `started`, `finished`, `failed`, `cancelled` or `removed`.
        state: The state of the job after it.
        reason: A word for programs, such as `lease-expired`.
        duration_ms: How long a started job had been due, and how long an attempt ran.
    """

    kind: str
    job: JobId
    state: JobState
    queue: str
    reason: str = ""
    duration_ms: int = 0


def job_events(fold: JobFold, offset: Offset, applied: Applied) -> Iterator[JobEvent]:
    """The events of the record at this offset, in order; none of shared pools. Pure."""
    for transition in applied.transitions:
        kind = _kind(transition)
        if kind and not is_of_pool(transition.queue):
            yield JobEvent(kind, *transition)
    for job in applied.added:
        # A repetition has the id of an earlier job.
        if offset_of(job) == offset and not is_of_pool(queue := fold.queue(job).settings.name):
            yield JobEvent("added", job, JobState.QUEUED, queue)


def _kind(transition: Transition) -> str:
    match transition.state:
        case JobState.ACTIVE:
            return "started"
        case JobState.SUCCEEDED:
            return "finished"
        case JobState.DROPPED:
            return "removed"
        case JobState.QUEUED:
            # A snoozed attempt neither failed nor ended the job.
            return "" if transition.reason == Outcome.SNOOZE.name.lower() else "failed"
        case state if state in _ENDED_BADLY:
            return "cancelled"
    raise ValueError(f"the state {transition.state} has no event")


class JobEvents:
    """`PostSource` of the jobs whose topic matches one of the patterns."""

    def __init__(self, journal: Journal, patterns: Sequence[str], body: WebhookFormat, topic: TopicName) -> None:
        """Read nothing yet."""
        self.topic = topic
        self._journal = journal
        self._patterns = patterns
        self._format = body

    def identity(self) -> LogIdentity:
        ensure_job_topic(self._journal, self.topic)
        return self._journal.identity(self.topic)

    def first(self) -> Offset:
        with closing(open_job_topic(self._journal, topic=self.topic)) as topic:
            return topic.next_offset

    def open(self, start: Offset) -> PostReader:
        return _JobEventReader(JobTopic(self._journal, self.topic, start=start), start, self._patterns, self._format)


class _JobEventReader:
    def __init__(self, topic: JobTopic, start: Offset, patterns: Sequence[str], body: WebhookFormat) -> None:
        self._topic = topic
        self._start = start
        self._patterns = patterns
        self._format = body

    def read(self, wait_seconds: float) -> Sequence[RecordPosts]:
        found: list[RecordPosts] = []

        def seen(offset: Offset, applied: Applied) -> None:
            if offset >= self._start:  # earlier records only bring the fold there
                found.append(RecordPosts(offset, list(self._posts(offset, applied))))

        self._topic.follow(wait_seconds, seen)
        return found

    def _posts(self, offset: Offset, applied: Applied) -> Iterator[Post]:
        for place, event in enumerate(job_events(self._topic.fold, offset, applied)):
            new = self._topic.job(event.job)
            topic, key = ("", "") if new is None else (new.topic, new.key)
            # Also a job whose record is gone: an event too many is better than none.
            if topic and not any_matches(self._patterns, topic):
                continue
            if self._format is WebhookFormat.SLACK:
                body = encode_chat_message(event, topic)
            else:
                body = encode_cloud_event(event, topic, key, f"{offset}-{place}", self._topic)
            yield Post(body, {"job": show_job_id(event.job), "offset": offset})

    def interrupt(self) -> None:
        self._topic.interrupt()

    def close(self) -> None:
        self._topic.close()


def encode_cloud_event(event: JobEvent, topic: str, key: str, event_id: str, log: JobTopic) -> bytes:
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
    document = {
        "specversion": "1.0",
        "id": event_id,
        "source": f"/mailboat/jobs/{log.log}",
        "type": EVENT_TYPE.format(event.kind),
        "subject": data["job"],
        "time": moment_of(log.fold.now_ms).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
        "data": data,
    }
    return json.dumps(document, ensure_ascii=False).encode()


def encode_chat_message(event: JobEvent, topic: str) -> bytes:
    """A message for chat systems that take Slack's incoming webhooks."""
    sign = ":warning: " if event.kind in {"failed", "cancelled"} else ""
    state = f": {event.state.label}" if event.kind == "cancelled" else ""
    why = f" ({plain(event.reason)})" if event.reason else ""
    return chat_body(f"{sign}job {show_job_id(event.job)} `{plain(topic)}` {event.kind}{state}{why}")
