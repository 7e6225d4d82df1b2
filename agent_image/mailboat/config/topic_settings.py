"""How the topics of a configuration are kept: pure decisions, for the engine and for the operator that makes topics.

Only what a journal needs is named here; everything else is the brokers' default, or the operator's choice, and stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mailboat.config.document import Config, is_head_kept
from mailboat.config.storage import RetentionConfig, TopicRetentionConfig
from mailboat.frozen import Frozen
from mailboat.model.messages import TopicRole

MAX_MESSAGE: Final = "max.message.bytes"
MIN_INSYNC: Final = "min.insync.replicas"

BATCH_BYTES: Final = 128 * 1024
"""What a producer sends as one batch at most, unless a single record is larger. No topic's limit may be below."""

ROOM_BYTES: Final = 16 * 1024
"""Room in a record for all but its value: key, headers and the log's own framing."""

_SMALLEST_LIMIT_BYTES: Final = 2 * BATCH_BYTES
"""A topic takes at least what the producer sends at once; smaller limits are kept by the process that asked."""

_SMALL_MESSAGE_BYTES: Final = 256 * 1024  # of statuses, commands and announcements, which hold no content
_LARGE_MESSAGE_BYTES: Final = 1_000_000
_ANNOUNCEMENTS_BYTES: Final = 64 * 1024 * 1024  # only the newest of each subscriber counts
_SLACK_SECONDS: Final = 3600.0  # no publisher takes longer from a package's first piece to its message
_SLACK_SHARE: Final = 4  # a package larger than that share of all that is kept would be cut by the brokers
_LONGEST_SEGMENT_MS: Final = 7 * 24 * 3600 * 1000
_SHORTEST_SEGMENT_MS: Final = 60_000
_LARGEST_SEGMENT_BYTES: Final = 1024 * 1024 * 1024
_SMALLEST_SEGMENT_BYTES: Final = 4 * 1024 * 1024
_PARTS: Final = 4  # of what is kept; brokers remove whole segments, so up to one part more stays


class TopicSettings(Frozen):
    """How a topic is kept.

    Attributes:
        retention_seconds: Records older than this may be removed; None keeps them.
        max_message_bytes: The largest value that `append` takes.
        retention_bytes: When the topic holds more, its oldest records may be removed; None sets no limit. A log that
            removes whole segments keeps somewhat more.
    """

    retention_seconds: float | None = 7 * 24 * 3600.0
    max_message_bytes: int = _LARGE_MESSAGE_BYTES
    retention_bytes: int | None = None


JOB_TOPIC_SETTINGS: Final = TopicSettings(retention_seconds=None)
"""Checkpoints bound the topic of jobs, never time: a queued job must not expire."""


def settings_of(role: TopicRole, config: Config) -> TopicSettings:
    """How a topic of a configuration is kept."""
    return topic_settings(role, config.retention, is_head_kept=is_head_kept(config))


def topic_settings(role: TopicRole, retention: RetentionConfig, *, is_head_kept: bool = False) -> TopicSettings:
    """How a topic is kept, as fits what it carries.

    Args:
        role: Of the topic.
        retention: What the configuration says.
        is_head_kept: Whether agents move the head of the package topic to borders of whole packages, so that a log
            that removes expired messages has to come after them.
    """
    kept = topic_retention(role, retention)
    is_later = is_head_kept and role is TopicRole.PACKAGE
    return TopicSettings(
        retention_seconds=_later(kept.seconds) if is_later else kept.seconds,
        retention_bytes=_larger(kept.bytes) if is_later else kept.bytes,
        max_message_bytes=largest_message_bytes(role),
    )


def largest_message_bytes(role: TopicRole) -> int:
    """The largest message that a topic takes."""
    return _LARGE_MESSAGE_BYTES if role in {TopicRole.PACKAGE, TopicRole.EVENT} else _SMALL_MESSAGE_BYTES


def topic_retention(role: TopicRole, retention: RetentionConfig) -> TopicRetentionConfig:
    """How long a topic keeps its messages."""
    own = {
        TopicRole.PACKAGE: TopicRetentionConfig(retention.package_seconds, retention.package_bytes),
        TopicRole.STATUS: retention.status,
        TopicRole.DISCOVERY: retention.discovery,
        TopicRole.COMMAND: retention.command,
        TopicRole.EVENT: retention.event,
    }[role]
    if own is not None:
        return own
    return TopicRetentionConfig(retention.status_seconds, _ANNOUNCEMENTS_BYTES if role is TopicRole.DISCOVERY else None)


def kafka_settings_of(settings: TopicSettings, min_insync_replicas: int | None) -> Mapping[str, str]:
    """What a topic with these settings needs of the brokers, by Kafka's own names."""
    found = {
        "cleanup.policy": "delete",  # never compacted: Sling's agents write records without keys
        "retention.ms": str(-1 if settings.retention_seconds is None else int(settings.retention_seconds * 1000)),
        "retention.bytes": str(-1 if settings.retention_bytes is None else settings.retention_bytes),
        "segment.ms": str(_segment_ms(settings)),
        "segment.bytes": str(_segment_bytes(settings)),
        "message.timestamp.type": "LogAppendTime",
        MAX_MESSAGE: str(max(settings.max_message_bytes + ROOM_BYTES, _SMALLEST_LIMIT_BYTES)),
    }
    return found if min_insync_replicas is None else {**found, MIN_INSYNC: str(min_insync_replicas)}


def _later(seconds: float | None) -> float | None:
    return None if seconds is None else seconds + _SLACK_SECONDS


def _larger(size_bytes: int | None) -> int | None:
    return None if size_bytes is None else size_bytes + size_bytes // _SLACK_SHARE


def _segment_ms(settings: TopicSettings) -> int:
    """A segment may not take longer to fill than a part of the time that its records are kept."""
    if settings.retention_seconds is None:
        return _LONGEST_SEGMENT_MS
    return min(max(int(settings.retention_seconds * 1000) // _PARTS, _SHORTEST_SEGMENT_MS), _LONGEST_SEGMENT_MS)


def _segment_bytes(settings: TopicSettings) -> int:
    if settings.retention_bytes is None:
        return _LARGEST_SEGMENT_BYTES
    smallest = max(_SMALLEST_SEGMENT_BYTES, 2 * settings.max_message_bytes)
    return min(max(settings.retention_bytes // _PARTS, smallest), _LARGEST_SEGMENT_BYTES)
