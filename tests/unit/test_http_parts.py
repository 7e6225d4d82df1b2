"""The parts of the HTTP API that need no server: rates, access, problem documents, the original's names."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import h11
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from mailboat.api.problems import (
    Problem,
    error_of,
    import_all_modules,
    plain_problem,
    problem_of,
    read_problem,
    status_of,
)
from mailboat.clock import Clock, SystemClock
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import HttpConfig, TokenConfig
from mailboat.config.storage import Secret
from mailboat.control.journal_archive import message_view
from mailboat.errors import (
    JournalUnavailableError,
    MailboatError,
    RetryableError,
    StopError,
    UntrustedInputError,
    UsageError,
)
from mailboat.http.access import TokenBook, is_cross_site, is_from_here, is_loopback, token_of
from mailboat.http.audit import ApiCall, AuditTrail
from mailboat.http.bodies import is_json, json_fault
from mailboat.http.connections import GuardedProtocol, StrictConnection, displaced, guarded_protocol
from mailboat.http.gate import RESERVED, Gate
from mailboat.http.long_poll import Wait, settled
from mailboat.http.rates import MAX_CALLERS, RateLimiter, network_of
from mailboat.http.server import _listen, _QuietServer, _uvicorn_config
from mailboat.http.sling_documents import Selected, selected, time_text
from mailboat.journal.port import Record
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import Action, PackageMessage
from mailboat.telemetry.meters import RequestRecorder
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

DOCUMENTED = {400, 403, 404, 409, 422, 429, 500, 503}


def descendants(kind: type[MailboatError]) -> list[type[MailboatError]]:
    found = [item for child in kind.__subclasses__() for item in [child, *descendants(child)]]
    return [item for item in found if item.__module__.startswith("mailboat.")]


def every_error() -> list[type[MailboatError]]:
    import_all_modules(but=("mailboat.testing",))
    return sorted({*descendants(MailboatError)}, key=lambda one: one.__name__)


@pytest.mark.parametrize("kind", every_error(), ids=lambda one: one.__name__)
def test_every_error_survives_the_way_to_a_client(kind: type[MailboatError]) -> None:
    error = kind.__new__(kind)
    MailboatError.__init__(error, "what happened", next_step="what to do", path="/a", offset=7, nothing=None)
    if isinstance(error, RetryableError):
        error.retry_after_seconds = 3.5
    problem = problem_of(error)
    assert problem.status in DOCUMENTED
    assert (problem.retry_after_seconds is not None) is isinstance(error, RetryableError)
    seen = error_of(read(problem.document()), "http://agent")
    assert type(seen) is kind
    assert (str(seen), seen.next_step) == (str(error), error.next_step)


def read(document: object) -> Problem:
    problem = read_problem(json.dumps(document).encode())
    assert problem is not None
    return problem


@pytest.mark.parametrize(
    ("decision", "family"),
    [
        ("transient", RetryableError),
        ("needs-operator", StopError),
        ("rejected", UntrustedInputError),
        ("usage", UsageError),
    ],
)
def test_an_error_of_a_newer_agent_becomes_one_of_its_family(decision: str, family: type[MailboatError]) -> None:
    document = {"type": "urn:mailboat:error:NewlyInvented", "detail": "it happened", "decision": decision}
    seen = error_of(read(document), "http://agent")
    assert type(seen) is family
    assert (seen.message, seen.where["error"]) == ("it happened", "NewlyInvented")


@pytest.mark.parametrize("document", [{}, {"type": "about:blank"}, {"type": 7}])
def test_problem_of_another_type_is_no_error(document: object) -> None:
    assert error_of(read(document), "http://agent") is None


@pytest.mark.parametrize("content", [b"null", b"[]", b'"x"', b"<html>", b"", b"[" * 100_000])
def test_answer_that_is_no_json_object_is_no_problem_document(content: bytes) -> None:
    assert read_problem(content) is None


def test_hostile_members_of_a_problem_document_do_no_harm() -> None:
    document = {
        "type": "urn:mailboat:error:JournalUnavailable",
        "detail": ["x"],
        "where": 5,
        "retry_after_seconds": "x",
    }
    for seconds in ("x", 10**400, float("inf"), float("nan"), -1):
        seen = error_of(read(document | {"retry_after_seconds": seconds}), "http://agent")
        assert isinstance(seen, JournalUnavailableError)
        assert (seen.where, seen.retry_after_seconds) == ({}, None)


def test_a_defect_says_no_more_than_its_incident() -> None:
    assert plain_problem(500, "abc").document() == {
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
        "incident": "abc",
    }
    assert status_of(MailboatError("?")) == 500


# ------------------------------------------------------------------------------------------------------------- rates


def test_a_bucket_fills_at_its_rate_and_no_higher_than_its_burst() -> None:
    clock = ManualClock()
    rates = RateLimiter(2.0, 3, clock)
    assert [rates.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert rates.take("a") == pytest.approx(0.5)
    assert rates.take("b") == 0.0
    clock.advance(0.5)
    assert rates.take("a") == 0.0
    assert rates.take("a") > 0.0
    clock.advance(1000.0)
    assert [rates.take("a") > 0.0 for _ in range(4)] == [False, False, False, True]


def test_callers_are_remembered_up_to_a_number() -> None:
    rates = RateLimiter(0.001, 1, ManualClock())
    for number in range(3 * MAX_CALLERS):
        assert rates.take(f"caller-{number}") == 0.0
    assert len(rates._buckets) == MAX_CALLERS
    assert rates.take(f"caller-{3 * MAX_CALLERS - 1}") > 0.0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_a_stranger_is_an_ipv4_address_or_an_ipv6_network(address: str, network: str) -> None:
    assert network_of(address) == network


# ------------------------------------------------------------------------------------------------------- connections


@dataclass
class Occupant:
    """A connection as `displaced` sees it."""

    network: str
    waiting_since: float
    is_answering: bool = False


def test_a_new_connection_displaces_the_oldest_waiting_one_of_the_busiest_network() -> None:
    lonely, first, second = Occupant("a", 0.0), Occupant("b", 2.0), Occupant("b", 1.0)
    busy = Occupant("b", 0.0, is_answering=True)
    assert displaced([lonely, first, second, busy]) is second
    assert displaced([lonely, first, busy]) is first
    assert displaced([lonely, busy, Occupant("b", 0.0, is_answering=True)]) is lonely
    assert displaced([busy]) is None
    assert displaced([]) is None


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "both Content-Length and Transfer"),
        (HEAD + b"transfer-encoding: CHUNKED\r\ncontent-length: 0\r\n\r\n", "both Content-Length and Transfer"),
        (HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n", "folded"),
        (HEAD + b"X-A: b\n\tc\n\n", "folded"),
        (HEAD + b"X-A: b\r\n c", "folded"),
        (b"POST / HTTP/1.1\r\n Host: x\r\n\r\n", "folded"),
        (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", "neither 1.0 nor 1.1"),
    ],
    ids=[
        "both lengths",
        "both lengths, case",
        "folded",
        "folded by a tab",
        "folded, incomplete",
        "folded first line",
        "version",
    ],
)
def test_a_head_that_servers_read_differently_is_refused(head: bytes, reason: str) -> None:
    connection = StrictConnection(h11.SERVER)
    connection.receive_data(head)
    with pytest.raises(h11.RemoteProtocolError, match=reason):
        connection.next_event()
    assert reason in str(connection.fault)


def test_a_head_that_is_too_large_is_refused_as_such() -> None:
    connection = StrictConnection(h11.SERVER, 100)
    connection.receive_data(b"DELETE /items?" + b"id=package-0%407&" * 20)
    with pytest.raises(h11.RemoteProtocolError):
        connection.next_event()
    assert connection.fault == "its head is too large; send fewer or shorter parameters"


def test_a_second_head_on_a_connection_is_checked_as_the_first_one() -> None:
    connection = StrictConnection(h11.SERVER)
    connection.receive_data(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost:\r\n x\r\n\r\n")
    assert isinstance(connection.next_event(), h11.Request)
    assert isinstance(connection.next_event(), h11.EndOfMessage)
    for event in (h11.Response(status_code=204, headers=[]), h11.EndOfMessage()):
        connection.send(event)
    connection.start_next_cycle()
    with pytest.raises(h11.RemoteProtocolError, match="folded"):
        connection.next_event()


def test_lines_of_a_body_may_begin_with_a_space() -> None:
    connection = StrictConnection(h11.SERVER)
    connection.receive_data(HEAD + b"Content-Length: 4\r\n\r\n\r\n x")
    assert isinstance(connection.next_event(), h11.Request)
    assert connection.next_event() == h11.Data(data=bytearray(b"\r\n x"))


# ------------------------------------------------------------------------------------------------------------ access


class RecordedTransport(asyncio.Transport):
    """A transport whose client reads nothing."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.is_closed = False
        self.aborted = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.aborted.set()

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return


