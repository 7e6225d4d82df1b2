"""The JSON of the event topic: keys and their order as the original writes them, no headers.

What is ours follows after the original's keys, and only where there is something to say: `missed`, the subscribers that
do not have the content, and `traceParent`.
"""

from __future__ import annotations

import json

from mailboat.errors import MessageCorruptError
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import DistributedEvent, Missed, MissedReason
from mailboat.model.paths import NodePath, parse_path
from mailboat.tracing import parse_trace_parent


def encode_event(event: DistributedEvent) -> bytes:
    """The value of a record on the event topic."""
    document: dict[str, object] = {
        "pubAgentName": event.pub_agent_name,
        "packageId": event.package_id,
        "deepPaths": event.deep_paths,
        "paths": event.paths,
        "offset": event.offset,
    }
    if event.missed:
        document["missed"] = [{"subscriber": one.subscriber, "reason": one.reason} for one in event.missed]
    if event.trace_parent is not None:
        document["traceParent"] = event.trace_parent
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def decode_event(value: bytes) -> DistributedEvent:
    """Decode a record of the event topic; unknown keys are ignored. Raises: MessageCorruptError, PathRefusedError."""
    try:
        document = json.loads(value)
        return DistributedEvent(
            AgentName(_text(document["pubAgentName"])),
            PackageId(_text(document["packageId"])),
            _offset(document["offset"]),
            _paths(document["paths"]),
            _paths(document["deepPaths"]),
            _missed(document.get("missed", [])),
            None if (trace := parse_trace_parent(document.get("traceParent"))) is None else str(trace),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MessageCorruptError(f"{len(value)} bytes are not a distributed event: {error!r:.200}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not a text")
    value.encode()  # raises on half of a surrogate pair, which JSON can name but nothing can store
    return value


def _offset(value: object) -> Offset:
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
    return tuple(Missed(_text(one["subscriber"]), MissedReason(one["reason"])) for one in value)
