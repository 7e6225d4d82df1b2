"""Spans through OpenTelemetry, sent over OTLP/HTTP. Needs the extra `tracing`.

A publication is a span of the kind PRODUCER, a child of the caller's; its context travels with the package. Each
subscriber's import of the package is a span of the kind CONSUMER in the same trace, and linked to the publication.
Spans are collected and sent by threads of the SDK; when the collector is away, they are dropped, never waited for.
No global provider is set. Source: OpenTelemetry's semantic conventions for messaging spans.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

import mailboat
from mailboat.errors import MailboatError
from mailboat.tracing import TracedPackage, TraceParent, parse_trace_parent

SYSTEM: Final = "mailboat"
_EXPORT_SECONDS: Final = 10
# Part of the shutdown: a collector that does not answer must not use up its deadline.
_FLUSH_SECONDS: Final = 3.0
_NANOSECONDS: Final = 1_000_000


class OpenTelemetryTracer:
    """See `Tracer`. Close it, so that the last spans are sent."""

    def __init__(self, service: str, exporter: SpanExporter) -> None:
        """Send spans of `service` through the exporter."""
        resource = Resource.create({"service.name": service, "service.version": mailboat.__version__})
        # `close` ends it within seconds; the SDK's own hook at exit may wait longer for an absent collector.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._exporter = exporter
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("mailboat", mailboat.__version__)

    @property
    def is_recording(self) -> bool:
        return True

    def publication(self, action: str, parent: TraceParent | None) -> OpenPublication:
        span = self._tracer.start_span(
            f"publish {action}",
            context=None if parent is None else trace.set_span_in_context(NonRecordingSpan(_context_of(parent))),
            kind=SpanKind.PRODUCER,
            attributes={"messaging.system": SYSTEM, "messaging.operation.type": "send", "mailboat.action": action},
        )
        return OpenPublication(span)

    def imported(self, subscriber: str, packages: Sequence[TracedPackage], began_ms: int, ended_ms: int) -> None:
        for package in packages:
            parent = parse_trace_parent(package.trace_parent)
            if parent is None or not parent.is_sampled:
                continue
            context = _context_of(parent)
            span = self._tracer.start_span(
                f"import {package.action}",
                context=trace.set_span_in_context(NonRecordingSpan(context)),
                kind=SpanKind.CONSUMER,
                links=[Link(context)],
                start_time=began_ms * _NANOSECONDS,
                attributes={**_attributes_of(package), "mailboat.subscriber": subscriber},
            )
            span.set_attribute("messaging.operation.type", "process")
            span.end(end_time=ended_ms * _NANOSECONDS)

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        flushing = threading.Thread(target=self._provider.force_flush, name="spans-end", daemon=True)
        flushing.start()  # the SDK does not keep to a time-out here
        flushing.join(_FLUSH_SECONDS)
        if flushing.is_alive():
            self._exporter.shutdown()  # ends its attempts: nothing waits for a collector that is away
        self._provider.shutdown()


class OpenPublication:
    """See `PublicationSpan`."""

    def __init__(self, span: Span) -> None:
        """The span has begun."""
        self._span = span

    @property
    def context(self) -> TraceParent | None:
        context = self._span.get_span_context()
        is_sampled = bool(context.trace_flags & TraceFlags.SAMPLED)
        return TraceParent(f"{context.trace_id:032x}", f"{context.span_id:016x}", is_sampled)

    def end(self, package: TracedPackage | None, error: Exception | None) -> None:
        if package is not None:
            self._span.set_attributes(_attributes_of(package))
        if error is not None:
            name = error.name if isinstance(error, MailboatError) else type(error).__name__
            self._span.set_attribute("error.type", name)
            self._span.set_status(Status(StatusCode.ERROR, str(error)[:500]))
        self._span.end()


def otlp_tracer(service: str, endpoint: str) -> OpenTelemetryTracer:
    """A tracer that sends to an OTLP/HTTP endpoint, such as `http://collector:4318/v1/traces`."""
    return OpenTelemetryTracer(service, OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS))


def _context_of(parent: TraceParent) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags)


def _attributes_of(package: TracedPackage) -> dict[str, str | int]:
    found: dict[str, str | int | None] = {
        "messaging.system": SYSTEM,
        "messaging.message.id": package.package_id,
        "messaging.message.body.size": package.bytes,
        "mailboat.action": package.action,
        "mailboat.publisher": package.publisher,
        "mailboat.offset": package.offset,
        "mailboat.path": package.path,
    }
    return {name: value for name, value in found.items() if value is not None}
