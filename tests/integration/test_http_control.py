"""The control port over HTTP: what an agent answers is what its client gets, records and errors alike."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from mailboat.api.client import HttpControl
from mailboat.api.control import error_pages
from mailboat.api.orders import BenchOrder
from mailboat.api.records import BuildFollowerView, BuildView, CauseView, DistributionView
from mailboat.clock import SystemClock, moment_of
from mailboat.errors import (
    AgentDefectError,
    AgentMissingError,
    AgentUnreachableError,
    BuildMissingError,
    CommandMissingError,
    DistributionMissingError,
    JournalCorruptError,
    JournalUnavailableError,
    LimitExceededError,
    MailboatError,
    PathRefusedError,
    QueueMissingError,
    QueueNotClearableError,
    RequestConflictError,
    ThrottledError,
    UsageError,
)
from mailboat.http.list_pages import WHOLE_LIST
from mailboat.http.publish_turns import MAX_PUBLISHING
from mailboat.model.paths import parse_path
from mailboat.model.requests import DistributionRequest, parse_request
from mailboat.testing.wait import PATIENCE_SECONDS
from support.certificates import Authority
from support.fake_control import FakeArchive, FakeControl, FakeSubscriber

ADD = parse_request("ADD", ("/news",), ("/news",))
CAUSE = CauseView("StorageFull", "no space is left in /srv/site", "/news")


@pytest.fixture
def control() -> FakeControl:
    return FakeControl(FakeSubscriber("edge-1"), FakeSubscriber("edge-2", is_editable=False))


@pytest.fixture
def client(control: FakeControl, serve: Any) -> Any:
    with HttpControl(serve(control).url) as made:
        yield made


def test_every_verb_answers_the_same_over_http(control: FakeControl, client: HttpControl) -> None:
    for number in range(5):
        assert client.distribute("author", replace(ADD, request_id=f"r-{number}")).offset == number
    control.give_up("edge-2", 0, CAUSE)
    asked: list[Callable[[Any], object]] = [
        lambda it: it.status(),
        lambda it: it.distribution("author", "r-0"),
        lambda it: sorted(it.queues("author"), key=lambda one: one.name),
        lambda it: it.queue("author", "edge-1", 1, 2),
        lambda it: it.queue("author", "edge-2-error"),
        lambda it: it.errors(),
        lambda it: it.errors("edge-1"),
    ]
    for ask in asked:
        assert ask(client) == ask(control)
    cleared = client.clear("author", "edge-1", 2)
    assert cleared == control.command("author", cleared.id) == client.command("author", cleared.id)
    assert (cleared.removed, control.subscribers["edge-1"].next_offset) == (2, 2)
    assert client.remove("author", "edge-1", ["package-0@2"]).removed == 1
    assert [item.state for item in client.redrive("edge-2", [0])] == ["done"]
    assert control.errors().items == ()
    suspended = client.suspend("edge-2", 60.0, 1.0)
    assert (suspended.verb, suspended.publisher, control.subscribers["edge-2"].suspended_seconds) == (
        "suspend",
        "",
        60.0,
    )
    assert client.resume("edge-2") == client.command(None, "command-4") == control.command(None, "command-4")
    assert not control.subscribers["edge-2"].suspended_seconds


def test_archive_operations_answer_the_same_over_http(control: FakeControl, client: HttpControl) -> None:
    client.distribute("author", ADD)
    archive = FakeArchive(control)
    asked: list[Callable[[Any], object]] = [
        lambda it: it.topics(),
        lambda it: list(it.records("package", 0, 1)),
        lambda it: list(it.records("status")),
        lambda it: it.verify(reads_blobs=True),
        lambda it: it.truncate("package", 1),
        lambda it: it.truncate("package", 1, is_dry_run=False),
        lambda it: it.remove_expired(),
        lambda it: it.retention(),
        lambda it: it.retention(is_applied=True),
        lambda it: it.ensure_topics(),
        lambda it: it.ensure_topics(is_dry_run=True),
        lambda it: it.bench(BenchOrder(100, 20, 0.5)),
        lambda it: it.blobs(),
        lambda it: it.blobs(is_removable=True, max_items=1),
        lambda it: it.sweep(is_dry_run=False),
        lambda it: it.sweep(forget_journal="log-9"),
        lambda it: list(it.snapshots()),
        lambda it: it.store_snapshot("sqlite:/site.db", "new"),
        lambda it: it.store_snapshot("sqlite:/site.db", "site", is_forced=True),
    ]
    for ask in asked:
        found, expected = ask(client), ask(archive)
        assert (list(found) if isinstance(found, tuple) else found) == expected
    client.remove_snapshot("site")
    with pytest.raises(UsageError, match="no snapshot blob:other"):
        client.remove_snapshot("other")
    with pytest.raises(UsageError, match="no message at offset 5"):
        client.records("package", 5)
    with pytest.raises(UsageError, match="beyond the end"):
        client.truncate("package", 5)


def test_changes_are_planned_and_published_over_http(control: FakeControl, client: HttpControl) -> None:
    control.changed = [parse_path("/news/a"), parse_path("/old")]
    assert client.plan_changed("author", [parse_path("/news")]) == control.plan_changed("author", [parse_path("/news")])
    assert client.plan("author", ADD) == control.plan("author", ADD)
    (made,) = client.publish_changed("author", [parse_path("/news")])
    assert (made.paths, control.changed) == (("/news/a",), ["/old"])
    assert list(client.publish_changed("author", [parse_path("/news")])) == []


def test_requests_before_a_failed_one_are_returned_and_counted(control: FakeControl, client: HttpControl) -> None:
    found = client.distribute_all("author", [ADD, replace(ADD, request_id="r-2")])
    assert next(found).offset == 0
    control.failure = UsageError("no")
    with pytest.raises(UsageError) as caught:
        next(found)
    assert caught.value.where["published_before"] == 1


def test_pages_are_followed_to_the_end(control: FakeControl, client: HttpControl) -> None:
    for number in range(8):
        control.give_up("edge-1", client.distribute("author", replace(ADD, request_id=f"r-{number}")).offset, CAUSE)
    control.subscribers |= {f"more-{number}": FakeSubscriber(f"more-{number}") for number in range(300)}
    assert [item.offset for page in error_pages(client, "edge-1") for item in page.items] == list(range(8))
    first = client.errors(max_items=3)
    assert [item.offset for item in first.items] == [0, 1, 2]
    assert [item.offset for item in client.errors(page=first.next_page, max_items=100).items] == [3, 4, 5, 6, 7]
    queues = client.queues("author")
    assert sorted(queue.name for queue in queues) == sorted(queue.name for queue in control.queues("author"))
    assert len(queues) > WHOLE_LIST


def test_a_token_of_another_list_is_refused(control: FakeControl, client: HttpControl) -> None:
    client.distribute("author", ADD)
    control.give_up("edge-1", 0, CAUSE)
    with pytest.raises(UsageError, match="unknown page token"):
        client.errors(page="WzFd")


def test_builds_answer_the_same_over_http_and_one_that_is_not_there_is_told(
    control: FakeControl, client: HttpControl
) -> None:
    follower = BuildFollowerView("edge-1", 3, "importing")
    build = BuildView("release-7", "author", "publishing", 4, 9, 1_000, 0, 3, moment_of(1), moment_of(2), (follower,))
    control.known_builds.append(build)
    assert list(client.builds()) == [build]
    assert list(client.builds("release-7")) == [build]
    with pytest.raises(BuildMissingError, match="no package of a build none"):
        client.builds("none")


def test_a_subscriber_that_is_gone_is_forgotten_over_http(control: FakeControl, client: HttpControl) -> None:
    assert client.forget("edge-2").instances
    assert list(control.subscribers) == ["edge-1"]
    with pytest.raises(AgentMissingError):
        client.forget("edge-2")


def test_a_request_that_is_sent_twice_is_published_once(client: HttpControl) -> None:
    first = client.distribute("author", replace(ADD, request_id="once"))
    again = client.distribute("author", replace(ADD, request_id="once"))
    assert (again.offset, again.repeated) == (first.offset, True)
    assert client.distribution("author", "once").package_id == first.package_id


def test_requests_that_wait_to_publish_leave_threads_to_reads(
    control: FakeControl, client: HttpControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they do behind a request that publishes what changed in a large source."""
    distribute, over, waiting = control.distribute, threading.Event(), threading.Semaphore(0)

    def wait(publisher: str, request: DistributionRequest) -> DistributionView:
        waiting.release()
        over.wait(PATIENCE_SECONDS)
        return distribute(publisher, request)

    monkeypatch.setattr(control, "distribute", wait)
    with ThreadPoolExecutor(45) as pool:
        sent = [
            pool.submit(client.distribute, "author", replace(ADD, request_id=f"r-{number}")) for number in range(45)
        ]
        for _ in range(MAX_PUBLISHING):
            assert waiting.acquire(timeout=PATIENCE_SECONDS)
        try:
            assert client.status().publishers
        finally:
            over.set()
        assert len({item.result(PATIENCE_SECONDS).offset for item in sent}) == 45


