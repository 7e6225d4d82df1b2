"""Traces as a dependency: the engine reports publications and imports to a `Tracer`, and imports no tracing library.

A trace context travels with each package as a W3C `traceparent` (https://www.w3.org/TR/trace-context/). One that comes
from outside is checked before it is believed: what is not exactly of that form is dropped, never repaired and never an
error. `NoTracer` is the default; `mailboat.telemetry.otlp` has the one that sends spans.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from mailboat.frozen import Frozen

_TRACE_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", re.ASCII)
_FUTURE_PART: Final = re.compile(r"-[\x21-\x7e]{0,200}", re.ASCII)
# Of version 00; later versions may append parts: https://www.w3.org/TR/trace-context/#versioning-of-traceparent
_LENGTH: Final = 55
_SAMPLED: Final = 0x01


class TraceParent(NamedTuple):
    """A place in a trace: the trace, the span that others hang on to, and whether it is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


class TraceableMessage(Protocol):
    """What a package message says for a span; `PackageMessage` does."""

    @property
    def package_id(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def pub_agent_name(self) -> str | None: ...
    @property
    def paths(self) -> Sequence[str]: ...
    @property
    def package_length_bytes(self) -> int: ...
    @property
    def trace_parent(self) -> str | None: ...


class TracedPackage(Frozen):
    """A package as spans describe it.

    Attributes:
        package_id: The package.
        action: What it does.
        publisher: Name of its publisher; None in foreign messages.
        offset: Its place on the package topic; None before it has one.
        path: The first path.
        bytes: Size of the package.
        trace_parent: The context that it carries.
    """

    package_id: str
    action: str
    publisher: str | None = None
    offset: int | None = None
    path: str | None = None
    bytes: int = 0
    trace_parent: str | None = None

    @classmethod
    def of(cls, message: TraceableMessage, offset: int | None) -> TracedPackage:
        """The package of a message at `offset`; None: not appended yet."""
        return cls(
            message.package_id,
            message.action,
            message.pub_agent_name,
            offset,
            message.paths[0] if message.paths else None,
            message.package_length_bytes,
            message.trace_parent,
        )


class PublicationSpan(Protocol):
    """A publication while it goes on."""

    @property
    def context(self) -> TraceParent | None:
        """What the package carries on; None leaves it to the publisher."""

    def end(self, package: TracedPackage | None, error: Exception | None) -> None:
        """It is over: the package is durable, or why it is not."""


class Tracer(Protocol):
    """Records spans. Safe to use from several threads; must neither block nor raise."""

    @property
    def is_recording(self) -> bool:
        """Whether imports are recorded; the importing thread asks this before it collects anything."""

    def publication(self, action: str, parent: TraceParent | None) -> PublicationSpan:
        """A request begins."""

    def imported(self, subscriber: str, packages: Sequence[TracedPackage], began_ms: int, ended_ms: int) -> None:
        """Packages were committed in one transaction between two wall times, in milliseconds since 1970 UTC."""


class _NoSpan:
    """Nothing is recorded."""

    context: TraceParent | None = None

    def end(self, package: TracedPackage | None, error: Exception | None) -> None:
        """See `PublicationSpan`."""


NO_SPAN: Final[PublicationSpan] = _NoSpan()


class NoTracer:
    """Records nothing."""

    is_recording = False

    def publication(self, action: str, parent: TraceParent | None) -> PublicationSpan:  # noqa: ARG002
        return NO_SPAN

    def imported(self, subscriber: str, packages: Sequence[TracedPackage], began_ms: int, ended_ms: int) -> None:
        """See `Tracer`."""


def parse_trace_parent(text: object) -> TraceParent | None:
    """The context that a `traceparent` names; None when it is not one.

    Unknown versions are read as far as version 00 goes, as the recommendation asks; the version `ff`, ids of zeros only
    and anything else of another form are nothing. Source: W3C Trace Context, section 3.2.
    """
    if not isinstance(text, str) or len(text) < _LENGTH:
        return None
    match = _TRACE_PARENT.fullmatch(text[:_LENGTH])
    if match is None:
        return None
    version, trace_id, span_id, flags = match.groups()
    rest = text[_LENGTH:]
    if rest and (version == "00" or _FUTURE_PART.fullmatch(rest) is None):
        return None
    if version == "ff" or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def context_of_package(package_id: str) -> TraceParent | None:
    """The context of a package whose caller gave none: its own random id as the trace, so that logs can name it.

    It is not marked as recorded. None for ids that do not end in a UUID, which ours do.
    """
    digits = package_id[-36:].replace("-", "")
    return parse_trace_parent(f"00-{digits}-{digits[16:]}-00")
