"""What a whole agent tells about itself: events, posts, metrics and spans of packages that really travel."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mailboat.agent.process import AgentProcess
from mailboat.composition.home import Home
from mailboat.composition.workspace import prepare
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import (
    AgentsConfig,
    Config,
    PublisherAgentConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
    TracingConfig,
)
from mailboat.config.receivers import EventFilterConfig, EventsConfig, WebhookConfig
from mailboat.config.storage import Secret
from mailboat.journal.port import records_of
from mailboat.model.jobs import NewJob
from mailboat.model.messages import Action, TopicRole
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest, parse_request
from mailboat.testing.wait import wait_until
from mailboat.wire.event_documents import decode_event
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
METRICS_OF_ONE = {
    'mailboat_subscriber_imported_packages_total{subscriber="edge-1"} 1.0',
    'mailboat_publisher_accepted_requests_total{action="ADD",publisher="author"} 1.0',
    'mailboat_publisher_distributed_events_total{publisher="author"} 1.0',
    'mailboat_publisher_raises_events{publisher="author"} 1.0',
    'mailboat_publisher_queue_packages{clearable="false",publisher="author"} 0.0',
    'mailboat_subscriber_imported_package_bytes_count{subscriber="edge-2"} 1.0',
    'mailboat_publisher_subscribers{publisher="author",state="current"} 2.0',
}


class Receiver:
    """Takes posts of events and of spans."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.spans: list[Any] = []
        self.tokens: set[str | None] = set()

    def take(self, path: str, body: bytes, token: str | None) -> None:
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            self.spans += [
                span
                for resource_span in request.resource_spans
                for scope in resource_span.scope_spans
                for span in scope.spans
            ]
        else:
            self.tokens.add(token)
            self.events.append(json.loads(body))  # last: who has seen the event looks for its token


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, str]]:
    taken = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            taken.take(self.path, plain, self.headers.get("Authorization"))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield taken, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def home_of(tmp_path: Path, url: str, *subscribers: str) -> Home:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/index.html").write_text("<p>hello")
    (tmp_path / "token").write_text("geheim\n")
    agents = AgentsConfig(
        (PublisherAgentConfig("author", str(tmp_path / "site")),),
        tuple(SubscriberAgentConfig(name, f"files:{tmp_path / name}") for name in subscribers),
    )
    config = Config(
        agents=agents,
        subscriber=SubscriberConfig(announce_seconds=0.5),
        events=EventsConfig(
            webhooks=(
                WebhookConfig("crm", f"{url}/hook", token=Secret(file=str(tmp_path / "token"))),
                WebhookConfig(
                    "jobs",
                    f"{url}/hook",
                    token=Secret(file=str(tmp_path / "token")),
                    filter=EventFilterConfig(jobs=("mail",)),
                ),
            )
        ),
        tracing=TracingConfig(f"{url}/v1/traces"),
    )
    home = Home(tmp_path / "home", config)
    prepare(home)
    return home


def events_of(process: AgentProcess) -> list[Any]:
    topic = process.workspace.topic(TopicRole.EVENT)
    return [decode_event(record.headers, record.value) for record in records_of(process.workspace.journal, topic)]


def test_a_package_that_arrived_is_told_on_the_topic_to_the_webhook_in_metrics_and_in_spans(
    tmp_path: Path, receiver: tuple[Receiver, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, url = receiver
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds between two posts of spans
    with AgentProcess(home_of(tmp_path, url, "edge-1", "edge-2")) as process:
        process.start()
        control = process.control
        assert control is not None
        wait_until(lambda: len(control.status().subscribers) == 2)
        sent = control.distribute("author", parse_request("ADD", ("/index.html",), trace_parent=TRACE))
        (event,) = wait_until(lambda: events_of(process))
        assert (event.package_id, event.offset, event.paths, event.missed) == (
            sent.package_id,
            sent.offset,
            ("/index.html",),
            (),
        )
        wait_until(lambda: taken.events)
        process.control.jobs.add([NewJob("mail")])
        wait_until(lambda: len(taken.events) == 2)
        observability = process.observability
        wait_until(lambda: METRICS_OF_ONE.issubset(observability.render().content.decode().splitlines()))
        wait_until(lambda: len(taken.spans) == 3)
        assert process.stop(process.deadline()) == 0
    assert [event["id"] for event in taken.events] == [sent.package_id, "0-0"]
    assert taken.events[1]["type"] == "dev.mailboat.job.added.v1"
    assert taken.tokens == {"Bearer geheim"}
    assert {span.trace_id.hex() for span in taken.spans} == {TRACE.split("-")[1]}
    assert sorted(span.name for span in taken.spans) == ["import ADD", "import ADD", "publish ADD"]


def test_what_was_published_while_the_agent_was_away_is_told_after_its_start(
    tmp_path: Path, receiver: tuple[Receiver, str]
) -> None:
    taken, url = receiver
    home = home_of(tmp_path, url, "edge")
    with AgentProcess(home) as process:
        process.start()
        assert process.control is not None
        process.control.distribute("author", parse_request("ADD", ("/index.html",), request_id="first"))
        wait_until(lambda: len(taken.events) == 1)
    with AgentProcess(home) as process:  # another process of the same home publishes, and the agent is not there
        publisher = process.workspace.publisher("author")
        publisher.publish(DistributionRequest(Action.DELETE, (NodePath("/index.html"),)))
    with AgentProcess(home) as process:
        process.start()
        wait_until(lambda: len(taken.events) == 2)
        assert [item.offset for item in events_of(process)] == [0, 1]
    assert [event["data"]["offset"] for event in taken.events] == [0, 1]


def test_a_token_that_is_not_there_is_said_before_anything_runs(tmp_path: Path, receiver: tuple[Receiver, str]) -> None:
    home = home_of(tmp_path, receiver[1], "edge")
    (tmp_path / "token").unlink()
    with AgentProcess(home) as process, pytest.raises(ConfigInvalidError, match=r"events\.webhooks\[0\]\.token"):
        process.start()