def test_names_with_slashes_and_spaces_arrive_whole(control: FakeControl, client: HttpControl) -> None:
    made = client.distribute("author", replace(ADD, request_id="releases/42%2F?#"))
    assert client.distribution("author", "releases/42%2F?#") == made
    with pytest.raises(AgentMissingError, match="no publisher no such one here"):
        client.queues("no such one")


def test_waiting_ends_as_soon_as_everyone_has_it(control: FakeControl, client: HttpControl) -> None:
    made = client.distribute("author", ADD)
    assert made.waiting == ("edge-1", "edge-2")

    def import_it() -> None:
        for subscriber in control.subscribers.values():
            subscriber.next_offset = 1

    timer = threading.Timer(0.05, import_it)
    timer.start()
    assert client.distribution("author", made.package_id, wait_seconds=PATIENCE_SECONDS).state == "distributed"
    timer.join()


def test_waiting_for_no_one_in_particular_ends_with_the_time(client: HttpControl) -> None:
    made = client.distribute("author", ADD)
    assert client.distribution("author", made.package_id, wait_seconds=0.1).state == "queued"


@pytest.mark.parametrize(
    "error",
    [
        UsageError("it can't be meant", next_step="say\nwhat you mean", path="/a"),
        AgentMissingError("no such agent", publisher="x"),
        QueueMissingError("no such queue", queue="q"),
        DistributionMissingError("no such package"),
        CommandMissingError("no such command"),
        RequestConflictError("used before", request="r"),
        QueueNotClearableError("it takes no commands"),
        PathRefusedError("no path", path="/../x"),
        LimitExceededError("too much", limit=500),
        ThrottledError("subscribers lag", retry_after_seconds=2.5),
        JournalUnavailableError("locked"),
        JournalCorruptError("a record is missing", offset=7),
    ],
    ids=lambda error: error.name,
)
def test_an_error_arrives_as_itself(error: MailboatError, control: FakeControl, client: HttpControl) -> None:
    control.failure = error
    with pytest.raises(type(error)) as caught:
        client.status()
    seen = caught.value
    assert type(seen) is type(error)
    assert (seen.message, seen.next_step, seen.where) == (error.message, error.next_step, error.where)


