"""The client of the control API, beside servers that answer something else, slowly, or without an end."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Iterator

import httpx2
import pytest
from mailboat.api.client import ANSWER_SECONDS, HttpControl
from mailboat.api.problems import problem_of
from mailboat.api.stream_events import StreamEvent, encode_event
from mailboat.errors import AgentDefectError, AgentUnreachableError, ThrottledError, UsageError
from mailboat.testing.clocks import ManualClock, SkippingClock


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"journal": 5}', b""])
def test_an_answer_that_is_no_document_of_an_agent_is_told_as_such(content: bytes) -> None:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=content))
    with (
        HttpControl("http://agent.example", transport=transport) as client,
        pytest.raises(AgentDefectError, match=r"unexpected response from http://agent\.example"),
    ):
        client.status()


def throttled(seconds: float) -> httpx2.Response:
    problem = problem_of(ThrottledError("this caller exceeds its request rate", retry_after_seconds=seconds))
    return httpx2.Response(problem.status, json=problem.document())


def test_a_short_pause_of_the_request_rate_is_waited_out() -> None:
    answers = iter([throttled(0.02), throttled(0.02), httpx2.Response(200, content=b"[]")])
    transport, clock = httpx2.MockTransport(lambda _: next(answers)), SkippingClock()
    with HttpControl("http://agent.example", clock=clock, transport=transport) as client:
        assert client.queues("author") == []
    assert clock.monotonic() == pytest.approx(1000.04)


def test_a_longer_pause_is_left_to_the_caller_and_a_short_one_without_an_end_too() -> None:
    for seconds, waited in ((7.5, 0.0), (0.5, ANSWER_SECONDS)):
        transport, clock = httpx2.MockTransport(lambda _, seconds=seconds: throttled(seconds)), SkippingClock()
        with (
            HttpControl("http://agent.example", clock=clock, transport=transport) as client,
            pytest.raises(ThrottledError),
        ):
            client.status()
        assert clock.monotonic() == pytest.approx(1000.0 + waited)


def test_answer_that_does_not_end_is_given_up_at_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailboat.api.client.MAX_ANSWER_BYTES", 1_000)
    endless = httpx2.MockTransport(lambda _: httpx2.Response(200, content=itertools.repeat(b" " * 100)))
    with HttpControl("http://agent.example", transport=endless) as client:
        for ask in (client.status, client.topics):
            with pytest.raises(AgentDefectError, match=r"unexpected response from .*: more than"):
                ask()


def test_answer_that_is_not_packed_as_it_says_is_no_defect() -> None:
    packed = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"Content-Encoding": "gzip"}, content=iter([b"no gzip"]))
    )
    with (
        HttpControl("http://agent.example", transport=packed) as client,
        pytest.raises(AgentDefectError, match="unexpected response"),
    ):
        client.status()


def event_client(content: bytes, media_type: str = "text/event-stream; charset=utf-8") -> HttpControl:
    answer = httpx2.Response(200, headers={"Content-Type": media_type}, content=content)
    return HttpControl("http://agent.example", transport=httpx2.MockTransport(lambda _: answer))


def test_events_are_read_with_characters_that_end_lines_elsewhere() -> None:
    data = {"name": "a\u0085b\u2028c\u2029d\r"}
    with event_client(encode_event("1-1", "subscriber", data)) as client:
        assert list(client.events()) == [StreamEvent("1-1", "subscriber", data)]


def test_page_of_another_server_is_no_silent_event_stream() -> None:
    with (
        event_client(b"<html>\n\n</html>", "text/html") as client,
        pytest.raises(AgentDefectError, match="not the event stream"),
    ):
        list(client.events())


def test_line_of_the_event_stream_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailboat.api.stream_events.MAX_EVENT_BYTES", 1_000)
    for content in (b"data: " + b"x" * 2_000, b"data: xxx\n" * 500):
        with event_client(content) as client, pytest.raises(AgentDefectError, match="an event of more than"):
            list(client.events())


def test_password_of_a_url_is_in_no_message() -> None:
    def refused(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    with (
        HttpControl("http://x:secret@agent.example/", transport=httpx2.MockTransport(refused)) as client,
        pytest.raises(AgentUnreachableError, match=r"at http://agent\.example: refused"),
    ):
        client.status()


@pytest.mark.parametrize(
    ("url", "step"),
    [
        ("http://agent.example:8080/#/queues", "--url http://agent.example:8080"),
        ("http://agent.example/base/?x=1", "--url http://agent.example/base"),
        ("http://a\x00b:80", None),
        (f"http://{'a' * 64}.example", None),
        ("http://a..example", None),
    ],
)
def test_url_that_names_no_agent_is_refused_with_the_one_that_may(url: str, step: str | None) -> None:
    with pytest.raises(UsageError, match="invalid agent URL") as caught:
        HttpControl(url)
    assert caught.value.next_step == step


def test_an_answer_that_comes_too_slowly_is_given_up_after_the_time_of_the_request() -> None:
    clock = ManualClock()

    class Drops(httpx2.SyncByteStream):
        sent = 0

        def __iter__(self) -> Iterator[bytes]:
            while True:
                self.sent += 1
                clock.advance(ANSWER_SECONDS / 4)
                yield b" "

    drops = Drops()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=drops))
    with (
        HttpControl("http://agent.example", clock=clock, transport=transport) as client,
        pytest.raises(AgentUnreachableError, match=r"no answer from the agent at http://agent\.example: timed out"),
    ):
        client.status()
    assert drops.sent == 4


@pytest.mark.parametrize(
    ("code", "step"), [(20, "set SSL_CERT_FILE"), (18, "set SSL_CERT_FILE"), (62, "use a host name"), (10, "renew")]
)
def test_a_certificate_that_cannot_be_verified_names_the_way_out(code: int, step: str) -> None:
    refused = ssl.SSLCertVerificationError("certificate verify failed")
    refused.verify_code = code

    def answer(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("certificate verify failed") from refused

    with (
        HttpControl("https://agent.example", transport=httpx2.MockTransport(answer)) as client,
        pytest.raises(UsageError, match=r"no connection to the agent at https://agent\.example") as caught,
    ):
        client.status()
    assert str(caught.value.next_step).startswith(step)
