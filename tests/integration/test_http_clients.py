"""Clients that are slow, stuck, numerous, oversized or unknown: each costs little, and no one else waits for them."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mailboat.api.client import HttpControl
from mailboat.clock import Deadline, SystemClock
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import HttpConfig, TokenConfig, Verb
from mailboat.config.storage import Secret
from mailboat.errors import AccessDeniedError, PathForbiddenError, ThrottledError
from mailboat.http.access import check_access
from mailboat.http.connections import PROBE_RESERVE
from mailboat.http.server import HttpServer, HttpStartFailedError, PortTakenError
from mailboat.model.requests import parse_request
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS, wait_until
from support.fake_control import FakeControl, FakeSubscriber

QUICK = HttpConfig(request_seconds=1.0)
FEW = HttpConfig(max_connections=8)
SMALL = HttpConfig(max_body_bytes=2000)
ORDER = {"action": "ADD", "paths": ["/a"]}
DISTRIBUTIONS = "/api/v1/publishers/author/distributions"

get = partial(httpx2.get, timeout=PATIENCE_SECONDS)
post = partial(httpx2.post, timeout=PATIENCE_SECONDS)
new_client = partial(httpx2.Client, timeout=PATIENCE_SECONDS)


@pytest.fixture
def control() -> FakeControl:
    return FakeControl(FakeSubscriber("edge-1"))


def connected(url: str, source: str = "127.0.0.1") -> socket.socket:
    """A bare connection."""
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), PATIENCE_SECONDS, (source, 0))


def rest_of(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_a_client_that_sends_its_head_drop_by_drop_is_cut_off_and_others_are_served(
    control: FakeControl, serve: Any
) -> None:
    url = serve(control, QUICK).url
    with connected(url) as slow:
        slow.sendall(b"GET /api/v1/status HTTP/1.1\r\n")
        began = time.monotonic()

        def drip() -> None:
            try:
                while True:
                    slow.sendall(b"x-a: b\r\n")
                    time.sleep(0.05)
            except OSError:
                return

        thread = threading.Thread(target=drip)
        thread.start()
        assert get(f"{url}/healthz").status_code == 200
        assert rest_of(slow) == b""
        assert time.monotonic() - began < PATIENCE_SECONDS
        thread.join(PATIENCE_SECONDS)


def test_a_client_that_says_nothing_is_cut_off(control: FakeControl, serve: Any) -> None:
    with connected(serve(control, QUICK).url) as silent:
        assert rest_of(silent) == b""


def test_a_body_that_does_not_come_is_answered_with_408(control: FakeControl, serve: Any) -> None:
    with connected(serve(control, QUICK).url) as slow:
        slow.sendall(
            f"POST {DISTRIBUTIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Content-Length: 100\r\n\r\n{".encode()
        )
        assert status_of(rest_of(slow)) == 408
    assert control.status().journal.next_offset == 0


def test_a_client_that_goes_away_in_the_middle_of_its_body_leaves_nothing(
    control: FakeControl, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mailboat.audit")
    server: HttpServer = serve(control)
    with connected(server.url) as gone:
        gone.sendall(f"POST {DISTRIBUTIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode())
        wait_until(lambda: server.connections == 1)
    wait_until(lambda: server.connections == 0)
    assert control.status().journal.next_offset == 0
    wait_until(lambda: any(record.name == "mailboat.audit" for record in caplog.records))
    assert [record.audit["outcome"] for record in caplog.records if record.name == "mailboat.audit"] == ["gone"]  # type: ignore[attr-defined]


def test_a_client_that_does_not_read_its_answer_is_cut_off(control: FakeControl, serve: Any) -> None:
    for number in range(400):
        control.distribute("author", parse_request("ADD", (f"/{number}" + f"/{'x' * 200}" * 10,)))
    server: HttpServer = serve(control, QUICK)
    with connected(server.url) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ask = b"GET /api/v1/publishers/author/queues/edge-1?max_items=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        cut = 0
        ends = time.monotonic() + PATIENCE_SECONDS
        while not cut and time.monotonic() < ends:
            try:
                stuck.sendall(ask)
                time.sleep(0.05)
            except OSError:
                cut += 1
        assert cut
    assert get(f"{server.url}/healthz").status_code == 200


def test_half_heads_of_one_address_take_nothing_away_from_others(control: FakeControl, serve: Any) -> None:
    url = serve(control, FEW).url
    with ExitStack() as opened:
        other = opened.enter_context(connected(url, source="127.0.0.2"))
        other.sendall(b"GET /api/v1/status HTTP/1.1\r\n")
        for _ in range(3 * FEW.max_connections):
            opened.enter_context(connected(url)).sendall(b"GET /healthz HTTP/1.1\r\n")
        assert get(f"{url}/healthz").status_code == 200
        assert get(f"{url}/api/v1/status").status_code == 200
        other.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
        assert status_of(rest_of(other)) == 200


def test_probes_are_answered_while_all_connections_have_a_request_under_way(serve: Any) -> None:
    control = Blocked()
    url = serve(control, FEW).url
    with ExitStack() as opened:
        opened.callback(control.released.set)
        for _ in range(FEW.max_connections):
            busy = opened.enter_context(connected(url))
            busy.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert control.entered.acquire(timeout=PATIENCE_SECONDS)
        for _ in range(2):
            for path in ("/healthz", "/readyz"):
                assert get(url + path).status_code == 200
            late = get(f"{url}/api/v1/status")
            assert (late.status_code, late.headers["connection"], late.headers["retry-after"]) == (503, "close", "1")
            assert late.json()["title"] == "Throttled"
        for _ in range(2 * PROBE_RESERVE):
            opened.enter_context(connected(url)).sendall(b"GET /healthz HTTP/1.1\r\n")
        assert get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_unread(control: FakeControl, serve: Any, is_chunked: bool) -> None:
    body = json.dumps({**ORDER, "request_id": "x" * 3000}).encode()

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 500):
            yield body[start : start + 500]

    answer = post(
        serve(control, SMALL).url + DISTRIBUTIONS,
        content=pieces() if is_chunked else body,
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 413
    assert answer.json()["type"] == "urn:mailboat:error:LimitExceeded"
    assert answer.headers["connection"] == "close"
    assert control.status().journal.next_offset == 0


@pytest.mark.parametrize("path", ["/healthz", "/api/docs", "/"])
def test_a_stranger_s_body_is_neither_kept_nor_parsed(path: str, control: FakeControl, serve: Any, tokens: Any) -> None:
    url = serve(control, HttpConfig(tokens=tokens)).url
    answer = post(f"{url}{path}", json=["it", "would", "be", "parsed"])
    assert (answer.status_code, answer.json()["where"]) == (413, {"limit": 0})
    assert get(f"{url}{path}").status_code == 200


def test_a_body_that_never_ends_is_refused_too(control: FakeControl, serve: Any) -> None:
    with connected(serve(control, SMALL).url) as endless:
        endless.sendall(
            f"POST {DISTRIBUTIONS} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        try:
            while True:
                endless.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        except OSError:
            pass


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /api/v1/errors/redrive HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/errors/redrive HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["tls", "no target", "version", "negative length", "two lengths", "endless target"],
)
def test_what_is_no_http_gets_a_4xx_and_a_closed_connection(raw: bytes, control: FakeControl, serve: Any) -> None:
    url = serve(control, QUICK).url
    with connected(url) as strange:
        strange.sendall(raw)
        answer = rest_of(strange)
    assert answer == b"" or 400 <= status_of(answer) < 500
    assert get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize(
    "length",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["both lengths", "folded"],
)
def test_what_follows_an_ambiguous_head_is_not_taken_for_a_request(
    length: bytes, control: FakeControl, serve: Any
) -> None:
    body = json.dumps({"action": "TEST"}).encode()
    hidden = (
        f"POST {DISTRIBUTIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with connected(serve(control).url) as proxy:
        proxy.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n\r\n0\r\n\r\n" + hidden)
        answer = rest_of(proxy)
    head, _, document = answer.partition(b"\r\n\r\n")
    assert status_of(head) == 400
    assert b"connection: close" in head.lower()
    assert json.loads(document)["title"] == "Usage"
    assert control.status().journal.next_offset == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"GET\r\n\r\n",
        b"POST /api/v1/status HTTP/1.1\r\nHost: elsewhere\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: elsewhere\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n",
    ],
    ids=["a line that is no head", "chunks of a refused request", "chunks of a probe"],
)
def test_malformed_requests_of_strangers_leave_no_line_in_the_log(
    raw: bytes, control: FakeControl, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(serve(control).url) as strange:
        strange.sendall(raw)
        assert status_of(rest_of(strange)) == 400
    assert [record for record in caplog.records if record.threadName == "http"] == []


@pytest.mark.parametrize("body", [b'{"action": "TEST", "action": "ADD"}', '{"action": "TEST"}'.encode("utf-16")])
def test_an_order_that_readers_can_read_differently_is_refused(body: bytes, control: FakeControl, serve: Any) -> None:
    headers = {"Content-Type": "application/json"}
    answer = post(serve(control).url + DISTRIBUTIONS, content=body, headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (400, "Usage")
    assert control.status().journal.next_offset == 0


# ------------------------------------------------------------------------------------------------------------ tokens


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[TokenConfig, ...]:
    found = []
    for name, verbs in (
        ("viewer", (Verb.VIEW,)),
        ("editor", (Verb.VIEW, Verb.DISTRIBUTE)),
        ("keeper", (Verb.CLEAR,)),
        ("root", (Verb.ADMIN,)),
    ):
        (tmp_path / name).write_text(f"token-of-{name}\n")
        found.append(TokenConfig(name, Secret(file=str(tmp_path / name)), verbs))
    return tuple(found)


CLEAR = "/api/v1/publishers/author/queues/edge-1/clear"
SLING = "/libs/sling/distribution/services/agents/author"


@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("viewer", (200, 403, 403, 403, 200)),
        ("editor", (200, 202, 403, 202, 200)),
        ("keeper", (403, 403, 202, 403, 403)),
        ("root", (200, 202, 202, 202, 200)),
    ],
)
def test_a_token_may_do_what_its_verbs_say(
    name: str, statuses: tuple[int, ...], control: FakeControl, serve: Any, tokens: Any
) -> None:
    url = serve(control, HttpConfig(tokens=tokens)).url
    with new_client(base_url=url, headers={"Authorization": f"Bearer token-of-{name}"}) as client:
        answers = [
            client.get("/api/v1/status"),
            client.post(DISTRIBUTIONS, json=ORDER),
            client.post(CLEAR),
            client.post(SLING, data={"action": "ADD", "path": "/a"}),
            client.get("/metrics"),
        ]
    assert tuple(answer.status_code for answer in answers) == statuses
    for item in answers:
        if item.status_code == 403:
            assert item.json() == {"type": "about:blank", "title": "Forbidden", "status": 403}


@pytest.fixture
def newsroom(control: FakeControl, serve: Any, tmp_path: Path) -> Iterator[httpx2.Client]:
    """A client whose token may distribute some paths only."""
    (tmp_path / "newsroom").write_text("token-of-newsroom")
    token = TokenConfig(
        "newsroom",
        Secret(file=str(tmp_path / "newsroom")),
        (Verb.VIEW, Verb.DISTRIBUTE),
        ("/content/*/news", "/static"),
    )
    url = serve(control, HttpConfig(tokens=(token,))).url
    with new_client(base_url=url, headers={"Authorization": "Bearer token-of-newsroom"}) as client:
        yield client


@pytest.mark.parametrize(
    "order",
    [
        {"action": "ADD", "paths": ["/content/de/news"], "deep_paths": ["/content/de/news"]},
        {"action": "DELETE", "paths": ["/content/de/news/2026/a", "/static"]},
        {"action": "INVALIDATE", "paths": ["/static/a.css"]},
        {"action": "TEST"},
    ],
)
def test_a_token_distributes_the_paths_that_it_covers(
    order: dict[str, Any], control: FakeControl, newsroom: httpx2.Client
) -> None:
    assert newsroom.post(DISTRIBUTIONS, json=order).status_code == 202
    form = {"action": order["action"], "path": order.get("paths", []), "deep": "true"}
    assert newsroom.post(SLING, data=form).status_code == 202


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/content/de", 403),
        ("/content", 403),
        ("/", 403),
        ("/content/de/newsletter", 403),
        ("/Content/de/news", 403),
        ("/STATIC", 403),
        ("/staticX", 403),
        ("/%73tatic", 403),
        ("/content%2fde%2fnews", 403),
        ("/static/../content/de", 422),
        ("/static/./a", 422),
        ("/static/", 422),
        ("//static", 422),
        ("static", 422),
        ("/static\\..\\content", 422),
        ("/static/\u0000", 422),
    ],
)
def test_a_request_with_one_path_outside_of_its_token_is_refused_as_a_whole(
    path: str, status: int, control: FakeControl, newsroom: httpx2.Client
) -> None:
    named = {"paths": ["/static/a", path]}
    orders = [{"action": item, **named} for item in ("ADD", "DELETE", "INVALIDATE")]
    orders += [{"action": "ADD", **named, "deep_paths": [path]}]
    orders += [{"action": "ADD", "paths": ["/static/a"], "deep_paths": [path]}]
    for order in orders:
        answer = newsroom.post(DISTRIBUTIONS, json=order)
        assert (answer.status_code, answer.json()["where"]["path"]) == (status, path)
        assert answer.json()["title"] == ("PathForbidden" if status == 403 else "PathRefused")
    for fields in ({"deep": "true"}, {"deep": "false"}, {"action": "DELETE"}):
        form = {"action": "ADD", "path": ["/static/a", path], **fields}
        assert newsroom.post(SLING, data=form).status_code == (403 if status == 403 else 400)
    hidden = newsroom.post(SLING, params={"path": path}, data={"action": "ADD", "path": "/static/a"})
    assert hidden.status_code == (403 if status == 403 else 400)
    assert control.status().journal.next_offset == 0


def test_a_refused_path_is_named_in_the_audit_line_and_by_the_client(
    control: FakeControl, newsroom: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mailboat.audit")
    with (
        HttpControl(str(newsroom.base_url), "token-of-newsroom") as client,
        pytest.raises(PathForbiddenError, match="the token newsroom may not distribute /other"),
    ):
        client.distribute("author", parse_request("DELETE", ("/other",)))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "mailboat.audit"]
    assert "publisher=author action=DELETE paths=1 outcome=PathForbidden status=403" in line
    assert line.startswith("API request: caller=")


@pytest.mark.parametrize("verb", [Verb.CLEAR, Verb.ADMIN])
def test_paths_with_a_verb_that_they_can_t_limit_are_refused(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("token")
    config = HttpConfig(tokens=(TokenConfig("t", Secret(file="t"), (Verb.VIEW, verb), ("/a",)),))
    with pytest.raises(ConfigInvalidError, match=rf"http\.tokens\[0\]: paths can't limit the verb {verb}"):
        check_access(config, tmp_path)


def test_a_pattern_that_is_no_path_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("token")
    config = HttpConfig(tokens=(TokenConfig("t", Secret(file="t"), paths=("/a/",)),))
    with pytest.raises(ConfigInvalidError, match=r"http\.tokens\[0\]\.paths: '/a/' is not a content path"):
        check_access(config, tmp_path)


def test_a_token_with_no_paths_distributes_nothing(control: FakeControl, serve: Any, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("token")
    token = TokenConfig("t", Secret(file=str(tmp_path / "t")), (Verb.DISTRIBUTE,), ())
    url = serve(control, HttpConfig(tokens=(token,))).url
    headers = {"Authorization": "Bearer token"}
    assert post(url + DISTRIBUTIONS, json=ORDER, headers=headers).status_code == 403
    assert post(url + DISTRIBUTIONS, json={"action": "TEST"}, headers=headers).status_code == 202


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "token-of-root"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Bearer token-of-roo\xe9"},
    ],
)
def test_a_stranger_is_told_nothing(headers: dict[str, str], control: FakeControl, serve: Any, tokens: Any) -> None:
    url = serve(control, HttpConfig(tokens=tokens)).url
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    for method, path in (("GET", "/api/v1/status"), ("POST", CLEAR), ("GET", "/no/such/path"), ("GET", "/metrics")):
        answer = httpx2.request(method, url + path, headers=encoded, timeout=PATIENCE_SECONDS, verify=False)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json() == {"type": "about:blank", "title": "Unauthorized", "status": 401}


def test_probes_and_the_description_need_no_token(control: FakeControl, serve: Any, tokens: Any) -> None:
    url = serve(control, HttpConfig(tokens=tokens)).url
    for path in ("/healthz", "/readyz", "/api/docs", "/api/openapi.json"):
        assert get(url + path).status_code == 200


def test_metrics_alone_can_be_open(control: FakeControl, serve: Any, tokens: Any) -> None:
    url = serve(control, HttpConfig(tokens=tokens, open_metrics=True)).url
    assert get(f"{url}/metrics").status_code == 200
    assert get(f"{url}/api/v1/status").status_code == 401


def test_basic_authentication_takes_the_token_as_password(control: FakeControl, serve: Any, tokens: Any) -> None:
    url = serve(control, HttpConfig(tokens=tokens)).url
    assert get(f"{url}{SLING}/queues.json", auth=("admin", "token-of-viewer")).status_code == 200


def test_the_client_tells_a_wrong_token_from_one_that_may_not(control: FakeControl, serve: Any, tokens: Any) -> None:
    url = serve(control, HttpConfig(tokens=tokens)).url
    with (
        HttpControl(url, "unknown") as stranger,
        pytest.raises(AccessDeniedError, match="requires a valid token") as refused,
    ):
        stranger.status()
    assert refused.value.next_step == "pass one with --token-file FILE or in MAILBOAT_TOKEN"
    with HttpControl(url, "token-of-viewer") as viewer, pytest.raises(AccessDeniedError, match="does not permit"):
        viewer.clear("author", "edge-1")


def test_a_token_is_rotated_by_writing_its_file(control: FakeControl, serve: Any, tokens: Any, tmp_path: Path) -> None:
    patient = HttpConfig(tokens=tokens, requests_per_second=1000.0, burst_requests=10_000)
    url = serve(control, patient).url
    with HttpControl(url, "token-of-viewer") as before, HttpControl(url, "the new one") as after:
        assert before.status()
        (tmp_path / "draft").write_text("the new one\n")
        os.replace(tmp_path / "draft", tmp_path / "viewer")  # noqa: PTH105  # as an editor or a kubelet does

        def is_taken_over() -> bool:
            try:
                return bool(after.status())
            except AccessDeniedError:
                return False

        wait_until(is_taken_over)
        with pytest.raises(AccessDeniedError):
            before.status()


def test_a_token_file_that_vanishes_leaves_its_token_as_it_was_and_others_are_rotated(
    control: FakeControl, serve: Any, tokens: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = serve(control, HttpConfig(tokens=tokens)).url
    (tmp_path / "viewer").unlink()
    (tmp_path / "editor").write_text("the new one\n")
    with HttpControl(url, "token-of-viewer") as client, HttpControl(url, "token-of-editor") as leaked:

        def is_noticed() -> bool:
            assert client.status()
            return any("a token stays as it is" in record.getMessage() for record in caplog.records)

        wait_until(is_noticed)
        with pytest.raises(AccessDeniedError):
            leaked.status()
    assert not any("token-of" in record.getMessage() for record in caplog.records)


def test_the_user_of_a_request_is_the_token_s_name(control: FakeControl, serve: Any, tokens: Any) -> None:
    url = serve(control, HttpConfig(tokens=tokens)).url
    order = parse_request("ADD", ("/a",), user_id="somebody else")
    with HttpControl(url, "token-of-editor") as editor, HttpControl(url, "token-of-root") as root:
        assert editor.distribute("author", order).user_id == "editor"
        assert root.distribute("author", order).user_id == "somebody else"


def test_a_client_may_be_given_more_time_than_a_socket_counts(control: FakeControl, serve: Any) -> None:
    assert get(f"{serve(control, HttpConfig(request_seconds=1e9)).url}/api/v1/status").status_code == 200


def test_without_tokens_only_this_machine_may_be_served() -> None:
    with pytest.raises(ConfigInvalidError, match=r"http\.host is 0\.0\.0\.0.*no http\.tokens"):
        HttpServer(httpx2.ASGITransport, HttpConfig(host="0.0.0.0"))  # type: ignore[arg-type]  # never called


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_without_tokens_a_page_in_a_browser_is_kept_out(
    headers: dict[str, str], status: int, control: FakeControl, serve: Any
) -> None:
    assert get(f"{serve(control).url}/api/v1/status", headers=headers).status_code == status


# ------------------------------------------------------------------------------------------------- rates, audit, port


def test_a_token_that_a_browser_sends_for_another_site_is_refused(
    control: FakeControl, serve: Any, tokens: Any
) -> None:
    headers = {"Authorization": "Bearer token-of-root", "Sec-Fetch-Site": "cross-site"}
    answer = post(serve(control, HttpConfig(tokens=tokens)).url + DISTRIBUTIONS, json=ORDER, headers=headers)
    assert answer.status_code == 403
    assert control.status().journal.next_offset == 0


def test_the_description_counts_against_a_stranger_s_rate_and_probes_do_not(
    control: FakeControl, serve: Any, tokens: Any
) -> None:
    config, clock = HttpConfig(tokens=tokens, requests_per_second=0.5, burst_requests=2), ManualClock()
    url = serve(control, config, clock=clock).url
    assert [get(f"{url}/api/openapi.json").status_code for _ in range(3)] == [200, 200, 429]
    assert {get(f"{url}/healthz").status_code for _ in range(3)} == {200}


def test_a_caller_that_asks_too_much_is_told_when_to_come_back_and_others_are_not(
    control: FakeControl, serve: Any, tokens: Any
) -> None:
    config, clock = HttpConfig(tokens=tokens, requests_per_second=0.5, burst_requests=3), ManualClock()
    url = serve(control, config, clock=clock).url
    with HttpControl(url, "token-of-viewer") as busy, HttpControl(url, "token-of-root") as other:
        for _ in range(3):
            busy.status()
        with pytest.raises(ThrottledError) as caught:
            busy.status()
        assert caught.value.retry_after_seconds == 2.0
        assert other.status()
    answer = get(f"{url}/api/v1/status", headers={"Authorization": "Bearer token-of-viewer"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert get(f"{url}/healthz").status_code == 200


def test_guessing_tokens_is_slowed_down(control: FakeControl, serve: Any, tokens: Any) -> None:
    config, clock = HttpConfig(tokens=tokens, requests_per_second=0.5, burst_requests=3), ManualClock()
    with new_client(base_url=serve(control, config, clock=clock).url) as client:

        def guess(number: int) -> int:
            return client.get("/api/v1/status", headers={"Authorization": f"Bearer {number}"}).status_code

        assert [guess(number) for number in range(5)] == [401, 401, 401, 429, 429]
        clock.advance(2.0)
        assert [guess(number) for number in range(5, 7)] == [401, 429]


def test_every_mutating_call_leaves_one_audit_line(
    control: FakeControl, serve: Any, tokens: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mailboat.audit")
    url = serve(control, HttpConfig(tokens=tokens)).url
    with new_client(base_url=url, headers={"Authorization": "Bearer token-of-editor"}) as client:
        client.get("/api/v1/status")
        client.post(DISTRIBUTIONS, json=ORDER, headers={"X-Request-Id": "call-1"})
        client.post(CLEAR, headers={"X-Request-Id": "call 2\twith spaces"})
        client.post(DISTRIBUTIONS, json={"action": "NO", "paths": []})
    facts = [record.audit for record in caplog.records if record.name == "mailboat.audit"]  # type: ignore[attr-defined]  # from `extra`
    assert [(fact["caller"], fact["verb"], fact["status"], fact["outcome"]) for fact in facts] == [
        ("editor", "distribute", 202, "done"),
        ("editor", "clear", 403, "AccessDenied"),
        ("editor", "distribute", 400, "Usage"),
    ]
    assert facts[0]["request_id"] == "call-1"
    assert (facts[0]["publisher"], facts[0]["action"], facts[0]["offset"]) == ("author", "ADD", 0)
    assert " " not in facts[1]["request_id"]
    assert all("\n" not in record.getMessage() and "token-of" not in record.getMessage() for record in caplog.records)


def test_a_port_in_use_is_an_error_that_says_so(control: FakeControl, serve: Any) -> None:
    port = urlsplit(serve(control).url).port
    second = HttpServer(httpx2.ASGITransport, HttpConfig(port=int(port or 0)))  # type: ignore[arg-type]  # never called
    with pytest.raises(PortTakenError, match=f"127.0.0.1 port {port}"):
        second.start()


def test_a_server_that_can_t_begin_to_serve_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = socket.socket()
    closed.close()
    monkeypatch.setattr("mailboat.http.server._listen", lambda _: closed)
    server = HttpServer(httpx2.ASGITransport, HttpConfig())  # type: ignore[arg-type]  # never called
    monkeypatch.setattr(HttpServer, "url", "http://agent")
    with pytest.raises(HttpStartFailedError, match="http://agent did not start: "):
        server.start()
    assert not server.is_serving


class Asked(FakeControl):
    """A control port that notes requests for distributions."""

    def __init__(self) -> None:
        super().__init__(FakeSubscriber("edge-1"))
        self.asked = threading.Event()

    def distribution(self, publisher: str, package_id: str, wait_seconds: float = 0.0) -> Any:
        self.asked.set()
        return super().distribution(publisher, package_id, wait_seconds)


def test_stopping_answers_those_who_wait_and_ends_within_the_deadline(serve: Any) -> None:
    control = Asked()
    server: HttpServer = serve(control)
    made = control.distribute("author", parse_request("ADD", ("/a",)))
    answers = []

    def wait_for_it() -> None:
        url = f"{server.url}{DISTRIBUTIONS}/{made.package_id}?wait=60"
        answers.append(get(url).json()["state"])

    thread = threading.Thread(target=wait_for_it)
    thread.start()
    assert control.asked.wait(PATIENCE_SECONDS)
    deadline = Deadline(SystemClock(), 30.0)  # the client waits twice as long
    server.stop(deadline)
    thread.join(PATIENCE_SECONDS)
    assert answers == ["queued"]
    assert not server.is_serving
    assert not deadline.is_over()


class Blocked(FakeControl):
    """A control port whose journal does not answer until the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.entered = threading.Semaphore(0)

    def status(self) -> Any:
        self.entered.release()
        assert self.released.wait(LONG_WAIT_SECONDS)
        return super().status()


