"""A distributed event as a CloudEvent 1.0, in the structured JSON mode of the HTTP binding.

`source` and `id` together identify the event permanently, so a receiver can skip a repeat.
Source: https://github.com/cloudevents/spec, CloudEvents 1.0.2, its JSON format, and the distributed tracing extension.
"""

from __future__ import annotations

import json
from typing import Final

from mailboat.clock import moment_of
from mailboat.model.messages import DistributedEvent
from mailboat.wire.events import event_document

EVENT_TYPE: Final = "dev.mailboat.package.distributed.v1"
CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"


def encode_cloud_event(event: DistributedEvent, raised_ms: int) -> bytes:
    """The body of a post; `raised_ms` is when the log took the event."""
    document: dict[str, object] = {
        "specversion": "1.0",
        "id": event.package_id,
        "source": f"/mailboat/publishers/{event.pub_agent_name}",
        "type": EVENT_TYPE,
        "time": moment_of(raised_ms).isoformat(timespec="milliseconds"),
        "datacontenttype": "application/json",
    }
    if event.paths:
        document["subject"] = event.paths[0]
    if event.trace_parent is not None:
        document["traceparent"] = event.trace_parent
    return json.dumps({**document, "data": event_document(event)}, ensure_ascii=False).encode()
