"""The event topic: JSON with Sling's keys in their order and, where they are asked for, events of jobs.

Sling refuses a document with an unknown key. So our additions are in headers, which it does not
read, and only where there is something to say: `missed`, the subscribers that do not have the content, as JSON, and
`traceparent`. Events of jobs are CloudEvents with the header that the Kafka protocol binding gives them:
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from mailboat.errors import MessageCorruptError, UntrustedInputError
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import DistributedEvent, Missed, MissedReason
from mailboat.model.paths import NodePath, parse_path
from mailboat.tracing import parse_trace_parent
from mailboat.wire.headers import Headers

MISSED_HEADER: Final = "missed"
TRACE_HEADER: Final = "traceparent"
JOB_EVENT_HEADERS: Final[Headers] = (("content-type", b"application/cloudevents+json; charset=UTF-8"),)


class RecordedJobEvent(NamedTuple):
    """An event of a job on the event topic: its type, and the job's id."""

    type: str
    job: str


def encode_event(event: DistributedEvent) -> tuple[Headers, bytes]:
    """The headers and the value of a record on the event topic."""
    headers: list[tuple[str, bytes]] = []
    if event.missed:
        headers.append((MISSED_HEADER, _json(_missed_document(event))))
    if event.trace_parent is not None:
        headers.append((TRACE_HEADER, event.trace_parent.encode()))
    return tuple(headers), _json(_original_document(event))


def event_document(event: DistributedEvent) -> dict[str, object]:
    """An event as one JSON object with all that is known of it: for those who are not on the topic."""
    document = _original_document(event)
    if event.missed:
        document["missed"] = _missed_document(event)
    if event.trace_parent is not None:
        document["traceParent"] = event.trace_parent
    return document


def decode_event(headers: Headers, value: bytes) -> DistributedEvent:
    """Decode a record of the event topic; what is not known is ignored.

    Raises: MessageCorruptError, PathRefusedError.
    """
    ours = dict(headers)
    try:
        document = json.loads(value)
        # Any program may write this header: what is not UTF-8 is ignored, and does not make the event unreadable.
        trace = parse_trace_parent(ours.get(TRACE_HEADER, b"").decode(errors="replace"))
        return DistributedEvent(
            AgentName(_text(document["pubAgentName"])),
            PackageId(_text(document["packageId"])),
            _offset(document["offset"]),
            _paths(document["paths"]),
            _paths(document["deepPaths"]),
            _missed(json.loads(ours.get(MISSED_HEADER, b"[]"))),
            None if trace is None else str(trace),
        )
    # RecursionError: JSON that is nested deeply enough to exhaust the stack.
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MessageCorruptError(f"{len(value)} bytes are not a distributed event: {error!r:.200}") from error


def readable_event(headers: Headers, value: bytes) -> DistributedEvent | None:
    """As `decode_event`; None where that fails: anyone may write to a topic, and `journal verify` names it."""
    try:
        return decode_event(headers, value)
    except UntrustedInputError:
        return None


def decode_job_event(headers: Headers, value: bytes) -> RecordedJobEvent | None:
    """Decode an event of a job; None for any other record. Raises: MessageCorruptError."""
    # By the header: events of packages are in the same topic, with other headers or none.
    if tuple(headers) != JOB_EVENT_HEADERS:
        return None
    try:
        document = json.loads(value)
        return RecordedJobEvent(_text(document["type"]), _text(document["subject"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MessageCorruptError(f"{len(value)} bytes are not an event of a job: {error!r:.200}") from error


def _original_document(event: DistributedEvent) -> dict[str, object]:
    # Sling's keys, in its order: its reader refuses a document with any other key.
    return {
        "pubAgentName": event.pub_agent_name,
        "packageId": event.package_id,
        "deepPaths": event.deep_paths,
        "paths": event.paths,
        "offset": event.offset,
    }


def _missed_document(event: DistributedEvent) -> list[dict[str, str]]:
    return [{"subscriber": missing.subscriber, "reason": missing.reason} for missing in event.missed]


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not a text")
    # raises on half of a surrogate pair, which JSON can name but nothing can store
    value.encode()
    return value


def _offset(value: object) -> Offset:
    # `bool` is a subclass of int, and `true` is not an offset.
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"{value!r:.80} is not an offset")
    return Offset(value)


def _paths(value: object) -> tuple[NodePath, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.80} is not a list of paths")
    return tuple(parse_path(_text(path)) for path in value)


def _missed(value: object) -> tuple[Missed, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.80} is not a list of subscribers")
    return tuple(Missed(_text(entry["subscriber"]), MissedReason(entry["reason"])) for entry in value)