def test_probes_answer_while_every_thread_is_busy_and_no_one_keeps_the_server_from_ending(serve: Any) -> None:
    control = Blocked()
    server: HttpServer = serve(control, HttpConfig(burst_requests=1000))
    with ExitStack() as opened:
        opened.callback(control.released.set)
        for _ in range(60):
            busy = opened.enter_context(connected(server.url))
            busy.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(40):
            assert control.entered.acquire(timeout=PATIENCE_SECONDS)
        assert get(f"{server.url}/healthz").status_code == 200
        began = time.monotonic()
        server.stop(Deadline(SystemClock(), 1.0))
        assert time.monotonic() - began < PATIENCE_SECONDS
        workers = [thread for thread in threading.enumerate() if thread.name.startswith("AnyIO")]
        assert workers
        assert all(worker.daemon for worker in workers)


def test_a_hundred_callers_at_once_are_all_served_once(control: FakeControl, serve: Any) -> None:
    url = serve(control, HttpConfig(requests_per_second=1000.0, burst_requests=1000)).url
    results: list[int] = []
    with new_client(base_url=url, limits=httpx2.Limits(max_connections=40)) as client:

        def publish(number: int) -> None:
            order = {**ORDER, "request_id": f"r-{number // 2}"}
            results.append(client.post(DISTRIBUTIONS, json=order).json()["offset"])

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert sorted(results) == sorted([*range(50), *range(50)])


def test_the_trace_context_of_the_caller_goes_with_the_order(control: FakeControl, serve: Any) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    order = {"action": "DELETE", "paths": ["/a"], "request_id": "traced"}
    post(f"{serve(control).url}{DISTRIBUTIONS}", json=order, headers={"traceparent": trace})
    assert control.ordered[-1].trace_parent == trace


def test_metrics_are_what_the_agent_gives(control: FakeControl, serve: Any) -> None:
    url = serve(control).url
    get(f"{url}/api/v1/status")
    get(f"{url}/no/such/path")
    get(f"{url}/api/v1/publishers/nobody/queues")
    answer = get(f"{url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    asked = get(f"{url}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    counted = [line for line in asked.text.splitlines() if line.startswith("mailboat_http_requests_total{")]
    routes = {re.findall('route="([^"]*)"', line)[0] for line in counted}
    assert routes == {"/api/v1/status", "other", "/metrics", "/api/v1/publishers/{publisher}/queues"}
