"""Posts events to a webhook: each at least once, in order, over restarts. Events of packages, or those of jobs.

Its queue is the topic of its source behind its cursor, so a receiver that is down delays nothing else: each webhook has
a cursor, a lease and a thread of its own. The response decides: 2xx is delivered; an event that the receiver rejects as
such (400, 413, 415, 422) is logged and skipped, since it would be rejected each time; everything else is retried, after
`Retry-After` or a growing pause. Of several processes only the one with the lease posts. Started by the agent.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from mailboat.clock import Clock, moment_of
from mailboat.config.document import WebhookFormat
from mailboat.errors import JobLogIncompleteError, MailboatError, PositionOutOfRangeError, UntrustedInputError
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.journal.port import Journal, JournalReader, ReadLimits, Record
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.model.messages import DistributedEvent
from mailboat.model.path_patterns import PathPattern
from mailboat.model.positions import LogIdentity
from mailboat.model.topics import EVENT_TOPIC
from mailboat.publisher.distributed_memory import WEBHOOK_READER, EventCursor, EventMemory
from mailboat.telemetry.webhook_client import Answer, WebhookClient, WebhookUnreachableError
from mailboat.wire.events import decode_event, event_document
from mailboat.workers import Worker, WorkerOptions

_LOG: Final = logging.getLogger(__name__)
_READ: Final = ReadLimits(max_records=50)
_WAIT_SECONDS: Final = 1.0
_LEASE_SECONDS: Final = 2.0
_LONGEST_PAUSE_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 15.0
_REFUSALS: Final = frozenset({400, 413, 415, 422})


class EventFilter(NamedTuple):
    """Which events are posted.

    Attributes:
        is_missed_only: Only those of packages that a subscriber does not have.
        patterns: Only those of packages with a path below one of them; empty is without limit.
    """

    is_missed_only: bool = False
    patterns: tuple[PathPattern, ...] = ()

    def accepts(self, event: DistributedEvent) -> bool:
        """Whether the event is posted."""
        if self.is_missed_only and not event.missed:
            return False
        deep = frozenset(event.deep_paths)
        return not self.patterns or any(
            pattern.covers(path) or (path in deep and pattern.lies_below(path))
            for path in event.paths
            for pattern in self.patterns
        )


_ALL_EVENTS: Final = EventFilter()


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where to post, and for whom; `token` is sent as a bearer token."""

    publisher: AgentName
    url: str
    token: str | None = None
    timeout_seconds: float = 10.0
    event_topic: TopicName = EVENT_TOPIC
    name: str = WEBHOOK_READER
    format: WebhookFormat = WebhookFormat.CLOUDEVENTS
    filter: EventFilter = _ALL_EVENTS

    @property
    def reader(self) -> str:
        """Name of its cursor and its lease. `webhook` is that of earlier versions, which had one webhook."""
        return self.name if self.name == WEBHOOK_READER else f"{WEBHOOK_READER}-{self.name}"

    def __repr__(self) -> str:
        return f"WebhookSettings(publisher={self.publisher!r}, name={self.name!r})"


class Post(NamedTuple):
    """One event to post; `where` names it in the log."""

    body: bytes
    where: Mapping[str, object]


class RecordPosts(NamedTuple):
    """The events of one record of a topic, in order; many records have none. `offset` is that of the record."""

    offset: Offset
    posts: Sequence[Post]


class PostReader(Protocol):
    """To be used by one thread, except for `interrupt`."""

    def read(self, wait_seconds: float) -> Sequence[RecordPosts]:
        """What is new. Raises: PositionOutOfRangeError, JobLogIncompleteError: records were removed; and others."""
        ...

    def interrupt(self) -> None:
        """End the current or the next wait. From any thread."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class PostSource(Protocol):
    """What a webhook posts: the events in one topic."""

    @property
    def topic(self) -> TopicName:
        """Where the events are."""
        ...

    def identity(self) -> LogIdentity:
        """Which log the offsets belong to. Raises: the journal's errors."""
        ...

    def first(self) -> Offset:
        """The first offset that can be read from. Raises: the journal's errors."""
        ...

    def open(self, start: Offset) -> PostReader:
        """Read from an offset on. Raises: as `PostReader.read`."""
        ...


@dataclass(frozen=True, slots=True)
class WebhookPorts:
    """What posting works with; nothing of it is closed. Without a source, the events of the publisher's packages."""

    journal: Journal
    memory: EventMemory
    clock: Clock
    failpoints: Failpoints = field(default_factory=NoFailpoints)
    random: random.Random = field(default_factory=random.SystemRandom)
    source: PostSource | None = None


@dataclass(frozen=True, slots=True)
class WebhookStatistics:
    """Counts of this process: posts that were taken, that failed and are repeated, and events that were refused.

    `waiting` is the number of records on the event topic that stand behind the event that could not be posted, with it:
    what a receiver that is away holds up. 0 while posts are taken.
    """

    delivered: int = 0
    failed: int = 0
    refused: int = 0
    waiting: int = 0


