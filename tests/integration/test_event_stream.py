"""The event stream over HTTP: resuming, limits, clients that vanish or do not read, access; and `mailboat events`."""

from __future__ import annotations

import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mailboat.api.client import HttpControl
from mailboat.api.stream_events import EventType, StreamEvent
from mailboat.cli.events import news_of
from mailboat.cli.main import main
from mailboat.config.document import HttpConfig, TokenConfig, Verb
from mailboat.config.storage import Secret
from mailboat.errors import AccessDeniedError, ThrottledError
from mailboat.http import event_stream
from mailboat.http.connections import PROBE_RESERVE
from mailboat.model.requests import parse_request
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.fake_control import FakeControl, FakeSubscriber


@pytest.fixture
def control() -> FakeControl:
    return FakeControl(FakeSubscriber("edge-1"), FakeSubscriber("edge-2"))


def connected(url: str, stack: ExitStack, token: str | None = None) -> socket.socket:
    """A client that asked for the stream, and has read nothing of it."""
    host, port = urlsplit(url).netloc.split(":")
    client = stack.enter_context(closing(socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)))
    access = f"Authorization: Bearer {token}\r\n" if token else ""
    client.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: {host}:{port}\r\n{access}\r\n".encode())
    return client


def status_of(client: socket.socket) -> int:
    return int(client.recv(64).split()[1])


