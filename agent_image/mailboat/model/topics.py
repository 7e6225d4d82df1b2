"""Default names of topics: those of their roles."""

from __future__ import annotations

from typing import Final

from mailboat.model.identifiers import TopicName
from mailboat.model.messages import TopicRole

PACKAGE_TOPIC: Final = TopicName(TopicRole.PACKAGE)
STATUS_TOPIC: Final = TopicName(TopicRole.STATUS)
DISCOVERY_TOPIC: Final = TopicName(TopicRole.DISCOVERY)
EVENT_TOPIC: Final = TopicName(TopicRole.EVENT)
JOB_TOPIC: Final = TopicName("job")
"""The log of durable jobs. It is created when it is first used, and never expires by time: checkpoints bound it."""