def test_the_guarded_protocol_is_called_by_uvicorn() -> None:
    """uvicorn does not document the class that is extended (decision 0029): each method and attribute in use."""
    states = list[object]()

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        states.append(scope["state"].get(RESERVED))
        await PlainTextResponse("good")(scope, receive, send)
        answered.set()

    answered = asyncio.Event()

    async def serve() -> None:
        kind = guarded_protocol(0.01, 2)
        config = uvicorn.Config(
            answer, http=kind, ws="none", lifespan="off", log_config=None, h11_max_incomplete_event_size=1024
        )
        config.load()
        state = ServerState()

        def connect() -> tuple[GuardedProtocol, RecordedTransport]:
            protocol, transport = kind(config, state, {}), RecordedTransport()
            protocol.connection_made(transport)
            return protocol, transport

        protocol, unread = connect()
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert protocol.is_answering
        await answered.wait()
        assert not protocol.is_answering
        assert unread.written.endswith(b"good")
        protocol.pause_writing()
        protocol.resume_writing()  # the answer is complete: its own limit goes on

        malformed, refused = connect()
        malformed.data_received(b"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n")
        assert refused.written.startswith(b"HTTP/1.1 400 ")
        assert b"a header is folded over several lines" in refused.written
        assert refused.is_closed
        malformed.connection_lost(None)

        slow, waiting = connect()
        slow.data_received(b"GET / HTTP/1.1\r\n")
        await unread.aborted.wait()
        await waiting.aborted.wait()

        newest, _ = connect()  # two connections are the limit: the one that waits longest has gone
        assert state.connections == {newest, slow}
        newest.data_received(b"GET / HTTP/1.1\r\nA: " + bytes(1025))
        assert newest.transport.is_closing()

    asyncio.run(serve())
    assert states == [False]


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic eDphYmM=", "abc"),
        ("Basic eDphOmI=", "a:b"),
        ("Basic eA==", None),
        ("Basic /w==", None),
        ("Bearer sch\u00c3\u00b6n", "schön"),
        ("Bearer \u00ff", "\u00ff"),
        ("Digest abc", None),
        ("", None),
    ],
)
def test_tokens_are_found_in_either_scheme(header: str, token: str | None) -> None:
    assert token_of(header) == token


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]", "agent.localhost"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example", "", "example"])
def test_all_else_is_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("said", "expected"),
    [(None, False), ("none", False), ("same-origin", False), ("same-site", True), ("cross-site", True), ("x", True)],
)
def test_a_browser_says_that_a_request_is_of_another_site(said: str | None, expected: bool) -> None:
    assert is_cross_site(said) is expected