def test_a_throttled_caller_is_told_when_to_come_back(control: FakeControl, client: HttpControl) -> None:
    control.failure = ThrottledError("subscribers lag", retry_after_seconds=2.5)
    with pytest.raises(ThrottledError) as caught:
        client.distribute("author", ADD)
    assert caught.value.retry_after_seconds == 2.5


def test_a_defect_of_the_agent_is_an_incident_without_a_trace(
    control: FakeControl, client: HttpControl, caplog: pytest.LogCaptureFixture
) -> None:
    control.subscribers = None  # type: ignore[assignment]  # no one foresaw that
    with pytest.raises(AgentDefectError, match="status 500") as caught:
        client.status()
    incident = str(caught.value.where["incident"])
    assert "NoneType" not in str(caught.value)
    (record,) = [record for record in caplog.records if incident in record.getMessage()]
    assert record.exc_info is not None


def test_an_agent_that_does_not_run_is_unreachable_by_its_url() -> None:
    with HttpControl("http://127.0.0.1:9") as client, pytest.raises(AgentUnreachableError, match=r":9: Connection"):
        client.status()


def test_an_unknown_authority_is_a_usage_error_that_ssl_cert_file_resolves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, SystemClock())
    identity = authority.issue("agent")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    try:
        url = f"https://127.0.0.1:{server.server_port}"
        with HttpControl(url) as client, pytest.raises(UsageError) as caught:
            client.status()
        assert str(caught.value.next_step).startswith("set SSL_CERT_FILE")
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        with HttpControl(url) as client, pytest.raises(AgentDefectError, match="status 501"):
            client.status()
        with HttpControl(url.replace("127.0.0.1", "localhost")) as client, pytest.raises(UsageError) as caught:
            client.status()
        assert str(caught.value.next_step).startswith("use a host name")
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def test_agent_of_this_machine_is_not_asked_through_a_proxy(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with HttpControl(serve(FakeControl(FakeSubscriber("edge-1"))).url) as client:
        assert [subscriber.name for subscriber in client.status().subscribers] == ["edge-1"]


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://x", "http://", "http://x:y", "http://[::1"])
def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(UsageError, match="invalid agent URL"):
        HttpControl(url)
