"""The event stream as data: its events, and how they travel as server-sent events (WHATWG HTML, 9.2). No I/O.

`control/event_feed.py` makes the events, `http/event_stream.py` sends them, `api/client.py` reads them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mailboat.errors import AgentDefectError

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT: Final = b": heartbeat\n\n"
"""A comment, which clients ignore: it keeps proxies from closing the connection, and finds clients that vanished."""

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""Of one event that is read: a status of 100,000 subscribers has as many."""


class EventType(enum.StrEnum):
    """What an event of the stream is about."""

    SNAPSHOT = "snapshot"
    """The whole status, first to every client; `data.gap` says that events before it were lost to the client."""

    JOURNAL = "journal"
    """The journal's bounds changed."""

    PUBLISHER = "publisher"
    """A publisher changed, or is new."""

    SUBSCRIBER = "subscriber"
    """A subscriber changed, or is new."""

    SUBSCRIBER_REMOVED = "subscriber-removed"
    """A subscriber was removed from the registry, or its announcement expired."""

    DISTRIBUTED = "distributed"
    """All subscribers that count have processed a package: the document of the event topic."""

    PROBLEM = "problem"
    """The agent cannot read the journal; `data` is null when it can again."""

    END = "end"
    """The last event of a connection, without an id; `data.reason` says why, and the client may connect again."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event of the stream.

    Attributes:
        id: To resume after it with `Last-Event-ID`; empty for `end`.
        type: One of `EventType`; a newer agent may send others.
        data: The JSON document.
    """

    id: str
    type: str
    data: Any


def encode_event(event_id: str, kind: str, data: object) -> bytes:
    """The bytes of one event; `data` is a record or a JSON value."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


def encode_end(reason: str) -> bytes:
    """The bytes of the last event of a connection."""
    return encode_event("", EventType.END, {"reason": reason})


def lines_of(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream without their ends, which are LF or CR LF; a last one without an end is dropped.

    `str.splitlines`, and HTTP clients that use it, also end lines at U+0085, U+2028 and U+2029, which JSON has as they
    are. Raises: AgentDefectError for a line without an end.
    """
    line = bytearray()
    for piece in pieces:
        first, *others = piece.split(b"\n")
        line += first
        for begun in others:
            yield line.decode(errors="replace").removesuffix("\r")
            line = bytearray(begun)
        _check_size(len(line))


def read_events(lines: Iterable[str]) -> Iterator[StreamEvent]:
    """The events of a stream, by its lines without line ends. Raises: AgentDefectError: invalid data."""
    event_id, kind, data, length = "", "", list[str](), 0
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            event_id = value
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
            length += len(value)
            _check_size(length)
        elif not line and data:
            yield StreamEvent(event_id, kind or "message", _document("\n".join(data)))
            event_id, kind, data, length = "", "", [], 0


def _check_size(length: int) -> None:
    if length > MAX_EVENT_BYTES:
        raise AgentDefectError(f"unexpected response: an event of more than {MAX_EVENT_BYTES >> 20} MiB")


def _document(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise AgentDefectError(f"unexpected response: an event that is not JSON ({error})") from error
