"""The webhook: what a receiver gets, and what its answers lead to."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mailboat.agent.process import HeartbeatClock
from mailboat.config.receivers import EventSeverity, WebhookConfig, WebhookFormat
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import UsageError
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.jobs import JobAction, JobsCommanded, NewJob, show_job_id
from mailboat.model.messages import EVENT_TOPIC, JOB_TOPIC, DistributedEvent, Missed, MissedReason
from mailboat.model.paths import NodePath
from mailboat.publisher.distributed_memory import WEBHOOK_READER, EventMemory
from mailboat.telemetry.event_delivery import DeliveryPorts, EventDelivery, EventReceiver
from mailboat.telemetry.job_events import JobEvents
from mailboat.telemetry.notices import ALL_EVENTS, EventFilter, NoticeSource
from mailboat.telemetry.package_events import PackageEvents
from mailboat.telemetry.webhook_client import (
    Answer,
    WebhookClient,
    WebhookSender,
    WebhookUnreachableError,
)
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.event_documents import encode_event

AUTHOR = AgentName("author")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Receiver:
    """A webhook on the loopback: its answers, one a post (then 204), and what it was sent."""

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    bodies: list[dict[str, object]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    url: str = ""

    def ids(self) -> list[object]:
        return [body["id"] for body in self.bodies]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            found.headers.append(dict(self.headers))
            found.paths.append(self.path)
            # last: who waits for a body looks at the others then
            found.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, headers = found.answers.pop(0) if found.answers else (204, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/hook?key=1"
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


class Setting:
    """A log with events, and webhooks on it."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal(self.clock)
        self.journal.ensure_topic(EVENT_TOPIC, TopicSettings(retention_seconds=None))
        self.folder, self.receiver = folder, receiver
        self.memory = EventMemory(folder / "author.db", "OFF")
        self.webhooks: list[EventDelivery] = []

    def webhook(
        self,
        name: str = WEBHOOK_READER,
        memory: EventMemory | None = None,
        source: NoticeSource | None = None,
        chosen: EventFilter = ALL_EVENTS,
        url: str | None = None,
        token: str | None = None,
        **changes: object,
    ) -> EventDelivery:
        config = WebhookConfig(name, **{"timeout_seconds": PATIENCE_SECONDS, **changes})  # type: ignore[arg-type]
        sender = WebhookSender(config, url or self.receiver.url, token)
        source = source or PackageEvents(self.journal, AUTHOR, chosen)
        ports = DeliveryPorts(self.journal, memory or self.memory, self.clock, source, sender)
        made = EventDelivery(EventReceiver(AUTHOR, name), ports)
        self.webhooks.append(made)
        made.start()
        return made

    def raise_event(self, number: int, publisher: str = "author", **changes: object) -> None:
        event = DistributedEvent(
            AgentName(publisher), PackageId(f"p{number}"), Offset(number), (NodePath("/a"),), **changes
        )  # type: ignore[arg-type]  # a test's keywords
        headers, value = encode_event(event)
        self.journal.append(EVENT_TOPIC, [NewRecord(value, headers)])

    def close(self) -> None:
        for item in self.webhooks:
            item.stop()
        self.memory.close()
        self.journal.close()


@pytest.fixture
def setting(tmp_path: Path, receiver: Receiver) -> Iterator[Setting]:
    made = Setting(tmp_path, receiver)
    yield made
    made.close()


