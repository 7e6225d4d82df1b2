"""What the embedded journals make of a topic's settings: texts to compare, and which records a size limit keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mailboat.config.topic_settings import TopicSettings
from mailboat.journal.port import TopicDifference
from mailboat.model.identifiers import Offset

WITHOUT_LIMIT: Final = "none"


def settings_as_text(settings: TopicSettings) -> dict[str, str]:
    """The settings that an embedded journal keeps with a topic, for people."""
    return {
        "retention_seconds": _text(settings.retention_seconds),
        "retention_bytes": _text(settings.retention_bytes),
        "max_message_bytes": _text(settings.max_message_bytes),
    }


def differences_of(wanted: TopicSettings, found: Mapping[str, str]) -> Sequence[TopicDifference]:
    """Where the settings of a topic are not those that are wanted."""
    return [
        TopicDifference(name, text, found.get(name))
        for name, text in settings_as_text(wanted).items()
        if found.get(name) != text
    ]


def first_within(newest_first: Iterable[tuple[int, int]], kept_bytes: int, end: Offset) -> Offset:
    """The first offset to keep for at most `kept_bytes`; the newest record always stays.

    Args:
        newest_first: Offset and size of each record, read only until the limit is reached.
        kept_bytes: The limit.
        end: What is answered where there is no record.
    """
    first, total_bytes = end, 0
    for offset, size_bytes in newest_first:
        total_bytes += size_bytes
        if total_bytes > kept_bytes and first != end:
            break
        first = Offset(offset)
    return first


def _text(value: float | None) -> str:
    return WITHOUT_LIMIT if value is None else str(int(value) if value == int(value) else value)