def test_look_that_waits_for_its_turn_does_not_delay_the_next_one(
    control: FakeControl, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only CPU time lengthens the pause: a thousand times what each look waits here would be beyond all patience."""
    monkeypatch.setattr(event_stream, "_SHARE", 1_000)
    status = control.status

    def slow_status() -> Any:
        threading.Event().wait(0.3)
        return status()

    monkeypatch.setattr(control, "status", slow_status)
    with HttpControl(serve(control).url) as client:
        stream = client.events()
        assert next(stream).type == "snapshot"
        for number in range(2):
            began = time.monotonic()
            control.distribute("author", parse_request("ADD", (f"/{number}",)))
            assert [next(stream).type for _ in range(3)] == ["journal", "subscriber", "subscriber"]
            assert time.monotonic() - began < PATIENCE_SECONDS


def test_change_reaches_a_client_and_it_resumes_after_it(control: FakeControl, serve: Any) -> None:
    with HttpControl(serve(control).url) as client:
        stream = client.events()
        first = next(stream)
        assert (first.type, first.data["gap"]) == ("snapshot", False)
        control.distribute("author", parse_request("ADD", ("/a",)))
        changed = list(islice(stream, 3))
        assert [item.type for item in changed] == ["journal", "subscriber", "subscriber"]
        stream.close()
        again = list(client.events(changed[0].id, follow=False))
        assert [(item.type, item.id) for item in again[:2]] == [(item.type, item.id) for item in changed[1:]]
        assert again[-1].data == {"reason": "complete"}
        lost = next(client.events("older-7", follow=False))
        assert (lost.type, lost.data["gap"]) == ("snapshot", True)


def test_packed_stream_is_small_and_each_event_arrives_whole(serve: Any) -> None:
    control = FakeControl(*(FakeSubscriber(f"edge-{number}") for number in range(200)))
    url = f"{serve(control).url}/api/v1/events"
    whole = {"params": {"follow": False}, "headers": {"Accept-Encoding": "identity"}}
    plain = len(httpx2.get(url, **whole, timeout=PATIENCE_SECONDS).content)
    with httpx2.stream("GET", url, headers={"Accept-Encoding": "gzip"}, timeout=PATIENCE_SECONDS) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        unpack, text, packed = zlib.decompressobj(zlib.MAX_WBITS | 16), b"", 0
        pieces = answer.iter_raw()
        for changes in range(3):
            while text.count(b"\n\n") <= changes:
                piece = next(pieces)
                packed, text = packed + len(piece), text + unpack.decompress(piece)
            # the next change is made only now: an event that stayed in the compressor would never arrive
            control.subscribers["edge-7"].next_offset += 1
        assert text.endswith(b"\n\n")
    assert packed < plain / 5


def test_clients_beyond_the_limit_are_refused_and_a_vanished_one_frees_its_place(
    control: FakeControl, serve: Any
) -> None:
    server = serve(control, HttpConfig(max_connections=8))
    with ExitStack() as stack:
        clients = [connected(server.url, stack) for _ in range(4)]
        assert [status_of(client) for client in clients] == [200] * 4
        with HttpControl(server.url) as client:
            for _ in range(30):
                with pytest.raises(ThrottledError, match="limit of 4 event streams"):
                    list(client.events())
            clients.pop().close()

            def is_free() -> bool:
                try:
                    return next(client.events(follow=False)).type == "snapshot"
                except ThrottledError:
                    return False

            wait_until(is_free)


def test_thousand_clients_get_the_streams_there_are_and_leave_the_api_to_others(
    control: FakeControl, serve: Any
) -> None:
    # without a limit of requests: without tokens all clients are one caller, and a fast machine would refuse it
    server = serve(control, HttpConfig(requests_per_second=1e6, burst_requests=1_000_000))
    limit = HttpConfig().max_connections
    with ExitStack() as stack, HttpControl(server.url) as other:
        first = [connected(server.url, stack) for _ in range(limit // 2)]
        assert [status_of(client) for client in first] == [200] * (limit // 2)
        for _ in range(1_000 - limit // 2):
            with suppress(ConnectionError):  # one that is displaced may be so before it has asked
                connected(server.url, stack)

        def lags() -> set[int]:
            with suppress(ThrottledError):  # until the server has read what the clients sent: a while on one busy core
                return {subscriber.lag for subscriber in other.status().subscribers}
            return set()

        assert wait_until(lags)
        assert server.connections <= limit + PROBE_RESERVE
        control.distribute("author", parse_request("ADD", ("/a",)))
        assert wait_until(lags) == {1}
        # the first half of the connections keeps its streams; the others were refused or displaced
        assert all(client.recv(1 << 16) for client in first)
        stack.pop_all().close()
        wait_until(lambda: server.connections <= 1)
        assert next(other.events(follow=False)).type == "snapshot"


def test_token_has_half_of_the_streams_and_leaves_the_others(control: FakeControl, serve: Any, tmp_path: Path) -> None:
    tokens = [_token(tmp_path, name) for name in ("flood", "other")]
    server = serve(control, HttpConfig(tokens=tuple(tokens), max_connections=40))
    with ExitStack() as stack:
        clients = [connected(server.url, stack, token_text("flood")) for _ in range(10)]
        assert [status_of(client) for client in clients] == [200] * 10
        with HttpControl(server.url, token_text("flood")) as client, pytest.raises(ThrottledError, match="flood has"):
            list(client.events())
        with HttpControl(server.url, token_text("other")) as client:
            assert next(client.events(follow=False)).type == "snapshot"


def token_text(name: str) -> str:
    return f"token-of-{name}-0123456789abcdef"


def _token(folder: Path, name: str, verb: Verb = Verb.VIEW) -> TokenConfig:
    (folder / name).write_text(token_text(name))
    return TokenConfig(name, Secret(file=str(folder / name)), (verb,))


def test_client_that_does_not_read_is_disconnected(control: FakeControl, serve: Any) -> None:
    control.subscribers = {f"edge-{n}": FakeSubscriber(f"edge-{n}") for n in range(2_000)}
    server = serve(control, HttpConfig(request_seconds=1.0))
    with ExitStack() as stack:
        for _ in range(5):
            client = connected(server.url, stack)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            assert status_of(client) == 200
        churn = _churning(control)
        wait_until(lambda: next(churn) and server.connections == 0)


def _churning(control: FakeControl) -> Iterator[bool]:
    """Change every subscriber, so that there is something to send."""
    while True:
        control.distribute("author", parse_request("ADD", ("/a",)))
        yield True


def test_reader_that_falls_behind_the_buffer_is_ended(
    control: FakeControl, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailboat.control.event_feed.MAX_EVENTS", 1)
    with HttpControl(serve(control).url) as client:
        stream = client.events()
        assert next(stream).type == "snapshot"
        control.distribute("author", parse_request("ADD", ("/a",)))
        assert next(stream).data == {"reason": "too-slow"}
        assert list(stream) == []


def test_stream_asks_for_the_token_again_after_a_while(
    control: FakeControl, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "LONGEST_SECONDS", 0.2)
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.1)
    with HttpControl(serve(control).url) as client:
        assert [event.data for event in client.events()][1:] == [{"reason": "renew"}]


def test_stopping_agent_ends_the_stream(control: FakeControl, serve: Any) -> None:
    stopping = threading.Event()
    server = serve(control, stopping=stopping)
    with HttpControl(server.url) as client:
        stream = client.events()
        next(stream)
        stopping.set()
        assert [record.data for record in stream] == [{"reason": "stopping"}]


def test_stream_that_cannot_be_fed_ends_as_failed(
    control: FakeControl, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpControl(serve(control).url) as client:
        stream = client.events()
        next(stream)

        def fails(*_: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr("mailboat.control.event_feed.EventFeed.poll", fails)
        assert [record.data for record in stream] == [{"reason": "failed"}]


def test_stream_needs_the_verb_view(control: FakeControl, serve: Any, tmp_path: Path) -> None:
    tokens = (_token(tmp_path, "reader"), _token(tmp_path, "writer", Verb.DISTRIBUTE))
    url = serve(control, HttpConfig(tokens=tokens)).url
    for token in (None, "token-of-writer-0123456789abcdef"):
        with HttpControl(url, token) as client, pytest.raises(AccessDeniedError):
            list(client.events())
    with HttpControl(url, "token-of-reader-0123456789abcdef") as client:
        assert next(client.events(follow=False)).type == "snapshot"


def test_command_prints_the_events_of_a_home(command_line: Any, tmp_path: Path) -> None:
    line = command_line(tmp_path / "home")
    line.do("init")
    assert "journal     oldest 0, next 0" in line.do("events").out
    assert json.loads(line.do("events", "-o", "json").out)["type"] == "snapshot"


def test_command_prints_the_events_of_an_agent(
    control: FakeControl, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    control.distribute("author", parse_request("ADD", ("/a",)))
    assert main(["--url", serve(control).url, "events"]) == 0
    shown = capsys.readouterr().out
    assert "subscriber  edge-2: importing, lag 1" in shown
    assert "publisher   author: running" in shown


def test_command_prints_a_line_again_only_when_it_says_something_else() -> None:
    edge = {"name": "edge", "state": "current", "lag": 0, "given_up": 0, "error": None}
    journal = {"earliest_offset": 0, "next_offset": 3}
    status = {"journal": journal, "publishers": [], "subscribers": [edge]}
    events = [
        ("snapshot", {"gap": False, "problem": None, "status": status}),
        ("journal", {**journal, "size_bytes": 7}),
        ("subscriber", {**edge, "rate_per_second": 0.5}),
        ("subscriber", {**edge, "lag": 1}),
        ("subscriber", edge),
        ("snapshot", {"gap": True, "problem": None, "status": status}),
    ]
    shown = dict[str, str]()
    lines = [list(news_of(StreamEvent("", EventType(kind), data), shown)) for kind, data in events]
    present = ["journal     oldest 0, next 3", "subscriber  edge: current, lag 0"]
    assert lines[:5] == [present, [], [], ["subscriber  edge: current, lag 1"], ["subscriber  edge: current, lag 0"]]
    assert lines[5][1:] == present