def test_a_page_of_the_agent_itself_is_from_here() -> None:
    assert is_from_here("localhost:8080", "http://localhost:8080")
    assert not is_from_here("localhost:8080", "http://localhost:9090")
    assert not is_from_here("", None)


@given(st.text(max_size=50))
def test_an_audit_line_is_one_line_whatever_it_tells(text: str) -> None:
    audit = AuditTrail(ManualClock())
    audit.write(ApiCall("r", what={"publisher": "author", "queue": text}), "POST", f"/{text}")
    (line,) = audit.lines("author")
    assert line.isascii()
    assert line.isprintable()
    assert line.endswith("outcome=done status=0 request_id=r")
    assert audit.lines("other") == []


def test_the_audit_line_is_written_before_its_answer_begins(tmp_path: Path) -> None:
    audit, seen = AuditTrail(ManualClock()), list[tuple[str, int]]()

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["call"].what |= {"publisher": "author"}
        await PlainTextResponse("fine", 202)(scope, receive, send)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        seen.append((message["type"], len(audit.lines("author"))))

    gate = Gate(inner, HttpConfig(), tmp_path, ManualClock(), audit, RequestRecorder())
    asyncio.run(gate({"type": "http", "method": "POST", "path": "/x", "headers": [(b"host", b"[::1]")]}, receive, send))
    assert seen == [("http.response.start", 1), ("http.response.body", 1)]
    assert len(audit.lines("author")) == 1