def test_an_event_is_posted_as_a_cloud_event(setting: Setting, receiver: Receiver) -> None:
    setting.webhook(token="geheim")
    setting.raise_event(0, missed=(Missed("x-web", MissedReason.FAILED),), trace_parent=TRACE)
    wait_until(lambda: bool(receiver.bodies))
    assert receiver.bodies == [
        {
            "specversion": "1.0",
            "id": "p0",
            "source": "/mailboat/publishers/author",
            "type": "dev.mailboat.package.distributed.v1",
            "time": "2026-01-01T00:00:00.000+00:00",
            "datacontenttype": "application/json",
            "subject": "/a",
            "traceparent": TRACE,
            "data": {
                "pubAgentName": "author",
                "packageId": "p0",
                "deepPaths": [],
                "paths": ["/a"],
                "offset": 0,
                "missed": [{"subscriber": "x-web", "reason": "failed"}],
                "traceParent": TRACE,
            },
        }
    ]
    assert receiver.headers[0]["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert receiver.headers[0]["Authorization"] == "Bearer geheim"
    assert receiver.paths == ["/hook?key=1"]


def test_events_come_in_order_and_only_those_of_the_publisher(setting: Setting, receiver: Receiver) -> None:
    setting.raise_event(0)  # before the webhook was there
    webhook = setting.webhook()
    for number in range(1, 60):
        setting.raise_event(number, "author" if number % 3 else "other")
    setting.journal.append(EVENT_TOPIC, [NewRecord(b"{")])
    setting.raise_event(60)
    wanted = [f"p{number}" for number in range(1, 61) if number % 3 or number == 60]
    wait_until(lambda: len(receiver.bodies) == len(wanted))
    assert receiver.ids() == wanted
    wait_until(lambda: webhook.statistics.delivered == len(wanted))


@pytest.mark.parametrize("status", [301, 401, 404, 408, 500, 503])
def test_what_may_pass_is_posted_again_and_the_next_waits(setting: Setting, receiver: Receiver, status: int) -> None:
    receiver.answers = [(status, {"Location": "http://127.0.0.1:1/"})] * 2
    webhook = setting.webhook()
    setting.raise_event(0)
    setting.raise_event(1)
    for failures in (1, 2):
        wait_until(lambda failures=failures: webhook.statistics.failed == failures)
        assert webhook.statistics.waiting == 2 or failures == 1  # the first may fail before the second is raised
        assert setting.clock.await_waiters()
        setting.clock.advance(5)
    wait_until(lambda: webhook.statistics.delivered == 2)
    assert receiver.ids() == ["p0", "p0", "p0", "p1"]


def test_a_receiver_that_takes_minutes_is_not_a_stuck_thread(setting: Setting) -> None:
    pulse, stuck = HeartbeatClock(setting.clock), list[str]()
    sent = threading.Event()

    class Slow:
        place, max_notices, pause_seconds, timeout_seconds = "crm", 1, 0.0, 600.0

        def end(self) -> Offset:
            return Offset(0)

        def resume(self, end: Offset) -> None: ...

        def send(self, *_: object) -> bool:
            setting.clock.advance(550.0)
            stuck.extend(pulse.stuck())
            sent.set()
            return True

        def close(self) -> None: ...

    source = PackageEvents(setting.journal, AUTHOR, ALL_EVENTS)
    ports = DeliveryPorts(setting.journal, setting.memory, pulse, source, Slow())
    delivery = EventDelivery(EventReceiver(AUTHOR, "crm"), ports)
    delivery.start()
    setting.raise_event(0)
    assert sent.wait(PATIENCE_SECONDS)
    delivery.stop()
    assert stuck == []


def test_a_receiver_says_when_to_come_again(setting: Setting, receiver: Receiver) -> None:
    at = format_datetime(setting.clock.now() + timedelta(seconds=90), usegmt=True)
    receiver.answers = [(429, {"Retry-After": "30"}), (503, {"Retry-After": at})]
    webhook = setting.webhook()
    setting.raise_event(0)
    wait_until(lambda: webhook.statistics.failed == 1)
    assert setting.clock.await_waiters()
    setting.clock.advance(29)
    assert len(receiver.bodies) == 1
    setting.clock.advance(1.5)
    wait_until(lambda: webhook.statistics.failed == 2)
    assert setting.clock.await_waiters()
    setting.clock.advance(55)
    assert len(receiver.bodies) == 2
    setting.clock.advance(10)
    wait_until(lambda: webhook.statistics.delivered == 1)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_an_event_that_is_refused_for_ever_is_passed_by_and_named(
    setting: Setting, receiver: Receiver, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [(status, {})]
    webhook = setting.webhook()
    setting.raise_event(0)
    setting.raise_event(1)
    wait_until(lambda: webhook.statistics.delivered == 1)
    assert webhook.statistics.refused == 1
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert line.__dict__["package"] == "p0"
    assert "key=1" not in caplog.text


def test_the_next_process_goes_on_where_this_one_ended(setting: Setting, receiver: Receiver) -> None:
    first = setting.webhook()
    setting.raise_event(0)
    wait_until(lambda: first.statistics.delivered == 1)
    first.stop()
    setting.raise_event(1)
    second = setting.webhook()
    wait_until(lambda: second.statistics.delivered == 1)
    assert receiver.ids() == ["p0", "p1"]


def test_of_two_processes_one_posts(setting: Setting, receiver: Receiver, tmp_path: Path) -> None:
    first = setting.webhook()
    setting.raise_event(0)
    wait_until(lambda: first.statistics.delivered == 1)
    memory = EventMemory(tmp_path / "author.db", "OFF")
    second = setting.webhook(memory=memory)
    setting.raise_event(1)
    wait_until(lambda: len(receiver.bodies) == 2)
    assert second.statistics.delivered == 0
    second.stop()
    memory.close()


def test_events_of_a_topic_that_was_created_again_are_posted(setting: Setting, receiver: Receiver) -> None:
    first = setting.webhook()
    setting.raise_event(1)
    wait_until(lambda: receiver.ids() == ["p1"])
    first.stop()
    setting.journal.upkeep.delete_topic(EVENT_TOPIC)
    setting.journal.ensure_topic(EVENT_TOPIC, TopicSettings(retention_seconds=None))
    setting.raise_event(2)
    setting.webhook()
    wait_until(lambda: receiver.ids() == ["p1", "p2"])


def test_a_receiver_whose_filter_was_for_packages_gets_no_earlier_job(setting: Setting, receiver: Receiver) -> None:
    setting.webhook().stop()
    source = JobEvents(setting.journal, EventFilter(jobs=("mail",)), JOB_TOPIC)
    with closing(open_job_topic(setting.journal)) as topic:
        topic.add([NewJob("mail")])
        setting.webhook(source=source)
        added = topic.add([NewJob("mail")])
        wait_until(lambda: receiver.bodies)
    assert [body["subject"] for body in receiver.bodies] == [show_job_id(added[0])]


def test_events_that_retention_removed_are_passed_over_and_said(
    setting: Setting, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    setting.webhook().stop()
    for number in range(5):
        setting.raise_event(number)
    setting.journal.truncate(EVENT_TOPIC, Offset(3))
    webhook = setting.webhook()
    wait_until(setting.clock.await_waiters)
    setting.clock.advance(3)
    wait_until(lambda: webhook.statistics.delivered == 2)
    assert receiver.ids() == ["p3", "p4"]
    assert "removed before the receiver took them" in caplog.text


def test_a_receiver_that_is_not_there_is_waited_for(setting: Setting, receiver: Receiver) -> None:
    url, receiver.url = receiver.url, "http://127.0.0.1:9/"
    webhook = setting.webhook(timeout_seconds=0.5)
    setting.raise_event(0)
    wait_until(lambda: webhook.statistics.failed == 1)
    webhook.stop()
    receiver.url = url
    again = setting.webhook()
    wait_until(lambda: again.statistics.delivered == 1)
    identity = setting.journal.identity(EVENT_TOPIC)
    wait_until(lambda: setting.memory.cursor(WEBHOOK_READER, identity) == (1, 0))


@pytest.mark.parametrize(
    "url", ["ftp://host/", "http://", "no url", "http://user:word@host/", "http://host:99999/", "http://host:x/"]
)
def test_a_url_that_can_not_be_posted_to_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="URL is not a"):
        WebhookClient(url, {}, 1.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        ("soon", None),
        ("-1", None),
        ("٣", None),
        ("Thu, 01 Jan 2026 00:00:10", 10.0),
        ("Thu, 01 Jan 2026 00:00:10 +99999999999999", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(receiver: Receiver, text: str, seconds: float | None) -> None:
    receiver.answers = [(503, {"Retry-After": text.encode().decode("latin-1")})]
    poster = WebhookClient(receiver.url, {}, PATIENCE_SECONDS)
    assert poster.post(b"{}", datetime(2026, 1, 1, tzinfo=UTC)) == Answer(503, seconds)
    poster.close()


def test_a_receiver_that_talks_nonsense_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(100)
            connection.sendall(b"\x00\x01 nonsense\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        poster = WebhookClient(f"http://127.0.0.1:{server.getsockname()[1]}", {}, PATIENCE_SECONDS)
        with pytest.raises(WebhookUnreachableError):
            poster.post(b"{}", datetime(2026, 1, 1, tzinfo=UTC))
        poster.close()
        thread.join()


def test_an_idle_connection_that_the_receiver_closed_fails_no_post() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        poster = WebhookClient(f"http://127.0.0.1:{server.getsockname()[1]}", {}, PATIENCE_SECONDS)
        for _ in range(2):
            assert poster.post(b"{}", datetime(2026, 1, 1, tzinfo=UTC)).status == 204
        poster.close()
        thread.join()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"])
def test_a_receiver_that_drips_its_answer_gets_one_timeout_for_all_of_it(answer: bytes) -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(1000)
                connection.sendall(answer)
                while not over.wait(0.02):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        poster = WebhookClient(f"http://127.0.0.1:{server.getsockname()[1]}", {}, 0.3)
        began = time.monotonic()
        try:
            with pytest.raises(WebhookUnreachableError, match=r"did not take an event within 0\.3 seconds"):
                poster.post(b"{}", datetime(2026, 1, 1, tzinfo=UTC))
            assert time.monotonic() - began < PATIENCE_SECONDS
        finally:
            over.set()
            thread.join()
            poster.close()


def test_a_handshake_that_never_ends_is_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        poster = WebhookClient(f"https://localhost:{server.getsockname()[1]}", {}, 0.3)
        with pytest.raises(WebhookUnreachableError, match="localhost"):
            poster.post(b"{}", datetime(2026, 1, 1, tzinfo=UTC))
        poster.close()


def test_each_webhook_has_its_own_place_format_and_filter(setting: Setting, receiver: Receiver) -> None:
    setting.webhook(name="dead", url="http://127.0.0.1:9/")
    setting.webhook(name="crm", chosen=EventFilter(EventSeverity.WARNING))
    setting.webhook(name="chat", format=WebhookFormat.SLACK)
    setting.raise_event(1)
    setting.raise_event(2, missed=(Missed("edge", MissedReason.FAILED),))
    wait_until(lambda: len(receiver.bodies) == 3)
    chat = [str(body["text"]) for body in receiver.bodies if "text" in body]
    assert [text.split(" is ")[1].split(" at ")[0] for text in chat] == ["distributed to all subscribers", "missing"]
    assert [body["id"] for body in receiver.bodies if "id" in body] == ["p2"]
    wait_until(lambda: setting.memory.cursor("webhook-crm", setting.journal.identity(EVENT_TOPIC)) == (2, 0))
    assert setting.memory.cursor("webhook-dead", setting.journal.identity(EVENT_TOPIC)) == (0, 0)


def test_events_of_jobs_are_posted_once_each_over_a_restart(setting: Setting, receiver: Receiver) -> None:
    source = JobEvents(setting.journal, EventFilter(jobs=("mail",)), JOB_TOPIC)
    first = setting.webhook(name="jobs", source=source)
    with closing(open_job_topic(setting.journal)) as topic:
        topic.add([NewJob("mail"), NewJob("other")])
        wait_until(lambda: len(receiver.bodies) == 1)
        first.stop()
        added = topic.add([NewJob("mail")])
        topic.append(JobsCommanded(JobAction.STOP, added))
    setting.webhook(name="jobs", source=source)
    wait_until(lambda: len(receiver.bodies) == 3)
    assert [str(body["type"]).split(".")[3] for body in receiver.bodies] == ["added", "added", "cancelled"]
    assert receiver.bodies[2]["subject"] == show_job_id(added[0])
