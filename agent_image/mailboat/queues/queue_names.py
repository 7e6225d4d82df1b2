"""Names that people and programs see: of subscriber agents, of their queues, and of the entries in them.

The forms are those of Sling, so that its recipes work: a queue has the name of its subscriber agent,
`<sling id>-<agent name>`, its error queue ends in `-error`, and an entry is `<topic>-<partition>@<offset>`. Offsets are
64 bits wide here; Sling reads them as 32.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from mailboat.errors import UsageError
from mailboat.model.identifiers import SLING_ID_LENGTH, AgentName, Offset, SlingId, TopicName, parse_agent_name

_ENTRY: Final = re.compile(r"([A-Za-z0-9._-]{1,249})-([0-9]{1,10})@([0-9]{1,19})", re.ASCII)
_LARGEST_OFFSET: Final = 2**63 - 1
ERROR_SUFFIX: Final = "-error"
_SHOWN: Final = 80


class EntryId(NamedTuple):
    """A place in a queue: the topic and the offset of the package. Our topics have the partition 0 only."""

    topic: TopicName
    offset: Offset

    def __str__(self) -> str:
        return f"{self.topic}-0@{self.offset}"


class QueueName(NamedTuple):
    """A queue: whose it is, and whether it is the one of the packages that were given up."""

    sling_id: SlingId
    agent_name: AgentName
    is_error_queue: bool = False

    def __str__(self) -> str:
        return f"{self.sling_id}-{self.agent_name}{ERROR_SUFFIX if self.is_error_queue else ''}"


def parse_entry_id(text: str) -> EntryId:
    """The entry that a text names. Raises: UsageError."""
    match = _ENTRY.fullmatch(text)
    if match is None or int(match[2]) or int(match[3]) > _LARGEST_OFFSET:
        raise UsageError(f"{text[:_SHOWN]!r} is not a queue entry; expected <topic>-0@<offset>")
    return EntryId(TopicName(match[1]), Offset(int(match[3])))


def parse_queue_name(text: str) -> QueueName:
    """The queue that a text names; a name that ends in `-error` is an error queue's. Raises: UsageError.

    The id has exactly 36 characters, so agent names may contain dashes (SLING-8525).
    """
    sling_id, dash, agent_name = text[:SLING_ID_LENGTH], text[SLING_ID_LENGTH:][:1], text[SLING_ID_LENGTH + 1 :]
    if dash != "-":
        raise UsageError(
            f"{text[:_SHOWN]!r} is not a queue; expected <id of {SLING_ID_LENGTH} characters>-<agent name>"
        )
    name = parse_agent_name(agent_name.removesuffix(ERROR_SUFFIX))
    return QueueName(SlingId(sling_id), name, agent_name.endswith(ERROR_SUFFIX))
