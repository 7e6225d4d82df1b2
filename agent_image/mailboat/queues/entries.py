"""Entries of queues: what is kept of a package message, and where it comes from.

The payload is not kept, and of the paths only the first and their number; the others are in the message itself.
TEST messages and messages without a publisher agent are no entries (they change no content), nor are those that can't
be decoded; the latter are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from mailboat.journal.port import Record
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import Action, PackageMessage
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.messages import readable_message

MAX_TEXT_BYTES: Final = 80
"""Longer paths, user names and foreign package ids are cut in lists, at a character's border, and end in `…`."""


class QueueEntry(NamedTuple):
    """A package in the log, as queues show it.

    Attributes:
        offset: Its place in the package topic.
        publisher: The publisher agent.
        package_id: What identifies it.
        action: ADD, DELETE or INVALIDATE.
        length_bytes: Size of the package.
        appended_ms: When the log took it, milliseconds since 1970 UTC.
        first_path: The first path of the request, cut to `MAX_TEXT_BYTES`; empty if absent.
        path_count: How many paths the request has.
        user_id: Caller of the request; empty when the message has none.
    """

    offset: Offset
    publisher: AgentName
    package_id: PackageId
    action: Action
    length_bytes: int
    appended_ms: int
    first_path: str = ""
    path_count: int = 0
    user_id: str = ""


class DecodedRecords(NamedTuple):
    """The entries among some records, in order, how many could not be decoded, and where pieces of packages stand."""

    entries: Sequence[QueueEntry]
    unreadable_count: int
    pieces: Sequence[Offset] = ()


def readable_package(record: Record | None) -> PackageMessage | None:
    """The package message of a record; None for no record, another message, or one that can't be decoded."""
    message = None if record is None else readable_message(record.headers, record.value)
    return message if isinstance(message, PackageMessage) else None


def decode_entries(records: Iterable[Record], publishers: Collection[AgentName] | None) -> DecodedRecords:
    """The entries of these publishers among the records; None takes those of all."""
    entries: list[QueueEntry] = []
    pieces: list[Offset] = []
    unreadable_count = 0
    for record in records:
        # Known by its headers alone: decoding a piece would copy its content, and a package may have thousands.
        if record.headers == PIECE_HEADERS:
            pieces.append(record.offset)
            continue
        message = readable_message(record.headers, record.value)
        if message is None:
            unreadable_count += 1
        elif isinstance(message, PackageMessage) and message.action is not Action.TEST:
            publisher = message.pub_agent_name
            if publisher is not None and (publishers is None or publisher in publishers):
                entries.append(_entry(record, message, publisher))
    return DecodedRecords(entries, unreadable_count, pieces)


def cut_text(text: str) -> str:
    """The text within `MAX_TEXT_BYTES` of UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_TEXT_BYTES:
        return text
    # Three bytes are those of `…`; what is left of a divided character is ignored.
    return data[: MAX_TEXT_BYTES - 3].decode("utf-8", "ignore") + "…"


def _entry(record: Record, message: PackageMessage, publisher: AgentName) -> QueueEntry:
    return QueueEntry(
        record.offset,
        publisher,
        PackageId(cut_text(message.package_id)),
        message.action,
        message.package_length_bytes,
        record.appended_ms,
        cut_text(message.paths[0]) if message.paths else "",
        len(message.paths),
        cut_text(message.user_id or ""),
    )
