"""Spans that reach a collector: a real OTLP/HTTP receiver on the loopback."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from mailboat.telemetry import otlp
from mailboat.telemetry.otlp import otlp_tracer
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat.tracing import TracedPackage, parse_trace_parent
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    taken: list[ExportTraceServiceRequest] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            taken.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", taken
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans_reach_the_collector_with_their_context_and_facts(
    collector: tuple[str, list[ExportTraceServiceRequest]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_FLUSH_SECONDS", PATIENCE_SECONDS)  # spans that come later are given up
    url, taken = collector
    tracer = otlp_tracer("mailboat", url)
    publication = tracer.publication("ADD", parse_trace_parent(PARENT))
    context = publication.context
    assert context is not None
    package = TracedPackage("p1", "ADD", "author", 7, "/a", 12, str(context))
    publication.end(package, None)
    tracer.imported("web", [package], 1_700_000_000_000, 1_700_000_000_020)
    tracer.close()
    resources = [resource_span for request in taken for resource_span in request.resource_spans]
    names = {pair.key: pair.value.string_value for pair in resources[0].resource.attributes}
    assert names["service.name"] == "mailboat"
    spans = {span.name: span for resource in resources for scope in resource.scope_spans for span in scope.spans}
    assert {span.trace_id.hex() for span in spans.values()} == {context.trace_id}
    assert spans["publish ADD"].parent_span_id.hex() == PARENT.split("-")[2]
    taken_span = spans["import ADD"]
    assert taken_span.parent_span_id.hex() == context.span_id == taken_span.links[0].span_id.hex()
    assert taken_span.end_time_unix_nano - taken_span.start_time_unix_nano == 20_000_000


def test_a_collector_that_is_away_costs_nothing_but_the_spans() -> None:
    tracer = otlp_tracer("mailboat", "http://127.0.0.1:9/v1/traces")
    for number in range(5000):
        tracer.imported("web", [TracedPackage(f"p{number}", "ADD", trace_parent=PARENT)], 1, 2)
    began = time.monotonic()
    tracer.close()
    assert time.monotonic() - began < 30
