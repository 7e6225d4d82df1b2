"""Trace contexts: which are believed, and how they travel with a package."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import SourceMissingError
from mailboat.model.identifiers import RequestId
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.publisher.publisher import Publisher
from mailboat.publisher.publisher_settings import PublisherPorts
from mailboat.subscriber.subscriber import Until
from mailboat.telemetry.otlp import OpenTelemetryTracer
from mailboat.testing.examples import examples
from mailboat.tracing import NoTracer, TraceParent, context_of_package, parse_trace_parent
from mailboat.wire.package_messages import decode_package
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.engines import Engine, EngineParts, write_site

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE_ID}-{SPAN_ID}-01"


def test_a_context_is_read_and_written_as_it_came() -> None:
    assert parse_trace_parent(GOOD) == TraceParent(TRACE_ID, SPAN_ID, is_sampled=True)
    assert str(parse_trace_parent(GOOD)) == GOOD
    assert parse_trace_parent(f"00-{TRACE_ID}-{SPAN_ID}-00") == TraceParent(TRACE_ID, SPAN_ID, is_sampled=False)


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse_trace_parent(f"01-{TRACE_ID}-{SPAN_ID}-01-more") == TraceParent(TRACE_ID, SPAN_ID, is_sampled=True)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        GOOD.upper(),
        f" {GOOD}",
        f"{GOOD}\n",
        f"{GOOD}-more",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"01-{TRACE_ID}-{SPAN_ID}-01more",
        f"01-{TRACE_ID}-{SPAN_ID}-01-{'x' * 5000}",
        f"00-{TRACE_ID}-{SPAN_ID}-0٣",
        7,
        b"00-" + b"0" * 52,
    ],
)
def test_a_hostile_context_is_dropped(text: object) -> None:
    assert parse_trace_parent(text) is None


@settings(deadline=None, max_examples=examples(200))
@given(st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"))
def test_no_text_breaks_the_reading_and_what_is_read_is_written_well_formed(text: str) -> None:
    found = parse_trace_parent(text)
    assert found is None or parse_trace_parent(str(found)) == found


def test_a_package_without_a_caller_is_its_own_trace() -> None:
    found = context_of_package("dstrpck-1700000000000-0af76519-16cd-43dd-8448-eb211c80319c")
    assert found == TraceParent(TRACE_ID, TRACE_ID[16:], is_sampled=False)
    assert context_of_package("dstrpck-1-x") is None


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def spans_of(exporter: InMemorySpanExporter, tracer: OpenTelemetryTracer) -> dict[str, list[ReadableSpan]]:
    tracer.close()
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def publish(engine: Engine, tracer: OpenTelemetryTracer | NoTracer, *requests: DistributionRequest) -> None:
    parts = engine.parts
    ports = PublisherPorts(engine.journal, engine.blobs, parts.codecs, engine.state, parts.clock, random=parts.random)
    publisher = Publisher(engine.publishing, replace(ports, tracer=tracer))
    source = FolderSource(engine.folder / "site")
    for request in requests:
        publisher.publish(request, source if request.action is Action.ADD else None)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    write_site(tmp_path / "site", {"a.html": "a", "b.html": "b"})
    return Engine(tmp_path, EngineParts(random=random.Random(3)))


def request_of(trace_parent: str | None, name: str = "r") -> DistributionRequest:
    return DistributionRequest(
        Action.ADD, (NodePath("/a.html"),), request_id=RequestId(name), user_id=None, trace_parent=trace_parent
    )


def test_the_callers_context_travels_with_the_package(engine: Engine) -> None:
    with engine:
        publish(engine, NoTracer(), request_of(GOOD))
        (record,) = engine.records()
        assert decode_package(record.value).trace_parent == GOOD


@pytest.mark.parametrize("hostile", [None, "00-zz", GOOD + "\r\nX: y"])
def test_without_a_good_context_a_package_has_its_own(engine: Engine, hostile: str | None) -> None:
    with engine:
        publish(engine, NoTracer(), request_of(hostile))
        (record,) = engine.records()
        message = decode_package(record.value)
        assert message.trace_parent == str(context_of_package(message.package_id))


def test_a_context_is_no_part_of_what_a_request_asks_for(engine: Engine) -> None:
    with engine:
        publish(engine, NoTracer(), request_of(GOOD), request_of(None))
        assert len(engine.records()) == 1


def test_publication_and_import_are_one_trace(engine: Engine, exporter: InMemorySpanExporter) -> None:
    tracer = OpenTelemetryTracer("test", exporter)
    with engine:
        publish(engine, tracer, request_of(GOOD), request_of(None, "second"))
        target = engine.target("sqlite")
        engine.subscriber(target, change_ports=lambda ports: replace(ports, tracer=tracer)).run(Until.CAUGHT_UP)
        target.close()
    found = spans_of(exporter, tracer)
    first, second = found["publish ADD"]
    assert f"{first.context.trace_id:032x}" == TRACE_ID
    assert first.parent is not None
    assert f"{first.parent.span_id:016x}" == SPAN_ID
    assert second.parent is None
    assert first.kind is SpanKind.PRODUCER
    assert (first.attributes or {})["mailboat.offset"] == 0
    for sent, taken in zip((first, second), found["import ADD"], strict=True):
        assert taken.kind is SpanKind.CONSUMER
        assert taken.parent is not None
        assert taken.parent.span_id == sent.context.span_id
        assert taken.links[0].context.span_id == sent.context.span_id
        assert (taken.attributes or {})["mailboat.subscriber"] == "edge"
        assert (taken.start_time or 0) <= (taken.end_time or 0)


def test_what_no_one_records_gives_no_span_of_an_import(engine: Engine, exporter: InMemorySpanExporter) -> None:
    tracer = OpenTelemetryTracer("test", exporter)
    with engine:
        publish(engine, NoTracer(), request_of(None))
        target = engine.target("sqlite")
        engine.subscriber(target, change_ports=lambda ports: replace(ports, tracer=tracer)).run(Until.CAUGHT_UP)
        target.close()
    assert spans_of(exporter, tracer) == {}


def test_a_publication_that_fails_says_why(engine: Engine, exporter: InMemorySpanExporter) -> None:
    tracer = OpenTelemetryTracer("test", exporter)
    with engine, pytest.raises(SourceMissingError):
        publish(engine, tracer, add_request([NodePath("/missing")]))
    (span,) = spans_of(exporter, tracer)["publish ADD"]
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "SourceMissing"
