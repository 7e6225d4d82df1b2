"""The headers of records, and the JSON of the event topic."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import MessageCorruptError, UntrustedInputError
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import DistributedEvent, Missed, MissedReason
from mailboat.model.paths import NodePath
from mailboat.testing.examples import examples
from mailboat.wire import headers
from mailboat.wire.event_documents import decode_event, encode_event

EVENT = DistributedEvent(
    AgentName("author"), PackageId("dstrpck-1-x"), Offset(2**40), (NodePath("/a"), NodePath("/ö")), (NodePath("/a"),)
)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BYTES = (
    '{"pubAgentName":"author","packageId":"dstrpck-1-x","deepPaths":["/a"],"paths":["/a","/ö"],"offset":1099511627776}'
)


def test_headers_are_decimal_ascii() -> None:
    assert headers.headers_for(headers.DISCOVERY) == (("type", b"1"), ("version", b"1"))
    assert [headers.DISCOVERY, headers.PACKAGE, headers.STATUS, headers.COMMAND, headers.PING] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", range(1, 6))
def test_the_type_of_a_record_is_read_in_any_order_of_headers(kind: int) -> None:
    there = headers.headers_for(kind)
    assert headers.message_type_of(there) == kind
    assert headers.message_type_of(tuple(reversed(there))) == kind


def test_an_event_has_the_keys_of_the_original_in_its_order() -> None:
    assert encode_event(EVENT) == ((), BYTES.encode())
    assert decode_event((), BYTES.encode()) == EVENT


def test_what_the_original_does_not_know_stands_in_headers_because_it_refuses_unknown_keys() -> None:
    missed = (Missed("x-ö", MissedReason.FAILED),)
    event = dataclasses.replace(EVENT, missed=missed, trace_parent=TRACE)
    record_headers, value = encode_event(event)
    assert value == BYTES.encode()
    assert dict(record_headers) == {
        "missed": '[{"subscriber":"x-ö","reason":"failed"}]'.encode(),
        "traceparent": TRACE.encode(),
    }
    assert decode_event(record_headers, value) == event


@pytest.mark.parametrize("missed", [b"", b"{", b"{}", b'[{"subscriber":"x"}]', b'[{"subscriber":"x","reason":"?"}]'])
def test_a_header_that_says_nothing_of_who_missed_it_is_refused(missed: bytes) -> None:
    with pytest.raises(MessageCorruptError):
        decode_event((("missed", missed),), BYTES.encode())


@pytest.mark.parametrize("trace", [b"", b"00-1-1-1", b"\xff"])
def test_a_trace_that_is_none_is_passed_over(trace: bytes) -> None:
    assert decode_event((("traceparent", trace),), BYTES.encode()) == EVENT


def test_keys_that_are_not_known_are_ignored() -> None:
    assert decode_event((("later", b"\xff"),), json.dumps({**json.loads(BYTES), "later": [1]}).encode()) == EVENT


@pytest.mark.parametrize("key", ["pubAgentName", "packageId", "deepPaths", "paths", "offset"])
@pytest.mark.parametrize("value", [None, {}, [1], "x" * 3 + "\ud800", -1, True, 1.5])
def test_a_value_of_another_kind_is_refused(key: str, value: object) -> None:
    with pytest.raises(UntrustedInputError):
        decode_event((), json.dumps({**json.loads(BYTES), key: value}).encode())


@pytest.mark.parametrize("key", ["pubAgentName", "packageId", "deepPaths", "paths", "offset"])
def test_a_missing_key_is_named(key: str) -> None:
    document = json.loads(BYTES)
    del document[key]
    with pytest.raises(MessageCorruptError, match=key):
        decode_event((), json.dumps(document).encode())


@pytest.mark.parametrize(
    "value", [b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff\xfe", b'{"offset": NaN}', b"1" * 5000]
)
def test_what_is_no_event_is_refused(value: bytes) -> None:
    with pytest.raises(MessageCorruptError):
        decode_event((), value)


@settings(deadline=None, max_examples=examples(50))
@given(
    st.builds(
        DistributedEvent,
        st.text(st.characters(codec="utf-8")).map(AgentName),
        st.text(st.characters(codec="utf-8")).map(PackageId),
        st.integers(0, 2**63 - 1).map(Offset),
        st.lists(st.sampled_from(["/", "/a", "/ä b"]).map(NodePath)).map(tuple),
        st.lists(st.sampled_from(["/", "/a", "/ä b"]).map(NodePath)).map(tuple),
    )
)
def test_every_event_comes_back(event: DistributedEvent) -> None:
    assert decode_event(*encode_event(event)) == event