def test_an_audit_line_leaves_out_what_there_is_not_to_tell() -> None:
    audit = AuditTrail(ManualClock())
    what = {"publisher": "author", "max_items": None, "command": "", "offset": 0}
    audit.write(ApiCall("r", what=what), "POST", "/clear")
    (line,) = audit.lines("author")
    assert line.endswith("path=/clear publisher=author offset=0 outcome=done status=0 request_id=r")


@given(st.recursive(st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5))
def test_half_characters_are_found_and_whole_ones_are_not(document: Any) -> None:
    assert json_fault(json.dumps(document).encode()) is None
    assert json_fault(json.dumps([document, "\ud83d"]).encode()) == "it has half of a character, a lone surrogate"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b'{"a": 1, "b": {"a": 2}}', None),
        (b'\xef\xbb\xbf{"a": "\xc3\xa4"}', None),
        (b'{"a": 1, "b": 2, "a": 1}', "it has the member 'a' twice"),
        (b'[{"b": {"c": 1, "c": 2}}]', "it has the member 'c' twice"),
        (b'{"a": 1, "\\u0061": 2}', "it has the member 'a' twice"),
        ('{"a": 1}'.encode("utf-16"), "it is not UTF-8: byte 0 is wrong"),
        ('{"a": 1}'.encode("utf-16-le"), "it is not JSON: "),
        ('{"a": 1}'.encode("utf-32-be"), "it is not JSON: "),
        ('{"a": "ä"}'.encode("latin-1"), "it is not UTF-8: byte 7 is wrong"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1e308, "b": -1e999}', "-1e999 is too large for a number"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"a": 1', "it is not JSON: Expecting ',' delimiter (line 1, column 8)"),
        (b"1" * 5000, "Exceeds the limit"),
    ],
)
def test_json_that_readers_can_read_differently_is_refused(body: bytes, fault: str | None) -> None:
    found = json_fault(body)
    assert found == fault if fault is None else str(found).startswith(fault)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-16", True),
        ("application/problem+json", True),
        ("application/x-www-form-urlencoded", False),
        ("multipart/form-data; boundary=json", False),
        ("", False),
    ],
)
def test_a_content_type_announces_json(content_type: str, expected: bool) -> None:
    assert is_json(content_type) is expected