class Webhook:
    """Posts between `start` and `stop`."""

    def __init__(self, settings: WebhookSettings, ports: WebhookPorts) -> None:
        """Post what is raised from now on, or from where an earlier process was. Raises: UsageError for the URL."""
        is_chat = settings.format is WebhookFormat.SLACK
        kind = _CHAT_TYPE if is_chat else _CLOUD_EVENT_TYPE
        headers = {"Content-Type": kind, "User-Agent": "mailboat"}
        if settings.token is not None:
            headers["Authorization"] = f"Bearer {settings.token}"
        self._settings = settings
        self._ports = ports
        self._poster = WebhookClient(settings.url, headers, settings.timeout_seconds)
        self._source = PackageEvents(settings, ports.journal) if ports.source is None else ports.source
        self._reader: PostReader | None = None
        self._statistics = WebhookStatistics()
        options = WorkerOptions(
            f"posting events of {settings.publisher} to the webhook {settings.name}",
            longest_pause_seconds=_LONGEST_PAUSE_SECONDS,
            jitter=ports.random,
            interrupt=self._interrupt,
            on_end=self._poster.close,
            on_failure=self._count_failure,
            where=self._where(),
        )
        self._worker = Worker(f"webhook-{settings.publisher}-{settings.name}", self._turn, ports.clock, options)

    @property
    def statistics(self) -> WebhookStatistics:
        """A snapshot, from any thread."""
        return self._statistics

    def start(self) -> None:
        """Remember where the first event will stand, and post from now on. Raises: the journal's and state's errors."""
        self._cursor()
        self._worker.start()

    def stop(self, timeout_seconds: float = _STOP_SECONDS) -> None:
        """End the thread after the current post."""
        self._worker.stop(timeout_seconds)

    def _interrupt(self) -> None:
        # a local: the thread clears the attribute meanwhile
        reader = self._reader
        if reader is not None:
            reader.interrupt()

    def _turn(self) -> float:
        with self._ports.memory.lease(self._settings.reader) as is_ours:
            if is_ours:
                self._post_until_stopped()
        return _LEASE_SECONDS

    def _post_until_stopped(self) -> None:
        try:
            reader = self._source.open(self._cursor())
            self._reader = reader
            try:
                while not self._worker.is_stopping:
                    self._deliver_all(reader.read(_WAIT_SECONDS))
            finally:
                self._reader = None
                reader.close()
        except (PositionOutOfRangeError, JobLogIncompleteError) as error:
            first = self._source.first()
            _LOG.warning("events were removed before the webhook took them: %s", error, extra=self._where())
            self._note(first, is_restart=True)

    def _deliver_all(self, records: Sequence[RecordPosts]) -> None:
        for record in records:
            for post in record.posts:
                if self._worker.is_stopping:
                    return
                self._judge(self._poster.post(post.body, self._ports.clock.now()), post)
                self._ports.failpoints.reach(Failpoint.WEBHOOK_POSTED)
            # After the posts: a crash in between posts the events of the record twice, and loses none. Records without
            # events are noted together, as each note is an fsync.
            if record.posts or record is records[-1]:
                self._note(Offset(record.offset + 1))
                self._ports.failpoints.reach(Failpoint.WEBHOOK_CURSOR_STORED)
            if self._statistics.waiting:
                self._statistics = replace(self._statistics, waiting=0)
            # a turn lasts as long as the lease, so each success is reported here, not at its end
            self._worker.succeeded()

    def _judge(self, answer: Answer, post: Post) -> None:
        if answer.status // 100 == 2:
            self._statistics = replace(self._statistics, delivered=self._statistics.delivered + 1)
        elif answer.status in _REFUSALS:
            self._statistics = replace(self._statistics, refused=self._statistics.refused + 1)
            where = {**self._where(), **post.where}
            _LOG.error(
                "%s rejected an event with status %d; it is skipped", self._poster.place, answer.status, extra=where
            )
        else:
            raise WebhookUnreachableError(
                f"{self._poster.place} answered an event with {answer.status}",
                retry_after_seconds=answer.retry_after_seconds,
            ).with_facts(**post.where)

    def _cursor(self) -> Offset:
        identity = self._source.identity()
        found = self._ports.memory.cursor(self._settings.reader, identity)
        if found is None:
            end = self._ports.journal.bounds(self._source.topic).next_offset
            self._note(end)
            return end
        return found.next_offset

    def _note(self, next_offset: Offset, *, is_restart: bool = False) -> None:
        identity, memory = self._source.identity(), self._ports.memory
        store = memory.restart if is_restart else memory.advance
        store(self._settings.reader, identity, EventCursor(next_offset, next_offset))

    def _count_failure(self, _: Exception) -> None:
        waiting = self._statistics.waiting
        with suppress(MailboatError):  # the journal may be what failed
            end = self._ports.journal.bounds(self._source.topic).next_offset
            waiting = max(0, end - self._cursor())
        self._statistics = replace(self._statistics, failed=self._statistics.failed + 1, waiting=waiting)

    def _where(self) -> dict[str, object]:
        known = {"publisher": self._settings.publisher, "webhook": self._settings.name}
        return {**known, "topic": self._source.topic}


