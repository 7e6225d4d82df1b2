"""What a topic's settings are on Kafka: pure decisions, by Kafka's own names, and how a topic differs from them.

Only what a journal needs is named here; everything else is the brokers' default, or the operator's choice, and stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mailboat.journal.kafka_settings import BATCH_BYTES
from mailboat.journal.port import TopicDifference, TopicSettings

MAX_MESSAGE: Final = "max.message.bytes"
MIN_INSYNC: Final = "min.insync.replicas"

ROOM_BYTES: Final = 16 * 1024
"""Room in a record for all but its value: key, headers and the log's own framing."""

_SMALLEST_LIMIT_BYTES: Final = 2 * BATCH_BYTES
"""A topic takes at least what the producer sends at once; smaller limits are kept by the process that asked."""

_LONGEST_SEGMENT_MS: Final = 7 * 24 * 3600 * 1000
_SHORTEST_SEGMENT_MS: Final = 60_000
_LARGEST_SEGMENT_BYTES: Final = 1024 * 1024 * 1024
_SMALLEST_SEGMENT_BYTES: Final = 4 * 1024 * 1024
_PARTS: Final = 4  # of what is kept; brokers remove whole segments, so up to one part more stays


class TopicPlan(NamedTuple):
    """How a topic is to be kept.

    Attributes:
        configuration: Its settings by Kafka's names.
        replicas: How many copies; None leaves it to the brokers.
    """

    configuration: Mapping[str, str]
    replicas: int | None


def plan_topic(settings: TopicSettings, replicas: int | None, min_insync_replicas: int | None) -> TopicPlan:
    """What a topic with these settings needs of the brokers."""
    configuration = {
        "cleanup.policy": "delete",  # never compacted: Sling's agents write records without keys
        "retention.ms": str(-1 if settings.retention_seconds is None else int(settings.retention_seconds * 1000)),
        "retention.bytes": str(-1 if settings.retention_bytes is None else settings.retention_bytes),
        "segment.ms": str(_segment_ms(settings)),
        "segment.bytes": str(_segment_bytes(settings)),
        "message.timestamp.type": "LogAppendTime",
        MAX_MESSAGE: str(max(settings.max_message_bytes + ROOM_BYTES, _SMALLEST_LIMIT_BYTES)),
    }
    if min_insync_replicas is not None:
        configuration[MIN_INSYNC] = str(min_insync_replicas)
    return TopicPlan(configuration, replicas)


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


def differences_of(plan: TopicPlan, found: Mapping[str, str | None], replicas: int) -> Sequence[TopicDifference]:
    """Where a topic is not as planned.

    Args:
        plan: What is wanted.
        found: The topic's configuration.
        replicas: How many copies it has.
    """
    differences = [
        TopicDifference(name, value, found.get(name))
        for name, value in plan.configuration.items()
        if found.get(name) != value
    ]
    needed = int(plan.configuration.get(MIN_INSYNC) or found.get(MIN_INSYNC) or 1)
    if plan.replicas is not None and replicas != plan.replicas:
        differences.append(TopicDifference("replicas", str(plan.replicas), str(replicas)))
    elif replicas < needed:  # no append would ever be acknowledged
        differences.append(TopicDifference("replicas", f"{needed} or more", str(replicas)))
    return differences