# ------------------------------------------------------------------------------------------------------ the original's


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queues", Selected("queues")),
        ("queues.json", Selected("queues")),
        ("queues.1.json", Selected("queues", 1)),
        ("queues.99.json", Selected("queues", 4)),
        ("queues.infinity.json", Selected("queues", 4)),
        ("log.txt", Selected("log")),
        ("id-edge.2.json", Selected("id-edge", 2)),
        ("id-edge.2.0.json", Selected("id-edge.2", 0)),
        ("id-a.b.json", Selected("id-a.b")),
        (".json", Selected("")),
    ],
)
def test_the_last_part_of_a_path_says_name_and_depth(text: str, expected: Selected) -> None:
    assert selected(text) == expected


def test_times_look_as_in_the_original() -> None:
    assert time_text(datetime(2026, 1, 1, 13, tzinfo=UTC)) == "Thu Jan 01 2026 13:00:00 GMT+0000"


@pytest.mark.parametrize(
    ("payload", "reference", "transport"),
    [
        (b"x", None, "inline"),
        (None, "sha256:00:1", "reference"),
        (None, "pieces:3:4:2:100", "pieces"),
        (None, None, "none"),
    ],
)
def test_a_message_says_how_its_package_travels(payload: bytes | None, reference: str | None, transport: str) -> None:
    message = PackageMessage(
        SlingId("i" * 36),
        PackageId("p"),
        Action.ADD,
        "tree",
        AgentName("author"),
        payload=payload,
        payload_ref=reference,
        package_digest=b"\xff",
    )
    view = message_view(Record(Offset(7), b"", appended_ms=5), message)
    assert (view.offset, view.transport, view.package_digest, view.tree_digest) == (7, transport, "ff", None)


def test_facts_with_any_name_are_read_from_a_problem_document() -> None:
    facts = {"self": "a", "message": "b", "next_step": "c"}
    problem = read_problem(json.dumps({"type": "urn:mailboat:error:Throttled", "detail": "d", "where": facts}).encode())
    assert problem is not None
    error = error_of(problem, "http://agent.example")
    assert error is not None
    assert (error.message, error.where) == ("d", facts)


@pytest.mark.parametrize("turns", range(6))
def test_connection_that_is_accepted_while_the_server_ends_is_closed(turns: int) -> None:
    async def end_after_accept(client: socket.socket) -> None:
        server = _QuietServer(_uvicorn_config(PlainTextResponse("served"), HttpConfig()))
        listening = _listen(HttpConfig(port=0))
        serving = asyncio.create_task(server.serve([listening]))
        await asyncio.to_thread(server.ready.wait, PATIENCE_SECONDS)
        client.connect(listening.getsockname())
        for _ in range(turns):
            await asyncio.sleep(0)
        server.end(30.0)
        await serving

    with socket.socket() as client:
        asyncio.run(end_after_accept(client))
        client.settimeout(PATIENCE_SECONDS)
        assert client.recv(1) == b""
    gc.collect()  # a transport that nothing closed warns, and fails the test


class Waiting(NamedTuple):
    """See `WaitingPorts`."""

    clock: Clock
    stopping: threading.Event


def test_a_wait_ends_with_the_connection_of_its_caller() -> None:
    looks: list[int] = []

    def look() -> int:
        looks.append(1)
        return len(looks)

    async def is_gone() -> bool:
        return len(looks) == 3

    ports = Waiting(SystemClock(), threading.Event())
    assert asyncio.run(settled(ports, look, lambda _: False, Wait(LONG_WAIT_SECONDS, is_gone))) == 3


def test_a_token_that_no_header_can_carry_is_refused(tmp_path: Path) -> None:
    for text in ("secret\n\n", " secret", "sec\tret"):
        (tmp_path / "ci").write_text(text)
        tokens = [TokenConfig("ci", Secret(file="ci"))]
        with pytest.raises(ConfigInvalidError, match=r"http\.tokens\[0\]\.token is not a token") as caught:
            TokenBook(tokens, tmp_path, ManualClock())
        assert "secret" not in str(caught.value)