class PackageEvents:
    """The distributed events of a publisher that a webhook wants: its `PostSource`."""

    def __init__(self, settings: WebhookSettings, journal: Journal) -> None:
        """Read nothing yet."""
        self.topic = settings.event_topic
        self._settings = settings
        self._journal = journal

    def identity(self) -> LogIdentity:
        return self._journal.identity(self.topic)

    def first(self) -> Offset:
        return self._journal.bounds(self.topic).earliest_offset

    def open(self, start: Offset) -> PostReader:
        return _PackageEventReader(self._journal.reader(self.topic, start), self._settings)


class _PackageEventReader:
    def __init__(self, reader: JournalReader, settings: WebhookSettings) -> None:
        self._reader = reader
        self._settings = settings

    def read(self, wait_seconds: float) -> Sequence[RecordPosts]:
        records = self._reader.read(_READ, wait_seconds).records
        return [RecordPosts(record.offset, self._posts(record)) for record in records]

    def _posts(self, record: Record) -> Sequence[Post]:
        event = _event_of(record)
        if event is None or event.pub_agent_name != self._settings.publisher:
            return ()
        if not self._settings.filter.accepts(event):
            return ()
        is_chat = self._settings.format is WebhookFormat.SLACK
        body = encode_chat_message(event) if is_chat else encode_cloud_event(event, record.appended_ms)
        return (Post(body, {"package": event.package_id, "offset": event.offset}),)

    def interrupt(self) -> None:
        self._reader.interrupt()

    def close(self) -> None:
        self._reader.close()


def _event_of(record: Record) -> DistributedEvent | None:
    try:
        return decode_event(record.headers, record.value)
    except UntrustedInputError:
        return None  # anyone may write to a topic; `journal verify` names it


# ---------------------------------------------------------------------------------------------------- bodies of posts


EVENT_TYPE: Final = "dev.mailboat.package.distributed.v1"
_CLOUD_EVENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"


def encode_cloud_event(event: DistributedEvent, raised_ms: int) -> bytes:
    """A CloudEvent 1.0 in the structured JSON mode of the HTTP binding; `raised_ms` is when the log took the event.

    `source` and `id` together identify the event permanently, so a receiver can skip a repeat.
    Source: https://github.com/cloudevents/spec, CloudEvents 1.0.2, its JSON format, and the distributed tracing
    extension.
    """
    document: dict[str, object] = {
        "specversion": "1.0",
        "id": event.package_id,
        "source": f"/mailboat/publishers/{event.pub_agent_name}",
        "type": EVENT_TYPE,
        "time": moment_of(raised_ms).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
    }
    if event.paths:
        document["subject"] = event.paths[0]
    if event.trace_parent is not None:
        document["traceparent"] = event.trace_parent
    return json.dumps({**document, "data": event_document(event)}, ensure_ascii=False).encode()


_CHAT_TYPE: Final = "application/json; charset=utf-8"

_NAMED: Final = 5
_LONGEST: Final = 300
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b", "`": "'"})
"""A zero-width space behind `@` keeps it from being a mention; a backtick would end the code that shows a path."""


def encode_chat_message(event: DistributedEvent) -> bytes:
    """A message for chat systems that take Slack's incoming webhooks: `text`, in one or two lines.

    It holds paths and names that others wrote. Slack makes links and mentions of `<…>`, Mattermost of `@name`; both are
    disarmed. Source: https://docs.slack.dev/messaging/formatting-message-text
    """
    paths = ", ".join(f"`{plain(path)}`" for path in event.paths[:_NAMED])
    more = len(event.paths) - _NAMED
    what = f"{paths or 'a package'}{f' and {more} more' if more > 0 else ''} (offset {event.offset})"
    name = plain(event.pub_agent_name)
    if not event.missed:
        return chat_body(f"{name}: {what} is distributed to all subscribers")
    missed = ", ".join(f"{plain(one.subscriber)} ({one.reason})" for one in event.missed[:_NAMED])
    others = len(event.missed) - _NAMED
    return chat_body(f":warning: {name}: {what} is missing at {missed}{f' and {others} more' if others > 0 else ''}")


def plain(text: str) -> str:
    """Foreign text without links, mentions and control characters of chat systems."""
    shown = "".join(one if one.isprintable() else " " for one in text[:_LONGEST])
    return f"{shown.translate(_ESCAPES)}{'…' if len(text) > _LONGEST else ''}"


def chat_body(text: str) -> bytes:
    """The body of a message for chat systems."""
    return json.dumps({"text": text}, ensure_ascii=False).encode()
